"""Bootstrap intervals of the AUROC: the draws are those of a plain loop, seeded, paired, and within strata."""

from __future__ import annotations

import doctest
import time
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from fedsaddle.errors import BadInput
from fedsaddle.metrics import bootstrap, histograms, ranking
from fedsaddle.metrics.bootstrap import bootstrap_auroc, interval
from fedsaddle.metrics.ranking import difference, rank


def made(n=300, share=0.1, seed=0, shift=1.0):
    rng = np.random.default_rng(seed)
    y = (rng.random(n) < share).astype(int)
    return np.round(rng.normal(size=n) + shift * y, 1), y  # rounded: with ties


def by_loop(s, y, offsets, draws, seed):
    """One draw after the other, client by client and class by class."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        rows = []
        for a, b in pairwise(offsets):
            for c in (0, 1):
                own = np.arange(a, b)[y[a:b] == c]
                rows.append(rng.choice(own, len(own)) if len(own) else own)
        at = np.concatenate(rows)
        found.append(roc_auc_score(y[at], s[at]))
    return np.array(found)


def test_the_distribution_is_that_of_a_plain_loop():
    s, y = made()
    s[200:] += 2  # a client whose scores are all higher: strata matter
    offsets = [0, 120, 200, 300]
    fast, slow = bootstrap_auroc(s, y, offsets, draws=2000)[0], by_loop(s, y, offsets, 2000, seed=1)
    assert fast.mean() == pytest.approx(slow.mean(), abs=4 * slow.std() / np.sqrt(1000))
    assert fast.std() == pytest.approx(slow.std(), rel=0.1)
    assert interval(fast) == pytest.approx(interval(slow), abs=0.015)
    unlike = bootstrap_auroc(s, y, [0, 300], draws=2000)[0]  # one stratum for all: a wider distribution here
    assert unlike.std() > 1.1 * fast.std()


def test_draws_in_one_go_and_in_pieces(monkeypatch):
    s, y = made()
    whole = bootstrap_auroc(s, y, [0, 300], draws=50, seed=3)
    assert np.array_equal(whole, bootstrap_auroc(s, y, [0, 300], draws=50, seed=3))
    assert not np.array_equal(whole, bootstrap_auroc(s, y, [0, 300], draws=50, seed=4))
    monkeypatch.setattr("fedsaddle.metrics.bootstrap.ROWS_AT_ONCE", 1)
    pieces = bootstrap_auroc(s, y, [0, 300], draws=50, seed=3)
    assert pieces.shape == (1, 50)
    assert pieces.std() == pytest.approx(whole.std(), rel=0.6)


def test_one_row_a_stratum_leaves_nothing_to_draw():
    s, y = np.array([0.1, 0.9, 0.8, 0.2]), np.array([0, 1, 0, 1])
    draws = bootstrap_auroc(s, y, [0, 2, 4], draws=20)
    assert (draws == roc_auc_score(y, s)).all()


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    """AUROC of N(1, 1) against N(0, 1) is 0.7602."""
    inside = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        s, y = np.concatenate([rng.normal(1, 1, 40), rng.normal(0, 1, 160)]), np.repeat([1, 0], [40, 160])
        low, high = interval(bootstrap_auroc(s, y, [0, 200], draws=300, seed=seed))
        inside += low <= 0.7602 <= high
    assert 51 <= inside <= 60


def test_two_models_are_drawn_together():
    s, y = made()
    both = bootstrap_auroc([s, 2 * s + 1], y, [0, 300], draws=30)
    assert np.array_equal(both[0], both[1])
    one, other = (rank(x, y, np.array([0, 150, 300]), ["a", "b"], draws=200) for x in (s, -s))
    gap, low, high = difference(one, other, draws=200)
    assert gap == pytest.approx(2 * one.pooled.auroc - 1)
    assert low < gap < high


def test_a_thousand_draws_of_ten_thousand_rows_take_seconds():
    s, y = made(10_000, 0.05)
    began = time.perf_counter()
    bootstrap_auroc(s, y, np.arange(0, 10_001, 500))
    assert time.perf_counter() - began < 10


def test_clients_of_one_class_count_but_have_no_figure():
    s, y = np.array([0.3, 0.7, 0.1, 0.2, 0.9]), np.array([0, 1, 0, 0, 1])
    found = rank(s, y, np.array([0, 2, 4, 5, 5]), ["both", "healthy", "sick", "empty"], draws=50)
    assert [c.auroc for c in found.clients] == [1.0, None, None, None]
    assert [(c.positives, c.negatives) for c in found.clients] == [(1, 1), (0, 2), (1, 0), (0, 0)]
    assert found.single_class_clients == 2  # a client without rows is none of them
    assert found.pooled.auroc == 1.0
    assert found.curve(1) is None
    assert found.curve(0) is not None
    said = found.to_dict()
    assert said["clients"][1] == {"name": "healthy", "positives": 0, "negatives": 2, "auroc": None, "interval": None}
    assert said["pooled"]["auroc"] == 1.0


def test_the_pooled_auroc_is_no_mean_of_local_ones():
    """Each client ranks its own rows perfectly, but their scores are not on one scale."""
    s, y = np.array([0.1, 0.2, 0.8, 0.9]), np.array([0, 1, 0, 1])
    found = rank(s, y, np.array([0, 2, 4]), ["a", "b"], draws=20)
    assert [c.auroc for c in found.clients] == [1.0, 1.0]
    assert found.pooled.auroc == 0.75


def test_what_cannot_be_is_named():
    with pytest.raises(BadInput, match="labels"):
        bootstrap_auroc([0.1, 0.2], [1, 1], [0, 2])
    with pytest.raises(BadInput, match="draws"):
        bootstrap_auroc([0.1, 0.2], [1, 0], [0, 2], draws=0)
    with pytest.raises(BadInput, match="scores"):
        rank(np.array([np.nan, 0.0]), np.array([0, 1]), np.array([0, 2]), ["a"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"draws": 0}, "draws = 0"),
        ({"draws": 2.5}, "draws = 2.5"),
        ({"seed": -1}, "seed = -1"),
        ({"scores": [0.1, 0.2]}, r"scores\.shape = \(1, 2\): give one score for each of the 3 labels"),
        ({"scores": [0.1, float("nan"), 0.3]}, "scores = 'not finite'"),
        ({"offsets": [0, 2]}, r"offsets = \[0, 2\]: must run from 0 up to 3"),
        ({"offsets": [0, 2, 1, 3]}, "offsets = "),
        ({"offsets": 3}, "offsets = 3"),
        ({"offsets": ["x"]}, "offsets = "),
    ],
)
def test_arguments_that_cannot_be_are_named(change, message):
    given = {"scores": [0.1, 0.2, 0.3], "labels": [0, 1, 1], "offsets": [0, 3], **change}
    with pytest.raises(BadInput, match=message):
        bootstrap_auroc(given.pop("scores"), given.pop("labels"), given.pop("offsets"), **given)


def test_the_level_of_an_interval_is_a_share():
    with pytest.raises(BadInput, match="level = 95"):
        interval([0.1, 0.2], level=95)


def test_every_client_needs_its_name():
    with pytest.raises(BadInput, match=r"len\(offsets\) = 2: 2 clients need 3 offsets"):
        rank(np.array([0.1, 0.2]), np.array([0, 1]), np.array([0, 2]), ("a", "b"))


@pytest.mark.parametrize("module", [bootstrap, ranking, histograms])
def test_examples_in_the_docstrings(module):
    found = doctest.testmod(module, extraglobs={"np": np})
    assert found.failed == 0
    assert found.attempted


def test_positives_and_negatives_are_counted():
    found = rank(np.array([0.9, 0.8, 0.7, 0.2, 0.1]), np.array([1, 1, 0, 2, -1]), np.array([0, 5]), ["a"], draws=5)
    for ranked in (found.pooled, *found.clients):
        assert (ranked.positives, ranked.negatives, ranked.single_class) == (3, 2, False)


def test_a_model_without_a_figure_has_no_difference():
    s = np.array([0.1, 0.9, 0.5])
    both, sick = (rank(s, np.array(y), np.array([0, 3]), ["a"], draws=5) for y in ([0, 1, 1], [1, 1, 1]))
    assert difference(both, sick) is None
    assert difference(sick, both) is None
    assert difference(both, both, draws=5) == (0.0, 0.0, 0.0)


def test_a_figure_is_a_value():
    with pytest.raises(FrozenInstanceError):
        ranking.RankingFigures("a", 1, 1).auroc = 1.0
