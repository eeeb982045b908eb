"""Exact regression: the value, gradient and Hessian of a negative log-likelihood over a linear model, in closed form.

`fs.Supervised` has them for a single linear layer with cross-entropy, the logistic, the square or the Poisson loss;
`Cox` is the partial likelihood of times to an event. All are computed in double precision, and without the penalty,
whose second derivative stands apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedsaddle.arguments import number
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.problems.losses import CrossEntropy, HasCurvature, Loss
from fedsaddle.problems.protocols import DataFacts, HasHessian, ModelMaker, SecondOrder

BLOCK = 8192  # rows at a time, in double precision


@dataclass(frozen=True)
class LinearLayout:
    """The places of a linear model's coefficients in its flat vector: weights `(outputs, inputs)`, then biases.

    Args:
        inputs: Columns of a row.
        outputs: Scores of a row.
        bias: Whether each score has an intercept.
        softmax: Whether only differences of scores count, as for cross-entropy.

    Examples:
        >>> LinearLayout(2, 1, bias=True).names(["age", "sex"])
        ['age', 'sex', 'intercept']
        >>> LinearLayout(1, 3, bias=False, softmax=True).contrasts().tolist()
        [[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]]
    """

    inputs: int
    outputs: int
    bias: bool
    softmax: bool = False

    @property
    def dimension(self) -> int:
        """Coefficients in all, d."""
        return self.outputs * (self.inputs + self.bias)

    def names(self, columns: Sequence[str] | None = None, classes: Sequence[str] | None = None) -> list[str]:
        """The names of the d coefficients; of several scores with the class in front."""
        columns = [f"x{j}" for j in range(self.inputs)] if columns is None else list(columns)
        if self.outputs == 1:
            return [*columns, *["intercept"] * self.bias]
        classes = [str(k) for k in range(self.outputs)] if classes is None else list(classes)
        weights = [f"{one}: {column}" for one in classes for column in columns]
        return weights + [f"{one}: intercept" for one in classes if self.bias]

    def contrasts(self) -> Tensor | None:
        """The differences to the first class, `((outputs - 1) (inputs + bias), d)`; None: all d count as they are."""
        if not self.softmax:
            return None
        each = torch.cat([-torch.ones(self.outputs - 1, 1), torch.eye(self.outputs - 1)], 1).double()
        weights = torch.kron(each, torch.eye(self.inputs, dtype=torch.float64))
        return _diagonal(weights, each) if self.bias else weights

    def contrast_names(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that belong to the rows of `contrasts`: all but the first class's."""
        if not self.softmax:
            return list(names)
        weights = self.outputs * self.inputs
        return [*names[self.inputs : weights], *names[weights + 1 :]]

    def redundant(self, ridge: Tensor) -> Tensor:
        """An orthonormal basis of the directions that change no difference of scores, nor the penalty, `(d, m)`."""
        if not self.softmax:
            return torch.zeros(self.dimension, 0, dtype=torch.float64)
        ones = torch.full((self.outputs, 1), self.outputs**-0.5, dtype=torch.float64)
        weights = torch.kron(ones, torch.eye(self.inputs, dtype=torch.float64))
        basis = _diagonal(weights, ones) if self.bias else weights
        return basis[:, (ridge[:, None] * basis.abs()).sum(0) == 0]

    def column(self, place: int) -> int | None:
        """The column that the coefficient at that place belongs to; None: an intercept."""
        return place % self.inputs if place < self.outputs * self.inputs else None

    def design(self, x: Tensor) -> Tensor:
        """The rows as vectors, and 1 behind each if there are intercepts: (C, B, p)."""
        rows = x.flatten(2).double()
        return torch.cat([rows, torch.ones_like(rows[..., :1])], 2) if self.bias else rows

    def places(self, device: torch.device) -> Tensor:
        """Where the flat vector's entries are among those of a matrix `(outputs, p)`, row by row."""
        at = torch.arange(self.dimension, device=device).view(self.outputs, -1)
        return torch.cat([at[:, : self.inputs].flatten(), at[:, self.inputs :].flatten()])

    def matrix(self, w: Tensor) -> Tensor:
        """The coefficients of a flat vector `(C, d)` as `(C, outputs, p)`."""
        out = torch.empty_like(w)
        out[:, self.places(w.device)] = w
        return out.view(len(w), self.outputs, -1)


def _diagonal(a: Tensor, b: Tensor) -> Tensor:
    """The two blocks on the diagonal of one matrix."""
    found: Tensor = torch.block_diag(a, b)  # type: ignore[no-untyped-call]
    return found


def linear_layout(flat: FlatModel, softmax: bool = False) -> LinearLayout:
    """The layout of a module that is a single linear layer, perhaps behind `nn.Flatten`.

    Raises:
        BadInput: if the module is something else.
    """
    chain = flat.linear_chain
    if chain is None or len(chain.links) != 1 or chain.links[0].activation is not nn.Identity:
        remedy = "has no Hessian in closed form; use fs.models.logistic_regression or nn.Linear, or fs.FedAvg"
        raise BadInput("model", type(flat.module).__name__, remedy)
    link = chain.links[0]
    return LinearLayout(link.inputs, link.outputs, link.bias, softmax)


def need_curvature(loss: Loss, outputs: int) -> HasCurvature:
    """The loss, if it has a second derivative for so many scores.

    Raises:
        BadInput: if it has none.
    """
    if not isinstance(loss, HasCurvature) or _owner(loss, "curvature") is not _owner(loss, "slope"):
        remedy = "has no second derivative here; use fs.losses.CrossEntropy, Logistic, Square or Poisson"
        raise BadInput("loss", loss.name, remedy)
    if not isinstance(loss, CrossEntropy) and outputs != 1:
        raise BadInput("model", f"{outputs} scores a row", f"the {loss.name} loss takes one score; use one output")
    return loss


def _owner(loss: Loss, method: str) -> type:
    """The class that defines the method: a loss with a slope of its own must not inherit another's curvature."""
    return next(kind for kind in type(loss).__mro__ if method in vars(kind))


def linear_second_order(
    layout: LinearLayout, loss: HasCurvature, w: Tensor, batch: Batch, share: Tensor, products: bool
) -> SecondOrder:
    """Of a loss whose scores are linear; `share (C, B)` is what each row counts in its client's mean."""
    theta, (C, d) = layout.matrix(w.double()), w.shape
    k, p = layout.outputs, layout.inputs + layout.bias
    value, gradient = theta.new_zeros(C), theta.new_zeros(C, k, p)
    hessian = theta.new_zeros(C, k, p, k, p)
    outer = None
    if products:
        outer, order = OuterProducts.over(batch, d)
        batch, share = Batch(_taken(batch.x, order), _taken(batch.y, order)), share.gather(1, order)
    for first in range(0, batch.x.shape[1], BLOCK):
        x = layout.design(batch.x[:, first : first + BLOCK])
        y, s = batch.y[:, first : first + BLOCK], share[:, first : first + BLOCK]
        scores = x @ theta.mT
        slope, curvature = loss.slope(scores, y), loss.curvature(scores, y)
        value += (loss.value(scores, y) * s).sum(1)
        gradient += (slope * s[..., None]).mT @ x
        for a in range(k):
            for b in range(a + 1):
                part = (x * (curvature[..., a, b] * s)[..., None]).mT @ x
                hessian[:, a, :, b] += part
                if a != b:
                    hessian[:, b, :, a] += part
        if outer is not None:
            outer.add((slope[..., None] * x[:, :, None]).flatten(2), first)
    at = layout.places(w.device)
    hessian = hessian.view(C, d, d)[:, at][:, :, at]
    found = SecondOrder(value, gradient.view(C, d)[:, at], hessian)
    return found if outer is None else outer.beside(found, at)


@dataclass
class OuterProducts:
    """The sum over units of the outer products of their scores, from blocks of rows that are sorted by unit.

    Args:
        real: 1 for each row, 0 for padding, `(C, B)`.
        of: The number of each row's unit, `(C, B)`, rising.
        total: The sum so far, `(C, d, d)`, without the last unit.
        last: The number of the last unit so far, `(C,)`.
        score: Its score so far, `(C, d)`.
    """

    real: Tensor
    of: Tensor
    total: Tensor
    last: Tensor
    score: Tensor

    @classmethod
    def over(cls, batch: Batch, d: int) -> tuple[OuterProducts, Tensor]:
        """The sum over no row yet, and the order of each client's rows by unit, `(C, B)`."""
        like = torch.zeros(len(batch.x), d, dtype=torch.float64, device=batch.x.device)
        real = like.new_ones(batch.x.shape[:2]) if batch.weight is None else (batch.weight > 0).double()
        each = torch.arange(real.shape[1], device=like.device).expand(real.shape)
        of = each if batch.units is None or (units := batch.units()) is None else units
        order = torch.argsort(of, dim=1, stable=True)
        of, real = of.gather(1, order), real.gather(1, order)
        return cls(real, of, like[..., None] * like[:, None], of[:, 0], like), order

    def add(self, scores: Tensor, first: int = 0) -> None:
        """Add the scores `(C, b, d)` of the rows from the first on."""
        here = slice(first, first + scores.shape[1])
        place = self.of[:, here] - self.last[:, None]
        sums = scores.new_zeros(len(scores), scores.shape[1] + 1, scores.shape[2])
        sums[:, 0] = self.score
        sums.scatter_add_(1, place[..., None].expand_as(scores), scores * self.real[:, here, None])
        each = torch.arange(len(scores), device=scores.device)
        self.last, self.score = self.of[:, here][:, -1], sums[each, place[:, -1]]
        sums[each, place[:, -1]] = 0.0
        self.total += sums.mT @ sums

    def beside(self, found: SecondOrder, at: Tensor | None = None) -> SecondOrder:
        """The other parts with these, by row; `at` are the places of the coefficients among the scores."""
        rows = self.real.sum(1)
        total = (self.total + self.score[..., None] * self.score[:, None]) / rows[:, None, None]
        seen = torch.zeros_like(self.real).scatter_add_(1, self.of, self.real)
        total = total if at is None else total[:, at][:, :, at]
        return found._replace(products=total, units=(seen > 0).double().sum(1) / rows)


def _taken(values: Tensor, order: Tensor) -> Tensor:
    """Each client's rows in its order."""
    return values[torch.arange(len(order), device=order.device)[:, None], order]


class RiskSets(NamedTuple):
    """What Efron's partial likelihood of one client needs, at its rows in order of falling times."""

    value: Tensor  # (): the sum over events of the negative log partial likelihood
    gradient: Tensor  # (d,)
    hessian: Tensor  # (d, d)
    scores: Tensor  # (n, d): what each row adds to the gradient, as in the robust variance of Lin and Wei


def efron(eta: Tensor, x: Tensor, time: Tensor, event: Tensor) -> RiskSets:
    """Efron's negative log partial likelihood of one stratum, by η `(n,)`, rows `(n, d)`, times and events `(n,)`.

    Of m events at one time, the l-th is compared with the risk set less l/m of those m. Rows count nothing where their
    time comes before the first event.
    """
    order = torch.argsort(time, descending=True, stable=True)
    eta, x, time, died = eta[order], x[order], time[order], event[order] > 0
    _, group, sizes = torch.unique_consecutive(time, return_inverse=True, return_counts=True)
    last = sizes.cumsum(0) - 1  # of each time: the risk set is all rows up to it
    top = eta.max()
    risk = (eta - top).exp()
    each = risk[:, None] * x
    whole, whole_x = risk.cumsum(0)[last], each.cumsum(0)[last]  # of each time
    tied = torch.zeros_like(whole).index_add_(0, group[died], risk[died])
    tied_x = torch.zeros_like(whole_x).index_add_(0, group[died], each[died])
    deaths = torch.bincount(group[died], minlength=len(sizes))
    of = group[died]  # the time of each event, in order
    place = torch.arange(len(of), device=of.device) - (deaths.cumsum(0) - deaths)[of]
    share = place / deaths[of].to(eta.dtype)  # l / m
    at_risk = whole[of] - share * tied[of]
    mean = (whole_x[of] - share[:, None] * tied_x[of]) / at_risk[:, None]  # the mean row of the risk set, (events, d)
    value = (at_risk.log() + top - eta[died]).sum()

    zeros = torch.zeros_like(whole)
    hazard = zeros.index_add(0, of, 1 / at_risk)
    tied_hazard = zeros.index_add(0, of, share / at_risk)
    moved = torch.zeros_like(whole_x).index_add_(0, of, mean / at_risk[:, None])
    tied_moved = torch.zeros_like(whole_x).index_add_(0, of, mean * (share / at_risk)[:, None])
    upto = hazard.flip(0).cumsum(0).flip(0)  # over the events at or before each time: times fall
    upto_x = moved.flip(0).cumsum(0).flip(0)
    own = upto[group] - died * tied_hazard[group]
    own_x = upto_x[group] - died[:, None] * tied_moved[group]
    average = torch.zeros_like(whole_x).index_add_(0, of, mean) / deaths.clamp_min(1)[:, None]
    scores = risk[:, None] * (x * own[:, None] - own_x) - died[:, None] * (x - average[group])
    hessian = (x * (risk * own)[:, None]).mT @ x - mean.mT @ mean
    back = torch.empty_like(scores)
    back[order] = scores
    return RiskSets(value, scores.sum(0), hessian, back)


@dataclass(frozen=True)
class Cox(HasHessian):
    """Cox's proportional hazards, stratified by client: the mean negative log partial likelihood, ties by Efron.

    Each client has a baseline hazard of its own, so the partial likelihood of all is the sum of the clients' own, and
    no time leaves a client. A target is two numbers, the time and whether there was an event (1) or the row was
    censored (0). A minibatch is a sample of its client's risk sets: for local steps it is an approximation, for
    `fs.Newton` all rows are taken.

    Args:
        model: A linear layer with one score and without a bias, which the baseline hazard stands for.
        l2: The ridge penalty `(l2 / 2) |w|^2`.

    Raises:
        BadInput: if the model is no such layer; later on, if a time is negative or an event is neither 0 nor 1.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Cox(torch.nn.Linear(30, 1, bias=False), l2=1e-3).layout().dimension
        30
    """

    row_by_row: ClassVar[bool] = False  # a row's loss depends on its client's other rows

    model: nn.Module
    l2: float = 0.0
    flat: FlatModel = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        number("l2", self.l2, least=0)
        object.__setattr__(self, "flat", FlatModel(self.model))
        layout = self.layout()
        if layout.outputs != 1 or layout.bias:
            shape = f"{layout.outputs} scores{' with a bias' if layout.bias else ''}"
            raise BadInput("model", shape, "use nn.Linear(inputs, 1, bias=False): the baseline hazard is the intercept")

    @classmethod
    def from_data(cls, facts: DataFacts, model_for: ModelMaker, *, l2: float = 0.0) -> Cox:
        """The problem for a linear model, whose bias is left out."""
        if facts.classes:
            raise BadInput("problem.name", "cox", "the data must have two numbers a row: the time, and 1 for an event")
        model = model_for(1)
        last = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)][-1:]
        for name in last:
            layer = model.get_submodule(name)
            assert isinstance(layer, nn.Linear)
            layer.register_parameter("bias", None)
        return cls(model, l2)

    @property
    def dimension(self) -> int:
        """Length d of the flat vector."""
        return self.flat.dimension

    def initial(self) -> Tensor:
        """The module's present parameters."""
        return self.flat.initial()

    def layout(self) -> LinearLayout:
        """The linear model."""
        return linear_layout(self.flat)

    def ridge(self) -> Tensor:
        """The same for all coefficients."""
        return torch.full((self.dimension,), float(self.l2), dtype=torch.float64)

    def estimates_variance(self) -> bool:
        """None is estimated."""
        return False

    def value(self, w: Tensor, batch: Batch) -> Tensor:
        """The mean negative log partial likelihood of each client's batch, with the penalty."""
        found = torch.stack([one.value / n for one, n in self._each(w, batch)]).to(w.dtype)
        return found + self.l2 / 2 * w.square().sum(1)

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """Its gradient."""
        found = torch.stack([one.gradient / n for one, n in self._each(w, batch)]).to(w.dtype)
        return found + self.l2 * w

    def second_order(self, w: Tensor, batch: Batch, products: bool = False) -> SecondOrder:
        """The mean negative log partial likelihood of each client, and its derivatives, without the penalty."""
        each = self._each(w, batch)
        found = SecondOrder(
            torch.stack([one.value / n for one, n in each]),
            torch.stack([one.gradient / n for one, n in each]),
            torch.stack([one.hessian / n for one, n in each]),
        )
        if not products:
            return found
        outer, order = OuterProducts.over(batch, w.shape[1])
        scores = torch.zeros(*order.shape, w.shape[1], dtype=torch.float64, device=w.device)
        for c, (one, n) in enumerate(each):
            scores[c, :n] = one.scores
        outer.add(_taken(scores, order))
        return outer.beside(found)

    def row_measures(self, w: Tensor, x: Tensor, y: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """The mean over these rows as one stratum, the same for each; clients are measured as a whole instead."""
        value = self.value(w[None], Batch(x[None], y[None]))
        return {"loss": value.expand(len(x)) - self.l2 / 2 * w.square().sum()}

    def client_measures(
        self, w: Tensor, x: Tensor, y: Tensor, offsets: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], dict[str, NDArray[np.float64]]]:
        """For each client, its rows and their mean negative log partial likelihood."""
        sizes, loss = np.diff(offsets), np.full(len(offsets) - 1, np.nan)
        for i, (a, b) in enumerate(pairwise(offsets.tolist())):
            if b > a:
                loss[i] = float(self.row_measures(w, x[a:b], y[a:b])["loss"][0])
        return sizes, {"loss": loss}

    def module(self, w: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters `w`."""
        return self.flat.module_with(w)

    def _each(self, w: Tensor, batch: Batch) -> list[tuple[RiskSets, int]]:
        """Of each client, and its rows; padding is left out."""
        if batch.y.ndim != 3 or batch.y.shape[2] != 2:
            shape = tuple(batch.y.shape[2:])
            raise BadInput("y", f"{shape} a row", "give two numbers for each row: the time, and 1 for an event, else 0")
        found = []
        for c in range(len(w)):
            real = slice(None) if batch.weight is None else batch.weight[c] > 0
            x, y = batch.x[c].flatten(1)[real].double(), batch.y[c][real].double()
            time, event = y[:, 0], y[:, 1]
            if bool((time < 0).any()):
                raise BadInput("time", float(time.min()), "must be 0 or more; leave out rows of negative times")
            if bool(((event != 0) & (event != 1)).any()):
                raise BadInput("event", float(event.max()), "must be 1 for an event and 0 for a censored row")
            found.append((efron(x @ w[c].double(), x, time, event), len(x)))
        return found


@dataclass(frozen=True)
class Fit:
    """A maximum of a likelihood, or of a penalised one, and what inference needs to know about it.

    Args:
        layout: The linear model.
        coefficients: The flat vector in double precision, `(d,)`.
        hessian: Of the mean negative log-likelihood there, `(d, d)`, without the penalty.
        ridge: The second derivative of the penalty, `(d,)`.
        rows: Of all clients that took part.
        value: The mean negative log-likelihood, without the penalty; for least squares half the mean squared error.
        estimates_variance: Whether rows have a variance that is estimated.
        products: The sum over units of the outer products of their scores, by row; None: not asked for.
        units: Of all clients that took part; as many as rows where each row is a unit.
    """

    layout: LinearLayout
    coefficients: Tensor
    hessian: Tensor
    ridge: Tensor
    rows: int
    value: float
    estimates_variance: bool = False
    products: Tensor | None = None
    units: int | None = None

    @property
    def penalised(self) -> bool:
        """Whether there is a penalty."""
        return bool((self.ridge > 0).any())

    @property
    def degrees(self) -> int:
        """How many coefficients the rows decide."""
        contrasts = self.layout.contrasts()
        return self.layout.dimension if contrasts is None else len(contrasts)

    @property
    def log_likelihood(self) -> float:
        """Of all rows; for least squares with the variance that makes it largest."""
        if self.estimates_variance:
            return -self.rows / 2 * (math.log(2 * math.pi * 2 * self.value) + 1)
        return -self.rows * self.value
