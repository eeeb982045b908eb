"""The objective of a min-max run over all rows of all clients, and its inner problems solved to a tolerance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.solvers import Solved, ascend, tolerance_of
from fedsaddle.problems.protocols import HasBestDual, HasBestResponse, MinimaxProblem, Pair, splits_by_row


@dataclass(frozen=True)
class SolverLimits:
    """When an inner solve stops.

    Args:
        tolerance: Residual that counts as converged; None (default): `tolerance_of` the dtype.
        most_steps: Largest number of steps.
    """

    tolerance: float | None = None
    most_steps: int = 1000

    def of(self, like: Tensor) -> tuple[float, int]:
        """The tolerance and the number of steps."""
        return tolerance_of(like.dtype) if self.tolerance is None else self.tolerance, self.most_steps


@dataclass(frozen=True)
class Objective:
    """`f(x, y) = (1/N) Σ_i f_i(x, y)`, each client counting once, computed in blocks of rows.

    Where f_i is not a mean over rows, the blocks are the clients.

    Args:
        problem: What is solved.
        rows: Rows of all clients.
        block: Number of rows evaluated at a time, which bounds the memory.
    """

    problem: MinimaxProblem
    rows: Stacked
    block: int = 4096

    @cached_property
    def everyone(self) -> Batch:
        """All rows with what each counts, `1 / (N n_i)`."""
        each = np.repeat(1 / (self.rows.sizes * self.rows.count), self.rows.sizes)
        return Batch(self.rows.x, self.rows.y, torch.from_numpy(each))

    def value(self, x: Tensor, y: Tensor) -> float:
        """f(x, y)."""
        with torch.no_grad():
            return sum(share * float(self.problem.value(x[None], y[None], part)) for share, part in self._parts(x))

    def gradients(self, x: Tensor, y: Tensor) -> Pair:
        """∇_x f and ∇_y f."""
        gx, gy = torch.zeros_like(x), torch.zeros_like(y)
        for share, part in self._parts(x):
            one = self.problem.gradients(x[None], y[None], part)
            gx.add_(one.x[0], alpha=share)
            gy.add_(one.y[0], alpha=share)
        return gx, gy

    def best_response(self, x: Tensor, y: Tensor, limits: SolverLimits) -> Solved:
        """`argmax_y f(x, y)`: the problem's closed form, or projected ascent from `y`."""
        found = self._closed_response(x)
        if found is None:
            return ascend(lambda v: self.gradients(x, v)[1], y, self.problem.project_y, *limits.of(y))
        if found.shape != y.shape:
            raise BadInput("best_response", tuple(found.shape), f"must give y of shape {tuple(y.shape)}")
        return Solved(found, 0.0, 0, True)

    @torch.no_grad()
    def _closed_response(self, x: Tensor) -> Tensor | None:
        """The problem's closed form over all rows; None: it has none."""
        closed = self.problem.best_response if isinstance(self.problem, HasBestResponse) else None
        if closed is None or splits_by_row(self.problem):
            return None if closed is None else closed(x, self._weighed(x))
        if not isinstance(self.problem, HasBestDual):
            return None
        each = [share * self.problem.best_dual(x[None], part)[0] for share, part in self._parts(x)]
        return self.problem.project_y(torch.stack(each).sum(0))

    def best_reply(self, x: Tensor, y: Tensor, limits: SolverLimits) -> Solved:
        """`argmin_x f(x, y)`, by projected descent from `x`."""
        return ascend(lambda v: -self.gradients(v, y)[0], x, self.problem.project_x, *limits.of(x))

    def proximal_point(self, x: Tensor, y: Tensor, smoothing: float, limits: SolverLimits) -> Solved:
        """`argmin_z max_y f(z, y) + |z - x|² / (2 smoothing)`.

        By ascent in y on `min_z`, which is smooth in y even where the maximum over y is not smooth in z; each minimum
        over z is found by descent, ten times as accurately, from the one before.
        """
        tolerance, most_steps = limits.of(x)
        near = Solved(x, 0.0, 0, True)

        def slope_at(v: Tensor) -> Tensor:
            nonlocal near
            near = ascend(
                lambda z: (x - z) / smoothing - self.gradients(z, v)[0],
                near.point,
                self.problem.project_x,
                tolerance / 10,
                most_steps,
            )
            return self.gradients(near.point, v)[1]

        best = ascend(slope_at, y, self.problem.project_y, tolerance, most_steps)
        slope_at(best.point)
        return near._replace(residual=best.residual, steps=best.steps, reached=best.reached and near.reached)

    def _weighed(self, like: Tensor) -> Batch:
        weight = self.everyone.weight
        assert weight is not None
        return self.everyone._replace(weight=weight.to(like.dtype))

    def _parts(self, like: Tensor) -> Iterator[tuple[float, Batch]]:
        """Blocks of rows as one client, and what each block counts."""
        if not splits_by_row(self.problem):
            for i in range(self.rows.count):
                x, y = self.rows.client(i)
                if len(y):
                    yield 1 / self.rows.count, Batch(x[None], y[None])
            return
        rows = self.everyone
        assert rows.weight is not None
        for a in range(0, len(rows.x), self.block):
            at = slice(a, a + self.block)
            weight = rows.weight[at]
            yield float(weight.sum()), Batch(rows.x[None, at], rows.y[None, at], weight[None].to(like.dtype))
