"""The estimates of DRFA are unbiased: all draws are enumerated, none is sampled."""

from __future__ import annotations

from itertools import combinations, product

import pytest
import torch
from given import Overhears, one_round
from torch import nn

from fedsaddle import Drfa, DrfaGa, FedAvg
from fedsaddle.algorithms.drfa import DrfaState
from fedsaddle.algorithms.fedavg import FedAvgState
from fedsaddle.problems.supervised import Supervised
from small import alike, classes, seeded, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])
N, M, TAU, ETA, GAMMA = 4, 2, 3, 0.4, 0.05
LAM = torch.tensor([0.1, 0.4, 0.0, 0.5], dtype=torch.float64)
ROWS = alike(classes([3, 5, 2, 4]))
OPTIONS = {"local_steps": TAU, "batch_size": 2, "primal_step": ETA, "sampled_clients": M}


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


def f(i, w):
    x, y = ROWS.client(i)
    return nn.functional.cross_entropy(x @ w[:12].view(3, 4).T + w[12:], y)


def path(i, w):
    """w_i^(1) ... w_i^(τ), by autograd."""
    out = []
    for _ in range(TAU):
        at = w.clone().requires_grad_()
        w = w - ETA * torch.autograd.grad(f(i, at), at)[0]
        out.append(w)
    return torch.stack(out)


def local():
    """Every client's path, (N, τ, d)."""
    w = problem().initial()
    return torch.stack([path(i, w) for i in range(N)])


@engines
@pytest.mark.parametrize("weighting", ["sample", "weight"])
@pytest.mark.parametrize("D", [(0, 1), (3, 1), (3, 3)])
def test_the_dual_estimate(engine, weighting, D):
    """Eq. (3): the mean of τ v over t' and U is `Σ_t ∇_λ F(w^(t), λ)`, w^(t) the mean model over D."""
    if weighting == "weight" and D == (3, 3):
        D = (2, 3)  # drawn without replacement
    paths, w0 = local(), problem().initial()
    if weighting == "sample":
        models = paths[list(D)].mean(0)
    else:
        models = w0 + N / M * sum(LAM[i] * (paths[i] - w0) for i in D)
    expected = sum(torch.stack([f(i, w) for i in range(N)]) for w in models)
    total = torch.zeros(N)
    cases = list(product(range(1, TAU + 1), combinations(range(N), M)))
    for t, U in cases:
        g = Overhears()
        algorithm = Drfa(problem=problem(), weighting=weighting, regulariser=g, dual_step=GAMMA, **OPTIONS)
        one_round(algorithm, DrfaState(w0, LAM), engine(ROWS), D, t, U)
        assert g.c == pytest.approx(GAMMA * TAU)
        total += (g.z - LAM) / GAMMA  # τ v
    torch.testing.assert_close(total / len(cases), expected, rtol=0, atol=1e-10)


@engines
def test_the_model_when_clients_are_drawn_by_the_mixture(engine):
    """Over all D in [N]^m with probability `Π λ_i`, the mean of w̄ is `Σ λ_i w_i^(τ)`."""
    w0, mean, mean_of_means, chance = problem().initial(), 0.0, 0.0, 0.0
    algorithm = Drfa(problem=problem(), dual_step=GAMMA, output="average", **OPTIONS)
    for D in product(range(N), repeat=M):
        p = float(torch.prod(LAM[list(D)]))
        after = one_round(algorithm, DrfaState(w0, LAM), engine(ROWS), D, 1, (0, 1))
        mean, mean_of_means, chance = mean + p * after.w, mean_of_means + p * algorithm.model(after), chance + p
    assert chance == pytest.approx(1)
    paths = local()
    torch.testing.assert_close(mean, LAM @ paths[:, -1], rtol=0, atol=1e-12)
    torch.testing.assert_close(mean_of_means, LAM @ paths.mean(1), rtol=0, atol=1e-12)


@engines
def test_the_model_when_the_mixture_weighs(engine):
    """Over all D of m different clients, uniformly, the mean of w̄ is `Σ λ_i w_i^(τ)` as well."""
    w0, cohorts = problem().initial(), list(combinations(range(N), M))
    algorithm = Drfa(problem=problem(), dual_step=GAMMA, weighting="weight", output="average", **OPTIONS)
    after = [one_round(algorithm, DrfaState(w0, LAM), engine(ROWS), D, 1, (0, 1)) for D in cohorts]
    paths = local()
    mean = torch.stack([s.w for s in after]).mean(0)
    torch.testing.assert_close(mean, LAM @ paths[:, -1], rtol=0, atol=1e-12)
    mean = torch.stack([algorithm.model(s) for s in after]).mean(0)
    torch.testing.assert_close(mean, LAM @ paths.mean(1), rtol=0, atol=1e-12)


@engines
def test_the_model_of_drfa_ga(engine):
    w0, mean = problem().initial(), 0.0
    algorithm = DrfaGa(problem=problem(), dual_step=GAMMA, **OPTIONS)
    for D in product(range(N), repeat=M):
        p = float(torch.prod(LAM[list(D)]))
        mean = mean + p * one_round(algorithm, DrfaState(w0, LAM), engine(ROWS), D).w
    torch.testing.assert_close(mean, LAM @ local()[:, -1], rtol=0, atol=1e-12)


@engines
def test_the_model_of_uniform_fedavg(engine):
    algorithm = FedAvg(problem=problem(), weighting="uniform", **OPTIONS)
    w0, cohorts = problem().initial(), list(combinations(range(N), M))
    after = [one_round(algorithm, FedAvgState(w0), engine(ROWS), S).w for S in cohorts]
    torch.testing.assert_close(torch.stack(after).mean(0), local()[:, -1].mean(0), rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("output", ["last", "average"])
def test_a_cohort_without_weight_leaves_the_model_where_it_is(engine, output):
    """`w̄ + (N/m) Σ λ_i (w_i - w̄)` is w̄ when every λ_i of the cohort is 0, as a sparse mixture soon makes it."""
    algorithm = Drfa(problem=problem(), dual_step=GAMMA, weighting="weight", output=output, **OPTIONS)
    w0, lam = problem().initial(), torch.tensor([0.0, 0.6, 0.0, 0.4])
    after = one_round(algorithm, DrfaState(w0, lam), engine(ROWS), (0, 2), 1, (0, 1))
    torch.testing.assert_close(after.w, w0, rtol=0, atol=0)
    torch.testing.assert_close(algorithm.model(after), w0, rtol=0, atol=0)
    assert torch.isfinite(after.lam).all()
