"""Rows of one's own as arrays of a .npz file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fit_features import fit_transform

from fedsaddle.data.federated import federate
from fedsaddle.data.splits import Natural
from fedsaddle.data.tables.own import from_file
from fedsaddle.errors import BadInput

ARRAYS = {
    "x": np.arange(12).reshape(6, 2),
    "y": np.array([2, 5, 2, 5, 2, 5]),
    "client": np.array(["a", "b", "a", "b", "a", "a"]),
}
TEST_ARRAYS = {"x_test": np.ones((2, 2)), "y_test": np.array([5, 2]), "client_test": np.array(["b", "b"])}


def _npz(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "rows.npz"
    np.savez(path, **{**ARRAYS, **changes})
    return path


def test_npz_round_trip(tmp_path: Path) -> None:
    raw = from_file(_npz(tmp_path, **TEST_ARRAYS), standardise=False)
    data = fit_transform(raw)
    assert data.test is not None
    assert data.train.x.tolist() == ARRAYS["x"].tolist()
    assert (data.train.classes, data.train.y.tolist()) == (("2", "5"), [0, 1, 0, 1, 0, 1])
    assert data.test.y.tolist() == [1, 0]
    federated = federate(raw, Natural())
    assert federated.test is not None
    assert federated.train.sizes.tolist() == [4, 2]
    assert federated.test.sizes.tolist() == [0, 2]
    scaled = fit_transform(from_file(_npz(tmp_path, **TEST_ARRAYS)))
    assert scaled.test is not None
    np.testing.assert_allclose(scaled.train.x.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(scaled.test.x[0], (1 - np.array([5, 6])) / ARRAYS["x"].std(0), rtol=1e-5)


def test_npz_images_and_regression(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(6, 1, 4, 4))
    data = fit_transform(from_file(_npz(tmp_path, x=x, y=np.linspace(0, 1, 6))))
    assert data.train.x.shape == (6, 1, 4, 4)
    assert from_file(_npz(tmp_path, y=ARRAYS["y"][:, None])).train.y.shape == (6,)
    big = np.array([2**63 + 1, 2**63] * 3, dtype=np.uint64)
    assert from_file(_npz(tmp_path, client=big)).train.columns["client"][0] == str(2**63 + 1)
    assert data.train.classes == ()
    assert data.test is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"x": np.array([[1.0, np.nan]] * 6)}, "x, row 1, feature 1 = nan"),
        ({"x": np.zeros(6)}, r"x.shape = \(6,\)"),
        ({"x": np.array([["a"]] * 6)}, "x.dtype"),
        ({"x": np.zeros((5, 2))}, r"len\(y\) = 6: x has 5 rows"),
        ({"client": np.array(["a", ""] * 3)}, "row 2, column 'client' = ''"),
        ({"client": np.array([1.5, 2] * 3)}, "row 1, column 'client' = 1.5"),
        ({"y": np.zeros((6, 2))}, r"y.shape = \(6, 2\): needs one entry per row"),
        ({"client": np.zeros(6)}, "one client is no federation"),
        ({"x_test": np.zeros((2, 2))}, "x_test = 'y_test': there is no such column"),
        ({**TEST_ARRAYS, "y_test": np.array([5, 9])}, "test target 'y' = '9'"),
        ({"y": np.array([{}] * 6, dtype=object)}, "cannot be read"),
    ],
)
def test_bad_npz_files_are_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        from_file(_npz(tmp_path, **changes))


def test_npz_takes_no_columns(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="features"):
        from_file(_npz(tmp_path), features=["x"])
    with pytest.raises(BadInput, match=r"target = 'label'.*the columns are: 'x', 'y', 'client'"):
        from_file(_npz(tmp_path), target="label")
    broken = tmp_path / "broken.npz"
    broken.write_bytes(b"PK\x03\x04 and nothing more")
    with pytest.raises(BadInput, match="cannot be read"):
        from_file(broken)
