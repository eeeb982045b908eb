"""Robust means: literal numpy transcriptions, what they equal at special values, and what holds them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.robust import reduction
from fedsaddle.robust.reduction import centred_clipping, geometric_median, trimmed_mean, weighted_median

CASES = [(1, 3), (2, 1), (5, 4), (6, 7), (11, 2)]


def draw(m, d, seed=0, whole=False):
    rng = np.random.default_rng(seed)
    w = rng.integers(1, 4, m).astype(float) if whole else rng.random(m) + 0.1
    return rng.normal(size=(m, d)), w


def both(points, weights):
    return torch.from_numpy(points), torch.from_numpy(weights)


def by_hand_trimmed(x, w, share):
    """Each coordinate: walk up the sorted points and keep the weight between the two edges."""
    out = []
    for column in x.T:
        total, upto, kept, summed = w.sum(), 0.0, 0.0, 0.0
        for i in np.argsort(column):
            part = min(upto + w[i], (1 - share) * total) - max(upto, share * total)
            if part > 0:
                kept, summed = kept + part, summed + part * column[i]
            upto += w[i]
        out.append(summed / kept)
    return np.array(out)


def by_hand_median(x, w):
    out = []
    for column in x.T:
        order = np.argsort(column)
        half, upto, low, high = w.sum() / 2, 0.0, None, None
        for i in order:
            upto += w[i]
            if low is None and upto >= half - 1e-12 * w.sum():
                low = column[i]
            if high is None and upto > half + 1e-12 * w.sum():
                high = column[i]
        out.append((low + (low if high is None else high)) / 2)
    return np.array(out)


def by_hand_geometric(x, w):
    v = by_hand_median(x, w)
    scale = torch.from_numpy(np.linalg.norm(x - v, axis=1)).median().item()
    if scale == 0:
        return v
    for _ in range(100):
        far = np.maximum(np.linalg.norm(x - v, axis=1), 1e-10 * scale)
        after = (w / far) @ x / (w / far).sum()
        short = np.linalg.norm(after - v) <= 1e-10 * scale
        v = after
        if short:
            break
    return v


def by_hand_clipping(x, w, centre, radius, iterations):
    v = centre
    for _ in range(iterations):
        step = np.zeros_like(v)
        for i in range(len(x)):
            away = x[i] - v
            step += w[i] / w.sum() * away * min(1, radius / max(np.linalg.norm(away), 1e-300))
        v = v + step
    return v


@pytest.mark.parametrize(("m", "d"), CASES)
@pytest.mark.parametrize("whole", [False, True])
def test_oracles(m, d, whole):
    x, w = draw(m, d, whole=whole)
    for share in (0.0, 0.1, 0.25, 0.4, 0.49):
        np.testing.assert_allclose(trimmed_mean(*both(x, w), share), by_hand_trimmed(x, w, share), atol=1e-10)
    np.testing.assert_allclose(weighted_median(*both(x, w)), by_hand_median(x, w), atol=1e-10)
    np.testing.assert_allclose(geometric_median(*both(x, w)), by_hand_geometric(x, w), atol=1e-10)
    centre = np.linspace(-1, 1, d)
    for radius, iterations in ((0.3, 1), (1.0, 3), (5.0, 2)):
        found = centred_clipping(*both(x, w), torch.from_numpy(centre), radius, iterations)
        np.testing.assert_allclose(found, by_hand_clipping(x, w, centre, radius, iterations), atol=1e-10)


@pytest.mark.parametrize(("m", "d"), CASES)
def test_what_equals_the_mean(m, d):
    x, w = draw(m, d)
    mean = w @ x / w.sum()
    np.testing.assert_allclose(trimmed_mean(*both(x, w), 0.0), mean, atol=1e-12)
    np.testing.assert_allclose(centred_clipping(*both(x, w), torch.zeros(d), np.inf), mean, atol=1e-12)
    if m <= 2:
        np.testing.assert_allclose(trimmed_mean(*both(x, np.ones(m)), 0.3), x.mean(0), atol=1e-12)


@pytest.mark.parametrize("m", [1, 4, 7])
def test_without_weights_it_is_numpys_median(m):
    x, _ = draw(m, 5)
    np.testing.assert_allclose(weighted_median(*both(x, np.ones(m))), np.median(x, 0), atol=1e-15)


def test_a_weight_counts_like_so_many_points():
    x, w = draw(5, 3, whole=True)
    many, ones = np.repeat(x, w.astype(int), 0), np.ones(int(w.sum()))
    for f in (weighted_median, lambda p, q: trimmed_mean(p, q, 0.2), geometric_median):
        np.testing.assert_allclose(f(*both(x, w)), f(*both(many, ones)), atol=1e-8)
    none = both(np.vstack([x, [[1e9] * 3]]), np.append(w, 0.0))
    for f in (weighted_median, lambda p, q: trimmed_mean(p, q, 0.0), geometric_median):
        np.testing.assert_allclose(f(*none), f(*both(x, w)), atol=1e-7)


def test_the_geometric_median_of_points_on_a_line_and_of_equal_points():
    line = np.array([[0.0, 0.0], [1.0, 2.0], [10.0, 20.0]])
    np.testing.assert_allclose(geometric_median(*both(line, np.ones(3))), [1, 2], atol=1e-8)
    equal = np.ones((4, 3))
    assert geometric_median(*both(equal, np.ones(4))).tolist() == [1, 1, 1]


def test_the_geometric_median_is_a_minimum():
    x, w = draw(7, 4)
    v = geometric_median(*both(x, w)).numpy()
    cost = lambda u: w @ np.linalg.norm(x - u, axis=1)  # noqa: E731
    rng = np.random.default_rng(1)
    assert all(cost(v) <= cost(v + 1e-3 * rng.normal(size=4)) for _ in range(50))


def test_the_order_of_points_does_not_matter():
    x, w = draw(9, 3)
    order = np.random.default_rng(2).permutation(9)
    zero = torch.zeros(3, dtype=torch.float64)
    for f in (
        weighted_median, geometric_median, lambda p, q: trimmed_mean(p, q, 0.2),
        lambda p, q: centred_clipping(p, q, zero, 0.5),
    ):  # fmt: skip
        np.testing.assert_allclose(f(*both(x[order], w[order])), f(*both(x, w)), atol=1e-12)


def test_a_few_points_far_away_do_not_matter_much():
    x, _ = draw(10, 5)
    x[:2] = 1e12
    ones = np.ones(10)
    zero = torch.zeros(5, dtype=torch.float64)
    for f in (
        weighted_median, geometric_median, lambda p, q: trimmed_mean(p, q, 0.25),
        lambda p, q: centred_clipping(p, q, zero, 2.0),
    ):  # fmt: skip
        assert np.linalg.norm(f(*both(x, ones)).numpy() - x[2:].mean(0)) < 3
    assert float(trimmed_mean(*both(x, ones), 0.1).norm()) > 1e10, "less than the hostile share"


def test_many_coordinates_go_block_by_block(monkeypatch):
    x, w = draw(5, 23)
    whole = trimmed_mean(*both(x, w), 0.2), weighted_median(*both(x, w))
    monkeypatch.setattr(reduction, "BLOCK", 4)
    torch.testing.assert_close(trimmed_mean(*both(x, w), 0.2), whole[0], rtol=0, atol=1e-15)
    assert torch.equal(weighted_median(*both(x, w)), whole[1])
