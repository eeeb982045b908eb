from __future__ import annotations

import numpy as np
import pytest

from fedsaddle.data.table import Scale, one_hot, ordinal


def test_scale_gives_mean_zero_and_deviation_one_with_the_fitted_statistics() -> None:
    x = np.random.default_rng(0).normal([5, -100], [2, 30], size=(500, 2))
    scale = Scale.fit(x)
    z = scale.apply(x)
    assert z.dtype == np.float32
    np.testing.assert_allclose(z.mean(0), 0, atol=1e-6)
    np.testing.assert_allclose(z.std(0), 1, rtol=1e-5)
    np.testing.assert_allclose(scale.apply(x + scale.std), z + 1, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("unit", [1e-12, 1e-15, 1e-30])
def test_the_unit_of_a_feature_does_not_matter(unit: float) -> None:
    x = np.random.default_rng(0).normal([5, -1], [2, 3], size=(500, 2))
    np.testing.assert_allclose(Scale.fit(x * unit).apply(x * unit), Scale.fit(x).apply(x), atol=1e-5)


@pytest.mark.parametrize("value", [0.0, 0.1, 1e9 + 0.1, 1e-13])
def test_a_constant_feature_becomes_zero(value: float) -> None:
    x = np.full((1001, 1), value)
    assert np.abs(Scale.fit(x).apply(x)).max() < 1e-6


def test_images_share_one_scale() -> None:
    x = np.arange(2 * 3 * 3, dtype=float).reshape(2, 1, 3, 3)
    z = Scale.fit(x).apply(x)
    assert z.shape == x.shape
    assert z.mean() == pytest.approx(0, abs=1e-6)
    assert z.std() == pytest.approx(1)


def test_ordinal_and_one_hot_know_unknown_values() -> None:
    categories = np.array(["?", "blue", "red"])
    values = np.array(["red", "?", "green", "zinc", ""])
    assert ordinal(values, categories).tolist() == [2, 0, -1, -1, -1]
    hot = one_hot(values, categories)
    assert hot.tolist() == [[0, 0, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0], [0, 0, 0]]
