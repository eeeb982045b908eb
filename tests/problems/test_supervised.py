"""f_i and its gradient against the plainest use of the module."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.problems.losses import Custom, Square
from fedsaddle.problems.supervised import Supervised, shares
from small import SIZES, classes, seeded

MODELS = {
    "chain": lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)),
    "vmap": lambda: nn.Sequential(nn.Linear(4, 5), nn.SiLU(), nn.Linear(5, 3)),
}


def everything(clients):
    rows = classes()
    numbers = torch.tensor(clients).numpy()
    return rows, LocalSite(rows, numbers, ClientKeys.of(0, 0, 0, numbers)).everything()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("l2", [0.0, 0.3])
@pytest.mark.parametrize("clients", [[2], [0, 1, 2, 5], [4, 4]], ids=["one", "unequal sizes", "equal sizes"])
def test_the_mean_over_all_rows_of_unequal_clients(model, l2, clients):
    problem = Supervised(seeded(MODELS[model]), l2=l2)
    rows, batch = everything(clients)
    assert (batch.weight is None) == (len({SIZES[i] for i in clients}) == 1)
    w = torch.randn(len(clients), problem.dimension)
    value, gradient = problem.value(w, batch), problem.gradient(w, batch)
    for c, i in enumerate(clients):
        torch.nn.utils.vector_to_parameters(w[c], problem.model.parameters())
        x, y = rows.client(i)
        f = nn.functional.cross_entropy(problem.model(x), y)
        f = f + l2 / 2 * sum(p.square().sum() for p in problem.model.parameters())
        g = torch.autograd.grad(f, list(problem.model.parameters()))
        assert float(value[c]) == pytest.approx(f.item(), abs=1e-12)
        torch.testing.assert_close(gradient[c], torch.cat([v.flatten() for v in g]), rtol=0, atol=1e-12)


def test_neither_vector_nor_batch_is_changed():
    problem = Supervised(seeded(MODELS["chain"]), l2=0.3)
    _, batch = everything([0, 1])
    w = torch.randn(2, problem.dimension)
    before = (w.clone(), batch.x.clone(), batch.y.clone(), batch.weight.clone())
    problem.value(w, batch)
    problem.gradient(w, batch)
    assert all(torch.equal(a, b) for a, b in zip((w, *batch[:3]), before, strict=True))


def test_measures_of_each_row_and_a_trained_module():
    problem = Supervised(seeded(MODELS["chain"]), l2=0.3)
    x, y = classes().client(2)
    w = torch.randn(problem.dimension)
    measures = problem.row_measures(w, x, y)
    scores = problem.module(w)(x)
    torch.testing.assert_close(measures["loss"], nn.functional.cross_entropy(scores, y, reduction="none").detach())
    assert measures["accuracy"].tolist() == (scores.argmax(-1) == y).double().tolist()
    regression = Supervised(seeded(lambda: nn.Linear(4, 1)), loss=Square())
    assert set(regression.row_measures(regression.initial(), x, torch.randn(len(x)))) == {"loss"}


def test_regression():
    problem = Supervised(seeded(lambda: nn.Linear(3, 1)), loss=Square())
    x, y, w = torch.randn(2, 5, 3), torch.randn(2, 5), torch.randn(2, 4)
    residual = (x @ w[:, :3, None]).squeeze(-1) + w[:, 3:] - y
    torch.testing.assert_close(problem.value(w, Batch(x, y)), (residual**2 / 2).mean(1))
    expected = torch.cat([torch.einsum("cb,cbj->cj", residual, x) / 5, residual.mean(1, keepdim=True)], 1)
    torch.testing.assert_close(problem.gradient(w, Batch(x, y)), expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("clients", [1, 2])
def test_a_linear_loss_of_ones_own(clients):
    problem = Supervised(seeded(lambda: nn.Linear(3, 1)), loss=Custom(lambda s, y: s.squeeze(-1) - y))
    x = torch.randn(clients, 5, 3)
    g = problem.gradient(torch.randn(clients, 4), Batch(x, torch.randn(clients, 5)))
    torch.testing.assert_close(g, torch.cat([x.mean(1), torch.ones(clients, 1)], 1), rtol=0, atol=1e-12)


def test_what_a_row_counts():
    like = torch.zeros(2, 4)
    assert shares(like, Batch(like, like)) == 0.25
    weight = torch.tensor([[1.0, 1, 1, 1], [1, 1, 0, 0]])
    assert shares(like, Batch(like, like, weight)).tolist() == [[0.25] * 4, [0.5, 0.5, 0, 0]]


def test_a_negative_penalty():
    for wrong in (-0.1, float("nan"), float("inf")):
        with pytest.raises(BadInput, match="l2 = "):
            Supervised(nn.Linear(2, 2), l2=wrong)


def test_compiling_is_asked_for_once(monkeypatch):
    asked = []
    monkeypatch.setattr(torch, "compile", lambda f: asked.append(f) or f)
    problem = Supervised(seeded(MODELS["vmap"]), compiled=True)
    _, batch = everything([0, 1])
    w = torch.randn(2, problem.dimension)
    expected = Supervised(seeded(MODELS["vmap"])).gradient(w, batch)
    torch.testing.assert_close(problem.gradient(w, batch), expected, rtol=0, atol=0)
    problem.gradient(w, batch)
    assert len(asked) == 1
