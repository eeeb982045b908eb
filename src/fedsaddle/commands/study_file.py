"""study.toml from a sample: the study that `fedsaddle run TABLE` does, written out so that sites can agree to it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedsaddle.config.schema import DataSection, PrivacySection
from fedsaddle.config.toml_files import toml_string
from fedsaddle.errors import BadInput
from fedsaddle.secure.fixed_point import LEAST_SITES
from fedsaddle.studies.candidates import Facts, candidates
from fedsaddle.studies.recipes import TEST_SHARE, VALIDATION_SHARE
from fedsaddle.studies.study_plan import StudyPlan, StudySection, plan_of
from fedsaddle.studies.table_config import HINGES, TableConfig

if TYPE_CHECKING:
    import pandas as pd

MINIMUM_CELL = 5
MOST_SITES = 50  # that a sample may name
SITE = "site"  # the column of made-up sites, where the sample has none
COMMENTS = {
    "aim": "or average-precision, partial-auroc, accuracy",
    "looks": "at the test rows, when all is decided",
    "alone": "each site also trains on its own rows, to compare",
}


def study_text(
    sample: Path,
    label: str,
    site: str | None,
    patient: str | None,
    numeric: Sequence[str],
    categorical: Sequence[str],
    left_out: Mapping[str, str],
    sites: int | None,
) -> tuple[str, list[str]]:
    """The file for a sample whose columns were judged, and names for the sites.

    Args:
        sample: a table like those of the sites; its rows need not be real.
        label: its column of labels.
        site: its column of sites, if it has one.
        patient: its column of patients, if it has one.
        numeric: columns of numbers that sites may read.
        categorical: columns of categories that sites may read.
        left_out: all others, and why.
        sites: how many sites the study will have; None: those of the sample, or three.
    """
    table = TableConfig(
        sample if site is not None else _with_sites(sample, sites or 3), site or SITE, label, patient=patient,
        numeric=tuple(numeric), categorical=tuple(categorical), drop=tuple(left_out),
    )  # fmt: skip
    table.refuse_two_roles()
    dataset = table.dataset()
    data = table.federated(dataset)
    names = [f"site-{i}" for i in range(1, sites + 1)] if sites is not None else site_names(data.names)
    hinges = any(feature.kind == "hinge" for feature in data.encoding)
    facts = replace(Facts.of(data), clients=len(names))
    every = candidates(facts, "auroc")
    single = [c.name for c in every if c.problem.get("name") == "pairwise"]
    listed = [c if c.grows else replace(c, evaluations=0, patience=None) for c in every if c.name not in single]
    given: dict[str, Any] = {"name": "file", "target": label, "positive": dataset.train.classes[1]}
    given |= {"client": site} if site is not None else {}
    given |= {"together": patient} if patient is not None else {}
    given["features"] = [*numeric, *categorical]
    given |= {"numeric": list(numeric)} if numeric else {}
    given |= {"categorical": list(categorical)} if categorical else {}
    given |= {"hinges": HINGES} if hinges else {}
    given["site_intercept"] = True
    section = DataSection(
        test_share=TEST_SHARE, validation_share=VALIDATION_SHARE, stratify=True, minimum_cell=MINIMUM_CELL, **given
    )
    privacy = PrivacySection(secure_aggregation=True) if len(names) >= LEAST_SITES else PrivacySection()
    plan = StudyPlan(StudySection(), section, privacy, tuple(listed))
    plan_of(plan.content())
    head, mark, rest = plan.to_toml(COMMENTS).partition("\n[[candidates]]")
    return head + _comments(left_out, facts.rows, single) + mark + rest, names


def _comments(left_out: Mapping[str, str], rows: int, single: Sequence[str]) -> str:
    lines = [f"# Penalties below are for {rows:,} training rows, those of the sample."]
    if left_out:
        lines += [
            "# Left out of [data], so that sites do not read them; to read one, add it to `features` and, if it looks"
        ]
        lines += ["# like an identifier, to `columns` of each site's policy:"]
        lines += [f"#   {toml_string(name):<28} {why}" for name, why in left_out.items()]
    if single:
        lines += [f"# Not tried, because sites would send scores of single rows: {', '.join(single)}"]
    return "\n".join(["", *lines, ""])


def site_names(values: Sequence[str]) -> list[str]:
    """The sites of a sample as names of a deployment; numbered ones where these would not do.

    Examples:
        >>> site_names(["St. Mary", "North 1"]), site_names(["A", "a"])
        (['st-mary', 'north-1'], ['site-1', 'site-2'])
    """
    names = [re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-")[:60].strip("-") for value in values]
    usable = all(names) and len(set(names)) == len(names) and 2 <= len(names) <= MOST_SITES
    return names if usable else [f"site-{i}" for i in range(1, min(max(len(names), 2), MOST_SITES) + 1)]


def _with_sites(sample: Path, sites: int) -> pd.DataFrame:
    """The rows of a sample without sites, partitioned into a number of sites."""
    import pandas as pd

    try:
        read = {".parquet": pd.read_parquet, ".xlsx": pd.read_excel}.get(sample.suffix.lower())
        frame = pd.read_csv(sample, dtype=str, keep_default_na=False) if read is None else read(sample)
    except (OSError, ValueError) as reason:
        raise BadInput("--sample", str(sample), f"cannot be read: {reason}") from None
    if SITE in frame.columns:
        raise BadInput("--site-column", None, f"the sample has a column {SITE!r}; name it, or rename it")
    frame[SITE] = [f"site-{i + 1}" for i in np.arange(len(frame)) % sites]
    return frame
