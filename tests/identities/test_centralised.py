"""With one local step, all clients and draws that do not matter, a federated method is its centralised one."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from torch import nn

from fedsaddle import (
    AaggFf,
    DeltaFl,
    Drfa,
    DrfaGa,
    ExponentialDro,
    FedAvg,
    FedMgda,
    FedNova,
    PropFair,
    QFedAvg,
    Term,
)  # fmt: skip
from fedsaddle.numerics.projections import Simplex
from fedsaddle.problems.supervised import Supervised
from small import alike, classes, play, seeded, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])
ETA, GAMMA = 0.3, 0.2
ONE_STEP = {"local_steps": 1, "batch_size": 2, "primal_step": ETA}


def problem():
    return Supervised(seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))))


def losses(w, rows):
    """f_1(w) ... f_N(w), by plain autograd through the module."""
    module = problem().model
    parts = torch.split(w, [p.numel() for p in module.parameters()])
    values = {n: v.view(p.shape) for (n, p), v in zip(module.named_parameters(), parts, strict=True)}
    f = []
    for i in range(rows.count):
        x, y = rows.client(i)
        f.append(nn.functional.cross_entropy(torch.func.functional_call(module, values, (x,)), y))
    return torch.stack(f)


def slope(w, objective):
    at = w.clone().requires_grad_()
    (g,) = torch.autograd.grad(objective(at), at)
    return g


@engines
@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_fedavg_is_gradient_descent(engine, weighting):
    rows = alike(classes())
    p = torch.from_numpy(rows.sizes / rows.sizes.sum()) if weighting == "size" else torch.full((6,), 1 / 6)
    w = problem().initial()
    for state in play(FedAvg(problem=problem(), weighting=weighting, **ONE_STEP), engine(rows), 5)[1:]:
        w = w - ETA * slope(w, lambda v: losses(v, rows) @ p)
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
def test_fedavg_by_size_is_gradient_descent_on_all_rows_together(engine):
    rows = alike(classes())
    together = type(rows)(rows.x, rows.y, rows.offsets[[0, -1]])
    w = problem().initial()
    for state in play(FedAvg(problem=problem(), **ONE_STEP), engine(rows), 5)[1:]:
        w = w - ETA * slope(w, lambda v: losses(v, together)[0])
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
def test_weighted_drfa_is_descent_ascent(engine):
    """`w ← w - η ∇_w F(w, λ)`, then `λ ← Π(λ + γ ∇_λ F(w_new, λ))`: with τ = 1 the snapshot is the new model."""
    rows = alike(classes())
    w, lam = problem().initial(), torch.full((6,), 1 / 6)
    algorithm = Drfa(problem=problem(), dual_step=GAMMA, weighting="weight", **ONE_STEP)
    for state in play(algorithm, engine(rows), 5)[1:]:
        w = w - ETA * slope(w, lambda v, lam=lam: losses(v, rows) @ lam)
        lam = Simplex()(lam + GAMMA * losses(w, rows))
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)
        torch.testing.assert_close(state.lam, lam, rtol=0, atol=1e-12)


@engines
def test_the_mixture_of_drfa_ga_climbs_at_the_model_the_round_starts_from(engine):
    rows = classes()
    lam, states = torch.full((6,), 1 / 6), play(DrfaGa(problem=problem(), dual_step=GAMMA, **ONE_STEP), engine(rows), 4)
    for before, after in pairwise(states):
        lam = Simplex()(lam + GAMMA * losses(before.w, rows))
        torch.testing.assert_close(after.lam, lam, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("q", [0.0, 0.5, 2.0])
def test_qfedavg_is_descent_on_the_powers_of_the_losses(engine, q):
    """With one step, `Σ Δ_k` is the gradient of `Σ F_k^{q+1} / (q + 1)` and `Σ h_k` bounds its curvature."""
    rows = alike(classes())
    w = problem().initial()
    for state in play(QFedAvg(problem=problem(), q=q, **ONE_STEP), engine(rows), 5)[1:]:
        g = slope(w, lambda v: (losses(v, rows) ** (q + 1)).sum() / (q + 1))
        F = losses(w, rows)
        each = torch.stack([slope(w, lambda v, i=i: losses(v, rows)[i]) for i in range(6)])
        h = (q * F ** (q - 1) * each.square().sum(1) + F**q / ETA).sum()
        w = w - g / h
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("tail", [0.25, 0.5, 0.7, 1.0])
def test_delta_fl_is_subgradient_descent_on_the_superquantile(engine, tail):
    """With a fractional boundary: the mean loss of the worst share of the rows."""
    rows = alike(classes())
    w, n = problem().initial(), torch.from_numpy(rows.sizes).double()
    for state in play(DeltaFl(problem=problem(), tail=tail, boundary="fractional", **ONE_STEP), engine(rows), 5)[1:]:
        left, q = tail * float(n.sum()), torch.zeros(6, dtype=torch.float64)
        for k in losses(w, rows).argsort(descending=True).tolist():
            q[k] = min(float(n[k]), left)
            left -= float(q[k])
        w = w - ETA * slope(w, lambda v, q=q: (q * losses(v, rows)).sum() / q.sum())
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("t", [0.1, 1.0, 10.0])
def test_term_is_descent_on_the_tilted_loss(engine, t):
    rows, w = alike(classes()), problem().initial()
    for state in play(Term(problem=problem(), tilt=t, **ONE_STEP), engine(rows), 5)[1:]:
        w = w - ETA * slope(w, lambda v: torch.logsumexp(t * losses(v, rows), 0) / t)
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("M", [3.0, 50.0])
def test_propfair_is_descent_on_the_logarithms_of_what_is_left(engine, M):
    rows, w = alike(classes()), problem().initial()
    algorithm = PropFair(problem=problem(), ceiling=M, weighting="uniform", **ONE_STEP)
    for state in play(algorithm, engine(rows), 5)[1:]:
        w = w - ETA * slope(w, lambda v: -torch.log(M - losses(v, rows)).mean())
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
def test_fedmgda_without_freedom_is_the_mean_of_normalised_gradients(engine):
    rows, w = alike(classes()), problem().initial()
    for state in play(FedMgda(problem=problem(), freedom=0.0, server_step=0.3, **ONE_STEP), engine(rows), 5)[1:]:
        each = torch.stack([slope(w, lambda v, i=i: losses(v, rows)[i]) for i in range(6)])
        w = w - 0.3 * (each / each.norm(dim=1, keepdim=True)).mean(0)
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
def test_with_freedom_no_loss_rises_along_the_step_of_fedmgda(engine):
    rows = alike(classes())
    states = play(FedMgda(problem=problem(), freedom=1.0, server_step=1e-4, **ONE_STEP), engine(rows), 3)
    for before, after in pairwise(states):
        assert bool((losses(after.w, rows) < losses(before.w, rows)).all())


@engines
@pytest.mark.parametrize("update", ["newton", "entropy"])
def test_clients_that_are_all_the_same_keep_the_mixture_of_aaggff_uniform(engine, update):
    x, y = alike(classes([4])).client(0)
    rows = type(classes()).of(x, y, [torch.arange(4).numpy()] * 6)
    ours = play(AaggFf(problem=problem(), update=update, **ONE_STEP), engine(rows), 4)
    average = play(FedAvg(problem=problem(), weighting="uniform", **ONE_STEP), engine(rows), 4)
    for a, b in zip(ours, average, strict=True):
        torch.testing.assert_close(a.p, torch.full((6,), 1 / 6, dtype=torch.float64), rtol=0, atol=1e-12)
        torch.testing.assert_close(a.w, b.w, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("lam", [0.5, 4.0])
def test_exponential_dro_is_descent_on_the_mean_of_exponentials(engine, lam):
    """With α = β = 1, once M is common to all: the first step of a client is along its own gradient."""
    rows = alike(classes())
    options = {"temperature": lam, "inner_averaging": 1.0, "momentum_averaging": 1.0}
    states = play(ExponentialDro(problem=problem(), **options, **ONE_STEP), engine(rows), 5)
    w = states[2].w
    for state in states[3:]:
        c = float(losses(w, rows).mean())
        w = w - ETA * math.exp(-c / lam) * slope(w, lambda v: lam * torch.exp(losses(v, rows) / lam).mean())
        torch.testing.assert_close(state.w, w, rtol=0, atol=1e-12)


@engines
def test_fednova_is_fedavg_where_clients_are_of_one_size(engine):
    rows = classes([8] * 6)
    options = {"batch_size": 4, "primal_step": 0.2, "sampled_clients": 4}
    ours = play(FedNova(problem=problem(), epochs=1.5, **options), engine(rows), 4)
    average = play(FedAvg(problem=problem(), local_steps=3, **options), engine(rows), 4)
    for a, b in zip(ours, average, strict=True):
        torch.testing.assert_close(a.w, b.w, rtol=0, atol=1e-12)
