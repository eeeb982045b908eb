"""Private views of problems: per-example gradients and losses, clipped, summed, and noised.

They have the interface of the problems, and accept only batches with noise, so that nothing can leave without it.

For a chain of linear layers no row's gradient is formed: in a linear layer it is the outer product of the slope `d` in
the layer's output and the layer's input `h`, so that its norm is `|d| |h|` (Goodfellow 2015); and the sum of clipped
gradients is the gradient of rows whose slopes are clipped. Other modules go row by row through `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Generic, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.federation.records import is_record, replaced
from fedsaddle.numerics.chain import Chain, _slope
from fedsaddle.numerics.flat import FlatModel, ShapedModel, flat_model
from fedsaddle.numerics.tensors import ScoresCohorts, clip_factors, clipped_sum, shrink_
from fedsaddle.privacy.site import SampleNoise
from fedsaddle.problems.protocols import (
    DualGradient,
    Gradients,
    HasBestDual,
    HasBestResponse,
    MeasuresClients,
    MinimaxProblem,
    MinimisationProblem,
    Pair,
    PairwiseProblem,
    PrimalGradient,
    Problem,
    splits_by_row,
)
from fedsaddle.problems.scored import ByScores, Slopes
from fedsaddle.problems.supervised import Supervised

P = TypeVar("P", bound=Problem)


@runtime_checkable
class HasPenalty(Protocol):
    """A problem with a penalty on the parameters of its model."""

    model: nn.Module
    l2: float
    l2_biases: bool


@runtime_checkable
class HasRowSlopes(Protocol):
    """A problem over a model that knows the slopes of single rows by formula."""

    flat: FlatModel

    def weights(self, x: Tensor) -> Tensor:
        """The model's part of x."""
        ...

    def row_slopes(self, scores: Tensor, x: Tensor, y: Tensor, batch: Batch) -> Slopes:
        """The slope of each row's own loss."""
        ...


RowGradients = Callable[[Tensor, Tensor, Tensor], Tensor]  # (d,), (B, ...) and slopes -> (B, d)


class RowSums(NamedTuple):
    """The sum of clipped rows, and the factor of each row."""

    total: Tensor  # (C, d)
    factors: Tensor  # (C, B)


class Bound(NamedTuple):
    """How rows are clipped."""

    limit: float  # the largest norm of a row's gradient
    weight: Tensor  # (C, B): at most 1; 0 for padding
    more: Tensor | None = None  # (C, B): squares of what else belongs to the row's gradient

    def factors(self, squares: Tensor) -> Tensor:
        """The factor of each row, from the squares of its gradient in the model."""
        return clip_factors(squares if self.more is None else squares + self.more, self.limit, self.weight)


def row_scores(flat: FlatModel, w: Tensor, x: Tensor) -> list[Tensor]:
    """The scores of each client's rows, last in a list of all that `row_sums` needs."""
    chain = flat.linear_chain
    with torch.no_grad():
        return chain.forward(w, x) if chain is not None and chain.fits(x) else [flat.scores(w, x)]


def row_sums(
    flat: FlatModel, w: Tensor, x: Tensor, outputs: list[Tensor], slope: Tensor, bound: Bound, more: int = 0
) -> RowSums:
    """The sum over rows of their clipped gradients; `slope (C, B, ...)` is each row's own, in its scores.

    The total has room for `more` numbers at its end, which are the caller's to fill.
    """
    chain = flat.linear_chain
    if chain is not None and chain.fits(x):
        return chain_sums(chain, w, outputs, slope, bound, more)
    sums = module_sums(flat, w, x, slope, bound)
    return RowSums(torch.nn.functional.pad(sums.total, (0, more)), sums.factors) if more else sums


def chain_sums(chain: Chain, w: Tensor, outputs: list[Tensor], slope: Tensor, bound: Bound, more: int = 0) -> RowSums:
    """The same for a chain of linear layers, from the outputs of all layers."""
    d, last = slope, len(chain.links) - 1
    slopes: list[Tensor] = [d] * (last + 1)
    squares: Tensor | None = None
    weights = [part for part in _layers_of(chain, w) if part.ndim == 3]
    for k in range(last, -1, -1):
        d = slopes[k] = _slope(chain.links[k].activation, outputs[k + 1], d)
        before = torch.linalg.vector_norm(outputs[k], dim=-1).square_()
        own = torch.linalg.vector_norm(d, dim=-1).square_() * (before + 1 if chain.links[k].bias else before)
        squares = own if squares is None else squares + own
        d = torch.bmm(d, weights[k]) if k else d
    assert squares is not None
    factors = bound.factors(squares)
    total = w.new_empty(len(w), w.shape[1] + more)
    own = total[:, : w.shape[1]]
    _chain_total_(own, chain, outputs, slopes, factors)
    if not torch.isfinite(own.sum()):  # 0 times infinity: rows that count nothing must not be seen, either
        here = (factors != 0).unsqueeze(-1)
        outputs, slopes = ([torch.where(here, v, 0.0) for v in values] for values in (outputs, slopes))
        _chain_total_(own, chain, outputs, slopes, factors)
    return RowSums(total, factors)


def _chain_total_(total: Tensor, chain: Chain, outputs: list[Tensor], slopes: list[Tensor], factors: Tensor) -> None:
    """Write the sum of the rows' gradients, each times its factor, into `total (C, d)`."""
    into = iter(_layers_of(chain, total))
    for k, link in enumerate(chain.links):
        counted = slopes[k] * factors.unsqueeze(-1)
        next(into).baddbmm_(counted.mT, outputs[k], beta=0)
        if link.bias:
            next(into).copy_(counted.sum(1))


def module_sums(flat: FlatModel, w: Tensor, x: Tensor, slope: Tensor, bound: Bound) -> RowSums:
    """The same for any module, client by client, through the gradients of single rows."""
    totals, factors = [], []
    for c, own in enumerate(w.detach()):
        more = None if bound.more is None else bound.more[c]
        sums = _client_sums(flat, own, x[c], slope[c], Bound(bound.limit, bound.weight[c], more))
        totals.append(sums.total)
        factors.append(sums.factors)
    return RowSums(torch.stack(totals), torch.stack(factors))


def _client_sums(flat: FlatModel, w: Tensor, x: Tensor, slope: Tensor, bound: Bound) -> RowSums:
    """Of one client: `w (d,)`, `x (B, ...)`."""

    def score(at: Tensor, row: Tensor, weighted: Tensor) -> Tensor:
        return (flat.bound(at)(row.unsqueeze(0)).squeeze(0) * weighted).sum()

    def one_by_one(at: Tensor, rows: Tensor, weighted: Tensor) -> Tensor:
        return torch.stack([each(at, row, own) for row, own in zip(rows, weighted, strict=True)])

    def as_clients(at: Tensor, rows: Tensor, weighted: Tensor) -> Tensor:
        return flat.pullback(at.expand(len(rows), -1), rows.unsqueeze(1)).pull(weighted.unsqueeze(1))

    each = torch.func.grad(score)
    gradients: RowGradients = torch.func.vmap(each, in_dims=(None, 0, 0), randomness="error")
    if isinstance(flat.module, ScoresCohorts):  # a pass of its own for several clients, of one row each
        gradients = as_clients
    elif not flat.takes_cohorts(x[None].expand(2, *x.shape)):
        gradients = one_by_one
    total, factors = torch.zeros_like(w), []
    rows = max(1, MOST // len(w))
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        g = gradients(w, x[part], slope[part])
        more = None if bound.more is None else bound.more[part]
        factor = Bound(bound.limit, bound.weight[part], more).factors(g.square().sum(1))
        total += factor @ torch.where(torch.isfinite(g), g, 0.0)
        factors.append(factor)
    return RowSums(total, torch.cat(factors))


def _layers_of(chain: Chain, w: Tensor) -> list[Tensor]:
    """Views of `w (C, d)` as weights `(C, out, in)` and biases `(C, out)`, in order."""
    parts = iter(w.split_with_sizes(chain.sizes, -1))
    layers: list[Tensor] = []
    for link in chain.links:
        layers.append(next(parts).view(len(w), link.outputs, link.inputs))
        if link.bias:
            layers.append(next(parts))
    return layers


MOST = 1 << 24  # entries of per-example gradients in memory at a time


@dataclass(frozen=True)
class Sensitivities:
    """The largest contribution of a row to each field, which its noise is scaled by."""

    primal: float
    dual: float
    loss: float


def check_problem(problem: object) -> None:
    """Raise `BadInput` for a problem whose gradient is not a sum over rows."""
    name = type(problem).__name__
    if isinstance(problem, PairwiseProblem | MeasuresClients):
        raise BadInput("problem", name, "compares rows with each other, so that its gradient does not split by row")
    if not splits_by_row(problem):
        remedy = "takes an inner step over all rows of a batch, so that its gradient does not split by row"
        raise BadInput("problem", name, f"has no private form: it {remedy}; use auc (fs.MinimaxAuc)")
    flat = getattr(problem, "flat", None)
    if isinstance(flat, FlatModel) and (flat.tail or _has_batch_norm(flat.module)):
        remedy = "normalises a row by the others of its batch, and keeps their statistics; use nn.GroupNorm"
        raise BadInput("model", "BatchNorm", f"has no private form: it {remedy}")
    loss = getattr(problem, "loss", None)
    if getattr(loss, "row_counts", None) is not None:
        remedy = "weights rows by the others of their batch, so it has no private form; use one without class weights"
        raise BadInput("loss", type(loss).__name__, remedy)
    for key, all_rows in (("trimmed", 0.0), ("hardest", 1.0)):
        if getattr(problem, key, all_rows) != all_rows:
            remedy = "selects rows by the losses of the others, so it has no private form; leave it out"
            raise BadInput(key, getattr(problem, key), remedy)


def _has_batch_norm(module: nn.Module) -> bool:
    """Whether a layer normalises rows by each other, with or without running statistics."""
    return any(isinstance(part, nn.modules.batchnorm._BatchNorm) for part in module.modules())


def check_model(problem: Problem, rows: Tensor, labels: Tensor) -> None:
    """Refuse dropout, and models and problems that mix rows; `rows (n, ...)` give the shape and type to test with."""
    check_network(problem, rows)
    if not _by_formula(problem) and mixes_gradients(bare(problem), rows, labels):
        remedy = "the gradient of a batch is not the mean of its rows' own, so that it does not split by row"
        raise BadInput("problem", type(problem).__name__, f"has no private form: {remedy}")


def check_network(problem: object, rows: Tensor) -> None:
    """Refuse dropout, and models that mix rows."""
    flat = getattr(problem, "flat", None)
    if not isinstance(flat, FlatModel):
        return
    if flat.draws(rows[None]):
        remedy = "draws its masks for whole batches, so it has no private form; leave it out: noise regularises, too"
        raise BadInput("model", "dropout", remedy)
    if flat.linear_chain is None and mixes_rows(flat, rows):
        remedy = "scores a row by the others of its batch, so that its gradient does not split by row; leave that out"
        raise BadInput("model", type(flat.module).__name__, f"has no private form: it {remedy}")


def mixes_rows(flat: FlatModel, rows: Tensor) -> bool:
    """Whether the score of a row depends on the other rows, tested on random rows of the same shape and type."""
    g = torch.Generator().manual_seed(0)
    made = torch.randn(3, *rows.shape[1:], generator=g, dtype=torch.float64).to(rows.device)
    made = made.to(rows.dtype) if rows.is_floating_point() else rows[:1].expand(3, *rows.shape[1:]).clone()
    w = flat.initial()
    w = w + 0.1 * torch.randn(w.shape, generator=g, dtype=torch.float64).to(w)
    with torch.no_grad():
        together = flat.scores(w[None], made[None])[0]
        try:
            alone = torch.cat([flat.scores(w[None], row[None, None])[0] for row in made])
        except (BadInput, ValueError, RuntimeError):  # it takes no row by itself
            return True
    return not torch.allclose(together, alone, rtol=1e-3, atol=1e-4, equal_nan=True)


def mixes_gradients(problem: Problem, rows: Tensor, labels: Tensor) -> bool:
    """Whether the gradient of two rows together is not the mean of theirs, at a point near the start."""
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)
    g, start = torch.Generator().manual_seed(0), problem.initial()
    first = start if isinstance(start, tuple) else (start,)
    at = [v + 0.1 * torch.randn(v.shape, generator=g, dtype=torch.float64).to(v) for v in first]

    def gradients(some: slice) -> tuple[Tensor, ...]:
        return _gradients(problem, [v[None] for v in at], Batch(rows[None, some], labels[None, some]))

    together, *alone = (gradients(some) for some in (slice(0, 2), slice(0, 1), slice(1, 2)) if some.start < len(rows))
    if len(alone) < 2:
        return False
    for whole, one, two in zip(together, *alone, strict=True):
        mean = (one + two) / 2
        if not torch.allclose(whole, mean, rtol=1e-3, atol=1e-4 * float(mean.abs().max()), equal_nan=True):
            return True
    return False


def _by_formula(problem: object) -> bool:
    """Whether the library knows the gradients of single rows by formula: not where a subclass has its own gradient."""
    kind: type = type(problem)
    if isinstance(problem, Supervised):
        return all(getattr(kind, name) is getattr(Supervised, name) for name in ("value", "gradient", "_gradient"))
    if not issubclass(kind, ByScores) or not isinstance(problem, HasRowSlopes):
        return False
    owners = {next(part for part in kind.__mro__ if name in vars(part)) for name in ("slopes", "row_slopes")}
    return kind.gradients is ByScores.gradients and len(owners) == 1


def _gradients(problem: MinimisationProblem | MinimaxProblem, at: Sequence[Tensor], batch: Batch) -> tuple[Tensor, ...]:
    """The gradient of each player at a point."""
    if isinstance(problem, MinimaxProblem):
        return problem.gradients(at[0], at[1], batch)[:2]
    return (problem.gradient(at[0], batch),)


def bare(problem: P) -> P:
    """The problem without penalty and bound, which are not part of a row's gradient, and not compiled."""
    plain = {"l2": 0.0, "clip": None, "compiled": False}
    known = {f.name for f in fields(problem) if f.init} if is_record(problem) else set[str]()
    changed = {k: v for k, v in plain.items() if k in known and getattr(problem, k) != v}
    return replaced(problem, **changed) if changed else problem


def penalty_model(problem: object) -> ShapedModel | None:
    """The model with the penalty on its parameters; None without a penalty."""
    if not getattr(problem, "l2", 0.0) or not isinstance(problem, HasPenalty):
        return None
    flat = flat_model(problem.model, True, problem.l2, problem.l2_biases, None)
    return flat if isinstance(flat, ShapedModel) else None


def noise_of(batch: Batch) -> SampleNoise:
    """The noise that a batch carries."""
    if not isinstance(batch.keys, SampleNoise):
        raise BadInput("batch", "without noise", "a private gradient needs a batch of a private site")
    return batch.keys


class _Shared(Generic[P]):
    """Common part of both kinds of private problem."""

    def __init__(self, problem: P, limits: Sensitivities) -> None:
        check_problem(problem)
        self.plain, self.limits = problem, limits
        self.bare, self.penalty, self.by_formula = bare(problem), penalty_model(problem), _by_formula(problem)

    def __getattr__(self, name: str) -> object:
        """Sizes and settings of the plain problem; its methods are refused, as their results would have no noise."""
        value: object = getattr(self.plain, name)
        if callable(value):
            remedy = f"{type(self.plain).__name__}.{name} has no private form; choose an algorithm that does without it"
            raise BadInput("privacy", name, remedy)
        return value

    @property
    def tail(self) -> int:
        """No running statistics."""
        return 0

    def write_statistics_(self, w: Tensor, statistics: Tensor | None) -> Tensor:
        """No statistics to write."""
        return w

    def row_measures(self, w: Tensor, x: Tensor, y: Tensor, dual: Tensor | None = None, /) -> dict[str, Tensor]:
        """Measures of rows, for evaluation only."""
        return self.plain.row_measures(w, x, y, dual)

    def _penalised(self, g: Tensor, w: Tensor) -> Tensor:
        """With the gradient of the penalty, which does not depend on rows."""
        if self.penalty is not None:
            size = self.penalty.dimension
            self.penalty.shape_(g[:, :size], w[:, :size])
        return g

    def _values(self, each: Tensor, drawn: SampleNoise) -> Tensor:
        """The private mean of row values `each (C, B)`, of which each counts between 0 and the bound, (C,)."""
        most = self.limits.loss
        bounded = torch.where(torch.isfinite(each), each, most).clamp(0.0, most)
        return drawn.mean_of((bounded * drawn.weight).sum(1, keepdim=True), most)[:, 0]


class PrivateMinimisation(_Shared[MinimisationProblem], MinimisationProblem):
    """A minimisation problem for private clients."""

    def initial(self) -> Tensor:
        """The starting vector."""
        return self.plain.initial()

    def value(self, w: Tensor, batch: Batch) -> Tensor:
        """The mean of the rows' losses, each at most the bound, with noise; and the penalty."""
        drawn, bare = noise_of(batch), self.bare
        if self.by_formula and isinstance(bare, Supervised):
            with torch.no_grad():
                each = bare.loss.value(bare.flat.scores(w, batch.x), batch.y)
        else:
            each = torch.stack([_row_values(bare, (own,), batch, c) for c, own in enumerate(w)])
        value = self._values(each, drawn)
        return value if self.penalty is None else value + self.penalty.penalty(w)

    def gradient(self, w: Tensor, batch: Batch) -> Tensor:
        """The mean of the rows' clipped gradients, with noise; and the gradient of the penalty."""
        drawn, bare, limit = noise_of(batch), self.bare, self.limits.primal
        if self.by_formula and isinstance(bare, Supervised):
            outputs = row_scores(bare.flat, w, batch.x)
            slope = bare.loss.slope(outputs[-1], batch.y)
            total = row_sums(bare.flat, w, batch.x, outputs, slope, Bound(limit, drawn.weight)).total
        else:
            total = torch.stack([_row_sums(bare, (own,), batch, c, (limit,))[0] for c, own in enumerate(w)])
        return self._penalised(drawn.mean_of(total, limit), w)

    def primal_gradient(self, w: Tensor, batch: Batch) -> PrimalGradient:
        """The same; there are no statistics."""
        return PrimalGradient(self.gradient(w, batch))

    def descend_(self, w: Tensor, batch: Batch, step: float) -> Tensor:
        """`w ← w - step` times the private gradient."""
        return w.sub_(self.gradient(w, batch), alpha=step)


class PrivateMinimax(_Shared[MinimaxProblem], MinimaxProblem):
    """A min-max problem for private clients."""

    def initial(self) -> Pair:
        """The starting point."""
        return self.plain.initial()

    @property
    def project_x(self) -> Callable[[Tensor], Tensor]:
        """Of the problem."""
        return self.plain.project_x

    @property
    def project_y(self) -> Callable[[Tensor], Tensor]:
        """Of the problem."""
        return self.plain.project_y

    @property
    def best_response(self) -> Callable[[Tensor, Batch], Tensor] | None:
        """Whether the problem knows one."""
        return self.plain.best_response if isinstance(self.plain, HasBestResponse) else None

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """No algorithm asks for it."""
        raise BadInput("problem", type(self.plain).__name__, "the value of a min-max problem has no private form")

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """Both players' means of the rows' clipped gradients, each with noise."""
        drawn, (sum_x, sum_y) = noise_of(batch), self._sums(x, y, batch)
        gx = drawn.mean_of(sum_x, self.limits.primal)
        return Gradients(self._penalised(gx, x), drawn.mean_of(sum_y, self.limits.dual))

    def gradient_x(self, x: Tensor, y: Tensor, batch: Batch) -> PrimalGradient:
        """The gradient of x only."""
        gx = noise_of(batch).mean_of(self._sums(x, y, batch)[0], self.limits.primal)
        return PrimalGradient(self._penalised(gx, x))

    def gradient_y(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The gradient of y only."""
        return noise_of(batch).mean_of(self._sums(x, y, batch)[1], self.limits.dual)

    def descend_(self, x: Tensor, y: Tensor, batch: Batch, step: float, keep: float = 1.0) -> DualGradient:
        """`x ← keep x - step ∇_x`; returns ∇_y where x was before."""
        g = self.gradients(x, y, batch)
        shrink_(x, keep).sub_(g.x, alpha=step)
        return DualGradient(g.y)

    def best_dual(self, x: Tensor, batch: Batch) -> Tensor:
        """The mean of the duals that are best for each row, each at most the bound of losses, with noise."""
        assert isinstance(self.bare, HasBestDual)
        drawn, most, best_dual, sums = noise_of(batch), self.limits.loss, self.bare.best_dual, []
        for c, own in enumerate(x):
            parts = [_alone((own,), batch, c, part) for part in _parts(len(drawn.weight[c]), len(own))]
            each = torch.cat([best_dual(points[0], rows) for points, rows in parts])
            sums.append(clipped_sum(each, most, drawn.weight[c]))
        return drawn.mean_of(torch.stack(sums), most)

    def _sums(self, x: Tensor, y: Tensor, batch: Batch) -> Pair:
        """The sums over rows of what each contributes to either player's gradient."""
        bare, weight = self.bare, noise_of(batch).weight
        if not self.by_formula or not isinstance(bare, HasRowSlopes):
            limits = (self.limits.primal, self.limits.dual)
            each = [_row_sums(bare, pair, batch, c, limits) for c, pair in enumerate(zip(x, y, strict=True))]
            return torch.stack([gx for gx, _ in each]), torch.stack([gy for _, gy in each])
        w = bare.weights(x)
        outputs = row_scores(bare.flat, w, batch.x)
        at = bare.row_slopes(outputs[-1], x, y, batch)
        more = None if at.rest is None else at.rest.square().sum(-1)
        bound, size = Bound(self.limits.primal, weight, more), 0 if at.rest is None else at.rest.shape[-1]
        sums = row_sums(bare.flat, w, batch.x, outputs, at.scores, bound, size)
        gx = sums.total
        if at.rest is not None:
            rest = (at.rest * sums.factors.unsqueeze(-1)).sum(1)
            if not torch.isfinite(rest.sum()):  # rows of weight 0 may be infinite
                here = (sums.factors != 0).unsqueeze(-1)
                rest = (torch.where(here, at.rest, 0.0) * sums.factors.unsqueeze(-1)).sum(1)
            gx[:, -size:] = rest
        return gx, clipped_sum(at.y, self.limits.dual, weight)


def _alone(at: tuple[Tensor, ...], batch: Batch, c: int, part: slice) -> tuple[tuple[Tensor, ...], Batch]:
    """Rows of client c as clients of one row each, all at the same point."""
    rows = Batch(batch.x[c, part].unsqueeze(1), batch.y[c, part].unsqueeze(1))
    return tuple(v.expand(len(rows.x), -1) for v in at), rows


def _parts(rows: int, size: int) -> list[slice]:
    """The rows in parts, so that gradients of `size` numbers each fit into memory."""
    some = max(1, MOST // size)
    return [slice(first, first + some) for first in range(0, rows, some)]


def _row_values(problem: MinimisationProblem, at: tuple[Tensor, ...], batch: Batch, c: int) -> Tensor:
    parts = (_alone(at, batch, c, part) for part in _parts(batch.x.shape[1], sum(len(v) for v in at)))
    with torch.no_grad():
        return torch.cat([problem.value(points[0], rows) for points, rows in parts])


def _row_sums(
    problem: MinimisationProblem | MinimaxProblem,
    at: tuple[Tensor, ...],
    batch: Batch,
    c: int,
    limits: tuple[float, ...],
) -> tuple[Tensor, ...]:
    """The sums over the rows of client c of their clipped gradients, by the problem's own gradients of single rows."""
    weight = noise_of(batch).weight[c]
    totals = [torch.zeros_like(v) for v in at]
    for part in _parts(len(weight), sum(len(v) for v in at)):
        points, rows = _alone(at, batch, c, part)
        for total, g, limit in zip(totals, _gradients(problem, points, rows), limits, strict=True):
            total += clipped_sum(g, limit, weight[part])
    return tuple(totals)
