"""Games with a known answer: FedSGDA's nonconvex-PL simulation (section 6.1), and a quadratic game."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Everywhere, Projection, check_projection
from fedsaddle.problems.protocols import AllRows, DataFacts, Gradients, MinimaxProblem, ModelMaker
from fedsaddle.problems.supervised import flat_shares, shares

MOST_DIMENSION = 100_000_000


@dataclass(frozen=True)
class NonconvexPl(MinimaxProblem):
    """`F(x, y; a, b, c) = Σ_l (1 - exp(-(x_l - a_l)² / 2ν)) + (x-a)'b b'(y-c) - (μ/2)|y-c|²`; a row is (a, b, c).

    Args:
        dimension: p, dimension of x and of y.
        mu: μ, strong concavity in y.
        nu: ν, width of the wells in x.
        project_x: projection of x, of `fs.projections`; none by default.
        project_y: projection of y, of `fs.projections`; none by default.

    Examples:
        >>> import fedsaddle as fs
        >>> len(fs.NonconvexPl(dimension=5).initial()[0])
        5
    """

    dimension: int = 100  # p
    mu: float = 1.0
    nu: float = 1.0
    project_x: Projection = field(default_factory=Everywhere)
    project_y: Projection = field(default_factory=Everywhere)

    def __post_init__(self) -> None:
        whole("dimension", self.dimension, most=MOST_DIMENSION)
        number("mu", self.mu, above=0)
        number("nu", self.nu, above=0)
        for key, start in zip(("project_x", "project_y"), self.initial(), strict=True):
            check_projection(key, getattr(self, key), start)

    @classmethod
    def from_data(cls, facts: DataFacts, model_for: ModelMaker, *, mu: float = 1.0, nu: float = 1.0) -> NonconvexPl:
        """The problem for rows (a, b, c); it has no model."""
        if facts.model != "none":
            raise BadInput("model.name", facts.model, "nonconvex-pl has no model; say name = 'none'")
        if facts.features % 3:
            remedy = f"its rows have {facts.features} numbers, not (a, b, c); use nonconvex-pl"
            raise BadInput("data.name", facts.name, remedy)
        return cls(facts.features // 3, mu, nu)

    def initial(self) -> tuple[Tensor, Tensor]:
        """Zero, as in the paper."""
        return torch.zeros(self.dimension), torch.zeros(self.dimension)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        a, b, c = batch.x.chunk(3, -1)
        u, v = x[:, None] - a, y[:, None] - c
        rows = (1 - (-u.square() / (2 * self.nu)).exp()).sum(-1)
        rows = rows + (u * b).sum(-1) * (b * v).sum(-1) - self.mu / 2 * v.square().sum(-1)
        return (rows * shares(rows, batch)).sum(1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """`u/ν exp(-u²/2ν) + b b'(y-c)` and `b b'(x-a) - μ(y-c)`, averaged over rows."""
        a, b, c = batch.x.chunk(3, -1)
        u, v = x[:, None] - a, y[:, None] - c
        share = shares(u[..., 0], batch)
        weight = share.unsqueeze(1) if isinstance(share, Tensor) else u.new_full((len(u), 1, u.shape[1]), share)
        bell = u.square().mul_(-0.5 / self.nu).exp_().mul_(u)
        along = torch.stack([(b * v).sum(-1), (b * u).sum(-1)], 1) * weight  # b'(y-c) and b'(x-a), (C, 2, B)
        gx, gy = torch.bmm(along, b).unbind(1)
        return Gradients(gx + torch.bmm(weight, bell)[:, 0] / self.nu, gy - self.mu * torch.bmm(weight, v)[:, 0])

    def best_response(self, x: Tensor, batch: Batch) -> Tensor:
        """`y*(x) = E[c] + E[b b'(x - a)] / μ`, projected (f is round in y), for one x and weighted rows `(n, 3p)`."""
        a, b, c = batch.x.chunk(3, -1)
        share = flat_shares(batch, b[:, 0])
        weight = share[:, None] if isinstance(share, Tensor) else share
        inner = ((x - a) * b).sum(-1, keepdim=True)
        return self.project_y(((c + b * inner / self.mu) * weight).sum(0))

    def gradient_of_phi(self, x: Tensor, rows: AllRows) -> Tensor:
        """∇Φ(x) = ∇_x f(x, y*(x)), f the mean over clients of their means."""
        weight = _client_weights(rows, x.dtype)
        y = self.best_response(x, Batch(rows.x, rows.y, weight))
        return self.gradient_x(x[None], y[None], Batch(rows.x[None], rows.y[None], weight[None])).x[0]

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """The value of each row at the present pair."""
        y = self.initial()[1].to(x.dtype) if dual is None else dual
        one = Batch(rows[:, None], labels[:, None])
        return {"loss": self.value(x.expand(len(rows), -1), y.expand(len(rows), -1), one)}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """|∇Φ(x)|², the paper's measure."""
        return {"squared_gradient_of_phi": float(self.gradient_of_phi(x, rows).square().sum())}


def _client_weights(rows: AllRows, dtype: torch.dtype) -> Tensor:
    each = np.repeat(1 / (rows.sizes * rows.count), rows.sizes)
    return torch.from_numpy(each).to(dtype)


@dataclass(frozen=True)
class QuadraticGame(NonconvexPl):
    """`F(x, y; a, b, c) = (μ/2)|x-a|² + (x-a)'b b'(y-c) - (μ/2)|y-c|²`; a row is (a, b, c), as of `nonconvex-pl`.

    The smaller μ, the more it is like a bilinear game, around whose saddle plain steps turn. Clients have unlike
    couplings, so that local steps drift.

    Args:
        dimension: p, dimension of x and of y.
        mu: μ, strong convexity in x and concavity in y; the smaller, the closer to a bilinear game.
        nu: ν, which this game does not use.
        project_x: projection of x, of `fs.projections`; none by default.
        project_y: projection of y, of `fs.projections`; none by default.

    Examples:
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
        solution = torch.linalg.solve(system, torch.cat([self.mu * at_a + pull_c, pull_a - self.mu * at_c]))
        return solution[: self.dimension], solution[self.dimension :]

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """`|x - x*|² + |y - y*|²`; nothing where x or y is bounded, as the saddle is then another."""
        if not isinstance(self.project_x, Everywhere) or not isinstance(self.project_y, Everywhere):
            return {}
        to_x, to_y = self.saddle(rows)
        far = (x.cpu().double() - to_x).square().sum() + (dual.cpu().double() - to_y).square().sum()
        return {"squared_distance_to_saddle": float(far)}
