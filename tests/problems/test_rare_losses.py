"""Losses for rare classes, and the compositional AUC objective."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.config.registry import LOSSES as LOSSES_BY_NAME
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.problems.losses import CrossEntropy
from fedsaddle.problems.protocols import DataFacts
from fedsaddle.problems.rare_losses import ClassBalanced, Focal, LogitAdjusted
from small import seeded

COUNTS = (70, 25, 5)


def scores_and_labels(*shape):
    generator = torch.Generator().manual_seed(3)
    scores = torch.randn(*shape, 3, generator=generator, dtype=torch.float64)
    return scores, torch.randint(0, 3, shape, generator=generator)


LOSSES = {
    "focal": Focal(2.0),
    "focal, half": Focal(0.5),
    "logit-adjusted": LogitAdjusted(1.5).with_counts(COUNTS),
    "class-balanced": ClassBalanced(0.9).with_counts(COUNTS),
}


@pytest.mark.parametrize("shape", [(2, 5), (2, 5, 4)], ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_the_slope_is_the_derivative_of_the_value(name, shape):
    scores, y = scores_and_labels(*shape)
    at = scores.clone().requires_grad_()
    (expected,) = torch.autograd.grad(LOSSES[name].value(at, y).sum(), at)
    torch.testing.assert_close(LOSSES[name].slope(scores, y), expected, rtol=0, atol=1e-12)


def test_focal_by_hand():
    scores, y = scores_and_labels(2, 5)
    p = torch.softmax(scores, -1).numpy()[np.arange(2)[:, None], np.arange(5), y.numpy()]
    np.testing.assert_allclose(Focal(2.0).value(scores, y).numpy(), -((1 - p) ** 2) * np.log(p), atol=1e-12)


@pytest.mark.parametrize("loss", [Focal(0.0), LogitAdjusted(0.0, (0.2, 0.3, 0.5))], ids=["focal", "logit-adjusted"])
def test_without_effect_they_are_cross_entropy(loss):
    scores, y = scores_and_labels(2, 5)
    torch.testing.assert_close(loss.value(scores, y), CrossEntropy().value(scores, y), rtol=0, atol=1e-12)
    torch.testing.assert_close(loss.slope(scores, y), CrossEntropy().slope(scores, y), rtol=0, atol=1e-12)


def test_scores_are_shifted_by_the_shares():
    scores, y = scores_and_labels(2, 5)
    shifted = scores + 1.5 * torch.log(torch.tensor(COUNTS, dtype=torch.float64) / 100)
    expected = nn.functional.cross_entropy(shifted.flatten(0, 1), y.flatten(), reduction="none").view(2, 5)
    torch.testing.assert_close(LOSSES["logit-adjusted"].value(scores, y), expected, rtol=0, atol=1e-12)


def test_classes_are_balanced_by_their_effective_numbers():
    weights = np.array([(1 - 0.9) / (1 - 0.9**n) for n in COUNTS])
    found = LOSSES["class-balanced"].function.weight.numpy()
    np.testing.assert_allclose(found, 3 * weights / weights.sum(), rtol=1e-6)


@pytest.mark.parametrize("name", ["focal", "class-balanced", "logit-adjusted"])
def test_they_train_a_model_by_name(name):
    data = fs.load("breast-cancer", split="iid", clients=3)
    facts = DataFacts("made up", (30,), ("no", "yes"), tuple(np.bincount(data.train.y).tolist()))
    loss = LOSSES_BY_NAME[name].load()()
    model = fs.models.logistic_regression(30, 2).float()
    problem = fs.Supervised.from_data(facts, lambda scores: model, loss=loss)
    result = fs.run(fs.FedAvg(problem=problem, local_steps=2), data, rounds=2)
    assert np.isfinite(result.final("loss", "mean"))
    assert 0.5 < result.final("accuracy", "mean") <= 1


@pytest.mark.parametrize("loss", [LogitAdjusted(), ClassBalanced()], ids=["logit-adjusted", "class-balanced"])
def test_a_class_without_rows_is_refused(loss):
    with pytest.raises(BadInput, match="needs rows of every class"):
        loss.with_counts([10, 0])


@pytest.mark.parametrize("shares", [0.5, -1, {0.9, 0.1}, "0.9", (0.9, 0.0), (0.9, "0.1")])
def test_shares_that_cannot_be(shares):
    with pytest.raises(BadInput, match="shares"):
        LogitAdjusted(shares=shares)


def test_counts_are_needed():
    scores, y = scores_and_labels(2, 5)
    with pytest.raises(BadInput, match="one share for each of the 3 classes"):
        LogitAdjusted().value(scores, y)
    with pytest.raises(BadInput, match="needs the rows of each class"):
        ClassBalanced().value(scores, y)


def auc(inner_step, margin=None, **more):
    options = {"model": seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))), "margin": margin}
    if inner_step is None:
        return fs.MinimaxAuc(positive_share=0.3, **options)
    return fs.CompositionalAuc(positive_share=0.3, inner_step=inner_step, **options, **more)


def batch_and_point():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    y = torch.tensor([[1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 1]])
    at = torch.cat([auc(None).initial()[0][None].repeat(2, 1)[:, :-2], torch.tensor([[0.2, -0.1], [0.4, 0.3]])], 1)
    return Batch(x, y), at, torch.tensor([[0.3], [0.1]], dtype=torch.float64)


@pytest.mark.parametrize("margin", [None, 1.0])
def test_without_an_inner_step_it_is_plain_auc(margin):
    batch, x, y = batch_and_point()
    found, expected = (auc(step, margin).gradients(x, y, batch) for step in (0.0, None))
    for a, b in zip(found[:2], expected[:2], strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize("weight", [0.0, 1.0, 0.7])
def test_the_gradient_is_that_of_plain_auc_after_a_step_of_cross_entropy_and_that_of_cross_entropy(weight):
    batch, x, y = batch_and_point()
    plain, mine, w = auc(None), auc(0.5, inner_weight=weight), x[:, :-2].clone().requires_grad_()
    scores = plain.flat.scores(w, batch.x).squeeze(-1)
    mean = nn.functional.binary_cross_entropy_with_logits(scores, batch.y.double(), reduction="none").mean(1)
    inner = torch.autograd.grad(mean.sum(), w)[0]
    u = torch.cat([w.detach() - 0.5 * inner, x[:, -2:]], 1)
    found, at_u = mine.gradients(x, y, batch), plain.gradients(u, y, batch)
    expected = at_u.x + weight * nn.functional.pad(inner, (0, 2))
    torch.testing.assert_close(found.x, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.y, at_u.y, rtol=0, atol=1e-12)
    value = plain.value(u, y, batch) + weight * mean.detach()
    torch.testing.assert_close(mine.value(x, y, batch).detach(), value, rtol=0, atol=1e-12)
    stepped = x.clone()
    ascent = mine.descend_(stepped, y, batch, 0.1, 0.9)
    torch.testing.assert_close(stepped, 0.9 * x - 0.1 * expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(ascent.y, at_u.y, rtol=0, atol=1e-12)


def test_with_weight_one_a_step_goes_on_from_the_inner_point_as_the_published_optimiser_does():
    batch, x, y = batch_and_point()
    stepped, mine = x.clone(), auc(0.3)
    mine.descend_(stepped, y, batch, 0.3)
    u = mine.inner_point(x, batch)
    torch.testing.assert_close(stepped, u - 0.3 * auc(None).gradients(u, y, batch).x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("counts", [[], [5, 0], [0]])
def test_class_balanced_needs_rows_of_every_class(counts):
    with pytest.raises(fs.BadInput, match="needs rows of every class"):
        ClassBalanced().with_counts(counts)
