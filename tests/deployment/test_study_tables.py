"""Public tables split into their sites' files: the study decides as on the same rows in one place."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from test_deployed_study import OPEN, pooled

from fedsaddle.commands.deploy import sample_columns
from fedsaddle.commands.study_file import study_text
from fedsaddle.config.schema import DataSection, PrivacySection
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.deployed_study import DeployedStudy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.study_site import StudySite
from fedsaddle.metrics.ranking import rank
from fedsaddle.studies.aims import aim_of
from fedsaddle.studies.search import Clock, Search, trial_pool
from fedsaddle.studies.site_questions import SimulatedSites
from fedsaddle.studies.study_plan import StudyPlan, plan_of

pytestmark = pytest.mark.data
TABLES = {  # name -> column of sites, column of patients
    "eicu-demo-died": ("region", "patient"),
    "uci-heart-disease": ("site", None),
    "pneumon": ("site", None),  # 2 % of the rows are positive
}


def plan_for(path: Path, site: str, patient: str | None) -> StudyPlan:
    """What `deploy init --sample` writes, with fewer rounds and with all counts shown."""
    judged = sample_columns(path, "label", site, patient)
    text, _ = study_text(path, "label", site, patient, judged.numeric, tuple(judged.categorical), judged.left_out, None)
    plan = plan_of(tomllib.loads(text))
    data = DataSection(**{**plan.data.model_dump(exclude_unset=True), "minimum_cell": 1})
    listed = [c if c.exact else replace(c, rounds=8, steps=c.steps[:2]) for c in plan.candidates if not c.grows]
    return replace(plan, data=data, privacy=PrivacySection(), candidates=tuple(listed))


@pytest.mark.parametrize("name", TABLES)
def test_the_decision_and_the_figures_are_those_of_the_rows_in_one_place(name, tmp_path):
    site, patient = TABLES[name]
    table = pd.read_csv(Path(os.environ["FEDSADDLE_DATA"]) / "tables" / f"{name}.csv", dtype=str, keep_default_na=False)
    others = [c for c in ("region", "site", "beds", "teaching") if c in table and c != site]
    table = table[table[site] != ""].drop(columns=others)
    table.to_csv(tmp_path / "all.csv", index=False)
    plan = plan_for(tmp_path / "all.csv", site, patient)
    made: dict[int, StudySite] = {}
    for i, (value, own) in enumerate(table.groupby(site)):
        path = tmp_path / f"{i}.csv"
        own.drop(columns=site).to_csv(path, index=False)
        made[i] = StudySite(plan, SiteSettings(f"site-{value}".lower(), path, tmp_path / f"disk-{i}"), OPEN)
    names = tuple(made[i].settings.name for i in sorted(made))
    transport = InProcess({i: one.answer for i, one in made.items()})
    result = DeployedStudy(plan, "trial", names, tmp_path / "out", Patience(patience=0.0)).go(transport)
    data, aim = replace(pooled(made), names=names), aim_of("auroc")
    with trial_pool(data, 1) as pool:
        sites = SimulatedSites(data, aim, 0, pool)
        here = Search(sites, aim, 0, Clock.at(tmp_path, None), tmp_path, lambda: False, listed=plan.candidates).go()
    assert (result.choice.name, result.choice.reason) == (here.name, here.reason)
    for key, model in (("choice", here.chosen), ("FedAvg", here.fedavg)):
        exact = rank(
            model.rank(model.data.test.x), data.test.y.numpy(), data.test.offsets, names, units=data.test_units
        ).pooled.auroc
        low, high = result.summary.to_dict()["bounds"][key]["auroc"]
        assert low <= exact.value <= high
        told = result.summary.to_dict()["pooled"][key].get("auroc")
        if told is None:  # bounds only, where many rows share a bin
            assert high - low > 0.02
            assert key == "FedAvg"  # of few rounds
            continue
        assert told["value"] == pytest.approx(exact.value, abs=0.005)
        assert told["interval"] == pytest.approx([exact.low, exact.high], abs=0.005)
