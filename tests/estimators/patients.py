"""A small table of three hospitals, with gaps and words, that is quick to learn from."""

from __future__ import annotations

import numpy as np
import pandas as pd


def patients(rows: int = 120, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Features with the column of hospitals, and who died."""
    rng = np.random.default_rng(seed)
    age = rng.normal(60, 12, rows)
    sex = rng.choice(["f", "m"], rows)
    lactate = np.exp(rng.normal(0.5, 0.6, rows))
    odds = 0.12 * (age - 60) + 1.2 * (sex == "m") + 0.8 * (lactate - 2) - 0.6
    died = pd.Series(np.where(rng.random(rows) < 1 / (1 + np.exp(-odds)), "yes", "no"))
    lactate[rng.random(rows) < 0.2] = np.nan
    hospital = rng.choice(["north", "south", "west"], rows)
    return pd.DataFrame({"age": age, "sex": sex, "lactate": lactate, "hospital": hospital}), died
