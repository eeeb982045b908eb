"""The table of patients that the documentation begins with."""

from __future__ import annotations

from pathlib import Path

import make_patients
import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.tables.read import read_table

PATIENTS = Path(__file__).with_name("patients.csv")
ROLES = {"label": "died", "site": "hospital", "patient": "patient"}


def ranks(x: NDArray[np.float64], died: NDArray[np.bool_]) -> float:
    """The share of pairs in which the patient who died has the larger value."""
    there = ~np.isnan(x)
    a, b = x[there & died], x[there & ~died]
    return float((a[:, None] > b).mean() + (a[:, None] == b).mean() / 2)


def test_the_script_makes_the_file(tmp_path: Path) -> None:
    make_patients.write(tmp_path / "patients.csv")
    assert (tmp_path / "patients.csv").read_bytes() == PATIENTS.read_bytes()


def test_its_columns_are_what_they_seem() -> None:
    table = read_table(PATIENTS, roles=ROLES)
    assert table.rows == 300
    kinds = {c.name: c.kind for c in table.features}
    assert [name for name, kind in kinds.items() if kind == "category"] == ["sex", "unit"]
    numbers = ["age", "heart_rate", "creatinine", "lactate", "bilirubin", "admitted"]
    assert [name for name, kind in kinds.items() if kind == "number"] == numbers
    assert any("'bilirubin': read '>20' as the bare number" in note for note in table.notes)
    assert any("'admitted': dates are read as days" in note for note in table.notes)
    assert len(table.notes) == 2


def test_its_gaps_sites_and_deaths() -> None:
    table = read_table(PATIENTS, roles=ROLES)
    lactate = next(c for c in table.features if c.name == "lactate").missing
    site, died = table.roles["site"], table.roles["label"] == "yes"
    sites, sizes = np.unique(site.astype(str), return_counts=True)
    assert len(sites) == 12
    assert sizes.min() * 5 < sizes.max()
    assert 0.35 < lactate.mean() < 0.45
    assert [s for s in sites if lactate[site == s].all()] == ["H05"]
    assert 0.12 < died.mean() < 0.18
    assert all(died[site == s].sum() >= 2 for s in sites)
    assert 250 < len(set(table.roles["patient"])) < 300


def test_deaths_depend_on_the_measurements() -> None:
    table = read_table(PATIENTS, roles=ROLES)
    died = table.roles["label"] == "yes"
    numbers = {c.name: c.numbers for c in table.features if c.numbers is not None}
    for name in ("age", "creatinine", "lactate"):
        assert ranks(numbers[name], died) > 0.6
    assert 0.4 < ranks(numbers["admitted"], died) < 0.6
