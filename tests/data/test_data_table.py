from __future__ import annotations

import numpy as np
import pytest

from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput


def _table(**changes: object) -> Table:
    fields = {"x": np.zeros((4, 2), np.float32), "y": np.array([0, 1, 0, 1]), "classes": ("no", "yes")}
    return Table(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_sound_table_passes() -> None:
    _table().check()
    _table(x=np.zeros((4, 3), np.int64), y=np.zeros((4, 3), np.int64)).check()
    _table(y=np.zeros(4, np.float32), classes=()).check()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_cell_that_is_not_finite_is_named(bad: float) -> None:
    x = np.zeros((4, 2), np.float32)
    x[2, 1] = bad
    with pytest.raises(BadInput, match=r"row 2, column 'age'.*drop the row or the column"):
        _table(x=x, features=("height", "age")).check()
    with pytest.raises(BadInput, match="row 2, column 'feature 1'"):
        _table(x=x).check()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"y": np.array([0, 1, 2, 1])}, r"y\[2\] = 2: the labels of 2 classes run from 0 to 1"),
        ({"y": np.array([0, -1, 0, 1])}, r"y\[1\] = -1"),
        ({"y": np.array([0, 1])}, r"len\(y\) = 2: x has 4 rows"),
        ({"y": np.array([0, 1, 0, 1], np.int32)}, "y.dtype = 'int32'"),
        ({"columns": {"sex": np.array(["f"])}}, r"len\(sex\) = 1"),
        ({"x": np.zeros((0, 2), np.float32), "y": np.zeros(0, np.int64)}, "rows = 0: the table is empty"),
        ({"x": np.zeros(4, np.float32)}, "x.shape"),
        ({"x": np.zeros((4, 2))}, "x.dtype = 'float64'"),
        ({"x": np.full((4, 2), -1)}, "character codes start at 0"),
        ({"features": ("only one",)}, r"len\(features\) = 1: a row has 2 features"),
        ({"y": np.array([0, 1, np.nan, 1], np.float32), "classes": ()}, r"y\[2\] = 'nan'"),
        ({"classes": ()}, "y.dtype = 'int64': targets must be float32"),
    ],
)
def test_bad_tables_are_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        _table(**changes).check()


def test_of_converts_types() -> None:
    table = Table.of(np.zeros((2, 1)), np.array([0, 1], np.uint8), classes=("a", "b"))
    assert (table.x.dtype, table.y.dtype) == (np.float32, np.int64)
    assert Table.of(np.zeros((2, 1)), np.array([1, 2])).y.dtype == np.float32


def test_the_two_tables_of_a_dataset_must_fit() -> None:
    def check(test: Table) -> None:
        Dataset("d", _table(), test, "", "").check()

    check(_table())
    with pytest.raises(BadInput, match=r"test\.x"):
        check(_table(x=np.zeros((4, 3), np.float32)))
    with pytest.raises(BadInput, match=r"test\.classes"):
        check(_table(classes=("yes", "no")))
