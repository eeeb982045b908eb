"""The exchanges before the first round: sites say facts of their rows, then counts; the server makes the encoding."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from fedsaddle.atomic import write_json
from fedsaddle.config.schema import Config
from fedsaddle.data.cautions import SitesSeen, cautions_of_sites
from fedsaddle.data.files.agreed_encoding import (
    Agreed,
    AgreedColumns,
    label_counts,
    merge_arrays,
    merge_labels,
    odd_one_out,
)
from fedsaddle.data.files.column_facts import NumberFacts
from fedsaddle.data.files.site_facts import CategoryColumn, SiteCounts, SiteFacts
from fedsaddle.data.files.site_file import SiteFile
from fedsaddle.deployment.agreement import digests
from fedsaddle.deployment.courier import Check, Courier
from fedsaddle.deployment.logs import traceback_lines
from fedsaddle.deployment.messages import Answer
from fedsaddle.deployment.payloads import read_counts, read_payload
from fedsaddle.deployment.site_rows import telling_of
from fedsaddle.errors import BadCheckpoint, BadInput, BadMessage, FedSaddleError
from fedsaddle.runs.folder import RunFolder
from fedsaddle.stored import read_object

T = TypeVar("T")
log = logging.getLogger("fedsaddle.server")


@dataclass(frozen=True)
class Agreement:
    """What server and sites share: rows per part and site, the encoding, and what the user should know."""

    sizes: dict[str, list[int]]  # "rows", "validation_rows", "test_rows" -> of each site
    encoding: Agreed
    notes: tuple[str, ...] = ()
    minimum_sites: int = 1  # that an average must be of: the most that any site's policy asks for
    new: bool = True  # False: read from the folder of a run that goes on


def agree_on_encoding(courier: Courier, config: Config, run: str, folder: RunFolder) -> Agreement:
    """Collect the facts of all sites and make the shared encoding; a resumed run uses the stored one."""
    path, names = folder.agreed, courier.names
    if path.exists():
        try:
            stored = read_object(path)
            theirs = stored["names"]
            least = int(stored.get("minimum_sites", 1))
            found = Agreement(stored["sizes"], stored["agreed"], tuple(stored["notes"]), least, new=False)
        except (ValueError, KeyError, TypeError) as reason:
            raise BadCheckpoint(f"{path} is damaged ({reason}); start a new run") from None
        if tuple(theirs) != names:
            raise BadCheckpoint(f"{path} belongs to the sites {theirs}, not {list(names)}; start a new run")
        return found
    payload = {"config": digests(config), "names": list(names)}
    told = _ask(courier, "facts", run, payload, lambda _, __, record: read_payload(SiteFacts, record))
    encoding, notes = _make(_Maker(courier, config, run, told))
    parts = ("rows", "validation_rows", "test_rows")
    sizes, least = {part: [getattr(one, part) for one in told] for part in parts}, max(o.minimum_sites for o in told)
    found = Agreement(sizes, encoding, tuple(notes), least)
    folder.path.mkdir(parents=True, exist_ok=True)
    folder.write_config(config.model_dump(mode="json"))  # first, because the encoding is valid for this config only
    facts = [one.model_dump(mode="json") for one in told]
    about = {"names": names, "sizes": found.sizes, "minimum_sites": least}
    write_json(path, {**about, "agreed": encoding, "notes": notes, "told": facts}, 0o600)
    if "features" in encoding:
        write_json(folder.features, encoding["features"])
    return found


def _make(maker: _Maker) -> tuple[Agreed, list[str]]:
    """The encoding; facts that are each in order but do not go together are an error of one line, too."""
    try:
        return maker.make()
    except (FedSaddleError, KeyboardInterrupt):
        raise
    except (ValueError, ArithmeticError, LookupError, TypeError, MemoryError) as reason:
        log.error("the facts of the sites do not go together: %s", traceback_lines(reason))
        told = f"the facts of the sites do not go together ({type(reason).__name__})"
        raise BadMessage(f"{told}; compare them in the sites' files, see the log, and begin again") from None


@dataclass(frozen=True)
class _Maker:
    """Makes the encoding from facts; asks the sites for counts, if there are columns of numbers."""

    courier: Courier
    config: Config
    run: str
    told: Sequence[SiteFacts]

    def make(self) -> tuple[Agreed, list[str]]:
        """The encoding, and lines for the user."""
        names, told = self.courier.names, self.told
        options = self.config.data.options() if self.config.data.name == "file" else {}
        target = str(self.config.data.options().get("target", "label" if self.config.data.name == "pictures" else "y"))
        agreed = merge_labels(told, names, telling_of(self.config), target)
        sizes = np.array([one.rows for one in told], dtype=np.int64)
        self._same_form()
        if told[0].array is not None:
            agreed["array"] = merge_arrays(told, names)
            seen = SitesSeen(names, sizes, agreed["classes"] or (), self._labels(agreed), digests=self._digests())
            return agreed, cautions_of_sites(seen)
        file = SiteFile.of_options(options)
        columns = AgreedColumns.of(told, names, file.how, file.columns)
        counts = self._counts(columns)
        features = columns.encoding(counts, names, sizes, file.roles.client or "client")
        if not features:
            raise BadInput("features", [], "no column is left to learn from: the training rows have no cell")
        agreed["features"] = [feature.to_dict() for feature in features]
        return agreed, [*columns.notes, *cautions_of_sites(self._seen(agreed, columns, counts, sizes))]

    def _same_form(self) -> None:
        forms = ["a table" if one.array is None else "an .npz file" for one in self.told]
        odd, usual = odd_one_out(forms)
        if odd is not None:
            remedy = f"other sites have {usual}; all sites need a table, or all .npz files"
            raise BadInput(f"data of {self.courier.names[odd]}", forms[odd], remedy)

    def _counts(self, columns: AgreedColumns) -> list[SiteCounts]:
        if not columns.drafts:
            return []
        payload = {"config": digests(self.config), "drafts": [draft.to_dict() for draft in columns.drafts]}

        def check(client: int, answer: Answer, record: Any) -> SiteCounts:
            told = read_counts(record, len(columns.drafts))
            if [sum(counts) for counts in told.counts] != columns.expected(client):
                raise BadMessage("counts that do not sum up to the cells of the columns")
            return told

        return _ask(self.courier, "counts", self.run, payload, check)

    def _labels(self, agreed: Agreed) -> np.ndarray[Any, Any] | None:
        """The rows of two classes at each site."""
        if agreed["classes"] is None or len(agreed["classes"]) != 2:
            return None
        if "positive" not in agreed:
            return label_counts(self.told, agreed["values"])
        return np.array([one.target.positive or (0, 0) for one in self.told], dtype=np.int64)

    def _digests(self) -> list[str]:
        return [one.digest for one in self.told]

    def _categories(self) -> dict[str, list[dict[str, int]]]:
        """Column of categories -> how often each occurs at each site."""
        own = [{c.name: c.counts for c in one.columns if isinstance(c, CategoryColumn)} for one in self.told]
        return {name: [one.get(name, {}) for one in own] for name in dict.fromkeys(n for one in own for n in one)}

    def _seen(
        self, agreed: Agreed, columns: AgreedColumns, counts: Sequence[SiteCounts], sizes: np.ndarray[Any, Any]
    ) -> SitesSeen:
        facts = [column for column in columns.columns if isinstance(column, NumberFacts)]
        means = [
            ((own.logs if draft.log else own.plain).mean - draft.mean) / draft.std
            for draft, own in zip(columns.drafts, facts, strict=True)
        ]
        seen = SitesSeen(
            self.courier.names,
            sizes,
            agreed["classes"] or (),
            self._labels(agreed),
            categories=self._categories(),
            digests=self._digests(),
        )
        if not facts:
            return seen
        cells = np.stack([own.count for own in facts], axis=1)
        bins = [np.array([one.counts[k] for one in counts], dtype=np.int64) for k in range(len(facts))]
        return replace(seen, numbers=columns.drafts, means=np.stack(means, axis=1), cells=cells, facts=facts, bins=bins)


def _ask(courier: Courier, do: str, run: str, payload: Mapping[str, Any], check: Check[T]) -> list[T]:
    """The valid answers of all sites, in order; a malformed one is a fault of its site."""
    replies = courier.request(do, run, payload, everyone=True, check=check)
    return [replies[i] for i in range(len(courier.names))]
