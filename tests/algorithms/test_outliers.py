"""DORO's trimming: the largest losses of a cohort are left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.local_steps import without_outliers
from fedsaddle.errors import BadInput
from small import classes, play, seeded, serial

LOCAL = {"local_steps": 2, "batch_size": 4, "primal_step": 0.1}


def problem():
    return fs.Supervised(seeded(lambda: nn.Linear(4, 3)))


def with_wrong_labels():
    """Rows tell their class, but for those of client 2."""
    told = torch.arange(120) % 3
    y = torch.where((torch.arange(120) // 20) == 2, (told + 1) % 3, told)
    return fs.Stacked(2 * nn.functional.one_hot(told, 4).double(), y, range(0, 121, 20))


@pytest.mark.parametrize(("share", "left"), [(0.0, 5), (0.19, 5), (0.2, 4), (0.5, 3), (0.99, 1)], ids=str)
def test_the_largest_losses_are_left_out(share, left):
    S, F = np.array([3, 1, 4, 0, 2]), torch.tensor([0.5, 2.0, 1.0, 3.0, 0.1])
    clients, losses = without_outliers(S, F, share)
    expected = sorted(zip(F.tolist(), S.tolist(), strict=True))[:left]
    assert sorted(zip(losses.tolist(), clients.tolist(), strict=True)) == expected
    assert [c for c in S.tolist() if c in clients] == clients.tolist(), "in the cohort's order"


@pytest.mark.parametrize("make", [fs.Drfa, fs.DeltaFl, fs.Term, fs.AaggFf], ids=lambda make: make.__name__)
def test_a_share_below_one_client_is_none(make):
    a, b = (play(make(problem=problem(), trimmed=t, **LOCAL), serial(classes()), 3)[-1].w for t in (0.0, 0.16))
    assert torch.equal(a, b)
    c, d = (play(make(problem=problem(), trimmed=t, **LOCAL), serial(classes()), 3)[-1] for t in (0.0, 0.34))
    assert not torch.equal(getattr(c, "lam", c.w), getattr(d, "lam", d.w))


def test_a_client_with_wrong_labels_does_not_take_the_weight():
    options = LOCAL | {"dual_step": 0.1, "weighting": "weight"}
    rows = with_wrong_labels()
    plain = play(fs.Drfa(problem=problem(), **options), serial(rows), 30)[-1].lam
    trimmed = play(fs.Drfa(problem=problem(), trimmed=0.2, **options), serial(rows), 30)[-1].lam
    assert float(plain[2]) > 0.5 > 0.3 > float(trimmed[2])


def test_counts_cannot_be_trimmed():
    with pytest.raises(BadInput, match=r"trimmed = 0\.2"):
        fs.DeltaFl(problem=problem(), threshold="counts", trimmed=0.2)
