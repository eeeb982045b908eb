"""Measures of min-max runs against closed forms, brute force and numeric differentiation."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from games import P, Q, at, matrices, matrix_game, mean_of_clients, phi, point, quadratic, rows, saddle_point
from torch import nn

import fedsaddle as fs
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.metrics.measures import (
    DistanceToSaddle,
    DualityGap,
    GradientOfEnvelope,
    GradientOfPhi,
    Objective,
    Position,
    RobustAccuracy,
    SolverLimits,
    WorstClassAccuracy,
)
from fedsaddle.numerics.projections import Ball, Box
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.robust import RobustTraining
from fedsaddle.problems.supervised import Supervised
from small import classes, rows_of, seeded


def test_the_objective_counts_each_client_once():
    data, (x, y) = rows(), point()
    each = [quadratic().value(x[None], y[None], Batch(*(v[None] for v in data.client(i)))) for i in range(data.count)]
    gradients = [
        quadratic().gradients(x[None], y[None], Batch(*(v[None] for v in data.client(i)))) for i in range(data.count)
    ]
    for block in (1, 4, 4096):  # blocks that cut through clients
        f = Objective(quadratic(), data, block)
        assert f.value(x, y) == pytest.approx(float(torch.stack(each).mean()), abs=1e-12)
        for k, found in enumerate(f.gradients(x, y)):
            torch.testing.assert_close(found, torch.stack([g[k][0] for g in gradients]).mean(0), rtol=0, atol=1e-12)


def test_gradient_of_phi_of_a_quadratic_game():
    data, (x, y) = rows(), point()
    H, h = phi(data)
    found = GradientOfPhi()(at(quadratic(), x, y))
    assert found.reached
    assert found.value == pytest.approx(float((H @ x + h).square().sum()), rel=1e-7)
    _, B, C = matrices()

    def response(x, batch):
        b = (batch.x[:, P:] * batch.weight[:, None]).sum(0)
        return torch.linalg.solve(C, B.T @ x - b)

    closed = GradientOfPhi()(at(quadratic(best_response=response), x, y))
    assert closed.value == pytest.approx(float((H @ x + h).square().sum()), rel=1e-12)


def test_gradient_of_phi_is_the_numeric_derivative_of_the_maximum():
    """With y in a ball the maximum has no closed form."""
    problem, (x, y) = quadratic(project_y=Ball(0.4)), point()
    y, limits = problem.project_y(y), SolverLimits(1e-11, 10_000)
    f = Objective(problem, rows())

    def at_best(v):
        return f.value(v, f.best_response(v, y, limits).point)

    steps = 1e-6 * torch.eye(P).double()
    numeric = torch.tensor([(at_best(x + e) - at_best(x - e)) / 2e-6 for e in steps])
    assert f.best_response(x, y, limits).point.norm() == pytest.approx(0.4), "the ball does not bind"
    assert GradientOfPhi()(at(problem, x, y)).value == pytest.approx(float(numeric.square().sum()), rel=1e-6)


def test_envelope_of_a_quadratic_game():
    data, (x, y), λ = rows(), point(), 0.2
    H, h = phi(data)
    prox = torch.linalg.solve(H + torch.eye(P) / λ, x / λ - h)
    found = GradientOfEnvelope(smoothing=λ)(at(quadratic(), x, y))
    assert found.reached
    assert found.value == pytest.approx(float((x - prox).norm()) / λ, rel=1e-6)


def test_envelope_of_a_maximum_with_a_kink():
    """max_{|y| <= 1} x y = |x|, whose envelope has the slope x / λ near 0 and sign(x) beyond."""
    from fedsaddle import Minimax

    def value(x, y, batch):
        return (x * y).sum() + 0 * batch.x[:, 0]

    zero = torch.zeros(1).double()
    problem = Minimax(value, start_x=zero, start_y=zero, project_y=Box(-1.0, 1.0))
    for x, slope in ((0.05, 0.5), (0.3, 1.0), (-0.02, 0.2)):
        found = GradientOfEnvelope(smoothing=0.1)(at(problem, torch.tensor([x]).double(), zero))
        assert found.reached
        assert found.value == pytest.approx(slope, abs=1e-6)


def test_gap_of_a_matrix_game():
    data, g = rows(P * Q), torch.Generator().manual_seed(0)
    M = mean_of_clients(data).view(P, Q)
    x, y = (torch.rand(n, generator=g).double().softmax(0) for n in (P, Q))
    found = DualityGap()(at(matrix_game(), x, y, data))
    assert found.reached
    assert found.value == pytest.approx(float((x @ M).max() - (M @ y).min()), abs=1e-9)
    assert found.value > 0.1


def test_gap_of_a_quadratic_game_is_zero_at_the_saddle_only():
    data = rows()
    x, y = saddle_point(data)
    assert DualityGap()(at(quadratic(), x, y)).value == pytest.approx(0, abs=1e-12)
    A, B, C = matrices()
    H, _ = phi(data)
    K = C + B.T @ torch.linalg.solve(A, B)
    dx, dy = point()
    found = DualityGap()(at(quadratic(), x + dx, y + dy))
    assert found.value == pytest.approx(float(dx @ H @ dx + dy @ K @ dy) / 2, rel=1e-9)


def test_distance_to_a_saddle():
    data = rows()
    x, y = saddle_point(data)
    here = at(quadratic(), x + torch.tensor([3.0, 0, 0]), y + torch.tensor([0, 4.0]))
    assert DistanceToSaddle(x, y)(here) == pytest.approx(5)
    assert DistanceToSaddle(x)(here) == pytest.approx(3)
    for g in Objective(quadratic(), data).gradients(x, y):
        torch.testing.assert_close(g, torch.zeros_like(g), rtol=0, atol=1e-12)


@pytest.mark.parametrize("measure", [GradientOfPhi, DualityGap, lambda **o: GradientOfEnvelope(smoothing=1.0, **o)])
def test_it_says_when_the_tolerance_was_not_reached(measure):
    x, y = point()
    assert not measure(tolerance=1e-13, most_steps=2)(at(quadratic(), x, y)).reached
    assert measure(tolerance=1e-6)(at(quadratic(), x, y)).reached


def test_a_maximum_that_does_not_exist_is_not_reached():
    from fedsaddle import Minimax

    zero = torch.zeros(1).double()
    unbounded = Minimax(lambda x, y, batch: (x * y).sum() + batch.x[:, 0] * y.sum(), start_x=zero, start_y=zero)
    assert not GradientOfPhi()(at(unbounded, zero + 1, zero)).reached


def deep(outputs):
    return seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)))


def binary():
    data = classes()
    return rows_of([data.client(i)[0] for i in range(6)], [data.client(i)[1].clamp(max=1) for i in range(6)])


CLOSED = {
    "nonconvex-PL": lambda: (NonconvexPl(4, mu=0.7), nonconvex_pl(3, 5, 4)),
    "nonconvex-PL, in a ball": lambda: (NonconvexPl(4, project_y=Ball(0.2)), nonconvex_pl(3, 5, 4)),
    "fair": lambda: (ClassFair(model=deep(3), classes=3, penalty=0.5), classes()),
    "fair, shares": lambda: (
        ClassFair(model=deep(3), classes=3, penalty=2.0, class_shares=torch.tensor([0.2, 0.5, 0.3])),
        classes(),
    ),
    "fair, no penalty": lambda: (ClassFair(model=deep(3), classes=3, penalty=0.0), classes()),
    "auc": lambda: (MinimaxAuc(model=deep(1), positive_share=0.3), binary()),
    "auc, margin": lambda: (MinimaxAuc(model=deep(1), positive_share=0.3, margin=0.7), binary()),
    "auc, margin 0": lambda: (MinimaxAuc(model=deep(1), positive_share=0.3, margin=-5.0), binary()),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_are_what_inner_ascent_finds(name):
    problem, data = CLOSED[name]()
    data = replace(data, x=data.x.double())
    x, y = (v.double() for v in problem.initial())
    x = x + 0.3 * torch.randn(len(x), generator=torch.Generator().manual_seed(3))
    f, limits = Objective(problem, data), SolverLimits(1e-10, 20_000)
    closed = f.best_response(x, y, limits)
    assert closed.steps == 0, "no closed form was used"

    class Hidden:
        """The same problem without its closed form."""

        def __init__(self, inner):
            self.project_y, self.gradients, self.value = inner.project_y, inner.gradients, inner.value

    found = Objective(Hidden(problem), data).best_response(x, y, limits)
    assert found.reached
    assert found.steps > 0
    torch.testing.assert_close(closed.point, found.point, rtol=0, atol=1e-7)


def test_nonconvex_pl_agrees_with_its_own_figure():
    problem, data = CLOSED["nonconvex-PL"]()
    x = torch.linspace(-1, 1, 4)
    own = problem.pooled_measures(x, x, data)["squared_gradient_of_phi"]
    assert GradientOfPhi()(Position(problem, x, torch.zeros(4), data)).value == pytest.approx(own, rel=1e-12)


def test_single_precision_reaches_its_default_tolerance():
    problem, data = NonconvexPl(20), nonconvex_pl(20, 10, 20)
    data = rows_of([data.client(i)[0].float() for i in range(20)], [data.client(i)[1] for i in range(20)])
    single = torch.zeros(20, dtype=torch.float32)
    f = Objective(problem, data)
    found = f.best_response(single + 0.1, single, SolverLimits())
    assert found.point.dtype == torch.float32
    exact = problem.best_response(single.double() + 0.1, Batch(data.x.double(), data.y))
    assert found.reached
    assert (found.point - exact).abs().max() < 1e-3


def classifiers():
    return {
        "supervised": Supervised(deep(3)),
        "fair": ClassFair(model=deep(3), classes=3),
        "robust": RobustTraining(model=deep(3), shape=(4,)),
    }


@pytest.mark.parametrize("name", classifiers())
def test_worst_class_and_robust_accuracy_of_any_classifier(name):
    problem, data = classifiers()[name], classes(sizes=(30, 40))
    start = problem.initial()
    x, y = start if isinstance(start, tuple) else (start, None)
    right = (problem.module(x)(data.x).argmax(-1) == data.y).double()
    by_class = [float(right[data.y == k].mean()) for k in range(3)]
    here = Position(problem, x, y, data)
    assert WorstClassAccuracy()(here) == pytest.approx(min(by_class), abs=1e-12)
    assert WorstClassAccuracy()(here) < float(right.mean())
    all_right = rows_of([data.x], [problem.module(x)(data.x).argmax(-1)])
    own = RobustTraining(model=deep(3), shape=(4,), radius=0.8).pooled_measures(x, x, all_right)["robust_accuracy"]
    assert RobustAccuracy(radius=0.8)(Position(problem, x, y, all_right)) == own < 1
    test = classes(sizes=(9,), seed=5)
    there = Position(problem, x, y, data, test)
    assert WorstClassAccuracy()(there) == WorstClassAccuracy()(Position(problem, x, y, test))


@pytest.mark.parametrize(
    ("measure", "here", "remedy"),
    [
        (GradientOfPhi(), lambda: Position(Supervised(deep(3)), deep_start(), None, classes()), "no min-max problem"),
        (DualityGap(), lambda: Position(Supervised(deep(3)), deep_start(), None, classes()), "no min-max problem"),
        (WorstClassAccuracy(), lambda: at(quadratic(), *point()), "does not sort rows into classes"),
        (RobustAccuracy(radius=1.0), lambda: at(quadratic(), *point()), "does not sort rows into classes"),
        (DistanceToSaddle(torch.zeros(7)), lambda: at(quadratic(), *point()), r"give one of shape \(3,\)"),
        (
            GradientOfPhi(),
            lambda: at(quadratic(best_response=lambda x, b: x), *point()),
            r"give y of shape \(2,\)",
        ),
    ],
)
def test_what_cannot_be_measured(measure, here, remedy):
    with pytest.raises(BadInput, match=remedy):
        measure(here())


def deep_start():
    return Supervised(deep(3)).initial()


@pytest.mark.parametrize(
    ("key", "make"),
    [
        ("tolerance", lambda: GradientOfPhi(tolerance=0.0)),
        ("most_steps", lambda: DualityGap(most_steps=0)),
        ("smoothing", lambda: GradientOfEnvelope(smoothing=0.0)),
        ("smoothing", lambda: GradientOfEnvelope(smoothing=np.inf)),
    ],
)
def test_options_that_cannot_be(key, make):
    with pytest.raises(BadInput) as caught:
        make()
    assert caught.value.key == key


@pytest.mark.parametrize(
    "value",
    [
        GradientOfPhi(),
        GradientOfEnvelope(smoothing=0.1),
        DualityGap(),
        DistanceToSaddle(torch.zeros(1)),
        WorstClassAccuracy(),
        RobustAccuracy(radius=1.0),
        SolverLimits(),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_measure_is_a_value(value):
    with pytest.raises(FrozenInstanceError):
        value.tolerance = 1.0


def test_how_long_an_inner_solve_may_take():
    assert SolverLimits().of(torch.zeros(1).double()) == (2.0**-26, 1000)
    assert GradientOfPhi().limits == SolverLimits()
    assert DualityGap(tolerance=0.1, most_steps=1).limits == SolverLimits(0.1, 1)


@pytest.mark.parametrize("wrong", [2, 4])
def test_a_saddle_of_another_shape(wrong):
    with pytest.raises(BadInput, match=rf"x of shape \({wrong},\)' *: give one of shape \({P},\)"):
        DistanceToSaddle(torch.zeros(wrong))(at(quadratic(), *point()))


def test_the_worst_class_of_more_rows_than_one_block():
    problem, data = Supervised(deep(3)), classes(sizes=(4096 + 5,))
    right = (problem.module(problem.initial())(data.x).argmax(-1) == data.y).double()
    by_class = [float(right[data.y == k].mean()) for k in range(3)]
    found = WorstClassAccuracy()(Position(problem, problem.initial(), None, data))
    assert found == pytest.approx(min(by_class), abs=1e-12)


def test_a_class_of_a_single_row_counts_in_the_worst_class():
    from fedsaddle.metrics.measures import WorstClassAccuracy

    problem = fs.Supervised(torch.nn.Linear(1, 3, bias=False))
    rows = fs.Stacked(torch.tensor([[1.0], [1.0], [1.0]]), torch.tensor([1, 1, 2]), np.array([0, 3]))
    w = torch.tensor([0.0, 1.0, 0.5])  # says class 1 of every row
    assert WorstClassAccuracy()(Position(problem, w, None, rows, rows)) == 0.0
    assert WorstClassAccuracy()(Position(problem, torch.tensor([0.0, 1.0, 2.0]), None, rows, rows)) == 0.0
    alone = fs.Stacked(rows.x[2:], rows.y[2:], np.array([0, 1]))
    assert WorstClassAccuracy()(Position(problem, torch.tensor([0.0, 1.0, 2.0]), None, alone, alone)) == 1.0
