"""A quadratic game at unlike clients, whose saddle is known: strongly convex and concave, or nearly bilinear."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Everywhere
from fedsaddle.problems.facts import DataFacts, ModelMaker
from fedsaddle.problems.nonconvex_pl import NonconvexPl
from fedsaddle.problems.protocols import AllRows, Gradients
from fedsaddle.problems.supervised import shares


@dataclass(frozen=True)
class QuadraticGame(NonconvexPl):
    """`F(x, y; a, b, c) = (μ/2)|x-a|² + (x-a)'b b'(y-c) - (μ/2)|y-c|²`; a row is (a, b, c), as of `nonconvex-pl`.

    The smaller μ, the more it is like a bilinear game, around whose saddle plain steps turn. Clients have unlike
    couplings, so that local steps drift.

    Example:
        >>> import fedsaddle as fs
        >>> len(fs.QuadraticGame(dimension=5, mu=0.1).initial()[1])
        5
    """

    @classmethod
    def from_data(cls, facts: DataFacts, model_for: ModelMaker, *, mu: float = 1.0) -> QuadraticGame:  # type: ignore[override]
        """The game for rows (a, b, c); it has no model."""
        return cls(NonconvexPl.from_data(facts, model_for).dimension, mu)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        a, b, c = batch.x.chunk(3, -1)
        u, v = x[:, None] - a, y[:, None] - c
        rows = self.mu / 2 * (u.square().sum(-1) - v.square().sum(-1)) + (u * b).sum(-1) * (b * v).sum(-1)
        return (rows * shares(rows, batch)).sum(1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """`μ(x-a) + b b'(y-c)` and `b b'(x-a) - μ(y-c)`, averaged over rows."""
        a, b, c = batch.x.chunk(3, -1)
        u, v = x[:, None] - a, y[:, None] - c
        share = shares(u[..., 0], batch)
        weight = share.unsqueeze(-1) if isinstance(share, Tensor) else share
        gx = self.mu * u + b * (b * v).sum(-1, keepdim=True)
        gy = b * (b * u).sum(-1, keepdim=True) - self.mu * v
        return Gradients((gx * weight).sum(1), (gy * weight).sum(1))

    def saddle(self, rows: AllRows) -> tuple[Tensor, Tensor]:
        """(x*, y*) of the mean over clients of their means, in double precision; of the whole space."""
        each = torch.from_numpy(np.repeat(1 / (rows.sizes * rows.count), rows.sizes))
        a, b, c = (part.double() for part in rows.x.cpu().chunk(3, -1))
        coupling = b.T @ (b * each[:, None])
        at_a, at_c = each @ a, each @ c
        pull_c, pull_a = (each * (b * c).sum(-1)) @ b, (each * (b * a).sum(-1)) @ b
        eye = self.mu * torch.eye(self.dimension, dtype=torch.float64)
        system = torch.cat([torch.cat([eye, coupling], 1), torch.cat([coupling, -eye], 1)])
        found = torch.linalg.solve(system, torch.cat([self.mu * at_a + pull_c, pull_a - self.mu * at_c]))
        return found[: self.dimension], found[self.dimension :]

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """`|x - x*|² + |y - y*|²`; nothing where x or y is bounded, as the saddle is then another."""
        if not isinstance(self.project_x, Everywhere) or not isinstance(self.project_y, Everywhere):
            return {}
        to_x, to_y = self.saddle(rows)
        far = (x.cpu().double() - to_x).square().sum() + (dual.cpu().double() - to_y).square().sum()
        return {"squared_distance_to_saddle": float(far)}
