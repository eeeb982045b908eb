"""Before the first round: sites send facts, counts and keys, and all agree on config, encoding and algorithm."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.build import build_algorithm, cast, precision
from fedsaddle.config.schema import Config
from fedsaddle.data.cautions import SitesSeen, cautions_of_sites
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.data.tables.agreed_encoding import (
    Agreed,
    AgreedColumns,
    CategoryColumn,
    SiteCounts,
    SiteFacts,
    encoding_of,
    label_counts,
    merge_arrays,
    merge_labels,
    odd_one_out,
)
from fedsaddle.data.tables.site_file import SiteFile
from fedsaddle.data.tables.treatment import NumberFacts
from fedsaddle.deployment.audit import traceback_lines
from fedsaddle.deployment.courier import Check, Courier
from fedsaddle.deployment.messages import Answer, KeyTold, read_counts, read_payload
from fedsaddle.deployment.site_policy import module_digests
from fedsaddle.deployment.site_rows import label_disclosure
from fedsaddle.errors import BadCheckpoint, BadInput, BadMessage, FedSaddleError
from fedsaddle.files import read_object, write_json
from fedsaddle.runs.checkpoints import versions
from fedsaddle.runs.folder import RunFolder
from fedsaddle.secure.fixed_point import LEAST_SITES
from fedsaddle.secure.keys import require_cryptography

VERSIONS = "versions"  # the key of the versions among the digests
SITE_KEYS = {
    "path",
    "test_path",
    "folder",
    "test_share",
    "validation_share",
}  # keys of [data] that may differ between sites


def digests(config: Config) -> dict[str, str]:
    """Section -> digest of the keys that affect a task; and the versions here, in words."""
    sections: dict[str, Any] = {
        "data": {k: v for k, v in config.data.model_dump(mode="json").items() if k not in SITE_KEYS},
        "model": config.model.model_dump(mode="json"),
        "problem": config.problem.model_dump(mode="json"),
        "algorithm": config.algorithm.model_dump(mode="json"),
        "run": {"seed": config.run.seed, "dtype": config.run.dtype},
        "privacy": config.privacy.model_dump(mode="json"),
    }
    if modules := module_digests(config):  # all must run the same code
        sections["modules"] = modules
    found = {k: hashlib.sha256(json.dumps(v, sort_keys=True).encode()).hexdigest()[:16] for k, v in sections.items()}
    return {VERSIONS: versions()[:64], **found}


def difference(own: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first section that differs; empty if all are equal."""
    return next((section for section in own if own[section] != other.get(section)), "")


def placeholder_data(agreed: Agreed, names: tuple[str, ...]) -> FederatedData:
    """A row of zeros for each class, however many rows the sites say they have."""
    encoding, classes = encoding_of(agreed), agreed["classes"]
    shape = (len(encoding),) if encoding else tuple(agreed["array"]["shape"])
    y = torch.zeros(2) if classes is None else torch.arange(len(classes))
    x = torch.zeros(1, *shape).expand(len(y), *shape)
    rows = Stacked(x, y, np.array([0, len(y)], dtype=np.int64))
    features = tuple(feature.name for feature in encoding)
    return FederatedData("sites", rows, None, names, tuple(classes or ()), features, encoding=encoding)


def build_from(config: Config, agreed: Agreed, names: tuple[str, ...]) -> tuple[Algorithm[Any], FederatedData]:
    """Build the algorithm from the shared encoding; return it with its placeholder data."""
    data = placeholder_data(agreed, names)
    if config.data.positives_per_batch is not None:
        data = data.balanced(config.data.positives_per_batch)
    with precision(config.run.dtype):
        return build_algorithm(config, data, agreed["counts"])[0], cast(data, config.run.dtype)


T = TypeVar("T")
log = logging.getLogger("fedsaddle.server")


@dataclass(frozen=True)
class Agreement:
    """What server and sites share: rows per part and site, the encoding, and what the user should know.

    Args:
        sizes: "rows", "validation_rows", "test_rows" -> of each site.
        encoding: classes and features, as `AgreedEncoding`.
        notes: lines for the user.
        minimum_sites: that an average must be of: the most that any site's policy asks for.
        new: False: read from the folder of a run that goes on.
        told: of each site; none for a trial of a study.
    """

    sizes: dict[str, list[int]]
    encoding: Agreed
    notes: tuple[str, ...] = ()
    minimum_sites: int = 1
    new: bool = True
    told: tuple[SiteFacts, ...] = ()


def agree_on_encoding(courier: Courier, config: Config, run: str, folder: RunFolder) -> Agreement:
    """Collect the facts of all sites and make the shared encoding; a resumed run uses the stored one."""
    path, names = folder.agreed, courier.names
    if path.exists():
        try:
            stored = read_object(path)
            theirs = stored["names"]
            least = int(stored.get("minimum_sites", 1))
            before = tuple(SiteFacts.model_validate(one) for one in stored.get("told", ()))
            found = Agreement(stored["sizes"], stored["agreed"], tuple(stored["notes"]), least, new=False, told=before)
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
    found = Agreement(sizes, encoding, tuple(notes), least, told=tuple(told))
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
        agreed = merge_labels(told, names, label_disclosure(self.config), target)
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

        def check(client: int, answer: Answer, record: object) -> SiteCounts:
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


def _ask(courier: Courier, do: str, run: str, payload: Mapping[str, object], check: Check[T]) -> list[T]:
    """The valid answers of all sites, in order; a malformed one is a fault of its site."""
    replies = courier.request(do, run, payload, everyone=True, check=check)
    return [replies[i] for i in range(len(courier.names))]


FILE = "keys.json"  # in the run's folder: public keys only


def require_secure(names: tuple[str, ...], algorithm: object) -> None:
    """Raise `BadInput` if the sums of a run would be of fewer than three sites."""
    require_cryptography()
    remedy = f"secure aggregation needs at least {LEAST_SITES} in each sum"
    if len(names) < LEAST_SITES:
        raise BadInput("sites", len(names), remedy)
    sampled = getattr(algorithm, "sampled_clients", None)
    if isinstance(sampled, int) and sampled < LEAST_SITES:
        raise BadInput("algorithm.sampled_clients", sampled, remedy)


def collect_keys(courier: Courier, config: Config, run: str, folder: RunFolder) -> dict[str, Any]:
    """The signed keys of all sites, as the sites check them; a resumed run uses the stored ones."""
    path, names = folder.path / FILE, courier.names
    if path.exists():
        try:
            stored = read_object(path)
            return {name: read_payload(KeyTold, stored[name]).model_dump() for name in names}
        except (ValueError, KeyError, BadMessage) as reason:
            raise BadCheckpoint(f"{path} is damaged ({reason}); start a new run") from None
    payload = {"config": digests(config), "names": list(names)}
    told = courier.request(
        "keys", run, payload, everyone=True, check=lambda _, __, record: read_payload(KeyTold, record)
    )
    keys = {name: told[i].model_dump() for i, name in enumerate(names)}
    folder.path.mkdir(parents=True, exist_ok=True)
    write_json(path, keys)
    return keys


class MissingCells(NamedTuple):
    """Of a column: the share of missing cells among all training rows, and at each site that reports any."""

    share: float
    sites: dict[str, float]


def missing_told(told: Sequence[SiteFacts], names: Sequence[str]) -> dict[str, MissingCells]:
    """The columns with missing cells that a site reports; counts below `minimum_cell` are suppressed.

    Args:
        told: The facts of each site.
        names: Of the sites.
    """
    rows = sum(facts.rows for facts in told)
    counts: dict[str, dict[str, int]] = {}
    for name, facts in zip(names, told, strict=True):
        for column in facts.columns:
            if column.missing:
                counts.setdefault(column.name, {})[name] = column.missing
    sizes = {name: facts.rows for name, facts in zip(names, told, strict=True)}
    return {
        column: MissingCells(
            sum(own.values()) / rows, {name: round(missing / sizes[name], 4) for name, missing in own.items()}
        )
        for column, own in counts.items()
    }
