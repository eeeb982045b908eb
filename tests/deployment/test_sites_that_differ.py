"""What is said before the first round where the files of the sites do not go together, from what they tell anyway."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_process import deployed

from fedsaddle.config.schema import validate_config
from fedsaddle.data.cautions import SitesSeen, cautions_of_sites
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.report.front import front_of_clients
from fedsaddle.report.stored_run import read_run

FEATURES = ["sex", "ward", "sodium", "crp", "weight"]


def table(seed: int, rows: int = 240) -> pd.DataFrame:
    chance = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "sex": chance.choice(["F", "M"], rows),
            "ward": chance.choice(["medical", "surgical", "mixed"], rows),
            "sodium": chance.normal(139, 5, rows).round(),
            "crp": chance.lognormal(3, 1.2, rows).round(1),
            "weight": chance.normal(75, 14, rows).round(1),
        }
    )
    risk = -1.6 + 0.8 * (frame.sex == "M") + 0.05 * (frame.sodium - 139)
    return frame.assign(died=(chance.random(rows) < 1 / (1 + np.exp(-risk))).astype(int))


def said(tmp_path: Path, frames: Mapping[str, pd.DataFrame]) -> list[str]:
    """The notes of a run with the default policy, in the order of the log, which the organiser sees first."""
    data = {"name": "file", "path": "x.csv", "target": "died", "features": FEATURES, "positive": "1", "test_share": 0.2}
    given = validate_config(
        {
            "data": data,
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "batch_size": 16},
            "run": {"rounds": 1},
        }
    )
    made = {}
    for i, (name, frame) in enumerate(frames.items()):
        frame.to_csv(tmp_path / f"{name}.csv", index=False)
        made[i] = SiteService(given, SiteSettings(name, tmp_path / f"{name}.csv", tmp_path / name), SitePolicy())
    result = deployed(given, made, tmp_path / "out")
    notes = result.summary.get("cautions", [])
    shown = front_of_clients(read_run(tmp_path / "out")).cautions
    assert all(any(note[1:] in line for line in shown) for note in notes), "the report says it, too"
    log = tmp_path / "out" / "log.txt"
    assert not notes or all(note in log.read_text() for note in notes)
    return notes


def plain(count: int = 4) -> dict[str, pd.DataFrame]:
    return {f"site-{i + 1}": table(i) for i in range(count)}


def test_sites_that_go_together_give_no_cause(tmp_path):
    assert said(tmp_path, plain()) == []


def test_categories_in_another_case(tmp_path):
    frames = plain()
    frames["site-3"]["sex"] = frames["site-3"]["sex"].str.lower()
    assert said(tmp_path, frames) == [
        "column 'sex' at site 'site-3' has 'f', 'm' where other sites have 'F', 'M': these count as different "
        "categories; write them alike"
    ]


def test_categories_in_other_words(tmp_path):
    frames = plain()
    frames["site-2"]["sex"] = frames["site-2"]["sex"].map({"F": "female", "M": "male"})
    assert said(tmp_path, frames) == [
        "column 'sex' at site 'site-2' has 'female', 'male', and none of the categories of the other sites ('F', 'M'): "
        "the same in other words?"
    ]


def test_swapped_labels(tmp_path):
    frames = plain()
    frames["site-4"]["died"] = 1 - frames["site-4"]["died"]
    (line,) = said(tmp_path, frames)
    assert line.startswith("site 'site-4' has 7")
    assert line.endswith("%: are the labels swapped there?")
    assert "rows that are '1', the other sites 2" in line


@pytest.mark.parametrize(
    ("code", "share", "where"),
    [(-999, 0.04, "one"), (-99, 0.04, "one"), (999, 0.2, "one"), (9999, 0.1, "all"), (-999, 0.1, "all")],
)
def test_codes_for_missing_cells(tmp_path, code, share, where):
    frames, chance = plain(3), np.random.default_rng(0)
    odd = ["site-2"] if where == "one" else list(frames)
    for name in odd:
        for column in ("sodium", "weight"):
            frames[name].loc[chance.random(240) < share, column] = code
    found = said(tmp_path, frames)
    for name in odd:
        for column in ("sodium", "weight"):
            starts = f"column '{column}' at site '{name}' seems to have {code} in about "
            assert any(line.startswith(starts) for line in found), (starts, found)
    assert sum("code for missing" in line for line in found) == 2 * len(odd)


def test_the_same_file_at_two_sites(tmp_path):
    frames = plain()
    frames["site-4"] = frames["site-1"]
    (line,) = said(tmp_path, frames)
    assert line.startswith("2 sites (site-1, site-4) have the same rows: is it the same file?")


def test_two_sites_with_opposite_shares_are_asked_about_once():
    labels = np.array([[140, 60], [60, 140]])
    (line,) = cautions_of_sites(SitesSeen(("a", "b"), labels.sum(axis=1), ("no", "yes"), labels))
    assert line == "site 'a' has 30% rows that are 'yes', the other sites 70%: are the labels swapped there?"
    labels = np.array([[180, 20], [120, 80], [140, 60]])
    assert cautions_of_sites(SitesSeen(("a", "b", "c"), labels.sum(axis=1), ("no", "yes"), labels)) == []
