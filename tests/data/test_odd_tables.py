"""Tables as they come: what each odd file, cell and column is read as, or refused with."""

from __future__ import annotations

import builtins
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from odd_tables import ODD, Odd, text_of, write

from fedsaddle.data.files.raw_table import RawColumn, RawTable
from fedsaddle.data.files.read_table import read_table
from fedsaddle.errors import BadInput, FedSaddleError


def cells(column: RawColumn) -> list[Any]:
    """The cells as numbers or text, None for those that are missing."""
    if column.numbers is not None:
        return [None if np.isnan(v) else v for v in column.numbers.tolist()]
    assert column.codes is not None
    return [None if c < 0 else column.categories[c] for c in column.codes]


def check(table: RawTable, odd: Odd) -> None:
    read = {c.name: cells(c) for c in table.features}
    for name, values in odd.values.items():
        assert read[name] == [v if v is None or isinstance(v, str) else pytest.approx(v, rel=1e-12) for v in values]
    assert not set(odd.gone) & set(read)
    for fragment in odd.notes:
        assert any(fragment in note for note in table.notes), (fragment, table.notes)
    if odd.labels is not None:
        assert table.roles["label"].tolist() == odd.labels
    assert all("\n" not in note for note in table.notes)
    for column in table.features:
        assert len(column.missing) == table.rows
        assert list(column.categories) == sorted(set(column.categories))
        assert column.codes is None or (column.codes.dtype == np.int32 and column.codes.max() < len(column.categories))
        assert column.numbers is None or column.numbers.dtype == np.float64


@pytest.mark.parametrize("odd", ODD, ids=lambda odd: odd.name)
def test_odd_tables(odd: Odd, tmp_path: Path) -> None:
    if odd.file.endswith(".xlsx"):
        pytest.importorskip("openpyxl")
    try:
        source = write(odd, tmp_path)
        table = read_table(source, roles={"label": "y"}, **odd.how)
    except FedSaddleError as error:
        assert odd.error, error
        said = str(error)
        for fragment in odd.error:
            assert fragment in said
        assert "\n" not in said
        assert "\x1b" not in said
        assert len(said) < 1500
    else:
        assert not odd.error, [(c.name, cells(c)[:9]) for c in table.features]
        check(table, odd)


def test_there_are_many_odd_tables() -> None:
    assert len(ODD) >= 73
    assert len({odd.name for odd in ODD}) >= len(ODD) - 2
