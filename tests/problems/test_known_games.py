"""Games with a known answer: gradients by autograd, answers by other means, and which methods reach them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import linprog

import fedsaddle as fs
from small import play, rows_of, vectorised

SIZES = (4, 7, 2)


def rows(width: int, seed: int = 0) -> fs.Stacked:
    """Unlike clients, of unlike sizes."""
    g = torch.Generator().manual_seed(seed)
    xs = [
        torch.randn(width, generator=g, dtype=torch.float64)
        + 0.5 * torch.randn(n, width, generator=g, dtype=torch.float64)
        for n in SIZES
    ]
    return rows_of(xs, [torch.zeros(n, dtype=torch.int64) for n in SIZES])


def mean(data: fs.Stacked) -> np.ndarray:
    """Over clients, of the means of their rows."""
    return np.mean([data.client(i)[0].numpy().mean(0) for i in range(data.count)], 0)


GAMES: dict[str, tuple[Any, int]] = {
    "matrix": (lambda: fs.MatrixGame(actions=3, replies=4), 12),
    "robust least squares": (lambda: fs.RobustLeastSquares(features=3, directions=2, strength=8.0), 6),
    "Gaussian mean": (lambda: fs.GaussianMean(dimension=4, strength=0.1), 4),
}


@pytest.mark.parametrize("name", GAMES)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_the_value(name: str, weighted: bool) -> None:
    make, width = GAMES[name]
    problem, data = make(), rows(width)
    x, y = (torch.rand(2, len(v), dtype=torch.float64, requires_grad=True) for v in problem.initial())
    batch = fs.Batch(
        data.x[None, :6].expand(2, -1, -1), torch.zeros(2, 6), torch.rand(2, 6).double() if weighted else None
    )
    gx, gy = torch.autograd.grad(problem.value(x, y, batch).sum(), (x, y))
    found = problem.gradients(x.detach(), y.detach(), batch)
    torch.testing.assert_close(found.x, gx, rtol=0, atol=1e-12)
    torch.testing.assert_close(found.y, gy, rtol=0, atol=1e-12)


def solved(problem: Any, data: fs.Stacked, rounds: int, step: float, **more: Any) -> dict[str, float]:
    algorithm = fs.Extragradient(problem=problem, primal_step=step, dual_step=step, **more)
    state = play(algorithm, vectorised(data), rounds)[-1]
    found: dict[str, float] = problem.pooled_measures(algorithm.model(state), algorithm.dual(state), data)
    return found


def test_the_value_of_a_matrix_game_is_that_of_the_linear_program() -> None:
    problem, data = fs.MatrixGame(actions=3, replies=4), rows(12)
    A = mean(data).reshape(3, 4)
    program = linprog(  # min v with A'x <= v
        [0, 0, 0, 1], A_ub=np.hstack([A.T, -np.ones((4, 1))]), b_ub=np.zeros(4), A_eq=[[1, 1, 1, 0]], b_eq=[1],
        bounds=[(0, None)] * 3 + [(None, None)],
    )  # fmt: skip
    algorithm = fs.Extragradient(problem=problem, primal_step=0.3, dual_step=0.3)
    state = play(algorithm, vectorised(data), 1500)[-1]
    x, y = algorithm.model(state).double().numpy(), algorithm.dual(state).double().numpy()
    assert x @ A @ y == pytest.approx(program.fun, abs=1e-5)
    gap = problem.pooled_measures(torch.from_numpy(x), torch.from_numpy(y), data)["duality_gap"]
    assert 0 <= gap + 1e-7 < 1e-4
    first = problem.pooled_measures(*problem.initial(), data)["duality_gap"]
    assert first == pytest.approx(A[0].max() - A[:, 0].min())


def test_robust_least_squares_ends_at_its_saddle() -> None:
    problem, data = fs.RobustLeastSquares(features=3, directions=2, strength=8.0), rows(6)
    x, y = (v.requires_grad_() for v in problem.saddle(data))
    batches = [fs.Batch(x_[None], y_[None]) for x_, y_ in map(data.client, range(data.count))]
    value = torch.stack([problem.value(x[None], y[None], batch)[0] for batch in batches]).mean()
    for g in torch.autograd.grad(value, (x, y)):
        assert float(g.abs().max()) < 1e-10
    assert solved(problem, data, 400, 0.1)["squared_distance_to_saddle"] < 1e-8


def test_the_generator_ends_at_the_mean_of_the_rows_though_the_game_is_bilinear() -> None:
    data = rows(4)
    found = solved(fs.GaussianMean(dimension=4), data, 400, 0.5)
    assert found["squared_distance_to_saddle"] < 1e-8
    plain = fs.LocalSgda(
        problem=fs.GaussianMean(dimension=4), local_steps=1, batch_size=7, primal_step=0.5, dual_step=0.5
    )
    state = play(plain, vectorised(data), 60)[-1]
    measured = plain.problem.pooled_measures(state.x, state.y, data)
    assert measured["squared_distance_to_saddle"] > 1, "descent and ascent turns outwards"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: fs.MatrixGame(actions=0), "actions = 0"),
        (lambda: fs.MatrixGame(actions=2, replies=-1), "replies = -1"),
        (lambda: fs.RobustLeastSquares(features=2, directions=2, strength=0.0), "strength = 0"),
        (lambda: fs.GaussianMean(dimension=2, strength=-1.0), "strength = -1"),
    ],
)
def test_bad_input(make: Any, message: str) -> None:
    with pytest.raises(fs.errors.BadInput, match=message):
        make()
