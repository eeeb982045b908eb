"""One step of the mixture of DRFA-GA where a projection has left clients without weight."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedsaddle import DrfaGa
from fedsaddle.algorithms.drfa import DrfaState
from fedsaddle.federation.randomness import server_generator
from fedsaddle.numerics.projections import Simplex
from fedsaddle.numerics.regularisers import KullbackLeibler
from fedsaddle.problems.supervised import Supervised
from small import classes, seeded, serial, vectorised

LAM = torch.tensor([0.7, 0.3, 0.0, 0.0], dtype=torch.float64)
GAMMA, STRENGTH = 8e-3, 1.0


def step(engine) -> tuple[torch.Tensor, torch.Tensor]:
    """λ after one round that starts from LAM, and the clients' losses where it starts."""
    rows, problem = classes([3, 5, 2, 4]), Supervised(seeded(lambda: nn.Linear(4, 3)))
    algorithm = DrfaGa(problem=problem, dual_step=GAMMA, regulariser=KullbackLeibler(STRENGTH), local_steps=2)
    w, clients = problem.initial(), engine(rows)
    clients.begin(0)
    after = algorithm.round(DrfaState(w, LAM), clients, server_generator(0, 0))
    pairs = [rows.client(i) for i in range(4)]
    return after.lam, torch.stack([nn.functional.cross_entropy(problem.module(w)(x), y) for x, y in pairs]).detach()


@pytest.mark.parametrize("engine", [serial, vectorised])
def test_the_mixture_does_not_jump(engine):
    """KL's slope is infinite where λ_i = 0: unbounded, one step went from here to (0, 0, 1/2, 1/2)."""
    lam, _ = step(engine)
    assert float((lam - LAM).abs().max()) < 0.1
    assert lam.argsort(descending=True)[:2].tolist() == [0, 1]
    assert (lam[2:] > 0).all(), "the regulariser draws the clients without weight back in"


@pytest.mark.parametrize("engine", [serial, vectorised])
def test_the_step_by_hand(engine):
    """`Π(λ + γ (f + ∇g))`, where `∇g_i = -μ (log(λ_i / π_i) + 1)` takes λ_i / π_i to be at least 1/1000."""
    lam, losses = step(engine)
    ratio = torch.tensor([0.7 * 4, 0.3 * 4, 1 / 1000, 1 / 1000])
    z = LAM + GAMMA * (losses - STRENGTH * (ratio.log() + 1))
    torch.testing.assert_close(lam, Simplex()(z), rtol=0, atol=1e-12)
