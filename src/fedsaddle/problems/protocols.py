"""What an algorithm may ask of a problem: a protocol for each kind of objective and ability; facts of the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.tensors import InPlace, Keys, shrink_

if TYPE_CHECKING:
    from fedsaddle.problems.outers import Outer, RatioCaps
    from fedsaddle.problems.pair_losses import PairLoss, Scores, WeightedScores
    from fedsaddle.problems.regression import LinearLayout

ModelMaker = Callable[[int], nn.Module]  # number of scores a row -> the model


@dataclass(frozen=True)
class DataFacts:
    """Facts that clients can agree on by counts."""

    name: str  # of the data set
    shape: tuple[int, ...]  # of one row
    classes: tuple[str, ...]  # empty: regression
    counts: tuple[int, ...]  # training rows of each class, over all clients; empty: regression or sequences
    text: bool = False  # rows are character codes
    model: str = ""  # the model that the config names
    groups: tuple[str, ...] = ()  # that rows belong to, of "group-fair"
    groups_by_class: tuple[tuple[int, ...], ...] = ()  # training rows of each class, of each group

    @property
    def features(self) -> int:
        """Numbers in one row."""
        return prod(self.shape)

    def need_classes(self, problem: str) -> None:
        """Refuse data without one class a row."""
        if not self.classes or not self.counts:
            raise BadInput("problem.name", problem, "needs data with classes")

    def need_two_classes(self, key: str, value: str, remedy: str = "") -> None:
        """Refuse data that have not exactly two classes."""
        if len(self.classes) != 2:
            raise BadInput(key, value, f"needs two classes, the data have {len(self.classes)}{remedy}")


Pair = tuple[Tensor, Tensor]


class PrimalGradient(NamedTuple):
    """∇_x f and, where the model has BatchNorm, its new running statistics.

    Args:
        x: ∇_x f, `(C, p)`.
        statistics: new running statistics of BatchNorm, `(C, tail)`; None if the model has none.
    """

    x: Tensor  # (C, p)
    statistics: Tensor | None = None  # (C, tail)


class DualGradient(NamedTuple):
    """∇_y f at the point before a step in x, and BatchNorm's new running statistics.

    Args:
        y: ∇_y f, `(C, q)`.
        statistics: new running statistics of BatchNorm, `(C, tail)`; None if the model has none.
    """

    y: Tensor  # (C, q)
    statistics: Tensor | None = None


class Gradients(NamedTuple):
    """∇_x f and ∇_y f at one point, and BatchNorm's new running statistics.

    Args:
        x: ∇_x f, `(C, p)`.
        y: ∇_y f, `(C, q)`.
        statistics: new running statistics of BatchNorm, `(C, tail)`; None if the model has none.
    """

    x: Tensor  # (C, p)
    y: Tensor  # (C, q)
    statistics: Tensor | None = None


class AllRows(Protocol):
    """The rows of all clients, one client after the other."""

    @property
    def x(self) -> Tensor:
        """Features, (n, ...)."""
        ...

    @property
    def y(self) -> Tensor:
        """Targets, (n, ...)."""
        ...

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Rows of each client, (N,)."""
        ...

    @property
    def count(self) -> int:
        """Number of clients N."""
        ...


@runtime_checkable
class Problem(Protocol):
    """What every problem can do: measure the rows of a client under one model."""

    def row_measures(self, w: Tensor, x: Tensor, y: Tensor, dual: Tensor | None = None, /) -> dict[str, Tensor]:
        """Measures of each row under the one model `w (d,)`, by name: at least "loss"; perhaps "accuracy"."""
        ...


@runtime_checkable
class MinimisationProblem(Problem, Protocol):
    """Each client i has f_i(w), the mean over its rows."""

    def initial(self) -> Tensor:
        """The starting vector, (d,)."""
        ...

    def value(self, w: Tensor, batch: Batch) -> Tensor:
        """f_i(w_i; batch_i) of each client, (C,)."""
        ...

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """The gradient of f_i at w_i on batch_i, (C, d)."""
        ...

    def descend_(self, w: Tensor, batch: Batch, step: float) -> Tensor:
        """`w ← w - step ∇f(w; batch)`; with BatchNorm, its statistics are written too."""
        return w.sub_(self.gradient(w, batch), alpha=step)

    def primal_gradient(self, w: Tensor, batch: Batch) -> PrimalGradient:
        """The gradient and, where the model has BatchNorm, its new running statistics."""
        return PrimalGradient(self.gradient(w, batch))

    def write_statistics_(self, w: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into w, after a step; nothing where there are none."""
        return w

    @property
    def tail(self) -> int:
        """How many entries at the end of w are BatchNorm's running statistics, which no gradient moves."""
        return 0


@runtime_checkable
class MinimaxProblem(Problem, Protocol):
    """Each client i has f_i(x, y), the mean over its rows; the server wants `min_x max_y` of their mean."""

    def project_x(self, x: Tensor, /) -> Tensor:
        """The nearest point of the set of x, along the last axis; a `Projection` may stand here as an attribute."""
        return x

    def project_y(self, y: Tensor, /) -> Tensor:
        """The nearest point of the set of y, likewise."""
        return y

    def initial(self) -> Pair:
        """The starting point, `(p,)` and `(q,)`."""
        ...

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """f_i(x_i, y_i; batch_i) of each client, (C,)."""
        ...

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """Its gradients in x and in y, (C, p) and (C, q)."""
        ...

    def gradient_x(self, x: Tensor, y: Tensor, batch: Batch) -> PrimalGradient:
        """∇_x alone, where that is cheaper than both."""
        g = self.gradients(x, y, batch)
        return PrimalGradient(g.x, g.statistics)

    def gradient_y(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """∇_y alone, likewise."""
        return self.gradients(x, y, batch).y

    def descend_(self, x: Tensor, y: Tensor, batch: Batch, step: float, keep: float = 1.0) -> DualGradient:
        """`x ← keep x - step ∇_x f`; returns ∇_y f where x was before."""
        g = self.gradients(x, y, batch)
        shrink_(x, keep).sub_(g.x, alpha=step)
        return DualGradient(g.y, g.statistics)

    def write_statistics_(self, x: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into x, after a step; nothing where there are none."""
        return x


def splits_by_row(problem: object) -> bool:
    """Whether a client's f_i is the mean of its rows' own values; otherwise its problem has `row_by_row = False`."""
    return bool(getattr(problem, "row_by_row", True))


@runtime_checkable
class PairwiseProblem(MinimisationProblem, Protocol):
    """`mean over z in S1 of f(mean over z' in S2 of ℓ(h(z), h(z')))`: eq. (1) of FedX."""

    @property
    def first(self) -> int | None:
        """The label of S1; None: all rows."""
        ...

    @property
    def second(self) -> int | None:
        """The label of S2; None: all rows."""
        ...

    @property
    def loss(self) -> PairLoss:
        """The pair loss."""
        ...

    @property
    def outer(self) -> Outer:
        """f."""
        ...

    @property
    def project_x(self) -> Projection:
        """Onto the set of w."""
        ...

    def scores_of(self, w: Tensor, x: Tensor) -> Tensor:
        """h of each client's rows, (C, B, d_o)."""
        ...

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0, keys: Keys | None = None) -> InPlace:
        """The scores in training mode, with dropout from `keys`, and what writes a gradient from a slope in them."""
        ...

    def inner_mean(self, a: Scores, b: WeightedScores) -> Tensor:
        """What u of each a is over these b: the weighted mean of ℓ, (C, A, q)."""
        ...

    def slopes(
        self,
        a: WeightedScores,
        b: WeightedScores,
        u: Tensor | None = None,
        scale: Tensor | None = None,
        caps: RatioCaps | None = None,
    ) -> Pair:
        """The slopes, in h of a and of b, of the weighted mean over all pairs of `f'(u) ℓ`; no u: f'(u) = 1."""
        ...


@runtime_checkable
class HasModel(Protocol):
    """A problem over a network, whose parameters are (the first part of) its vector."""

    @property
    def model(self) -> nn.Module | None:
        """The network; None: this problem has plain vectors."""
        ...

    def module(self, w: Tensor, /) -> nn.Module:
        """A copy of the network that carries the parameters `w (d,)`."""
        ...


class SecondOrder(NamedTuple):
    """Each client's mean negative log-likelihood with its derivatives, in double precision and without a penalty."""

    value: Tensor  # (C,)
    gradient: Tensor  # (C, d)
    hessian: Tensor  # (C, d, d)
    products: Tensor | None = None  # (C, d, d): the sum over units of the outer products of their scores, by row
    units: Tensor | None = None  # (C,): units by row, where products are wanted


@runtime_checkable
class HasHessian(MinimisationProblem, Protocol):
    """A problem that may be a negative log-likelihood over a linear model, with a Hessian in closed form."""

    def layout(self) -> LinearLayout:
        """The linear model.

        Raises:
            BadInput: if the problem has no Hessian in closed form, with the key to change.
        """
        ...

    def ridge(self) -> Tensor:
        """The second derivative of the penalty, `(d,)` in double precision: 0 for coefficients without one."""
        ...

    def estimates_variance(self) -> bool:
        """Whether rows have a variance that is estimated, as those of least squares."""
        ...

    def second_order(self, w: Tensor, batch: Batch, products: bool = False) -> SecondOrder:
        """The mean negative log-likelihood of each client at `w (C, d)`, and its derivatives, without the penalty.

        With `products` also the outer products of the units' scores: a unit's score is the sum of its rows', and each
        row is a unit where the batch knows none.
        """
        ...


@runtime_checkable
class HasBestResponse(Protocol):
    """A min-max problem that may know `argmax_y f(x, y)` in closed form."""

    @property
    def best_response(self) -> Callable[[Tensor, Batch], Tensor] | None:
        """y*(x) for one x over weighted rows `(n, ...)`; None: not known."""
        ...


@runtime_checkable
class HasBestDual(HasBestResponse, Protocol):
    """A min-max problem whose best dual over all rows is the mean of the clients' own, as in min-max AUC."""

    def best_dual(self, x: Tensor, batch: Batch) -> Tensor:
        """The y that is best for each client's batch, before projection, (C, q)."""
        ...


@runtime_checkable
class KnowsClasses(Protocol):
    """A problem whose targets may be classes."""

    def known_classes(self, rows: Tensor) -> int | None:
        """How many classes labels may name; None where they are no classes."""
        ...


@runtime_checkable
class Ranks(Protocol):
    """A problem that may rank rows of two classes."""

    def ranking(self, w: Tensor, rows: Tensor, /) -> Tensor | None:
        """One number a row, higher for likely positives; None where there are not two classes."""
        ...


@runtime_checkable
class PoolsMeasures(Protocol):
    """A problem with measures of all clients' rows together, such as the AUROC."""

    def pooled_measures(self, w: Tensor, dual: Tensor | None, rows: AllRows, /) -> dict[str, float]:
        """By name; never a mean of local ones."""
        ...


@runtime_checkable
class MeasuresClients(Protocol):
    """A problem whose loss of a row depends on the other rows: it measures whole clients."""

    def client_measures(
        self, w: Tensor, x: Tensor, y: Tensor, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
        """For each client, how many rows count, and the mean of each measure."""
        ...
