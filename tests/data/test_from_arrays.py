"""Rows in memory become the same features as a file's, and later rows are read as the first were."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch

import fedsaddle as fs
from fedsaddle.data.tables.later_rows import Encoder


def frame(rows: int = 60) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    found = pd.DataFrame(
        {"age": rng.normal(60, 9, rows), "sex": rng.choice(["f", "m"], rows), "dose": rng.random(rows)}
    )
    found.loc[::4, "dose"] = np.nan
    return found


Y, SITES = np.arange(60) % 2, np.array(["a", "b", "c"])[np.arange(60) % 3]


def test_a_frame_is_read_as_from_frame_reads_it():
    whole = frame().assign(died=Y, hospital=SITES)
    split = fs.splits.Natural("hospital"), 3, 0.2, True
    one = fs.federate(fs.from_frame(whole, site="hospital", label="died", site_intercept=True), *split)
    other = fs.federate(fs.from_arrays(frame(), Y, SITES, site_intercept=True), fs.splits.Natural("site"), 3, 0.2, True)
    assert torch.equal(one.train.x, other.train.x)
    assert torch.equal(one.test.x, other.test.x)
    assert torch.equal(one.train.y, other.train.y)
    assert one.names == other.names == ("a", "b", "c")


def test_a_matrix_with_gaps_and_names():
    x = frame()[["age", "dose"]].to_numpy()
    data = fs.federate(fs.from_arrays(x, Y, SITES, features=["age", "dose"]), fs.splits.Natural("site"))
    assert data.features == ("age", "dose", "dose missing")
    assert fs.from_arrays(torch.tensor(x), Y).train.classes == ("0", "1")


def test_words_in_a_matrix():
    x = frame().to_numpy(dtype=object)
    data = fs.federate(fs.from_arrays(x, Y, SITES), fs.splits.Natural("site"))
    assert data.features == ("x0", "x1=f", "x2", "x2 missing") or data.features == ("x0", "x1=m", "x2", "x2 missing")


def test_pictures_and_no_sites():
    x = np.random.default_rng(0).random((20, 1, 4, 4))
    data = fs.federate(fs.from_arrays(x, np.arange(20) % 4), fs.splits.Iid(2), test_share=0.0)
    assert data.train.x.shape == (20, 1, 4, 4)
    assert abs(float(data.train.x.mean())) < 1e-6


def test_regression_positive_and_patients():
    assert fs.from_arrays(np.eye(4), [0.5, 1.5, 2.5, 3.5]).train.classes == ()
    assert fs.from_arrays(np.eye(4), ["x", "y", "z", "x"], positive="x").train.classes == ("not x", "x")
    rows = fs.from_arrays(np.eye(60), Y, SITES, patients=np.arange(60) // 6)
    data = fs.federate(rows, fs.splits.Natural("site"), test_share=0.3)
    trained = {int(row) // 6 for row in data.train_rows}
    assert not trained & {int(row) // 6 for row in data.test_rows}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"x": 3}, "x = 3: must be an array"),
        ({"x": np.zeros(4)}, r"x.shape = \(4,\): needs at least one row and one feature"),
        ({"x": [[1.0], [np.inf], [2.0], [3.0]]}, "row 2, column 'x0' = inf: is not a finite number"),
        ({"x": np.zeros((4, 2), dtype=complex)}, "x.dtype = 'complex128': must be numbers or text"),
        ({"x": [[1], [2, 3]]}, "x = 'list': cannot be an array"),
        ({"y": [0, 1, 0]}, r"len\(y\) = 3: x has 4 rows"),
        ({"y": [0, 1, None, 1]}, r"y\[2\] = None: the label is missing"),
        ({"y": [1, 1, 1, 1]}, r"classes of 'y' = \[1\]: a single class"),
        ({"sites": ["a", "a", "b"]}, r"len\(sites\) = 3: x has 4 rows"),
        ({"sites": ["a", "a", None, "b"]}, r"sites\[2\] = '': is missing"),
        ({"sites": ["a"] * 4}, r"one client is no federation"),
        ({"features": ["one"]}, r"len\(features\) = 1: x has 2 columns"),
        ({"x": np.zeros((4, 1, 2, 2)), "numeric": ["x0"]}, "numeric = .*is for rows of one axis"),
        ({"x": frame(4), "features": ["a"]}, "features = .*a DataFrame has names"),
        ({"task": "ranking"}, "task = 'ranking': choose one of"),
    ],
)
def test_bad_rows(changes, said):
    given = {"x": np.arange(8.0).reshape(4, 2), "y": [0, 1, 0, 1], "sites": ["a", "a", "b", "b"], **changes}
    with pytest.raises(fs.BadInput, match=said):
        fs.from_arrays(**given)


class TestLaterRows:
    def made(self, first: pd.DataFrame) -> Encoder:
        data = fs.from_arrays(first, np.arange(len(first)) % 2)
        return Encoder.of(data.pending.fit([np.arange(len(first))], ["all"]).encoding, data.pending)

    def encoded(self, first: pd.DataFrame, later: pd.DataFrame) -> list[list[float]]:
        encoder = self.made(first)
        assert Encoder.from_dict(encoder.to_dict()).to_dict() == encoder.to_dict()
        return encoder.encode(later, list(first.columns)).tolist()

    def test_each_row_alone_is_what_it_was(self):
        first = frame()
        every = self.encoded(first, first)
        assert [self.encoded(first, first.iloc[[k]])[0] for k in range(6)] == every[:6]

    def test_a_decimal_comma_stays_one(self):
        first = pd.DataFrame({"v": ["1,5", "2,25", "3,125", "1,750"] * 5})
        assert self.encoded(first, first.iloc[[2, 3]]) == [self.encoded(first, first)[k] for k in (2, 3)]
        assert self.encoded(first, pd.DataFrame({"v": ["3,125"]})) == [self.encoded(first, first)[2]]

    @pytest.mark.parametrize("days", [["13/02/2024", "05/03/2024"], ["02/13/2024", "03/05/2024"]])
    def test_days_and_months_keep_their_order(self, days):
        first = pd.DataFrame({"when": days * 10, "v": np.arange(20.0) ** 2})
        assert self.encoded(first, first.iloc[[1]]) == [self.encoded(first, first)[1]]

    def test_true_beside_maybe_is_no_other(self):
        first = pd.DataFrame({"smokes": ["True", "False", "maybe"] * 12, "v": np.arange(36.0) ** 2})
        assert self.encoded(first, first.iloc[[0]]) == [self.encoded(first, first)[0]]
        truth = pd.DataFrame({"smokes": [True, False] * 12, "v": np.arange(24.0) ** 2})
        assert self.encoded(truth, truth.iloc[[0]]) == [self.encoded(truth, truth)[0]]

    def test_a_column_that_is_empty_now(self):
        first = frame()
        later = first.iloc[:2].assign(sex=None, dose=None)
        assert np.isfinite(self.encoded(first, later)).all()

    def test_other_columns_than_features(self):
        given = self.made(frame()).to_dict()
        with pytest.raises(ValueError):
            Encoder.from_dict({**given, "columns": given["columns"][1:]})
