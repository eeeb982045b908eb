"""Robust aggregation: bounds on the replies of an exchange, and reductions that see all replies before averaging."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Generic

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, Own, Sent, Task
from fedsaddle.federation.records import (
    ExactBounds,
    R,
    Record,
    UpdateOf,
    Visibility,
    bounds_marks,
    tensors,
    visibility,
)
from fedsaddle.federation.reduction import NOBODY, Reduces, Reduction, finite_clients, first_not_finite
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.files import Json, JsonObject
from fedsaddle.robust.settings import Robust

WINDOW = 10  # exchanges of one kind that a running median looks back on
SETTLED = 5  # exchanges, from which on a running median is remembered
MOST_KEPT = 16  # numbers that stand for the sizes of one exchange
GROWTH = 3.0  # times what was usual, that clients together may grow by in one exchange
ENOUGH = 3  # replies, from which on their own median counts too


@dataclass
class RunningScales:
    """Sizes in the last exchanges and the largest running median so far, by field.

    What a round adds becomes valid when the round is committed.
    """

    sizes: dict[str, list[list[float]]] = field(default_factory=dict)
    largest: dict[str, float] = field(default_factory=dict)
    pending: list[tuple[str, list[float]]] = field(default_factory=list)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        for key, few in self.pending:
            self.sizes[key] = [*self.sizes.get(key, []), few][-WINDOW:]
            if len(self.sizes[key]) >= SETTLED:
                self.largest[key] = max(self.largest.get(key, 0.0), self.running(key, np.empty(0)))
        self.pending.clear()

    def add(self, key: str, sizes: Floats) -> None:
        """Add the sizes of one exchange."""
        if len(sizes):
            at = np.linspace(0, len(sizes) - 1, min(len(sizes), MOST_KEPT)).round().astype(int)
            self.pending.append((key, np.sort(sizes)[at].tolist()))

    def running(self, key: str, sizes: Floats) -> float:
        """The median of the sizes above 0, of these and of the last exchanges; 0 if there are none."""
        past = [size for few in self.sizes.get(key, []) for size in few]
        return _middle(np.concatenate([past, sizes]))

    def scale(self, key: str, sizes: Floats) -> float:
        """Reference norm: largest of the running medians, with this exchange's, and of its own median if it suffices.

        So nothing is clipped when updates grow, nor when most clients have little left to learn and a few have not; a
        small cohort is compared with earlier ones. Once there are enough of these, the clients' own median counts no
        more than `GROWTH` times what was usual, as hostile clients may be the most of a cohort by chance.
        """
        usual = max(self.running(key, sizes), self.largest.get(key, 0.0))
        if int((sizes > 0).sum()) < ENOUGH:
            return usual
        own = _middle(sizes)
        known = len(self.sizes.get(key, ())) >= SETTLED and usual > 0
        return max(usual, min(own, GROWTH * usual) if known else own)

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return {"sizes": dict(self.sizes), "largest": dict(self.largest)}

    def restore(self, stored: JsonObject) -> None:
        """Restore the scales from a checkpoint."""
        self.sizes, self.largest = dict(stored["sizes"]), dict(stored["largest"])
        self.pending.clear()


def _middle(sizes: Floats) -> float:
    """The median of the positive entries; 0 if there are none."""
    positive = sizes[sizes > 0]
    return float(np.median(positive)) if len(positive) else 0.0


FEW = 4.0  # numbers, below which an update has too few to have a usual length
TAILS = 5.0  # times farther from the usual norm than updates that scores may be
SLACK = 1e-6  # of rounding, for bounds that honest replies meet exactly


def origin(kind: type, name: str, sent: Record) -> Tensor | None:
    """What an update of that field is measured from: a field of what was sent, or None for 0."""
    mark = bounds_marks(kind).get(name)
    start = getattr(sent, mark.field, None) if isinstance(mark, UpdateOf) else None
    return start if isinstance(start, Tensor) else None


def lengths(value: Tensor, start: Tensor | None) -> Floats:
    """`|value_c - start|` of each client, in double precision."""
    update = value.double() if start is None else value.double() - start.double()
    norms = torch.linalg.vector_norm(update.flatten(1), dim=1) if value.ndim > 1 else update.abs()
    sizes: Floats = norms.numpy()
    return sizes


def bounded(
    settings: Robust, scales: RunningScales, task: str, sent: Record, clients: Ints, all_rows: Ints, reply: Record
) -> tuple[dict[str, Tensor], list[tuple[int, str]]]:
    """The fields changed by the bounds, with all replies stacked, and the (client, field) pairs that exceeded them."""
    changed: dict[str, Tensor] = {}
    touched: list[tuple[int, str]] = []
    for name, value, new, wrong in _looked_at(settings, scales, task, sent, all_rows[clients], len(all_rows), reply):
        if wrong.any():
            changed[name] = value.clone()
            changed[name][wrong] = new[wrong]
            touched += [(int(clients[c]), name) for c in wrong.nonzero()[:, 0].tolist()]
    return changed, touched


def _looked_at(
    settings: Robust, scales: RunningScales, task: str, sent: Record, rows: Ints, count: int, reply: Record
) -> Iterator[tuple[str, Tensor, Tensor, Tensor]]:
    """Each field with its bounded value, and the clients whose value exceeds the bounds."""
    visible, marks = visibility(type(reply)), bounds_marks(type(reply))
    for name, value in tensors(reply):
        key, mark = f"{task}.{name}", marks.get(name)
        if not value.is_floating_point():
            continue
        if mark is ExactBounds.COUNT:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows).to(value.dtype))
            yield name, value, new, value != new
        elif mark is ExactBounds.WIDE:
            new = torch.minimum(value.clamp(min=0), torch.from_numpy(rows * count).to(value.dtype))
            yield name, value, new, value != new
        elif visible[name] is Visibility.AVERAGED:
            start = origin(type(reply), name, sent)
            yield name, value, *_clipped_to_usual(value, start, settings.norm_factor, scales, key)
        elif visible[name] is Visibility.PER_CLIENT and value.ndim == 1:
            yield name, value, *_lowered(value, settings.loss_factor, scales, key)
        elif visible[name] is Visibility.POOLED and value.ndim == 3:
            weighted, factor = mark is ExactBounds.WEIGHTS_FIRST, TAILS * settings.norm_factor
            yield name, value, *_clamped(value, weighted, rows, factor, scales, key)


def _clipped_to_usual(
    value: Tensor, start: Tensor | None, factor: float, scales: RunningScales, key: str
) -> tuple[Tensor, Tensor]:
    """Clip updates whose norm exceeds `factor` times the reference norm to the reference norm.

    The norm of few numbers is often close to 0 by chance, so the limit for d numbers is `1 + 4 / d` times as large.
    """
    norms = lengths(value, start)
    usual = scales.scale(key, norms)
    wrong = norms > factor * (1 + FEW / max(1, value[0].numel())) * usual
    scales.add(key, np.where(wrong, usual, norms))
    if not wrong.any():
        return value, torch.from_numpy(wrong)
    share = torch.from_numpy(np.where(wrong, usual / np.where(wrong, norms, 1.0), 1.0))
    share = share.view(-1, *[1] * (value.ndim - 1))
    exact = value.double()
    new = share * exact if start is None else start.double() + share * (exact - start.double())
    return new.to(value.dtype), torch.from_numpy(wrong)


def _lowered(value: Tensor, factor: float, scales: RunningScales, key: str) -> tuple[Tensor, Tensor]:
    """Replace numbers above `median + factor max(MAD, their reference size)` by the median."""
    values = value.double().numpy()
    middle = float(np.median(values))
    spread = max(float(np.median(np.abs(values - middle))), scales.scale(key, np.abs(values)))
    wrong = values > middle + factor * spread
    scales.add(key, np.abs(np.where(wrong, middle, values)))
    return torch.full_like(value, middle), torch.from_numpy(wrong)


def _clamped(
    value: Tensor, weighted: bool, rows: Ints, factor: float, scales: RunningScales, key: str
) -> tuple[Tensor, Tensor]:
    """Columns with a number more than `factor` times as large as clients' largest usually are, cut to what is usual.

    Shared scores have heavier tails than updates, so their factor is larger. A column of labels stays as it is.

    The first column, where it holds weights, is not below 0, and its mean is at most the client's rows.
    """
    new = value.clone()
    if weighted and value.shape[1]:
        weights = value[..., 0].clamp(min=0)
        mean, most = weights.mean(1), torch.from_numpy(rows).to(value.dtype)
        over = mean > most * (1 + SLACK)
        new[..., 0] = torch.where(over[:, None], weights * (most / mean.clamp(min=1e-30))[:, None], weights)
    for column in range(1 if weighted else 0, value.shape[2]):
        own = value[..., column]
        largest: Floats = own.abs().amax(1).double().numpy() if own.shape[1] else np.zeros(len(own))
        whole = (own == own.round()).all(1)
        if int(whole.sum()) * 2 > len(whole):
            continue
        usual = scales.scale(f"{key}.{column}", largest)
        wrong = largest > factor * usual
        scales.add(f"{key}.{column}", np.where(wrong, usual, largest))
        if wrong.any():
            new[..., column] = torch.where(torch.from_numpy(wrong)[:, None], own.clamp(-usual, usual), own)
    return new, (value != new).flatten(1).any(1)


BLOCK = 1 << 16  # coordinates that are sorted at a time
CLOSE = 1e-12  # shares of the whole weight that count as equal


def trimmed_mean(points: Tensor, weights: Tensor, share: float) -> Tensor:
    """The mean of each coordinate without the lowest and the highest `share` of the weight.

    A point that lies across the edge counts with the part of its weight inside. `share = 0` is the mean.
    """

    def middle(x: Tensor, w: Tensor) -> Tensor:
        values, order = x.sort(dim=0)
        upto = w[order].cumsum(0)
        low, high = share * upto[-1], (1 - share) * upto[-1]
        inner = (torch.minimum(upto, high) - torch.maximum(upto - w[order], low)).clamp_(min=0)
        return (inner * values).sum(0) / inner.sum(0)

    return _by_coordinate(middle, points, weights)


def weighted_median(points: Tensor, weights: Tensor) -> Tensor:
    """The median of each coordinate: half of the weight on either side; between two such values the middle."""

    def halfway(x: Tensor, w: Tensor) -> Tensor:
        values, order = x.sort(dim=0)
        upto = w[order].cumsum(0)
        half, slack = upto[-1] / 2, CLOSE * upto[-1]
        lower = (upto < half - slack).sum(0, keepdim=True)
        upper = (upto <= half + slack).sum(0, keepdim=True).clamp_(max=len(x) - 1)
        return ((values.gather(0, lower) + values.gather(0, upper)) / 2)[0]

    return _by_coordinate(halfway, points, weights)


def geometric_median(points: Tensor, weights: Tensor, iterations: int = 100, tolerance: float = 1e-10) -> Tensor:
    """`argmin_v Σ_i weights_i |points_i - v|` by Weiszfeld's iteration, from the coordinate-wise median.

    A distance counts as at least `1e-10` of the median distance, so that a point that v meets does not hold it for ever
    (the smoothing of Pillutla, Kakade, Harchaoui 2022). Ends when a step is shorter than `tolerance` times that.
    """
    x, w = points.double(), weights.double()
    v = weighted_median(x, w)
    scale = float(_norms(x - v).median())
    if scale == 0:
        return v
    for _ in range(iterations):
        pull = w / _norms(x - v).clamp(min=1e-10 * scale)
        after = pull @ x / pull.sum()
        moved, v = float(_norms(after - v)), after
        if moved <= tolerance * scale:
            break
    return v


def centred_clipping(points: Tensor, weights: Tensor, centre: Tensor, radius: float, iterations: int = 3) -> Tensor:
    """`v ← v + Σ_i weights_i clip(points_i - v, radius) / Σ_i weights_i`, from `centre` (Karimireddy, He, Jaggi 2021).

    An infinite radius gives the mean.
    """
    x, w, v = points.double(), weights.double() / weights.double().sum(), centre.double()
    for _ in range(iterations):
        away = x - v
        short = (radius / _norms(away).clamp(min=1e-300)).clamp(max=1.0)
        v = v + (w * short) @ away
    return v


def _norms(x: Tensor) -> Tensor:
    norms: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return norms


def _by_coordinate(of: Callable[[Tensor, Tensor], Tensor], points: Tensor, weights: Tensor) -> Tensor:
    """Apply a rule for each coordinate to blocks of coordinates; points of weight 0 do not count."""
    counted = weights > 0
    x, w = points[counted], weights[counted].double()
    return torch.cat([of(part.double(), w) for part in torch.split(x, BLOCK, 1)])


@dataclass
class Guard:
    """Makes the reductions of a run; keeps the running scales and counts what was bounded."""

    settings: Robust
    sizes: Ints  # rows of every client
    scales: RunningScales = field(default_factory=RunningScales)
    counts: dict[int, Counter[str]] = field(default_factory=dict)
    pending: list[tuple[int, str]] = field(default_factory=list)

    def __call__(self, task: Task[Own, Sent, R], sent: Sent) -> RobustReduction[R]:
        """The reduction of one exchange."""
        return RobustReduction(self, str(getattr(task, "__name__", task)), sent)

    def begin(self) -> None:
        """Discard what an unfinished round has added."""
        self.scales.begin()
        self.pending.clear()

    def commit(self) -> None:
        """Make what the round has added valid."""
        self.scales.commit()
        for client, name in self.pending:
            self.counts.setdefault(client, Counter())[name] += 1
        self.pending.clear()

    def state(self) -> dict[str, Json]:
        """For a checkpoint, as plain JSON."""
        return {"scales": self.scales.to_dict(), **self.report()}

    def restore(self, stored: JsonObject) -> None:
        """Restore the state from a checkpoint."""
        self.scales.restore(stored["scales"])
        self.counts = {int(i): Counter(names) for i, names in stored["bounded"].items()}
        self.pending.clear()

    def report(self) -> dict[str, Json]:
        """Client -> which fields of its replies were bounded, and how often."""
        return {"bounded": {str(i): dict(names) for i, names in sorted(self.counts.items())}}


@dataclass
class RobustReduction(Generic[R]):
    """Collects the replies; `answer` bounds and aggregates them.

    If nothing is bounded and the aggregation is the mean, the result has the bits of the streaming reduction.
    """

    guard: Guard
    task: str
    sent: Record
    clients: list[Ints] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    replies: list[R] = field(default_factory=list)

    def add(self, clients: Ints, weights: Floats, reply: R) -> None:
        """Add the replies of `clients`; nothing is added if `Diverged` is raised."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        self.clients.append(clients)
        self.weights.append(weights)
        self.replies.append(reply)

    def answer(self) -> tuple[Ints, R]:
        """The clients that answered, and the reduced record."""
        if not self.replies:
            raise NobodyAnswered(NOBODY)
        if self.guard.settings.bounds:
            self._bound()
        clients, kind = np.concatenate(self.clients), type(self.replies[0])
        robust = self._robust_fields()
        rest: Reduction[R] = Reduction()
        for who, weights, reply in zip(self.clients, self.weights, self.replies, strict=True):
            rest.add(who, weights, _without(reply, robust))
        return clients, kind(**rest.reduced(), **robust)

    def _bound(self) -> None:
        """Replace what exceeds the bounds."""
        guard, clients = self.guard, np.concatenate(self.clients)
        whole = type(self.replies[0])(**{name: self._stacked(name) for name, _ in tensors(self.replies[0])})
        changed, touched = bounded(guard.settings, guard.scales, self.task, self.sent, clients, guard.sizes, whole)
        guard.pending += touched
        cuts = [len(who) for who in self.clients]
        for name, value in changed.items():
            parts = torch.split(value, cuts)
            self.replies = [replace(r, **{name: part}) for r, part in zip(self.replies, parts, strict=True)]

    def _robust_fields(self) -> dict[str, Tensor]:
        """The fields that are not plainly averaged."""
        kind, weights = type(self.replies[0]), torch.from_numpy(np.concatenate(self.weights))
        if self.guard.settings.aggregation == "mean" or not float(weights.sum()) > 0:
            return {}
        visible, marks = visibility(kind), bounds_marks(kind)
        robust: dict[str, Tensor] = {}
        for name, like in tensors(self.replies[0]):
            if visible[name] is Visibility.AVERAGED and not isinstance(marks.get(name), ExactBounds):
                points = self._stacked(name)
                flat = self._aggregate(name, points.flatten(1) if points.ndim > 1 else points[:, None], weights)
                robust[name] = flat.to(like.dtype).view(like.shape[1:])
        return robust

    def _aggregate(self, name: str, points: Tensor, weights: Tensor) -> Tensor:
        settings = self.guard.settings
        if settings.aggregation == "trimmed-mean":
            return trimmed_mean(points, weights, settings.trim)
        if settings.aggregation == "median":
            return weighted_median(points, weights)
        if settings.aggregation == "geometric-median":
            return geometric_median(points, weights)
        start = origin(type(self.replies[0]), name, self.sent)
        centre = torch.zeros_like(points[0]) if start is None else start.flatten()
        return centred_clipping(points, weights, centre, self._radius(name, points, centre), settings.iterations)

    def _radius(self, name: str, points: Tensor, centre: Tensor) -> float:
        """The given radius, or the running median of the updates' norms."""
        if self.guard.settings.radius is not None:
            return self.guard.settings.radius
        norms, key, scales = lengths(points, centre), f"{self.task}.{name}", self.guard.scales
        if not self.guard.settings.bounds:  # else they have been added
            scales.add(key, norms)
        return scales.running(key, norms)

    def _stacked(self, name: str) -> Tensor:
        values = [getattr(reply, name) for reply in self.replies]
        return values[0] if len(values) == 1 else torch.cat(values)


def _without(reply: R, names: dict[str, Tensor]) -> R:
    return replace(reply, **dict.fromkeys(names)) if names else reply


@dataclass
class Guarded(Wrapper):
    """The same clients, whose replies are bounded and aggregated by the settings `robust`."""

    robust: Robust

    def __post_init__(self) -> None:
        if not isinstance(self.inner, Reduces):
            name, remedy = type(self.inner).__name__, "reduces replies by itself; robust works on our own engines"
            raise BadInput("engine", name, f"{remedy}, or on one with an attribute `reduce` that it uses")
        self.guard = Guard(self.robust, self.inner.sizes)
        self.inner.reduce = self.guard

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.guard.begin()
        super().begin(round)

    def commit(self) -> None:
        """End the round."""
        super().commit()
        self.guard.commit()

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask the clients; the engine reduces their replies by the guard."""
        return self.inner.ask(cohort, task, sent, weights=weights)

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with the running scales."""
        inner = self.inner.state()
        return ClientsState(inner.records, {**inner.notes, "robust": self.guard.state()})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: JsonObject, algorithm: object) -> None:
        """Restore the clients and the running scales from a checkpoint."""
        super().restore(records, notes, algorithm)
        if "robust" in notes:
            self.guard.restore(notes["robust"])

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary, with the setting and what was bounded."""
        return {**self.inner.report(), "robust": {**self.robust.to_dict(), **self.guard.report()}}
