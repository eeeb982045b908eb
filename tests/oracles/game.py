"""A smooth game with rows `a`: `cos(a·x) + (a·x)(a·y) - |y|²/2 + |x|²/10`, by hand and for the library."""

from __future__ import annotations

import numpy as np
import torch
from draws import World

from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.problems.minimax import Minimax

X0, Y0 = np.array([0.5, -0.3, 0.2, 0.1]), np.array([0.1, 0.2, -0.1, 0.3])


def problem(**projections):
    def rows(x, y, batch):
        ax, ay = batch.x @ x, batch.x @ y
        return ax.cos() + ax * ay - y @ y / 2 + x @ x / 10

    return Minimax(rows, start_x=torch.tensor(X0), start_y=torch.tensor(Y0), **projections)


def gradients(x, y, rows):
    """Row by row, then the mean."""
    gx, gy = np.zeros(4), np.zeros(4)
    for a in rows:
        gx += -np.sin(a @ x) * a + (a @ y) * a + x / 5
        gy += (a @ x) * a - y
    return gx / len(rows), gy / len(rows)


class GameWorld(World):
    def rows(self, round, exchange, client, step, size, stream=0):
        keys = ClientKeys.of(self.seed, round, exchange, np.array([client]))
        return self.xs[client][keys.rows(np.array([self.sizes[client]]), step, size, stream)[0]]
