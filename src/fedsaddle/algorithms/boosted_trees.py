"""Gradient-boosted trees on exchanged histograms: each exchange grows all open trees by one level."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.federation.records import Averaged, Parameters, PerSample
from fedsaddle.federation.tasks import task
from fedsaddle.problems.losses import HasCurvature
from fedsaddle.problems.models.forest import NO_SPLIT, Forest, leaves, reached
from fedsaddle.problems.protocols import MinimisationProblem
from fedsaddle.problems.regression import need_curvature
from fedsaddle.problems.supervised import Supervised

NAMED = {
    "BoostedTrees": {
        "class": "BoostedTrees",
        "about": "gradient-boosted trees on sums of histograms",
        "source": "Chen and Guestrin 2016, XGBoost",
        "kind": "minimisation",
    },
}
LARGEST = 88.0  # of asinh of a feature: beyond what a float holds
NARROWINGS = 4  # exchanges that look for the quantiles
PIECES = 16  # into which each of them cuts an interval
EXACT = 22  # bits of a gradient of usual size: sums of up to 2^30 rows are then exact in any order
FINE = 2.0**-20  # of the intercept
ROUNDING = 1e-9  # of a node's own gain: a smaller gain is none
REASON = "the sensitivity of a histogram is not bounded here; use fs.FedAvg with a linear model or a network"

Sums = NDArray[np.float64]


@dataclass(frozen=True)
class Ladder:
    """Server to client: points between which rows are counted, and the present intercepts."""

    w: Parameters
    points: Tensor  # (p, E, PIECES - 1), asinh of features


@dataclass(frozen=True)
class Ranks:
    """Client to server: sums over its rows, of which the server sees those over all clients."""

    below: Averaged  # (p, E, PIECES - 1): rows at or below each point
    slope: Averaged  # (k,): of the loss in the scores
    curvature: Averaged  # (k,)
    squares: Averaged  # (): of the slopes
    rows: Averaged  # ()


@dataclass(frozen=True)
class Level:
    """Server to client: the forest, and which level of which trees is to be split."""

    w: Parameters
    first: int  # of the open trees
    level: int
    edges: Tensor  # (p, E)
    unit: float  # gradients are multiples of it
    curvature_unit: float


@dataclass(frozen=True)
class Histograms:
    """Client to server: sums over its rows by open tree, score and node, and by the bins of all features in a row."""

    sums: Averaged  # (open trees, outputs, 3, nodes, all bins): gradients, curvatures, rows


@dataclass(frozen=True)
class Margins:
    """What a client remembers of its rows: bins, scores by the first trees, and which are drawn for the open ones."""

    bins: PerSample  # (C, B, p): how many edges are below a feature
    scores: PerSample  # (C, B, k), in double precision
    trees: Tensor  # (C,): how many trees are in the scores; -1: nothing is known yet
    drawn: PerSample  # (C, B, open trees): 1 for rows that count
    open: Tensor  # (C,): the first of those open trees; -1: none


@dataclass(frozen=True)
class ForestState:
    """The server's memory."""

    w: Tensor
    grown: int = 0  # trees
    edges: Tensor | None = None  # (p, E): features above one of them are in the next bin
    unit: float = 0.0
    curvature_unit: float = 0.0
    rounds: int = 0


class Splits(NamedTuple):
    """The best split of each node, `(open trees, outputs, nodes)`, and the sums on its sides."""

    feature: NDArray[np.int64]
    edge: NDArray[np.int64]
    gain: Sums  # 0: no split
    left: Sums  # (open trees, outputs, 3, nodes): gradient, curvature and rows
    right: Sums


@dataclass(frozen=True, kw_only=True)
class BoostedTrees:
    """Gradient-boosted trees (XGBoost: Chen, Guestrin 2016) on histograms that are summed over clients.

    Each round grows `parallel` trees for each score by second-order boosting. An exchange grows all of them by one
    level: clients send the sums of gradients and curvatures of their rows by node, feature and bin, and the server
    picks the splits that gain most. So `depth` exchanges make a round, and the first round has four more that look for
    the bins. Rows never leave a client, and the server needs only sums.

    The trees are those of the pooled rows. Gradients are rounded to multiples of a unit that all clients share, which
    makes sums exact in any order: every engine, also across sites, grows the same trees bit for bit, and with
    `row_share = 1`, where no client draws rows, so does every partition of the rows.

    Args:
        problem: `fs.Supervised` over an `fs.models.Forest` with cross-entropy, the logistic, the square or the Poisson
            loss. The forest says how many trees there are and how deep; its linear score, 0 if untouched, is where
            boosting starts.
        shrinkage: η, by which leaves are multiplied.
        parallel: Trees that are grown at once, from the same gradients; their leaves are averaged.
        l2: λ, the penalty on leaves.
        least_gain: γ, the gain below which a node is not split.
        least_rows: Rows in a leaf, at least; a node that cannot have as many on both sides is not split.
        least_curvature: The sum of curvatures in a leaf, at least.
        bins: Bins of each feature.
        row_share: Share of rows that are drawn for each tree.
        column_share: Share of features that are drawn for each tree.
        sampled_clients: How many clients are asked in a round; None: all.

    Raises:
        BadInput: if an argument is invalid, with its name; if the model is no forest, or the loss has no curvature.

    Examples:
        >>> import fedsaddle as fs
        >>> forest = fs.models.Forest(30, trees=40, depth=3)
        >>> trees = fs.BoostedTrees(problem=fs.Supervised(forest, fs.losses.Logistic()), parallel=4)
        >>> trees.rounds
        10

    **Deviations from the paper**: bins are found by exchanged counts, once, in place of weighted sketches; all trees
    have the same depth, and grow level by level; several trees are grown from the same gradients, as XGBoost's
    `num_parallel_tree` does; several scores have curvatures of their own, without those between scores; the intercept
    takes four Newton steps while the bins are found.
    """

    problem: Supervised
    shrinkage: float = 0.1  # η
    parallel: int = 4
    l2: float = 1.0  # λ
    least_gain: float = 0.0  # γ
    least_rows: int = 10
    least_curvature: float = 1.0
    bins: int = 32
    row_share: float = 0.8
    column_share: float = 0.8
    sampled_clients: int | None = None  # None: all

    def __post_init__(self) -> None:
        check_problem(self, MinimisationProblem)
        number("shrinkage", self.shrinkage, above=0, most=1)
        whole("parallel", self.parallel, most=64)
        number("l2", self.l2, least=0)
        number("least_gain", self.least_gain, least=0)
        whole("least_rows", self.least_rows)
        number("least_curvature", self.least_curvature, least=0)
        whole("bins", self.bins, least=2, most=256)
        number("row_share", self.row_share, above=0, most=1)
        number("column_share", self.column_share, above=0, most=1)
        if self.sampled_clients is not None:
            whole("sampled_clients", self.sampled_clients)
        problem = self.problem
        model = problem.model if isinstance(problem, Supervised) else None
        if not isinstance(model, Forest):
            raise BadInput("model", type(model).__name__, "BoostedTrees grows fs.models.Forest; use that")
        need_curvature(problem.loss, model.outputs)
        for key, without in (("l2", 0.0), ("clip", None), ("trimmed", 0.0), ("hardest", 1.0), ("compiled", False)):
            if getattr(problem, key) != without:
                remedy = "is for gradients in the parameters; leave it out, BoostedTrees has an l2 of its own"
                raise BadInput(f"problem.{key}", getattr(problem, key), remedy)
        if self.parallel > model.trees:
            raise BadInput("parallel", self.parallel, f"the forest has {model.trees} trees; grow at most as many")

    @property
    def forest(self) -> Forest:
        """The model that grows."""
        assert isinstance(self.problem.model, Forest)
        return self.problem.model

    @property
    def rounds(self) -> int:
        """Rounds until the forest is full; further rounds ask nothing of the clients."""
        return -(-self.forest.trees // self.parallel)

    def start(self, clients: Clients) -> ForestState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        return ForestState(self.problem.initial())  # line 1

    def round(self, server: ForestState, clients: Clients, rng: np.random.Generator) -> ForestState:
        """Lines 2-12 of the box."""
        later = replace(server, rounds=server.rounds + 1)
        if server.grown >= self.forest.trees:
            return later
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 4
        if later.edges is None:
            later = self._with_bins(later, clients)  # lines 2-3
        assert later.edges is not None
        w, first = later.w.clone(), later.grown
        several = min(self.parallel, self.forest.trees - first)
        columns = self._columns(rng, several)  # line 5
        units = later.unit, later.curvature_unit
        smallest = np.array([*units, 1.0]).reshape(3, 1, 1)
        for level in range(self.forest.depth):  # line 6
            answered, reply = clients.ask(S, self.histograms, Level(w.clone(), first, level, later.edges, *units))
            sums: Sums = reply.sums.cpu().double().numpy() * len(answered)  # lines 7-8
            sums = np.round(sums / smallest) * smallest  # of any number of clients the mean times it is then the sum
            splits = self.best_splits(by_feature(sums, later.edges), columns)  # line 9
            self._grow_(w, splits, later.edges.cpu(), first, level)  # lines 10-11
        return replace(later, w=w, grown=first + several)  # line 12

    def model(self, server: ForestState) -> Tensor:
        """The forest so far."""
        return server.w

    def _columns(self, rng: np.random.Generator, several: int) -> NDArray[np.int64]:
        """The features that each new tree may split on, `(several, outputs, m)`."""
        p = self.forest.inputs
        m = max(1, round(self.column_share * p))
        draws = [np.sort(rng.permutation(p)[:m]) for _ in range(several * self.forest.outputs)]
        return np.stack(draws).reshape(several, self.forest.outputs, m).astype(np.int64)

    def _with_bins(self, server: ForestState, clients: Clients) -> ForestState:
        """Lines 2-3: the edges of the bins, the intercept and the units, from counts over all clients."""
        p, edges = self.forest.inputs, self.bins - 1
        low = np.full((p, edges), -LARGEST)
        high = np.full((p, edges), LARGEST)
        under, upto = np.zeros((p, edges)), np.full((p, edges), np.nan)  # rows at or below the two
        w, pieces = server.w.clone(), np.arange(1, PIECES) / PIECES
        for _ in range(NARROWINGS):
            points = low[..., None] + (high - low)[..., None] * pieces
            sent = Ladder(w.clone(), torch.from_numpy(points))
            answered, reply = clients.ask(np.arange(clients.count), self.ranks, sent)
            below: Sums = np.round(reply.below.cpu().double().numpy() * len(answered))
            n = round(float(reply.rows) * len(answered))
            upto = np.where(np.isnan(upto), n, upto)
            wanted = n * np.arange(1, edges + 1) / (edges + 1)
            at = (below <= wanted[:, None]).sum(2)  # the piece that holds the quantile
            ends = np.concatenate([low[..., None], points, high[..., None]], 2)
            counts = np.concatenate([under[..., None], below, upto[..., None]], 2)
            low, high = (np.take_along_axis(ends, (at + i)[..., None], 2)[..., 0] for i in (0, 1))
            under, upto = (np.take_along_axis(counts, (at + i)[..., None], 2)[..., 0] for i in (0, 1))
            gradient, curvature = (part.cpu().double() for part in (reply.slope, reply.curvature))
            bias = self._views(w)["bias"]
            step = (gradient / curvature.clamp_min(1e-12)).clamp(-2, 2).to(bias)
            bias.copy_(((bias - step) / FINE).round() * FINE)  # alike in whatever order the sums were taken
        found = np.stack([_edges(*each, n, edges) for each in zip(low, high, under, upto, strict=True)])
        scores = float(reply.rows) * self.forest.outputs
        return replace(
            server,
            w=w,
            edges=torch.from_numpy(found).to(w),
            unit=_unit(float(np.sqrt(float(reply.squares) / scores))),
            curvature_unit=_unit(float(reply.curvature.sum()) / scores),
        )

    @task(reason=REASON)
    def ranks(self, own: None, sent: Ladder, site: Site) -> tuple[None, Ranks]:
        """Line 3: how many rows are at or below each point, and what the intercept needs."""
        batch = site.everything()
        x = batch.x.flatten(2)
        real = _real(batch)
        scores = self._linear(self._views(site.broadcast(sent.w)[0]), x)
        slope, curvature = self._second_order(scores, batch)
        slope, curvature = slope * real[..., None], curvature * real[..., None]
        points = torch.sinh(sent.points.to(x.device)).to(x.dtype).flatten(1)
        below = []
        for rows, counts in zip(x, real > 0, strict=True):
            columns = rows[counts].mT.contiguous().sort(1).values
            below.append(torch.searchsorted(columns, points.contiguous(), right=True))
        return None, Ranks(
            torch.stack(below).double().view(len(x), *sent.points.shape),
            slope.sum(1),
            curvature.sum(1),
            slope.square().sum((1, 2)),
            real.sum(1),
        )

    def fresh(self, site: Site) -> Margins:
        """Nothing is known yet."""
        C, B = len(site.sizes), int(site.sizes.max())
        zeros = torch.zeros(C, B, self.forest.outputs, dtype=torch.float64, device=site.device)
        none = torch.full((C,), -1, device=site.device)
        drawn = torch.ones(C, B, self.parallel, dtype=torch.uint8, device=site.device)
        bins = torch.zeros(C, B, self.forest.inputs, dtype=torch.uint8, device=site.device)
        return Margins(bins, zeros, none, drawn, none.clone())

    @task(reason=REASON)
    def histograms(self, own: Margins, sent: Level, site: Site) -> tuple[Margins, Histograms]:
        """Lines 7-8: the sums of the client's rows by node, column and bin."""
        batch = site.everything()
        x, real = batch.x.flatten(2), _real(batch)
        views = self._views(site.broadcast(sent.w)[0])
        own = self._drawn(self._scored(own, views, x, sent), sent.first, site)
        g, h = self._second_order(own.scores, batch)
        g, h = (g / sent.unit).round() * sent.unit, (h / sent.curvature_unit).round() * sent.curvature_unit
        several = min(self.parallel, self.forest.trees - sent.first)
        counts = real[..., None] * own.drawn[..., :several]  # (C, B, open trees)
        part = slice(sent.first, sent.first + several)
        node = reached(x.flatten(0, 1), views["feature"][part], views["threshold"][part], sent.level)
        node = node.view(*x.shape[:2], several, -1)
        starts, total = places(sent.edges)
        return own, Histograms(histograms_of(own.bins + starts, node, g, h, counts, 2**sent.level, total))

    def _views(self, w: Tensor) -> dict[str, Tensor]:
        return self.problem.flat.views(w)

    def _linear(self, views: dict[str, Tensor], x: Tensor) -> Tensor:
        """The scores without trees, (C, B, k)."""
        return x.double() @ views["weight"].double().mT + views["bias"].double()

    def _second_order(self, scores: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Slope and curvature of each row's loss in each of its scores, (C, B, k)."""
        loss = self.problem.loss
        assert isinstance(loss, HasCurvature)
        return loss.slope(scores, batch.y), loss.curvature(scores, batch.y).diagonal(dim1=-2, dim2=-1)

    def _scored(self, own: Margins, views: dict[str, Tensor], x: Tensor, sent: Level) -> Margins:
        """The bins, and the scores with all trees before the open ones; one tree at a time, so that bits stay."""
        bins, scores, trees = own.bins, own.scores.clone(), own.trees.clone()
        new = trees < 0
        if bool(new.any()):
            bins = bins.clone()
            bins[new] = bins_of(x[new], sent.edges).to(torch.uint8)
            scores[new] = self._linear(views, x[new])
            trees[new] = 0
        start, until = int(trees.min()), sent.first
        if start < until:
            part = slice(start, until)
            at = reached(x.flatten(0, 1), views["feature"][part], views["threshold"][part], self.forest.depth)
            values = leaves(views["leaf"][part].double(), at).view(*x.shape[:2], until - start, -1)
            for t in range(start, until):
                scores += values[:, :, t - start] * (trees <= t).view(-1, 1, 1)
        return replace(own, bins=bins, scores=scores, trees=torch.full_like(trees, until))

    def _drawn(self, own: Margins, first: int, site: Site) -> Margins:
        """The rows that count for each of the open trees, drawn at the first exchange that a client answers."""
        new = own.open != first
        if not bool(new.any()):
            return own
        size, drawn = own.drawn.shape[1], own.drawn.clone()
        for t in range(self.parallel):
            counts = site.uniforms(0, size, t) < self.row_share
            drawn[..., t] = torch.where(new[:, None], counts.to(drawn), drawn[..., t])
        return replace(own, drawn=drawn, open=torch.full_like(own.open, first))

    def best_splits(self, sums: Sums, columns: NDArray[np.int64]) -> Splits:
        """Line 9: for each node the split with the largest gain, the first of equal ones.

        Args:
            sums: gradients, curvatures and rows, `(open trees, outputs, 3, nodes, p, E + 1)`.
            columns: the features that each tree may split on, `(open trees, outputs, m)`.
        """
        picked = np.take_along_axis(sums, columns[:, :, None, None, :, None], 4)
        left = picked[..., :-1].cumsum(-1)
        whole = picked[..., 0, :].sum(-1)[..., None, None]  # alike for all features
        right = whole - left
        gain = self._worth(left) + self._worth(right) - self._worth(whole)
        for side in (left, right):
            gain[(side[:, :, 2] < self.least_rows - 0.5) | (side[:, :, 1] < self.least_curvature)] = 0.0
        gain[~(gain > np.maximum(2 * self.least_gain, ROUNDING * self._worth(whole)))] = 0.0
        flat = gain.reshape(*gain.shape[:3], -1)
        best = flat.argmax(-1)[..., None]
        column, edge = np.divmod(best[..., 0], gain.shape[-1])
        sides = (
            np.take_along_axis(side.reshape(*side.shape[:4], -1), best[:, :, None], -1)[..., 0]
            for side in (left, right)
        )
        feature = np.take_along_axis(columns, column, 2)
        return Splits(feature, edge, np.take_along_axis(flat, best, -1)[..., 0] / 2, *sides)

    def _worth(self, sums: Sums) -> Sums:
        """`G² / (H + λ)`."""
        worth: Sums = sums[:, :, 0] ** 2 / np.maximum(sums[:, :, 1] + self.l2, 1e-300)
        return worth

    def _grow_(self, w: Tensor, splits: Splits, edges: Tensor, first: int, level: int) -> None:
        """Lines 10-11: write the splits of a level into the forest, and after the last the leaves."""
        views, several = self._views(w), len(splits.gain)
        trees, nodes = slice(first, first + several), slice(2**level - 1, 2 ** (level + 1) - 1)
        split = splits.gain > 0
        for name, values in (
            ("feature", np.where(split, splits.feature, 0)),
            ("threshold", np.where(split, edges.double().numpy()[splits.feature, splits.edge], NO_SPLIT)),
            ("gain", splits.gain),
        ):
            views[name][trees, :, nodes] = torch.from_numpy(values.astype(np.float64)).to(w)
        if level == self.forest.depth - 1:
            left = np.where(split[:, :, None], splits.left, splits.left + splits.right)
            right = np.where(split[:, :, None], splits.right, 0.0)
            g, h, rows = np.moveaxis(np.stack([left, right], -1), 2, 0)
            value = np.where(rows > 0.5, -self.shrinkage / several * g / np.maximum(h + self.l2, 1e-300), 0.0)
            views["leaf"][trees] = torch.from_numpy(value.reshape(*value.shape[:2], -1)).to(w)


def places(edges: Tensor) -> tuple[Tensor, int]:
    """Where the bins of each feature start among those of all, and how many there are; `edges` is `(p, E)`."""
    sizes = (edges < NO_SPLIT).sum(1) + 1
    return sizes.cumsum(0) - sizes, int(sizes.sum())


def by_feature(sums: Sums, edges: Tensor) -> Sums:
    """Sums by all bins in a row as sums by feature and bin, `(..., p, E + 1)`; bins that do not exist are 0."""
    bins = np.arange(edges.shape[1] + 1)
    real = bins <= (edges.cpu() < NO_SPLIT).sum(1).numpy()[:, None]
    found = np.zeros((*sums.shape[:-1], *real.shape))
    found[..., real] = sums
    return found


def histograms_of(place: Tensor, node: Tensor, g: Tensor, h: Tensor, counts: Tensor, nodes: int, total: int) -> Tensor:
    """Sums of gradients, curvatures and rows, `(C, open trees, outputs, 3, nodes, total)`.

    Args:
        place: the bin of each row's features among those of all features, `(C, B, p)`.
        node: of each row in each open tree, `(C, B, open trees, outputs)`.
        g: gradients, `(C, B, outputs)`.
        h: curvatures, of the same shape.
        counts: 1 for rows that count, `(C, B, open trees)`.
        nodes: nodes of this level.
        total: bins of all features.
    """
    (C, _, p), (trees, outputs) = place.shape, node.shape[2:]
    size = nodes * total
    found = torch.empty(C, trees, outputs, 3, size, dtype=torch.float64, device=place.device)
    place = place + torch.arange(C, device=place.device).view(-1, 1, 1) * size
    values = torch.stack([g, h, torch.ones_like(g)])
    for t in range(trees):
        for k in range(outputs):
            at = (place if nodes == 1 else place + total * node[:, :, t, k, None]).flatten()
            for i, each in enumerate(values[..., k] * counts[:, :, t]):
                spread = each[..., None].expand(-1, -1, p).flatten()
                found[:, t, k, i] = torch.bincount(at, spread, C * size).view(C, size)
    return found.view(C, trees, outputs, 3, nodes, total)


def bins_of(x: Tensor, edges: Tensor) -> Tensor:
    """The bin of each feature: how many edges are below it, `(C, B, p)`; `edges` is `(p, E)`."""
    return torch.searchsorted(edges.contiguous(), x.flatten(0, 1).mT.contiguous()).mT.reshape(x.shape)


def _real(batch: Batch) -> Tensor:
    """1 for each row, 0 for padding, (C, B)."""
    one = torch.ones(batch.x.shape[:2], dtype=torch.float64, device=batch.x.device)
    return one if batch.weight is None else (batch.weight > 0).double()


def _unit(usual: float) -> float:
    """A power of two some EXACT bits below a usual value."""
    return float(2.0 ** (np.floor(np.log2(max(usual, 1e-30))) - EXACT))


def _edges(low: Sums, high: Sums, under: Sums, upto: Sums, n: float, most: int) -> Sums:
    """A feature's edges, rising, from the intervals that hold its quantiles; those that are left over are NO_SPLIT.

    Both ends of an interval are edges where a value in it has more rows than a bin, else the lower one alone. Edges
    that separate no rows are left out.
    """
    counted: dict[float, float] = {}  # rows at or below -> the edge
    for edge, rows in zip(low, under, strict=True):
        counted[float(rows)] = float(edge)
    for edge, rows, before in zip(high, upto, under, strict=True):
        if rows - before > n / (most + 1):
            counted.setdefault(float(rows), float(edge))
    useful = sorted(rows for rows in counted if 0.5 < rows < n - 0.5)
    while len(useful) > most:
        gaps = np.diff([0.0, *useful, n])
        del useful[int(np.argmin(np.minimum(gaps[:-1], gaps[1:])))]
    found = np.full(most, NO_SPLIT)
    found[: len(useful)] = np.sinh([counted[rows] for rows in useful])
    return found
