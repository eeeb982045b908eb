from __future__ import annotations

import os

import numpy as np
import pytest

from fedsaddle.data.table import Table


@pytest.fixture
def real_data() -> str:
    folder = os.environ.get("FEDSADDLE_DATA")
    if not folder:
        pytest.skip("FEDSADDLE_DATA is not set")
    return folder


@pytest.fixture
def made_up() -> tuple[Table, Table]:
    """3,000 + 600 rows, 5 classes of unequal size, and a column with two values, 2 to 1."""
    rng = np.random.default_rng(7)

    def table(rows: int) -> Table:
        y = rng.choice(5, rows, p=[0.4, 0.3, 0.15, 0.1, 0.05])
        sex = np.where(np.arange(rows) % 3 == 0, "Female", "Male")
        return Table.of(rng.normal(size=(rows, 2)), y, {"sex": sex}, ("a", "b", "c", "d", "e"))

    return table(3000), table(600)
