"""Losses by hand, and their slopes against autograd, for rows of one score, of classes, and of whole texts."""

from __future__ import annotations

import math

import pytest
import torch

from fedsaddle.errors import BadInput
from fedsaddle.problems.losses import CrossEntropy, Custom, Logistic, Square

C, B, T, K = 2, 3, 4, 5
CASES = {
    "cross-entropy": (CrossEntropy(), (C, B, K), lambda: torch.randint(K, (C, B))),
    "cross-entropy, texts": (CrossEntropy(), (C, B, T, K), lambda: torch.randint(K, (C, B, T))),
    "cross-entropy, pages": (CrossEntropy(), (C, B, 2, T, K), lambda: torch.randint(K, (C, B, 2, T))),
    "logistic": (Logistic(), (C, B, 1), lambda: torch.randint(2, (C, B))),
    "logistic, series": (Logistic(), (C, B, T, 1), lambda: torch.randint(2, (C, B, T)).double()),
    "square": (Square(), (C, B, 1), lambda: torch.randn(C, B)),
    "square, series": (Square(), (C, B, T, 1), lambda: torch.randn(C, B, T)),
    "custom": (Custom(lambda s, y: (s.squeeze(-1) - y).pow(4)), (C, B, 1), lambda: torch.randn(C, B)),
}
cases = pytest.mark.parametrize("name", CASES)


def literal(name, s, y):
    """The loss of one row, `s` its scores and `y` its target."""
    if name.startswith("cross"):
        each = [-torch.log_softmax(z, -1)[t] for z, t in zip(s.reshape(-1, K), y.reshape(-1), strict=True)]
        return torch.stack(each).mean()
    if name.startswith("logistic"):
        return torch.log1p(torch.exp(-(2 * y.double() - 1) * s.squeeze(-1))).mean()
    if name.startswith("square"):
        return ((s.squeeze(-1) - y) ** 2 / 2).mean()
    return ((s.squeeze(-1) - y) ** 4).mean()


@cases
def test_value_and_slope(name):
    loss, shape, targets = CASES[name]
    scores, y = torch.randn(shape), targets()
    at = scores.clone().requires_grad_()
    rows = torch.stack([torch.stack([literal(name, at[c, b], y[c, b]) for b in range(B)]) for c in range(C)])
    (slope,) = torch.autograd.grad(rows.sum(), at)
    kept = scores.clone()
    assert loss.value(scores, y).shape == (C, B)
    torch.testing.assert_close(loss.value(scores, y), rows.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(loss.slope(scores, y), slope, rtol=0, atol=1e-12)
    assert torch.equal(scores, kept)


@cases
def test_a_slope_may_be_scaled_in_place(name):
    loss, shape, targets = CASES[name]
    scores, y = torch.randn(shape), targets()
    slope = loss.slope(scores, y)
    expected = 3 * slope
    slope *= 3
    torch.testing.assert_close(slope, expected, rtol=0, atol=0)
    torch.testing.assert_close(loss.slope(scores, y), expected / 3, rtol=0, atol=1e-13)


def test_a_linear_loss_of_ones_own():
    """Its slope is the same number everywhere, which autograd hands out without storing it."""
    slope = Custom(lambda s, y: s.squeeze(-1) - y).slope(torch.randn(C, B, 1), torch.randn(C, B))
    slope *= 0.5
    assert slope.flatten().tolist() == [0.5] * (C * B)


def test_large_scores_do_not_overflow():
    huge = torch.tensor([[[1000.0, -1000.0]]])
    assert CrossEntropy().value(huge, torch.tensor([[1]])).item() == 2000
    assert CrossEntropy().value(huge, torch.tensor([[0]])).item() == 0
    assert Logistic().value(torch.tensor([[[-1000.0]]]), torch.tensor([[1]])).item() == 1000
    assert Logistic().value(torch.tensor([[[1000.0]]]), torch.tensor([[1]])).item() == 0


def test_by_hand():
    assert CrossEntropy().value(torch.zeros(1, 1, 4), torch.tensor([[2]])).item() == pytest.approx(math.log(4))
    assert CrossEntropy().slope(torch.zeros(1, 1, 4), torch.tensor([[2]]))[0, 0].tolist() == [0.25, 0.25, -0.75, 0.25]
    assert Logistic().slope(torch.zeros(1, 1, 1), torch.tensor([[1]])).item() == -0.5
    assert Square().value(torch.full((1, 1, 1), 3.0), torch.tensor([[1.0]])).item() == 2


def test_the_share_that_is_right():
    scores = torch.tensor([[[2.0, 1.0], [0.0, 5.0]]])
    assert CrossEntropy().correct(scores, torch.tensor([[0, 0]])).tolist() == [[1, 0]]
    texts = torch.tensor([[[[2.0, 1.0], [0.0, 5.0], [0.0, 1.0]]]])
    assert CrossEntropy().correct(texts, torch.tensor([[[0, 0, 1]]]))[0, 0].item() == pytest.approx(2 / 3)
    assert Logistic().correct(torch.tensor([[[0.3], [-2.0], [0.1]]]), torch.tensor([[1, 0, 0]])).tolist() == [[1, 1, 0]]
    assert Square().correct(torch.zeros(1, 2, 1), torch.zeros(1, 2)) is None
    assert Custom(lambda s, y: s).correct(torch.zeros(1, 2, 1), torch.zeros(1, 2)) is None


@pytest.mark.parametrize("wrong", [lambda s, y: s.mean(), lambda s, y: s], ids=["a mean", "not squeezed"])
def test_a_loss_of_ones_own_gives_one_number_a_row(wrong):
    with pytest.raises(BadInput, match="must give the loss of each row"):
        Custom(wrong).value(torch.zeros(1, 2, 1), torch.zeros(1, 2))


def test_a_loss_of_ones_own_where_gradients_are_switched_off():
    with torch.no_grad():
        slope = Custom(lambda s, y: (s.squeeze(-1) - y).square()).slope(torch.ones(1, 2, 1), torch.zeros(1, 2))
    assert slope.flatten().tolist() == [2, 2]
