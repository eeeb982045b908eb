"""Membership inference: the likelihood ratio row by row, the bound of privacy, and intervals that cover."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

from fedsaddle.studies.release_check import attack_auroc, confidences, likelihood_ratio, private_bound


def literal(target, shadows, trained):
    """Row by row, as it is written in the paper, with one variance a side."""
    rows = range(shadows.shape[1])
    sides = [[[shadows[s, i] for s in range(len(shadows)) if trained[s, i] == side] for i in rows] for side in (1, 0)]
    spread = []
    for side in sides:
        squares = [(v - np.mean(own)) ** 2 for own in side for v in own]
        spread.append(np.sqrt(sum(squares) / sum(len(own) - 1 for own in side if own)))
    gap = np.mean([np.mean(a) - np.mean(b) for a, b in zip(*sides, strict=True) if a and b])
    found = []
    for i in rows:
        inside, outside = sides[0][i], sides[1][i]
        mean_in = np.mean(inside) if inside else np.mean(outside) + gap
        mean_out = np.mean(outside) if outside else np.mean(inside) - gap
        found.append(norm.logpdf(target[i], mean_in, spread[0]) - norm.logpdf(target[i], mean_out, spread[1]))
    return np.array(found)


def test_the_likelihood_ratio_is_that_of_the_paper():
    draw = np.random.default_rng(0)
    shadows, trained = draw.normal(size=(6, 40)), draw.random((6, 40)) < 0.6
    trained[:, 0], trained[:, 1] = True, False
    target = draw.normal(size=40)
    assert np.allclose(
        likelihood_ratio(target, shadows, trained), literal(target, shadows, trained), rtol=0, atol=1e-10
    )


def test_a_model_that_remembers_is_found_and_one_that_does_not_is_not():
    draw = np.random.default_rng(1)
    level = draw.normal(size=300)
    trained = draw.random((17, 300)) < 0.6
    for memory, found in ((1.5, True), (0.0, False)):
        models = level + memory * trained + 0.5 * draw.normal(size=(17, 300))
        ratio = likelihood_ratio(models[0], models[1:], trained[1:])
        auroc = attack_auroc(ratio, trained[0])
        assert (auroc.low > 0.5) == found
        assert auroc.value > attack_auroc(models[0], trained[0]).value or not found  # levels of rows blur the loss


def test_intervals_contain_chance_where_nothing_leaks():
    draw, inside = np.random.default_rng(2), 0
    for _ in range(300):
        members = draw.random(120) < 0.64
        auroc = attack_auroc(draw.normal(size=120), members)
        inside += auroc.low <= 0.5 <= auroc.high
    assert inside >= 300 * 0.92


def test_confidences_fall_with_the_loss_and_stay_finite():
    found = confidences([0.0, 1e-30, 0.1, np.log(2), 5.0, 800.0])
    assert np.isfinite(found).all()
    assert (np.diff(found[1:]) < 0).all()


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(0.0, 0.0), (1.0, 0.0), (1.0, 1e-3), (3.0, 0.05), (0.0, 0.2), (1e3, 0.0)]
)
def test_the_bound_is_the_area_below_the_curve(epsilon, delta):
    x = np.linspace(0, 1, 200_001)
    slope = np.exp(min(epsilon, 500))
    y = np.minimum(np.minimum(delta + slope * x, 1 - (1 - delta - x) / slope), 1)
    assert private_bound(epsilon, delta) == pytest.approx(((y[1:] + y[:-1]) / 2).mean(), abs=1e-5)
