"""Makes `patients.csv`: 300 made-up stays in the intensive care units of 12 hospitals, with the gaps of real tables.

Run it beside the file: `python make_patients.py`. Deaths depend on age, creatinine, lactate, heart rate and the unit.
"""

from __future__ import annotations

import csv
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np

SEED = 192  # one with at least two deaths in each hospital
SIZES = (58, 46, 38, 31, 26, 22, 19, 16, 14, 12, 10, 8)  # stays in each hospital: 300
NO_LACTATE = 4  # this hospital does not measure it
NAMES = (
    "hospital",
    "patient",
    "age",
    "sex",
    "unit",
    "heart_rate",
    "creatinine",
    "lactate",
    "bilirubin",
    "admitted",
    "died",
)
UNITS = ("medical", "surgical", "cardiac")


def make(seed: int = SEED) -> list[list[Any]]:
    """The rows below the names; a gap is ''."""
    rng = np.random.default_rng(seed)
    hospital = np.repeat(np.arange(len(SIZES)), SIZES)
    n = len(hospital)
    older = rng.normal(0, 4, len(SIZES))[hospital]  # hospitals differ in whom they treat
    age = np.clip(rng.normal(63 + older, 15, n), 18, 97).round()
    unit = rng.choice(3, n, p=(0.5, 0.3, 0.2))
    illness = rng.normal(size=n)  # what the measurements have in common
    rate = np.clip(88 + 9 * illness + rng.normal(0, 13, n), 40, 180).round()
    creatinine = np.exp(0.1 + 0.35 * illness + rng.normal(0, 0.45, n)).round(2)
    lactate = np.exp(0.5 + 0.4 * illness + rng.normal(0, 0.4, n)).round(1)
    bilirubin = np.exp(0.1 + 0.3 * illness + rng.normal(0, 1.35, n)).round(1)
    score = (
        0.055 * (age - 63) + 1.2 * np.log(creatinine) + 1.3 * np.log(lactate) + 0.02 * (rate - 88) + 0.6 * (unit == 0)
    )
    died = rng.random(n) < 1 / (1 + np.exp(3.45 - score))
    measured = (rng.random(n) < 1 / (1 + np.exp(-0.75 - 0.8 * illness))) & (hospital != NO_LACTATE)
    sex = np.where(rng.random(n) < 0.56, "male", "female")
    day = [date(2025, 1, 1) + timedelta(days=int(d)) for d in rng.integers(0, 500, n)]
    patient = _patients(hospital, rng)

    def gaps(cells: list[str], share: float) -> list[str]:
        return ["" if gap else cell for cell, gap in zip(cells, rng.random(n) < share, strict=True)]

    columns = [
        [f"H{h + 1:02d}" for h in hospital],
        patient,
        gaps([f"{a:.0f}" for a in age], 0.01),
        gaps(list(sex), 0.02),
        [UNITS[u] for u in unit],
        gaps([f"{r:.0f}" for r in rate], 0.04),
        gaps([f"{c:.2f}" for c in creatinine], 0.08),
        [f"{v:.1f}" if there else "" for v, there in zip(lactate, measured, strict=True)],
        gaps([">20" if b > 20 else f"{b:.1f}" for b in bilirubin], 0.15),
        [d.isoformat() for d in day],
        ["yes" if d else "no" for d in died],
    ]
    return [list(row) for row in zip(*columns, strict=True)]


def _patients(hospital: Any, rng: np.random.Generator) -> list[str]:
    """A number a patient; about one stay in twelve is of the patient of the row before, in the same hospital."""
    again = (rng.random(len(hospital)) < 1 / 12) & np.append(False, hospital[1:] == hospital[:-1])
    return [f"P{1000 + number}" for number in np.cumsum(~again)]


def write(path: Path) -> None:
    """Write the table as CSV."""
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows([NAMES, *make()])


if __name__ == "__main__":
    write(Path(__file__).with_name("patients.csv"))
