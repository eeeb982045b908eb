"""Measures that are asked for: in the history, as targets, in plots, from a config."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from run_cases import drfa, fedavg, iris

import fedsaddle as fs
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadInput
from fedsaddle.runs.run import run

ROWS = fs.Stacked(torch.tensor([[1.0, 2.0], [3.0, 4.0], [-1.0, 0.0]]), torch.zeros(3), np.array([0, 1, 3]))


def value(x, y, batch):
    return x @ x / 2 + x @ y - y @ y / 2 + batch.x @ x


def game():
    return fs.FedSgda(
        problem=fs.Minimax(value, start_x=torch.ones(2), start_y=torch.zeros(2)), primal_step=0.1, dual_step=0.1
    )


def squared(x):
    """|∇Φ|² by hand: Φ(x) = |x|² + a'x with a the mean of the clients' means, (1, 2)."""
    return float((2 * x + torch.tensor([1.0, 2.0])).square().sum())


def test_in_the_history_and_the_summary(tmp_path):
    seen = {}
    result = run(
        game(),
        ROWS,
        6,
        evaluate_every=2,
        out=tmp_path / "run",
        measures=["squared_gradient_of_phi", fs.measures.DualityGap(), fs.measures.DistanceToSaddle(torch.zeros(2))],
        callbacks=[fs.LambdaCallback(on_round=lambda done, record: seen.update({done: record}))],
    )
    assert [r["round"] for r in result.history] == [2, 4, 6]
    names = {"squared_gradient_of_phi", "duality_gap", "distance_to_saddle"}
    assert all(set(r["pooled"]) == names and "not_reached" not in r for r in result.history)
    assert result.summary["pooled"] == result.history[-1]["pooled"]
    assert result.history[-1]["pooled"]["squared_gradient_of_phi"] == pytest.approx(squared(result.model), rel=1e-3)
    assert result.history[-1]["pooled"]["distance_to_saddle"] == pytest.approx(float(result.model.norm()))
    assert RunFiles(tmp_path / "run").history() == result.history


def test_plotted_over_exchanges(tmp_path):
    result = run(game(), ROWS, 5, measures=["duality_gap"])
    for x in ("round", "exchanges", "bytes_up"):
        assert result.plot(tmp_path / f"{x}.png", "duality_gap", x=x).stat().st_size > 5000
    assert [r["exchanges"] for r in result.history] == [2, 4, 6, 8, 10]


def test_only_on_request():
    calls = []

    @dataclass(frozen=True)
    class Counting:
        name: str = "count"

        def __call__(self, at):
            calls.append(at.x)
            return len(calls)

    assert "pooled" not in run(game(), ROWS, 2).summary
    assert calls == []
    result = run(game(), ROWS, 6, evaluate_every=3, measures=[Counting()])
    assert [r["pooled"] for r in result.history] == [{"count": 2.0}, {"count": 3.0}]
    assert len(calls) == 3, "one to check, one for each evaluation, none for the summary"


def test_a_target():
    free = run(game(), ROWS, 40, measures=["duality_gap"])
    first = next(r["round"] for r in free.history if r["pooled"]["duality_gap"] <= 1e-3)
    stopped = run(game(), ROWS, 40, measures=["duality_gap"], target="duality_gap <= 1e-3")
    assert 1 < stopped.summary["target_round"] == first < 40
    assert stopped.history[-1]["exchanges"] == 2 * first
    with pytest.raises(BadInput, match="this problem has no pooled metrics"):
        run(game(), ROWS, 5, target="duality_gap <= 1e-3")


def test_it_says_what_is_rough():
    said = []
    rough = fs.measures.GradientOfPhi(tolerance=1e-30, most_steps=1)
    result = run(game(), ROWS, 3, measures=[rough], callbacks=[fs.LambdaCallback(on_warning=said.append)])
    assert all(r["not_reached"] == ["squared_gradient_of_phi"] for r in [*result.history, result.summary])
    assert len(said) == 1
    assert said[0].startswith("round 1: the inner solve of squared_gradient_of_phi did not reach its tolerance")


def test_resumed_runs_have_the_same_figures(tmp_path):
    whole = run(game(), ROWS, 8, measures=["squared_gradient_of_phi"])
    for rounds, resume in ((4, False), (8, True)):
        parts = run(
            game(),
            ROWS,
            rounds,
            measures=["squared_gradient_of_phi"],
            out=tmp_path / "run",
            resume=resume,
            options=fs.RunOptions(checkpoint_every=2),
        )
    assert [r["pooled"] for r in parts.history] == [r["pooled"] for r in whole.history]
    assert parts.summary["pooled"] == whole.summary["pooled"]


def test_worst_class_accuracy_of_any_classifier():
    for algorithm in (drfa(), fedavg()):
        asked = ["worst_class_accuracy", {"name": "robust_accuracy", "radius": 0.3}]
        result = run(algorithm, iris(), 3, measures=asked)
        pooled = result.summary["pooled"]
        right = (result.module()(iris().test.x).argmax(-1) == iris().test.y).double()
        worst = min(float(right[iris().test.y == k].mean()) for k in range(3))
        assert pooled["worst_class_accuracy"] == pytest.approx(worst)
        assert 0 <= pooled["robust_accuracy"] <= 1


@pytest.mark.parametrize(
    ("measures", "remedy"),
    [
        (["duality_gaps"], "measures = 'duality_gaps': did you mean 'duality_gap'"),
        ("duality_gap", "give a list of measures"),
        (["gradient_of_envelope"], "measures.gradient_of_envelope.smoothing = None: is required"),
        ([{"name": "duality_gap", "steps": 5}], "measures.duality_gap.steps = 5: unknown key"),
        ([{"name": "duality_gap", "most_steps": 0}], "measures.duality_gap.most_steps = 0: must be a whole number"),
        ([{"tolerance": 5}], "write a name, or a table with a name"),
        ([3], "needs a name and __call__"),
        (["duality_gap", fs.measures.DualityGap()], "is listed twice"),
        (["worst_class_accuracy"], "does not sort rows into classes"),
    ],
)
def test_refused_before_anything_is_written(tmp_path, measures, remedy):
    with pytest.raises(BadInput) as caught:
        run(game(), ROWS, 3, measures=measures, out=tmp_path / "run")
    assert remedy in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_minimisation_has_no_phi():
    with pytest.raises(BadInput, match="measures = 'Supervised': is no min-max problem"):
        run(drfa(), iris(), 3, measures=["squared_gradient_of_phi"])


def test_lazy_rows_have_no_such_figures():
    lazy = fs.Lazy(np.array([1, 2]), lambda i: ROWS.client(i))
    with pytest.raises(BadInput, match="leave it out if rows are lazy"):
        run(game(), lazy, 3, measures=["squared_gradient_of_phi"])


REFUSED = (
    ("['phi']", "run.measures = 'phi'"),
    ("['gradient_of_envelope']", "run.measures.gradient_of_envelope.smoothing = None: is required"),
    ("[{name='gradient_of_envelope', smoothing=0}]", "run.measures.gradient_of_envelope.smoothing = 0.0: must be"),
)
CONFIG = """
[data]
name = "breast-cancer"
[split]
name = "iid"
clients = 4
[model]
name = "logistic"
[problem]
name = "auc"
[algorithm]
name = "Local SGDA"
[run]
rounds = 4
measures = ["squared_gradient_of_phi", { name = "gradient_of_envelope", smoothing = 0.1, tolerance = 1e-2 }]
target = "squared_gradient_of_phi <= 1e-9"
"""


def test_from_a_config(tmp_path):
    from fedsaddle.config.build import build
    from fedsaddle.config.schema import read_config

    path = Path(tmp_path / "c.toml")
    path.write_text(CONFIG)
    config = read_config(path)
    built = build(config)
    result = run(built.algorithm, built.data, 3, measures=built.measures, target=config.run.target)
    figures = [r["pooled"]["squared_gradient_of_phi"] for r in result.history]
    assert figures[-1] < figures[0]
    assert {"auroc", "squared_gradient_of_phi", "gradient_of_envelope"} <= set(result.summary["pooled"])
    for wrong, said in (
        ("[5]", "run.measures"),
        ("'duality_gap'", "run.measures"),
        ("['phi']", "run.measures = 'phi'"),
    ):
        with pytest.raises(BadInput) as caught:
            build(read_config(path, [f"run.measures={wrong}"]))
        assert str(caught.value).startswith(said), str(caught.value)
