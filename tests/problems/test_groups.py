"""Groups that cross sites: equal to fair classes and to DRFA's objective at special groups, and to a literal box."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedsaddle as fs
from small import classes, play, rows_of, seeded, serial, vectorised

SHARES = torch.tensor([0.5, 0.2, 0.3], dtype=torch.float64)


def linear(scores: int = 3) -> nn.Module:
    return seeded(lambda: nn.Linear(4, scores))


def paired(rows: fs.Stacked, groups: Tensor) -> fs.Stacked:
    return fs.Stacked(rows.x, torch.stack([rows.y, groups], 1), rows.offsets)


def grouped(labels: int = 3) -> fs.Stacked:
    """Rows whose group has nothing to do with the site."""
    rows = classes(classes=labels)
    return paired(rows, torch.randint(3, (len(rows.y),), generator=torch.Generator().manual_seed(8)))


def shares_of(rows: fs.Stacked) -> Tensor:
    return torch.bincount(rows.y[:, 1]).double() / len(rows.y)


def sites_of(rows: fs.Stacked) -> Tensor:
    return torch.from_numpy(np.repeat(np.arange(rows.count), rows.sizes))


ALGORITHMS = {
    "Local SGDA": lambda problem: fs.LocalSgda(problem=problem, local_steps=3, batch_size=3, dual_step=0.1),
    "CODASCA": lambda problem: fs.Codasca(problem=problem, local_steps=3, batch_size=3, stage_rounds=2),
    "Local Extragradient": lambda problem: fs.LocalExtragradient(problem=problem, local_steps=3, batch_size=3),
    "FedSGDA-STORM": lambda problem: fs.FedSgda(problem=problem, local_steps=3, batch_size=3, estimator=fs.Storm()),
}


@pytest.mark.parametrize("penalty", [0.0, 0.1])
@pytest.mark.parametrize("name", ALGORITHMS)
def test_with_groups_that_are_classes_it_is_class_fair_bit_for_bit(name: str, penalty: float) -> None:
    rows = classes()
    fair = fs.ClassFair(model=linear(), classes=3, penalty=penalty, class_shares=SHARES)
    group = fs.GroupFair(model=linear(), groups=("a", "b", "c"), penalty=penalty, group_shares=SHARES)
    for engine in (serial, vectorised):
        ours = play(ALGORITHMS[name](group), engine(paired(rows, rows.y)), 3)
        theirs = play(ALGORITHMS[name](fair), engine(rows), 3)
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a.x, b.x)
            assert torch.equal(a.y, b.y)


@pytest.mark.parametrize("loss", [fs.losses.CrossEntropy(), fs.losses.Logistic()])
def test_with_groups_that_are_sites_it_is_the_objective_of_drfa(loss: Any) -> None:
    """`Σ_i λ_i f_i(w)` with f_i the mean of site i, at any mixture."""
    k = 3 if isinstance(loss, fs.losses.CrossEntropy) else 1
    rows = classes(classes=3 if k == 3 else 2)
    pairs, names = paired(rows, sites_of(rows)), tuple(map(str, range(rows.count)))
    problem = fs.GroupFair(model=linear(k), groups=names, group_shares=shares_of(pairs), loss=loss)
    plain = fs.Supervised(linear(k), loss=loss)
    w, λ = plain.initial()[None], torch.rand(1, rows.count, dtype=torch.float64)
    f = torch.stack([plain.value(w, fs.Batch(x[None], y[None]))[0] for x, y in map(rows.client, range(rows.count))])
    batch = fs.Batch(pairs.x[None], pairs.y[None])
    assert float(problem.value(w, λ, batch)) == pytest.approx(float(λ @ f), abs=1e-12)
    torch.testing.assert_close(problem.gradients(w, λ, batch).y[0], f, rtol=0, atol=1e-12)
    assert int(problem.best_response(w[0], fs.Batch(pairs.x, pairs.y)).argmax()) == int(f.argmax())


@pytest.mark.parametrize("loss", [fs.losses.CrossEntropy(), fs.losses.Logistic()])
@pytest.mark.parametrize("g", [None, fs.regularisers.KullbackLeibler(0.3), fs.regularisers.Quadratic(0.7)])
def test_gradients_are_those_of_the_value(loss: Any, g: Any) -> None:
    k = 3 if isinstance(loss, fs.losses.CrossEntropy) else 1
    rows = grouped(3 if k == 3 else 2)
    options = {"penalty": 0.2, "regulariser": g, "group_shares": SHARES, "loss": loss}
    problem = fs.GroupFair(model=linear(k), groups=("a", "b", "c"), l2=0.1, **options)
    batch = fs.Batch(rows.x[None], rows.y[None], torch.rand(1, len(rows.x), dtype=torch.float64))
    x = problem.initial()[0][None].requires_grad_()
    y = torch.tensor([[0.2, 0.3, 0.5]], dtype=torch.float64).requires_grad_()
    gx, gy = torch.autograd.grad(problem.value(x, y, batch).sum(), (x, y))
    found = problem.gradients(x.detach(), y.detach(), batch)
    torch.testing.assert_close(found.x, gx, rtol=0, atol=1e-10)
    torch.testing.assert_close(found.y, gy, rtol=0, atol=1e-10)
    alone = problem.row_slopes(problem.scores(x[0].detach(), rows.x)[None], x.detach(), y.detach(), batch)
    plain = problem.gradients(x.detach(), y.detach(), fs.Batch(rows.x[None], rows.y[None]))
    torch.testing.assert_close(alone.y.mean(1), plain.y, rtol=0, atol=1e-10)


def simplex(v: np.ndarray, high: float = np.inf) -> np.ndarray:
    """The projection by bisection on the threshold."""
    low, top = v.min() - 2, v.max()
    for _ in range(200):
        t = (low + top) / 2
        low, top = (t, top) if np.clip(v - t, 0, high).sum() > 1 else (low, t)
    return np.clip(v - low, 0, high)


@pytest.mark.parametrize("ceiling", [None, 1.5])
def test_one_local_step_and_ascent_at_the_server_is_descent_ascent_over_the_groups(ceiling: float | None) -> None:
    """`w ← w - η Σ_g λ_g ∇R_g(w)` and `λ ← Π(λ + γ R(w))`, R_g over the rows of group g at all sites; literally."""
    rows = grouped(2)
    alike = [rows.client(i) for i in range(rows.count)]
    once = rows_of([x[:1] for x, _ in alike], [y[:1] for _, y in alike])  # one row a site: a batch is all rows
    once = fs.Stacked(once.x, torch.tensor([[i % 2, i // 2] for i in range(6)]), once.offsets)
    problem = fs.GroupFair(
        model=linear(1), groups=("a", "b", "c"), loss=fs.losses.Logistic(), group_shares=shares_of(once),
        mixture_ceiling=ceiling,
    )  # fmt: skip
    steps = {
        "local_steps": 1,
        "batch_size": 1,
        "primal_step": 0.3,
        "dual_step": 0.4,
        "weighting": "size",
        "ascent": "server",
    }
    states = play(fs.LocalSgda(problem=problem, **steps), serial(once), 25)[1:]
    x = np.hstack([once.x.numpy(), np.ones((6, 1))])
    (label, group), w = once.y.numpy().T, problem.initial()[0].numpy().copy()
    λ = np.full(3, 1 / 3)
    for state in states:
        s = x @ w
        losses, slopes = np.logaddexp(0, s) - label * s, 1 / (1 + np.exp(-s)) - label
        R = np.array([losses[group == g].mean() for g in range(3)])
        step = sum(λ[g] * (slopes[group == g, None] * x[group == g]).mean(0) for g in range(3))
        w, λ = w - 0.3 * step, simplex(λ + 0.4 * R, np.inf if ceiling is None else ceiling / 3)
        np.testing.assert_allclose(state.x.numpy(), w, rtol=0, atol=1e-10)
        np.testing.assert_allclose(state.y.numpy(), λ, rtol=0, atol=1e-10)
    assert λ.max() > 0.4


def test_the_server_sees_the_loss_of_each_group_over_all_of_its_rows() -> None:
    """Sites of unlike sizes, each of which repeats one row: the mean step in y is `γ K R`, before the projection."""
    rows = grouped()
    own = [(x[:1].expand(x.shape), y[:1].expand(y.shape)) for x, y in map(rows.client, range(rows.count))]
    rows = rows_of([x.contiguous() for x, _ in own], [y.contiguous() for _, y in own])
    problem = fs.GroupFair(model=linear(), groups=("a", "b", "c"), group_shares=shares_of(rows).clamp_min(1e-9))
    steps = {"local_steps": 4, "batch_size": 2, "primal_step": 1e-12, "dual_step": 1e-3}
    first, after = play(fs.LocalSgda(problem=problem, weighting="size", ascent="server", **steps), serial(rows), 1)
    losses = problem.row_measures(first.x, rows.x, rows.y)["loss"]
    R = torch.bincount(rows.y[:, 1], weights=losses, minlength=3) / torch.bincount(rows.y[:, 1], minlength=3).clamp_min(
        1
    )
    torch.testing.assert_close(after.y, problem.project_y(first.y + 4 * 1e-3 * R), rtol=0, atol=1e-10)


@pytest.mark.parametrize("given", [{"snapshot_every": 2}, {"local_optimiser": fs.optimisers.Adam()}])
def test_ascent_at_the_server_is_for_plain_steps(given: dict[str, Any]) -> None:
    problem = fs.GroupFair(model=linear(), groups=("a", "b", "c"))
    with pytest.raises(fs.errors.BadInput, match="ascent = 'server'"):
        fs.LocalSgda(problem=problem, ascent="server", **given)


def test_the_best_response_to_a_regularised_mixture() -> None:
    """With Kullback-Leibler it is the softmax of the losses."""
    rows = grouped()
    g = fs.regularisers.KullbackLeibler(0.5)
    problem = fs.GroupFair(model=linear(), groups=("a", "b", "c"), group_shares=shares_of(rows), regulariser=g)
    x = problem.initial()[0]
    losses = problem.row_measures(x, rows.x, rows.y)["loss"]
    R = torch.stack([losses[rows.y[:, 1] == k].mean() for k in range(3)])
    found = problem.best_response(x, fs.Batch(rows.x, rows.y))
    torch.testing.assert_close(found, (R / 0.5).softmax(0), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"mixture_ceiling": 0.9}, "mixture_ceiling = 0.9: must be at least 1"),
        ({"mixture_ceiling": 2.0, "regulariser": fs.regularisers.Quadratic(1.0)}, "cannot be combined"),
        ({"group_shares": torch.tensor([0.5, 0.0, 0.5])}, "group 'b' has no rows at any site"),
        ({"group_shares": torch.tensor([0.5, 0.5])}, "group_shares"),
        ({"groups": ("a",)}, "two groups or more"),
        ({"groups": "abc"}, "two groups or more"),
        ({"penalty": -1.0}, "penalty = -1"),
        ({"regulariser": 3.0}, "regulariser"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], message: str) -> None:
    with pytest.raises(fs.errors.BadInput, match=message) as caught:
        fs.GroupFair(**{"model": linear(), "groups": ("a", "b", "c"), **given})
    assert "\n" not in str(caught.value)


# --- from a table -----------------------------------------------------------------------------------------------------


def table(rows: int = 240) -> Any:
    import pandas as pd

    rng = np.random.default_rng(3)
    x, sex = rng.normal(size=rows), rng.choice(["F", "M"], rows)
    y = (x + (sex == "F") + rng.normal(size=rows) > 0.5).astype(int)
    columns = {"site": rng.choice(["a", "b", "c"], rows), "x": x, "sex": sex, "age": rng.integers(20, 80, rows), "y": y}
    return pd.DataFrame(columns | {"odd": np.where(y == 1, "p", "q")})


def federated(groups: list[str]) -> fs.FederatedData:
    rows = fs.from_frame(table(), site="site", label="y", groups=groups, drop=["odd"], task="classes")
    return fs.federate(rows, fs.splits.Natural("site"), 0, stratify=True, validation_share=0.2)


def test_columns_are_crossed_and_numbers_are_cut_into_quarters() -> None:
    data = federated(["sex", "age"])
    made = data.with_groups(["sex", "age"])
    assert len(made.group_names) == 8
    assert made.group_names[0].startswith("sex=F, age=")
    words = np.array(made.group_names)[made.train.y[:, 1].numpy()]
    sex, age = data.train_groups["sex"], data.train_groups["age"]
    assert words.tolist() == [f"sex={s}, age={a}" for s, a in zip(sex, age, strict=True)]
    assert torch.equal(made.train.y[:, 0], data.train.y)
    assert data.with_groups(["sex"]).group_names == ("F", "M")
    assert data.with_groups().group_names == made.group_names


def run_groups(groups: list[str], problem: dict[str, Any]) -> Any:
    from fedsaddle.config.build import build_on
    from fedsaddle.config.schema import validate_experiment

    local = {"name": "Local SGDA", "weighting": "size", "ascent": "server", "dual_step": 0.1, "primal_step": 0.1}
    sections = {"model": {"name": "logistic"}, "problem": {"name": "group-fair", **problem}, "algorithm": local}
    return build_on(validate_experiment({**sections, "run": {"rounds": 4, "seed": 0}}), federated(groups))


def test_a_config_builds_it_and_a_run_goes_through() -> None:
    setup = run_groups(["sex"], {"groups": ["sex"], "loss": "logistic", "mixture_ceiling": 1.5})
    shares = torch.bincount(setup.data.train.y[:, 1]).double() / len(setup.data.train.y)
    torch.testing.assert_close(setup.algorithm.problem.group_shares, shares)
    result = fs.run(setup.algorithm, setup.data, rounds=30, evaluate_every=30)
    assert result.summary["pooled"]["auroc"] > 0.7
    mixture = setup.algorithm.dual(result.server)
    assert float(mixture.sum()) == pytest.approx(1)
    assert float(mixture.max()) <= 0.75 + 1e-6


@pytest.mark.parametrize(
    ("groups", "problem", "message"),
    [
        (["sex"], {"groups": ["odd"]}, "problem.groups = 'odd': is no column of groups"),
        ([], {"groups": []}, "problem.groups = .*: name columns whose values are groups"),
        (["sex"], {"groups": "sex"}, "problem.groups = 'sex': must be a list"),
        (["sex"], {"groups": ["sex"], "mixture_ceiling": 0.5}, "mixture_ceiling = 0.5: must be at least 1"),
        (["odd"], {"groups": ["odd"]}, "have the label '[01]': nothing can be learnt of such a group"),
        (["sex"], {"groups": ["sex"], "loss": "square"}, "problem.loss = 'square': is no loss of classes"),
    ],
)
def test_bad_columns_are_one_line(groups: list[str], problem: dict[str, Any], message: str) -> None:
    with pytest.raises(fs.errors.BadInput, match=message) as caught:
        run_groups(groups, problem)
    assert "\n" not in str(caught.value)


def test_a_run_checks_labels_and_groups_apart() -> None:
    """More groups than classes are fine; numbers of no group are not, nor rows without groups."""
    problem = fs.GroupFair(model=linear(2), groups=("a", "b", "c"))
    steps = {"local_steps": 1, "ascent": "server"}
    rows = grouped(2)
    fs.run(fs.LocalSgda(problem=problem, **steps), rows, rounds=1)
    for column, key in ((0, "label"), (1, "group")):
        y = rows.y.clone()
        y[4, column] = 3
        with pytest.raises(fs.errors.BadInput, match=rf"{key} of client 0 = 3: the problem has \d"):
            fs.run(fs.LocalSgda(problem=problem, **steps), fs.Stacked(rows.x, y, rows.offsets), rounds=1)
    with pytest.raises(fs.errors.BadInput, match="data = 'rows without groups': give"):
        fs.run(fs.LocalSgda(problem=problem, **steps), classes(classes=2), rounds=1)
