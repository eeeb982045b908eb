"""Boosted trees against a literal reference on pooled rows, with the same bins: the same forest bit for bit."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import fedsaddle as fs
from fedsaddle.algorithms.boosted_trees import BoostedTrees, ForestState, bins_of
from fedsaddle.data.store import Stacked
from fedsaddle.federation.randomness import server_generator
from fedsaddle.problems.models.forest import NO_SPLIT

Floats = NDArray[np.float64]
LOSSES = {
    "logistic": fs.losses.Logistic,
    "cross-entropy": fs.losses.CrossEntropy,
    "square": fs.losses.Square,
    "poisson": fs.losses.Poisson,
}


def rows(kind: str, n: int = 240, seed: int = 0) -> tuple[Floats, Any]:
    """Rows with an interaction, a feature of three values, a constant and a rare indicator."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 5))
    x[:, 2] = np.round(x[:, 2]).clip(-1, 1)
    x[:, 3] = 7.0
    x[:, 4] = rng.random(n) < 0.04
    score = 2 * np.sign(x[:, 0]) * x[:, 1] + x[:, 2] + 2 * x[:, 4]
    if kind == "logistic":
        return x, (rng.random(n) < 1 / (1 + np.exp(-score))).astype(np.int64)
    if kind == "cross-entropy":
        return x, np.digitize(score + rng.normal(size=n), [-1.0, 1.0])
    return x, rng.poisson(np.exp(0.4 * score)).astype(float) if kind == "poisson" else score + rng.normal(size=n)


def sites(x: Floats, y: Any, bounds: tuple[int, ...] = (0, 40, 110, 125, 240)) -> Stacked:
    """The rows at four clients of different sizes."""
    parts = [np.arange(a, b) for a, b in pairwise(bounds)]
    return Stacked.of(torch.from_numpy(x), torch.from_numpy(y), parts)


def made(kind: str, trees: int = 6, depth: int = 3, **options: Any) -> BoostedTrees:
    forest = fs.models.Forest(5, 3 if kind == "cross-entropy" else 1, trees, depth).double()
    settings = {"parallel": 2, "bins": 8, "row_share": 1.0, "least_rows": 4, "least_curvature": 0.5} | options
    return fs.BoostedTrees(problem=fs.Supervised(forest, LOSSES[kind]()), **settings)


def states(algorithm: BoostedTrees, data: Stacked, rounds: int, seed: int = 3) -> list[ForestState]:
    clients = fs.SerialEngine(data, seed=seed)
    found = [algorithm.start(clients)]
    for t in range(rounds):
        clients.begin(t)
        found.append(algorithm.round(found[-1], clients, server_generator(seed, t)))
        clients.commit()
    return found


def second_order(kind: str, s: Floats, y: Any) -> tuple[Floats, Floats]:
    if kind == "logistic":
        p = torch.from_numpy(s).sigmoid().numpy()
        return p - y[:, None], p * (-torch.from_numpy(s)).sigmoid().numpy()
    if kind == "cross-entropy":
        p = torch.from_numpy(s).softmax(1).numpy()
        return p - np.eye(3)[y], p - p * p
    if kind == "square":
        return s - y[:, None], np.ones_like(s)
    m = torch.from_numpy(s).exp().numpy()
    return m - y[:, None], m


def literal(algorithm: BoostedTrees, first: ForestState, kind: str, x: Floats, y: Any, rounds: int, seed: int) -> Any:
    """The box on pooled rows, one node, feature and edge at a time; from the edges and the intercept on."""
    assert first.edges is not None
    edges, λ, depth, P = first.edges.double().numpy(), algorithm.l2, algorithm.forest.depth, algorithm.parallel
    k, p = algorithm.forest.outputs, x.shape[1]
    scores = np.zeros((len(x), k)) + algorithm.problem.flat.views(first.w)["bias"].double().numpy()
    trees = []
    for t in range(rounds):
        rng = server_generator(seed, t)
        m = max(1, round(algorithm.column_share * p))
        columns = np.stack([np.sort(rng.permutation(p)[:m]) for _ in range(P * k)]).reshape(P, k, m)
        g, h = second_order(kind, scores, y)
        g = np.round(g / first.unit) * first.unit
        h = np.round(h / first.curvature_unit) * first.curvature_unit
        grown = []
        for tree in range(P):
            for c in range(k):
                splits: list[tuple[int, float]] = []
                node = np.zeros(len(x), dtype=int)
                values = np.zeros(2**depth)
                for level in range(depth):
                    for j in range(2**level):
                        at = node == 2**level - 1 + j
                        G, H = g[at, c].sum(), h[at, c].sum()
                        best, split = max(2 * algorithm.least_gain, 1e-9 * G**2 / max(H + λ, 1e-300)), (0, NO_SPLIT)
                        sides = (at, at & False)
                        for f in columns[tree, c]:
                            for edge in edges[f]:
                                left, right = at & (x[:, f] <= edge), at & (x[:, f] > edge)
                                if min(left.sum(), right.sum()) < algorithm.least_rows:
                                    continue
                                HL, HR = h[left, c].sum(), h[right, c].sum()
                                if min(HL, HR) < algorithm.least_curvature:
                                    continue
                                worth = g[left, c].sum() ** 2 / max(HL + λ, 1e-300)
                                worth += g[right, c].sum() ** 2 / max(HR + λ, 1e-300)
                                gain = worth - G**2 / max(H + λ, 1e-300)
                                if gain > best:
                                    best, split, sides = gain, (int(f), float(edge)), (left, right)
                        splits.append(split)
                        for i, side in enumerate(sides):
                            if level == depth - 1 and side.any():
                                a, b = g[side, c].sum(), h[side, c].sum()
                                values[2 * j + i] = -algorithm.shrinkage / P * a / max(b + λ, 1e-300)
                    f = np.array([one for one, _ in splits])
                    edge = np.array([one for _, one in splits])
                    node = 2 * node + 1 + (x[np.arange(len(x)), f[node]] > edge[node])
                grown.append((c, splits, values, node - (2**depth - 1)))
        for c, splits, values, leaf in grown:
            scores[:, c] += values[leaf]
            trees.append((splits, values))
    return trees, scores


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("options", [{}, {"column_share": 0.6, "l2": 3.0, "least_gain": 0.5, "parallel": 3}], ids=str)
def test_the_forest_is_that_of_the_literal_box(kind, options):
    x, y = rows(kind)
    algorithm = made(kind, **options)
    found = states(algorithm, sites(x, y), algorithm.rounds)
    trees, scores = literal(algorithm, found[1], kind, x, y, algorithm.rounds, 3)
    views = algorithm.problem.flat.views(found[-1].w)
    nodes, leaves = views["feature"].shape[2], views["leaf"].shape[2]
    feature = np.array([[f for f, _ in splits] for splits, _ in trees])
    threshold = np.array([[edge for _, edge in splits] for splits, _ in trees])
    assert np.array_equal(views["threshold"].numpy().reshape(-1, nodes), threshold)
    assert np.array_equal(views["feature"].numpy().reshape(-1, nodes), feature)
    assert np.array_equal(views["leaf"].numpy().reshape(-1, leaves), np.array([values for _, values in trees]))
    assert (threshold < NO_SPLIT).sum() > 10
    with torch.no_grad():
        again = algorithm.problem.module(found[-1].w)(torch.from_numpy(x))
    np.testing.assert_allclose(again.numpy(), scores, rtol=0, atol=1e-12)


def test_bins_are_quantiles_and_split_where_values_do():
    x, y = rows("logistic", n=4000)
    algorithm = made("logistic", bins=8)
    edges = states(algorithm, sites(x, y, (0, 500, 1500, 4000)), 1)[1].edges
    assert edges is not None
    for f in (0, 1):  # continuous: quantiles
        shares = (x[:, f, None] <= edges[f].numpy()).mean(0)
        np.testing.assert_allclose(shares, np.arange(1, 8) / 8, atol=0.002)
    real = [int((edge < NO_SPLIT).sum()) for edge in edges]
    assert real[2:] == [2, 0, 1]  # three values, a constant, a rare indicator
    bins = bins_of(torch.from_numpy(x)[None], edges)[0]
    assert torch.unique(bins[:, 2]).tolist() == [0, 1, 2]
    assert torch.equal(bins[:, 4], torch.from_numpy(x[:, 4]).long())


def test_the_intercept_is_that_of_the_base_rate():
    x, y = rows("logistic", n=2000)
    state = states(made("logistic"), sites(x, y, (0, 700, 2000)), 1)[1]
    bias = float(made("logistic").problem.flat.views(state.w)["bias"])
    assert bias == pytest.approx(np.log(y.mean() / (1 - y.mean())), abs=1e-6)


@pytest.mark.parametrize(
    "bounds", [(0, 110, 125, 240), (0, 40, 110, 125, 240), (0, 7, 61, 75, 120, 151, 200, 240)], ids=len
)
def test_the_partition_of_the_rows_changes_no_bit(bounds):
    """Also where a mean over clients times their number is not their sum to the last bit, as with 3 or 7 of them."""
    x, y = rows("logistic")
    algorithm = made("logistic", column_share=0.6)
    one, several = (states(algorithm, sites(x, y, b), 3)[-1].w for b in ((0, 240), bounds))
    assert torch.equal(one, several)


def test_a_tree_that_is_0_everywhere_hides_no_later_one():
    forest = fs.models.Forest(2, trees=3, depth=1)
    with torch.no_grad():
        forest.leaf[1] = torch.tensor([[0.5, -0.5]])
        forest.threshold[1] = 0.0
    assert forest(torch.tensor([[-1.0, 0.0], [1.0, 0.0]])).tolist() == [[0.5], [-0.5]]


def test_growth_starts_from_a_linear_score():
    x, y = rows("logistic")
    algorithm = made("logistic")
    with torch.no_grad():
        algorithm.forest.weight.copy_(torch.tensor([[0.0, 0.0, 1.0, 0.0, 2.0]]))
    w = states(algorithm, sites(x, y), 1)[1].w
    plain = states(made("logistic"), sites(x, y), 1)[1].w
    views = algorithm.problem.flat.views(w)
    assert views["weight"].tolist() == [[0.0, 0.0, 1.0, 0.0, 2.0]]
    assert not torch.equal(views["leaf"], algorithm.problem.flat.views(plain)["leaf"])


def test_a_client_that_was_silent_catches_up():
    x, y = rows("logistic")
    algorithm, data = made("logistic", row_share=0.7), sites(x, y)
    lossy = fs.Lossy(fs.SerialEngine(data, seed=3), 0.5, seed=6)
    state = algorithm.start(lossy)
    for t in range(3):
        lossy.begin(t)
        state = algorithm.round(state, lossy, server_generator(3, t))
        lossy.commit()
    views = algorithm.problem.flat.views(state.w)
    assert len({int(one.trees) for one in lossy.state().records.values()}) > 1
    for client, one in lossy.state().records.items():
        grown = int(one.trees)
        features = data.client(client)[0]
        module = algorithm.problem.module(state.w)
        with torch.no_grad():
            module.leaf[grown:] = 0
            np.testing.assert_allclose(module(features).numpy(), one.scores.numpy(), atol=1e-12)
    assert views["leaf"].ne(0).any()


def test_a_full_forest_asks_nothing():
    x, y = rows("logistic")
    result = fs.run(made("logistic", trees=4), single(x, y), rounds=5)
    assert result.summary["ledger"]["exchanges"] == 4 + 2 * 3


def single(x: Floats, y: Any) -> Any:
    from fedsaddle.data.federated import FederatedData

    names, features = tuple("abcd"), tuple(f"x{j}" for j in range(x.shape[1]))
    return FederatedData("made", sites(x, y), None, names, ("no", "yes"), features)


def test_importances_are_shares_of_the_gain():
    x, y = rows("logistic", n=1000)
    algorithm = made("logistic", trees=20)
    w = states(algorithm, sites(x, y, (0, 300, 1000)), 10)[-1].w
    importances = algorithm.problem.module(w).importances()
    assert float(importances.sum()) == pytest.approx(1.0)
    assert set(importances.argsort(descending=True)[:2].tolist()) == {0, 1}
    assert importances[3] == 0


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"shrinkage": 0}, "shrinkage"),
        ({"parallel": 7}, "parallel = 7"),
        ({"bins": 1000}, "bins = 1000"),
        ({"row_share": 0.0}, "row_share"),
        ({"column_share": 1.5}, "column_share"),
        ({"least_rows": 0}, "least_rows = 0"),
        ({"l2": -1}, "l2 = -1"),
    ],
)
def test_invalid_settings_are_one_line(wrong, line):
    with pytest.raises(fs.BadInput, match=line):
        made("logistic", **wrong)


@pytest.mark.parametrize(
    ("problem", "line"),
    [
        (lambda: fs.Supervised(fs.models.logistic_regression(5, 2)), "fs.models.Forest"),
        (lambda: fs.Supervised(fs.models.Forest(5), fs.rare_losses.Focal()), "second derivative"),
        (lambda: fs.Supervised(fs.models.Forest(5), fs.losses.Logistic(), l2=1.0), "problem.l2 = 1.0"),
        (lambda: fs.Supervised(fs.models.Forest(5, depth=0), fs.losses.Logistic()), "depth = 0"),
    ],
)
def test_invalid_problems_are_one_line(problem, line):
    with pytest.raises(fs.BadInput, match=line):
        fs.BoostedTrees(problem=problem())
