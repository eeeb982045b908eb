"""The synthetic nonconvex-PL problem of the FedSGDA paper (section 6.1), with Φ and its gradient in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Everywhere, Projection, check_projection
from fedsaddle.problems.facts import DataFacts, ModelMaker
from fedsaddle.problems.protocols import AllRows, Gradients, MinimaxProblem
from fedsaddle.problems.supervised import flat_shares, shares

MOST_DIMENSION = 100_000_000


@dataclass(frozen=True)
class NonconvexPl(MinimaxProblem):
    """`F(x, y; a, b, c) = Σ_l (1 - exp(-(x_l - a_l)² / 2ν)) + (x-a)'b b'(y-c) - (μ/2)|y-c|²`; a row is (a, b, c).

    Example:
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
