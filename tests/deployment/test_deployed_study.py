"""A study at sites in this process: it decides as on the same rows in one place, and survives what sites do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsaddle.config.schema import DataSection, PrivacySection
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.deployed_study import DeployedStudy
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.study_site import StudySite
from fedsaddle.studies.candidates import Facts, candidates
from fedsaddle.studies.study_plan import StudyPlan, StudySection, plan_of

SITES = ("north", "south", "east", "west")
OPEN = SitePolicy(minimum_cell=1, minimum_rows=1, minimum_sites=1)
COLUMNS = ["a", "b", "c"]


def write_rows(folder: Path, rows: int = 160, seed: int = 0) -> dict[str, Path]:
    """A CSV file for each site, with log odds of 1.5 a - b - 1."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, found = np.random.default_rng(seed), {}
    for name in SITES:
        x = rng.normal(size=(rows, 3))
        y = rng.random(rows) < 1 / (1 + np.exp(1 - 1.5 * x[:, 0] + x[:, 1]))
        frame = pd.DataFrame(x, columns=COLUMNS).round(4).assign(patient=np.arange(rows) // 2, died=y.astype(int))
        found[name] = folder / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


def small_plan(cell: int = 1, secure: bool = False, **study: object) -> StudyPlan:
    """FedAvg, the default and a second stage, with few rounds and steps."""
    facts = Facts(640, 200, {"number": 3, "site": 4}, False, 4, 64, (7,))
    every = candidates(facts, "auroc")
    listed = [*every[:2], next(c for c in every if c.algorithm == "CODASCA")]
    short = [
        replace(c, rounds=8, steps=c.steps[:2], evaluations=0, patience=None) if len(c.steps) > 1
        else replace(c, evaluations=0) for c in listed
    ]  # fmt: skip
    data = DataSection(
        name="file", target="died", together="patient", features=COLUMNS, numeric=COLUMNS, site_intercept=True,
        test_share=0.25, validation_share=0.25, stratify=True, minimum_cell=cell,
    )  # fmt: skip
    made = StudyPlan(StudySection(**study), data, PrivacySection(secure_aggregation=secure), tuple(short))
    import tomllib

    return plan_of(tomllib.loads(made.to_toml()))


def sites_of(plan: StudyPlan, folder: Path, policy: SitePolicy = OPEN, rows: int = 160) -> dict[int, StudySite]:
    files = write_rows(folder / "data", rows)
    return {
        i: StudySite(plan, SiteSettings(name, files[name], folder / f"disk-{i}"), policy)
        for i, name in enumerate(SITES)
    }


def study(plan: StudyPlan, made: dict[int, StudySite], out: Path, **patience: float):
    transport = InProcess({i: site.answer for i, site in made.items()})
    return DeployedStudy(plan, "trial", SITES, out, Patience(**{"patience": 0.0, **patience})).go(transport)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    plan = small_plan()
    made = sites_of(plan, folder)
    return study(plan, made, folder / "out"), plan, made, folder


def test_a_study_decides(found):
    result, _plan, _made, folder = found
    print(result.choice.trials)
    print(result.summary.to_dict())
    assert (folder / "out" / "summary.json").exists()
