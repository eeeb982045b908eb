"""Games whose figures are known in closed form, over clients of unequal size."""

from __future__ import annotations

import numpy as np
import torch

from fedsaddle.data.store import Stacked
from fedsaddle.metrics.measures import Position
from fedsaddle.numerics.projections import Simplex
from fedsaddle.problems.minimax import Minimax

SIZES = (3, 1, 6, 2)
P, Q = 3, 2


def matrices():
    g = torch.Generator().manual_seed(4)
    a, c = torch.randn(P, P, generator=g).double(), torch.randn(Q, Q, generator=g).double()
    return a @ a.T / 2 + torch.eye(P), torch.randn(P, Q, generator=g).double(), c @ c.T / 2 + torch.eye(Q)


def rows(width=P + Q, seed=1):
    x = torch.randn(sum(SIZES), width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Stacked(x, torch.zeros(len(x)), np.concatenate([[0], np.cumsum(SIZES)]))


def mean_of_clients(data):
    """Each client counts once, however many rows it has."""
    return torch.stack([data.client(i)[0].mean(0) for i in range(data.count)]).mean(0)


def quadratic(**options):
    """`x'Ax/2 + x'By - y'Cy/2 + a'x - b'y`; a row is (a, b)."""
    A, B, C = matrices()

    def value(x, y, batch):
        a, b = batch.x[:, :P], batch.x[:, P:]
        return x @ A @ x / 2 + x @ B @ y - y @ C @ y / 2 + a @ x - b @ y

    start = {"start_x": torch.zeros(P).double(), "start_y": torch.zeros(Q).double()}
    return Minimax(value, **start, **options)


def phi(data):
    """Φ(x) = x'Hx/2 + h'x + constant: H and h."""
    A, B, C = matrices()
    a, b = mean_of_clients(data).split([P, Q])
    return A + B @ torch.linalg.solve(C, B.T), a - B @ torch.linalg.solve(C, b)


def saddle_point(data):
    _, B, C = matrices()
    H, h = phi(data)
    x = torch.linalg.solve(H, -h)
    return x, torch.linalg.solve(C, B.T @ x - mean_of_clients(data)[P:])


def matrix_game():
    """`x'My` on simplices; each row is a matrix, and clients have different ones."""

    def value(x, y, batch):
        return torch.einsum("i,nij,j->n", x, batch.x.view(-1, P, Q), y)

    even = {"start_x": torch.full((P,), 1 / P).double(), "start_y": torch.full((Q,), 1 / Q).double()}
    return Minimax(value, **even, project_x=Simplex(), project_y=Simplex())


def point(seed=2):
    g = torch.Generator().manual_seed(seed)
    return torch.randn(P, generator=g).double(), torch.randn(Q, generator=g).double()


def at(problem, x, y, data=None):
    return Position(problem, x, y, rows() if data is None else data)
