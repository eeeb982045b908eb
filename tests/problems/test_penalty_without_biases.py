"""`Supervised(l2_biases=False)`: the penalty spares biases, by finite differences, on every path; and the base rate."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.data.store import Stacked
from fedsaddle.federation.clients import Batch
from fedsaddle.problems.losses import Logistic
from fedsaddle.problems.protocols import DataFacts
from fedsaddle.problems.supervised import Supervised
from small import seeded

MODELS = {
    "linear": lambda: nn.Sequential(nn.Flatten(), nn.Linear(4, 1)),
    "chain": lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 1)),
    "vmap": lambda: nn.Sequential(nn.Linear(4, 3), nn.SiLU(), nn.Linear(3, 1)),
    "scales": lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 1)),
}


def batch(clients: int = 3, rows: int = 5) -> Batch:
    return Batch(torch.randn(clients, rows, 4), torch.randint(0, 2, (clients, rows)))


@pytest.mark.parametrize("model", MODELS)
def test_value_and_gradient(model):
    problem = Supervised(seeded(MODELS[model]), Logistic(), l2=0.7, l2_biases=False)
    w, rows = torch.randn(3, problem.dimension), batch()
    for c in range(3):
        torch.nn.utils.vector_to_parameters(w[c], problem.model.parameters())
        scores = problem.model(rows.x[c])[:, 0]
        loss = nn.functional.binary_cross_entropy_with_logits(scores, rows.y[c].double())
        weights = sum(p.square().sum() for p in problem.model.parameters() if p.ndim > 1)
        assert float(problem.value(w, rows)[c]) == pytest.approx((loss + 0.35 * weights).item(), abs=1e-12)
    g, h = problem.gradient(w, rows), 1e-6
    for j in range(problem.dimension):
        step = torch.zeros(problem.dimension)
        step[j] = h
        slope = (problem.value(w + step, rows) - problem.value(w - step, rows)) / (2 * h)
        torch.testing.assert_close(g[:, j], slope, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("model", MODELS)
def test_a_step_in_place_is_a_step_along_the_gradient(model):
    problem = Supervised(seeded(MODELS[model]), Logistic(), l2=0.7, l2_biases=False)
    w, rows = torch.randn(3, problem.dimension), batch()
    expected = w - 0.3 * problem.gradient(w, rows)
    torch.testing.assert_close(problem.descend_(w.clone(), rows, 0.3), expected, rtol=0, atol=1e-12)
    alone = [problem.descend_(w[c : c + 1].clone(), Batch(rows.x[c : c + 1], rows.y[c : c + 1]), 0.3) for c in range(3)]
    torch.testing.assert_close(torch.cat(alone), expected, rtol=0, atol=1e-12)


def test_serial_is_vectorised():
    data = Stacked(torch.randn(20, 4), torch.randint(0, 2, (20,)), np.array([0, 3, 12, 20]))

    def trained(engine: str, **options) -> torch.Tensor:
        torch.manual_seed(0)
        problem = Supervised(MODELS["chain"](), Logistic(), l2=0.5, **options)
        algorithm = fs.FedAvg(problem=problem, local_steps=3, batch_size=8, primal_step=0.1)
        return fs.run(algorithm, data, 4, engine=engine).model

    serial = trained("serial", l2_biases=False)
    torch.testing.assert_close(serial, trained("vectorised", l2_biases=False), rtol=0, atol=1e-10)
    assert (serial - trained("serial")).abs().max() > 1e-4


def facts(*counts: int) -> DataFacts:
    return DataFacts("made up", (4,), ("no", "yes"), counts)


@pytest.mark.parametrize(("counts", "bias"), [((30, 10), math.log(1 / 3)), ((1, 99), math.log(99))])
def test_a_model_can_start_from_the_base_rate(counts, bias):
    made = Supervised.from_data(facts(*counts), lambda n: MODELS["chain"](), loss=Logistic(), from_base_rate=True)
    assert made.model[2].bias.item() == pytest.approx(bias)
    zero = Supervised.from_data(facts(*counts), lambda n: MODELS["chain"](), loss=Logistic())
    assert zero.model[2].bias.item() != pytest.approx(bias)


def test_one_class_or_no_bias_leaves_the_start_alone():
    for counts, last in (((0, 5), nn.Linear(4, 1)), ((5, 5), nn.Linear(4, 1, bias=False))):
        before = [p.clone() for p in last.parameters()]
        Supervised.from_data(facts(*counts), lambda n, last=last: last, loss=Logistic(), from_base_rate=True)
        assert all(torch.equal(a, b) for a, b in zip(before, last.parameters(), strict=True))
