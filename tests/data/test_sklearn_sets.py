from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedsaddle.data.sets import sklearn_sets
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput


@pytest.mark.parametrize(
    ("load", "shape", "counts"),
    [
        (sklearn_sets.digits, (1797, 64), [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]),
        (sklearn_sets.breast_cancer, (569, 30), [212, 357]),
        (sklearn_sets.wine, (178, 13), [59, 71, 48]),
        (sklearn_sets.iris, (150, 4), [50, 50, 50]),
    ],
)
def test_shapes_and_class_counts(load: Callable[[], Dataset], shape: tuple[int, int], counts: list[int]) -> None:
    data = load()
    data.check()
    assert data.test is None
    assert data.train.x.shape == shape
    assert np.bincount(data.train.y).tolist() == counts
    assert len(data.train.classes) == len(counts)
    assert len(data.train.features) == shape[1]


def test_class_names_are_in_the_order_of_the_labels() -> None:
    assert sklearn_sets.breast_cancer().train.classes == ("malignant", "benign")
    assert sklearn_sets.digits().train.classes == tuple("0123456789")


@pytest.mark.parametrize("load", [sklearn_sets.breast_cancer, sklearn_sets.wine, sklearn_sets.iris])
def test_tables_are_standardised(load: Callable[[], Dataset]) -> None:
    x = load().train.x
    np.testing.assert_allclose(x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(x.std(0), 1, rtol=1e-4)


def test_digits_lie_between_0_and_1_and_can_be_images() -> None:
    flat, images = sklearn_sets.digits().train.x, sklearn_sets.digits(images=True).train
    assert (flat.min(), flat.max()) == (0, 1)
    images.check()
    assert images.x.shape == (1797, 1, 8, 8)
    assert (images.x.reshape(-1, 64) == flat).all()


def test_diabetes_is_a_regression_with_columns_to_split_by() -> None:
    table = sklearn_sets.diabetes().train
    table.check()
    assert table.classes == ()
    assert (len(table), table.y.min(), table.y.max()) == (442, 25, 346)
    assert np.bincount(table.columns["sex"]).tolist() == [0, 235, 207]
    assert np.unique(table.columns["decade"]).tolist() == [10, 20, 30, 40, 50, 60, 70]
    scaled = sklearn_sets.diabetes(standardise_target=True).train.y
    assert scaled.std() == pytest.approx(1, rel=1e-4)


def test_scanned_digits_turn_the_last_site_and_nothing_else() -> None:
    plain, scanned = sklearn_sets.digits().train, sklearn_sets.scanned_digits().train
    turned = scanned.columns["site"] == "site 10"
    assert turned.sum() == 179
    assert len(set(scanned.columns["site"])) == 10
    np.testing.assert_array_equal(scanned.x[~turned], plain.x[~turned])
    upright = scanned.x[turned].reshape(-1, 8, 8)[:, ::-1, ::-1]
    np.testing.assert_array_equal(upright.reshape(-1, 64), plain.x[turned])
    np.testing.assert_array_equal(scanned.y, plain.y)


@pytest.mark.parametrize(("key", "options"), [("sites", {"sites": 1}), ("upside_down", {"upside_down": 11})])
def test_scanned_digits_refuse_impossible_numbers(key: str, options: dict[str, int]) -> None:
    with pytest.raises(BadInput, match=key):
        sklearn_sets.scanned_digits(**options)
