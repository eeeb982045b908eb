"""What a site reads of its own files: only what the config names and the site's policy allows."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedsaddle.config.schema import Config
from fedsaddle.data.tables.columns import MissingColumn, shown, summarised
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.judge import by_content, by_name
from fedsaddle.data.tables.site_file import HeldOutShares, SiteFile, SitePictures, SiteRows, Source
from fedsaddle.data.tables.small_cells import Disclosure
from fedsaddle.deployment.project import require_named_columns
from fedsaddle.deployment.site_policy import FILE as POLICY
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.errors import BadInput, Refused
from fedsaddle.text import visible

log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class SiteSettings:
    """A site's name, the paths of its rows, and the folder of its client's memory.

    Args:
        name: of the site.
        data: path of its table.
        folder: of its runs.
        test_data: path of a table with test rows.
    """

    name: str
    data: Path
    folder: Path
    test_data: Path | None = None


def read_rows(config: Config, settings: SiteSettings, policy: SitePolicy) -> SiteRows:
    """The site's rows; `Refused` gives a reason that reveals nothing of the files."""
    try:
        require_named_columns(config, [settings.data])
    except BadInput as reason:  # of the config alone
        raise Refused(str(reason)) from None
    rows = without_identifiers(_read(config, settings), policy)
    for note in summarised(rows.notes):
        log.info("%s", visible(note))
    if rows.count("train") < policy.minimum_rows:
        raise policy.broken("minimum_rows", policy.minimum_rows, "the file here has fewer training rows")
    measured, small = rows.with_parts_of(policy.minimum_rows)
    for part in small:
        log.warning("%s rows are not measured: fewer than minimum_rows = %d", part, policy.minimum_rows)
    return measured


def without_identifiers(rows: SiteRows, policy: SitePolicy) -> SiteRows:
    """The rows without identifying columns, unless the policy of the site lists them."""
    features = rows.sources[0].features
    if not isinstance(features, TableFeatures):
        return rows
    allowed = {*(policy.columns or ()), *features.how.categories}  # values in the config are public
    out = {}
    for column in features.columns:
        if column.name not in allowed and (reason := by_name(column.name) or by_content(column)):
            out[column.name] = reason
    if not out:
        return rows
    for name, reason in out.items():
        notice = f"column {shown(name)} is left out: {reason}; list it in `columns` of {POLICY} to allow it"
        log.warning("%s", visible(notice))
    if len(out) == len(features.columns):
        some = ", ".join(map(shown, list(out)[:5]))
        raise Refused(f"all columns of the run look like identifiers here ({some}); see the site's log")

    def kept(source: Source) -> Source:
        own = source.features
        assert isinstance(own, TableFeatures)
        return replace(source, features=replace(own, columns=tuple(c for c in own.columns if c.name not in out)))

    return replace(rows, sources=tuple(map(kept, rows.sources)), left_out=(*rows.left_out, *out))


def _read(config: Config, settings: SiteSettings) -> SiteRows:
    given = config.data
    file: SiteFile | SitePictures
    if given.name == "file":
        file = SiteFile.of_options(given.options())
    elif given.name == "pictures":
        file = SitePictures.of_options(given.options())
    else:
        file = SiteFile.encoded_already()
    seed = seed_of(config.run.seed, settings.name)
    shares = HeldOutShares(given.test_share, given.validation_share, seed, given.stratify)
    try:
        return file.read(settings.data, shares, settings.test_data)
    except MissingColumn as reason:  # a name of the config, so it is no secret
        remedy = "add it, or list it in optional_columns"
        raise Refused(f"the file here has no column {reason.value!r} ({reason.key}); {remedy}") from reason
    except Exception as reason:
        log.error("the data file cannot be read: %s", reason)
        why = why_unreadable((settings.data, settings.test_data), reason)
        raise Refused(f"cannot read its data file: {why}; see the site's log") from reason


def seed_of(seed: int, site: str) -> int:
    """The seed of a site's held-out rows; it differs between sites, so that they do not all round the same way."""
    return int.from_bytes(hashlib.sha256(f"{seed} {site}".encode()).digest()[:4])


def label_disclosure(config: Config, least: int = 1) -> Disclosure:
    """What a site may disclose of its labels: counts of at least `least`, and names that the config has anyway."""
    name, options = config.data.name, config.data.options()
    given = options if name in ("file", "pictures") else {}
    task = "classes" if name == "pictures" else str(given.get("task", "auto"))
    return Disclosure(least, tuple(map(str, given.get("classes") or ())), given.get("positive"), task)


def why_unreadable(paths: Sequence[Path | None], reason: Exception) -> str:
    """Why a file is unreadable, without its name or content."""
    for path in paths:
        if path is not None and not path.exists():
            return "no such file"
        if path is not None and path.is_dir():
            return "it is a folder"
    cause = reason if isinstance(reason, OSError) else reason.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(reason, MemoryError):
        return "it does not fit into memory"
    return "it is not a table as the config describes it"
