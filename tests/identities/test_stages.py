"""CODA+ and CODASCA where they are each other, or something known."""

from __future__ import annotations

import pytest
import torch

import fedsaddle as fs
from fedsaddle import CodaPlus, Codasca, LocalSgda, Minimax
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.schedules import Geometric
from fedsaddle.problems.auc import MinimaxAuc
from small import alike, classes, play, rows_of, seeded, serial, vectorised

ROUNDS = 7
PLAN = {"stage_rounds": 3, "primal_step": Geometric(0.2, 0.5), "proximal": 0.2, "batch_size": 3}
engines = pytest.mark.parametrize("engine", [serial, vectorised])


def game(**options):
    def rows(x, y, batch):
        ax, ay = batch.x @ x, batch.x @ y
        return ax.cos() + ax * ay - y @ y / 2 + x @ x / 10

    return Minimax(rows, start_x=torch.full((4,), 0.3), start_y=torch.zeros(4), **options)


def points(algorithm, rows, engine=serial):
    states = play(algorithm, engine(rows), ROUNDS)[1:]
    found = torch.stack([torch.cat([s.x, s.y]) for s in states])
    assert (found[-1] - found[0]).abs().max() > 1e-4, "nothing moved"
    return found


def same(a, b, atol=1e-12):
    torch.testing.assert_close(a, b, rtol=0, atol=atol)


def test_npa_is_coda_plus_with_a_window_of_one():
    same(
        points(fs.algorithm("NPA", problem=game(), **PLAN), classes()),
        points(CodaPlus(problem=game(), local_steps=1, **PLAN), classes()),
    )


@engines
@pytest.mark.parametrize("project", [{}, {"project_y": Ball(0.1)}])
def test_codasca_with_identical_clients_and_full_batches_is_coda_plus(engine, project):
    one = alike(classes()).client(2)
    rows = rows_of([one[0]] * 5, [one[1]] * 5)
    for output in ("last", "random"):
        options = {"problem": game(**project), "local_steps": 4, "output": output, **PLAN}
        same(points(Codasca(**options), rows, engine), points(CodaPlus(**options), rows, engine))


@engines
def test_codasca_without_momentum_is_the_box_to_the_last_bit(engine):
    plain, zero = (
        points(Codasca(problem=game(), local_steps=4, **PLAN, **more), alike(classes()), engine)
        for more in ({}, {"momentum": 0.0})
    )
    assert torch.equal(plain, zero)


def test_momentum_keeps_the_saddle_and_the_mean_of_the_variates():
    """In a round from a fixed point of the box, whose last direction is 0, momentum changes nothing."""
    plan = {"stage_rounds": 400, "primal_step": 0.1, "proximal": 0.0, "batch_size": 3, "local_steps": 2}
    problem, rows = strongly_convex(), alike(classes())
    ends = [play(Codasca(problem=problem, **plan, **more), serial(rows), 300)[-1] for more in ({}, {"momentum": 0.7})]
    same(ends[0].x, ends[1].x, atol=1e-8)
    same(ends[0].y, ends[1].y, atol=1e-8)


def strongly_convex():
    def rows(x, y, batch):
        return (batch.x * x).square().sum(-1) + x @ x + (batch.x @ x) * y.sum() + batch.x @ x - y @ y

    return Minimax(rows, start_x=torch.full((4,), 0.3), start_y=torch.zeros(1))


def test_codasca_differs_from_coda_plus_where_clients_differ():
    a, b = (points(make(problem=game(), local_steps=4, **PLAN), alike(classes())) for make in (Codasca, CodaPlus))
    assert (a - b).abs().max() > 1e-3


def test_coda_plus_without_a_proximal_term_in_one_stage_is_local_sgda():
    plain = {"problem": game(), "local_steps": 3, "batch_size": 3, "primal_step": 0.1}
    staged = CodaPlus(proximal=0.0, stage_rounds=1000, dual_step=0.2, **plain)
    same(points(staged, classes()), points(LocalSgda(dual_step=0.2, **plain), classes()))


def test_codasca_finds_the_saddle_of_different_clients_where_coda_plus_stays_away():
    """A strongly convex, strongly concave game on full batches: the variates remove the drift."""
    g = torch.Generator().manual_seed(1)
    xs = [torch.randn(1, 3, generator=g, dtype=torch.float64).expand(4, 3).contiguous() * (k + 1) for k in range(4)]
    rows = rows_of(xs, [torch.zeros(4)] * 4)

    def value(x, y, batch):
        a = batch.x
        return (a * (x - a)).square().sum(1) / 4 + (a * x) @ y - y @ y

    problem = Minimax(value, start_x=torch.zeros(3), start_y=torch.zeros(3))
    options = {"problem": problem, "local_steps": 10, "primal_step": 0.04, "proximal": 0.0, "stage_rounds": 10**6}
    distance = {}
    for make in (CodaPlus, Codasca):
        clients = vectorised(rows)
        state = play(make(**options), clients, 90)[-1]
        whole = [rows.client(i)[0] for i in range(4)]
        x, y = state.x.clone().requires_grad_(), state.y.clone().requires_grad_()
        total = sum(value(x, y, type("B", (), {"x": a})).mean() for a in whole) / 4
        distance[make] = max(v.abs().max() for v in torch.autograd.grad(total, (x, y)))
    assert distance[Codasca] < 1e-3
    assert distance[CodaPlus] > 1e-2


@pytest.mark.parametrize("margin", [None, 1.0])
def test_clients_of_one_class_take_part(margin):
    """No positives, no negatives: p is the federation's, so every gradient is finite."""
    rows = classes(sizes=(6, 6, 6), classes=2)
    labels = torch.cat([torch.zeros(6), torch.ones(6), rows.y[12:]]).long()
    rows = rows_of(list(rows.x.split(6)), list(labels.split(6)))
    problem = MinimaxAuc(model=seeded(lambda: torch.nn.Linear(4, 1)), positive_share=0.5, margin=margin)
    algorithm = Codasca(problem=problem, local_steps=3, primal_step=0.1, stage_rounds=4, batch_size=4)
    state = play(algorithm, serial(rows), 8)[-1]
    assert torch.isfinite(state.x).all()
