"""Games whose answer is known: a matrix game on simplices, robust least squares, and the mean of a Gaussian."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import number, whole
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Everywhere, Projection, Simplex
from fedsaddle.problems.protocols import AllRows, Gradients, MinimaxProblem
from fedsaddle.problems.supervised import shares

MOST = 100_000


def _mean_row(rows: AllRows) -> Tensor:
    """The mean over clients of the means of their rows, in double precision."""
    each = torch.from_numpy(np.repeat(1 / (rows.sizes * rows.count), rows.sizes))
    return each @ rows.x.flatten(1).cpu().double()


def _mean_of(batch: Batch) -> Tensor:
    """The mean row of each client, (C, features)."""
    share = shares(batch.x[..., 0], batch)
    return batch.x.mean(1) if not isinstance(share, Tensor) else (batch.x * share.unsqueeze(-1)).sum(1)


@dataclass(frozen=True)
class MatrixGame(MinimaxProblem):
    """`min_x max_y x' A y` over mixtures x and y of actions, A the mean of rows that are flat matrices.

    Both players are on simplices, and the game is bilinear: its value is that of a linear program. Plain descent and
    ascent turns around the saddle for ever; the `duality_gap` says how far a pair is from it.

    Args:
        actions: m, actions of the minimiser.
        replies: n, actions of the maximiser; None is m.

    Examples:
        >>> import fedsaddle as fs
        >>> [len(v) for v in fs.MatrixGame(actions=3, replies=2).initial()]
        [3, 2]
    """

    actions: int
    replies: int | None = None
    project_x: Projection = field(default_factory=Simplex, init=False)
    project_y: Projection = field(default_factory=Simplex, init=False)

    def __post_init__(self) -> None:
        whole("actions", self.actions, most=MOST)
        if self.replies is not None:
            whole("replies", self.replies, most=MOST)

    @property
    def columns(self) -> int:
        """n."""
        return self.actions if self.replies is None else self.replies

    def initial(self) -> tuple[Tensor, Tensor]:
        """All of the first action: the uniform mixtures may be the answer."""
        x, y = torch.zeros(self.actions), torch.zeros(self.columns)
        x[0] = y[0] = 1
        return x, y

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """`x' A y` of each client."""
        return (x * (self._matrix(batch) @ y.unsqueeze(-1)).squeeze(-1)).sum(-1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """`A y` and `A' x`."""
        A = self._matrix(batch)
        return Gradients((A @ y.unsqueeze(-1)).squeeze(-1), (A.mT @ x.unsqueeze(-1)).squeeze(-1))

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """What the maximiser gets by each row."""
        y = self.initial()[1].to(x.dtype) if dual is None else dual
        return {"loss": rows.view(-1, self.actions, self.columns) @ y @ x}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """`max_j (A'x)_j - min_i (A y)_i`, which is 0 at a saddle and nowhere else."""
        A = _mean_row(rows).view(self.actions, self.columns)
        gap = (A.mT @ x.cpu().double()).max() - (A @ dual.cpu().double()).min()
        return {"duality_gap": float(gap)}

    def _matrix(self, batch: Batch) -> Tensor:
        return _mean_of(batch).view(-1, self.actions, self.columns)


@dataclass(frozen=True)
class RobustLeastSquares(MinimaxProblem):
    """`min_x max_y E[(a'x - b - c'y)² / 2] - (λ / 2) |y|²`; a row is (a, b, c), and c'y moves the target b.

    The adversary y is shared by all rows; λ above the largest eigenvalue of E[c c'] makes the game concave in y, and
    its saddle solves a linear system.

    Args:
        features: p, length of a and of x.
        directions: q, length of c and of y.
        strength: λ, what moving the targets costs.

    Examples:
        >>> import fedsaddle as fs
        >>> len(fs.RobustLeastSquares(features=3, directions=2).initial()[1])
        2
    """

    features: int
    directions: int
    strength: float = 10.0  # λ
    project_x: Projection = field(default_factory=Everywhere, init=False)
    project_y: Projection = field(default_factory=Everywhere, init=False)

    def __post_init__(self) -> None:
        whole("features", self.features, most=MOST)
        whole("directions", self.directions, most=MOST)
        number("strength", self.strength, above=0)

    def initial(self) -> tuple[Tensor, Tensor]:
        """Zero."""
        return torch.zeros(self.features), torch.zeros(self.directions)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        r, _, _ = self._residuals(x, y, batch.x)
        return (r.square() / 2 * shares(r, batch)).sum(1) - self.strength / 2 * y.square().sum(-1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """`E[r a]` and `-E[r c] - λ y`, with r the residual."""
        r, a, c = self._residuals(x, y, batch.x)
        r = (r * shares(r, batch)).unsqueeze(-1)
        return Gradients((r * a).sum(1), -(r * c).sum(1) - self.strength * y)

    def saddle(self, rows: AllRows) -> tuple[Tensor, Tensor]:
        """(x*, y*): `E[a a'] x - E[a c'] y = E[a b]` and `E[c a'] x - (E[c c'] - λ) y = E[c b]`."""
        each = torch.from_numpy(np.repeat(1 / (rows.sizes * rows.count), rows.sizes))
        a, b, c = self._parts(rows.x.cpu().double())
        both = torch.cat([a, -c], 1)
        system = (both * each[:, None]).T @ both
        system[self.features :, self.features :] -= self.strength * torch.eye(self.directions, dtype=torch.float64)
        solution = torch.linalg.solve(system, (both * (each * b)[:, None]).sum(0))
        return solution[: self.features], solution[self.features :]

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Half the squared residual of each row, at the present y."""
        y = self.initial()[1].to(x.dtype) if dual is None else dual
        return {"loss": self._residuals(x[None], y[None], rows[None])[0][0].square() / 2}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """`|x - x*|² + |y - y*|²`."""
        return {"squared_distance_to_saddle": _distance(x, dual, *self.saddle(rows))}

    def _parts(self, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p = self.features
        return rows[..., :p], rows[..., p], rows[..., p + 1 :]

    def _residuals(self, x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        a, b, c = self._parts(rows)
        r = (a @ x.unsqueeze(-1)).squeeze(-1) - b - (c @ y.unsqueeze(-1)).squeeze(-1)
        return r, a, c


@dataclass(frozen=True)
class GaussianMean(MinimaxProblem):
    """`min_x max_y y'(E[b] - x) - (λ / 2) |y|²`: a generator N(x, I) against a linear discriminator y of rows b.

    The simplest generative adversarial game: at the saddle x is the mean of the rows, and y = 0. With λ = 0 it is
    bilinear.

    Args:
        dimension: p, length of a row.
        strength: λ, penalty on the discriminator.

    Examples:
        >>> import fedsaddle as fs
        >>> len(fs.GaussianMean(dimension=4).initial()[0])
        4
    """

    dimension: int
    strength: float = 0.0  # λ
    project_x: Projection = field(default_factory=Everywhere, init=False)
    project_y: Projection = field(default_factory=Everywhere, init=False)

    def __post_init__(self) -> None:
        whole("dimension", self.dimension, most=MOST)
        number("strength", self.strength, least=0)

    def initial(self) -> tuple[Tensor, Tensor]:
        """Zero."""
        return torch.zeros(self.dimension), torch.zeros(self.dimension)

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        return (y * (_mean_of(batch) - x)).sum(-1) - self.strength / 2 * y.square().sum(-1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """`-y` and `E[b] - x - λ y`."""
        return Gradients(-y, _mean_of(batch) - x - self.strength * y)

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """Half the squared distance of each row from x."""
        return {"loss": (rows - x).square().sum(-1) / 2}

    def pooled_measures(self, x: Tensor, dual: Tensor, rows: AllRows) -> dict[str, float]:
        """`|x - E[b]|² + |y|²`."""
        mean = _mean_row(rows)
        return {"squared_distance_to_saddle": _distance(x, dual, mean, torch.zeros_like(mean))}


def _distance(x: Tensor, y: Tensor, to_x: Tensor, to_y: Tensor) -> float:
    return float((x.cpu().double() - to_x).square().sum() + (y.cpu().double() - to_y).square().sum())
