"""Later rows are read cell by cell, as the training rows were written."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from fedsaddle.data.tables import encode_rows
from fedsaddle.data.tables.columns import RawColumn
from fedsaddle.data.tables.encode_rows import Encoded, RowEncoder
from fedsaddle.data.tables.later_rows import ReadColumn
from fedsaddle.errors import BadInput


def test_the_encoder_needs_python_and_numpy_only():
    tree = ast.parse(Path(encode_rows.__file__).read_text(encoding="utf-8"))
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in names} - set(sys.stdlib_module_names) == {"numpy"}


@pytest.mark.parametrize(
    ("written", "cells", "numbers"),
    [
        ("", ["1.5", ">90", "n/a", "5 mg", "1,234"], [1.5, 90, np.nan, 5, 1234]),
        ("decimal comma", ["1,5", "1.234,5", "-"], [1.5, 1234.5, np.nan]),
        ("day first", ["03.02.2024", "2024-02-03"], [19756, 19756]),
        ("month first", ["02/03/2024"], [19756]),
        ("hours", ["06:30"], [6.5]),
    ],
)
def test_numbers_are_written_as_in_training(written, cells, numbers):
    column = ReadColumn("a", written=written)
    np.testing.assert_array_equal(column.read(pd.Series(cells)).numbers, numbers)
    assert [encode_rows.number(cell, written) for cell in cells] == pytest.approx(numbers, nan_ok=True)


@pytest.mark.parametrize(("written", "cell"), [("", "1,5"), ("decimal comma", "1.5"), ("", "2024-02-03"), ("", "inf")])
def test_other_ways_to_write_a_number_are_refused(written, cell):
    with pytest.raises(BadInput, match=r"row 2, column 'a' = .* is not a number as in the rows of fit"):
        ReadColumn("a", written=written).read(pd.Series(["7", cell]))
    lenient = ReadColumn("a", written=written, lenient=True)
    np.testing.assert_array_equal(lenient.read(pd.Series(["7", cell])).numbers, [7, np.nan])


def test_categories_are_those_of_training():
    truth = ReadColumn.of(RawColumn("a", None, np.array([0, 1], dtype=np.int32), ("false", "true")))
    found = truth.read(pd.Series(["TRUE", "none", "False", "?"]))
    assert (found.categories, found.codes.tolist()) == (("false", "true"), [1, -1, 0, -1])
    sign = ReadColumn.of(RawColumn("a", None, np.array([0, 1], dtype=np.int32), ("+", "-")))
    found = sign.read(pd.Series(["-", "+", "--"]))
    assert (found.categories, found.codes.tolist()) == (("+", "-"), [1, 0, -1])


def test_rows_are_encoded_by_hand():
    features = (
        Encoded("age", mean=50.0, std=10.0, fill=55.0, clip=2.0),
        Encoded("age", "missing"),
        Encoded("age", "hinge", mean=50.0, std=10.0, fill=55.0, clip=2.0, knot=1.0),
        Encoded("sex", "category", category="f"),
        Encoded("sex", "other", known=("f",)),
        Encoded("site", "site", category="A", unknown=0.25),
    )
    encoder = RowEncoder(features, words={"sex": ("f", "m")}, rare={"sex": [encode_rows.digest("sex", "x")]})
    rows = [
        {"age": "65", "sex": "f", "site": "A"},
        {"age": None, "sex": "m", "site": "B"},
        {"age": 99, "sex": "x", "site": ""},
    ]
    expected = [[1.5, 0, 0.5, 1, 0, 1], [0.5, 1, 0, 0, 1, 0.25], [2, 0, 1, 0, 1, 0.25]]
    np.testing.assert_allclose(encoder.encode(rows), expected)
