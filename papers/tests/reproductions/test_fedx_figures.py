"""FedX's tables and figures: their lines are comparable, tuning never sees test rows, claims judge the right lines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from some_slow import some_slow

from fedsaddle.data.table import Dataset, Table
from fedsaddle_papers.reproductions import jobs
from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.fedx import (
    ABLATION,
    ABLATION_TASK,
    BUFFERS,
    ITERATIONS,
    NORMALISED_TASK,
    PAPER,
    SKEW,
    TABLE_1,
    TABLE_2,
    skew_claims,
    variant,
)
from fedsaddle_papers.reproductions.fedx_tasks import (
    BATCH,
    CENTRALISED,
    LOCAL_STEPS,
    ROUNDS,
    TASKS,
    Tuned,
    label,
    line,
    methods,
)
from fedsaddle_papers.reproductions.figure import Figure
from fedsaddle_papers.reproductions.jobs import Job, run_job
from fedsaddle_papers.reproductions.outcome import draw
from fedsaddle_papers.reproductions.tuning import budget_of, candidates, keys_of, tuned_lines, tuning_jobs

TABLES = {"table 1": TABLE_1, "table 2": TABLE_2, "skew": SKEW}
FIGURES = {**TABLES, "1": ABLATION, "2": BUFFERS}
SMALL = {"name": "digits", "split": "imbalanced", "imratio": 0.2, "clients": 5}
COSTS = ("round", "exchanges", "local_steps", "seconds", "bytes_down", "bytes_up")
ENDED = SimpleNamespace(document=SimpleNamespace(stopped="finished", pooled={}), history=[dict.fromkeys(COSTS, 1.0)])
COLUMNS = ("partial_auroc_30", "partial_auroc_50", "auroc")


def made_up(figure: Figure, ends: dict[str, float]) -> Runs:
    """Runs of three seeds that end where `ends` says, the others at 0.8; seeds differ by far more than lines."""
    return Runs.of(
        [
            RunCurves(
                x.label,
                seed,
                {c: [0.5] for c in COLUMNS},
                selected={c: ends.get(x.label, 0.8) + 0.05 * seed + 1e-4 * (seed == 1) for c in COLUMNS},
            )
            for x in figure.lines
            for seed in (0, 1, 2)
        ]
    )


@pytest.mark.parametrize("figure", TABLES.values(), ids=TABLES)
def test_every_method_is_tuned_on_the_same_steps(figure: Figure) -> None:
    assert figure.tuning is not None
    assert tuned_lines(figure) == list(figure.lines)
    for x in figure.lines:
        keys = ["primal_step", "problem.temperature"] if "temperature" in x.problem_options else ["primal_step"]
        assert keys_of(x, figure.tuning) == keys
        tried = candidates(x, figure.tuning, budget_of(figure, figure.tuning))
        assert len(tried) == 8 if figure is not TABLE_2 else 4
        assert 0.01 in [c["primal_step"] for c in tried] or len(keys) == 1


def test_tuning_sees_training_rows_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training rows are positive numbers, official test rows negative ones."""
    rng = np.random.default_rng(0)
    tables = [
        Table(sign * (1 + rng.random((600, 3), dtype=np.float32)), np.arange(600) % 10, classes=tuple("0123456789"))
        for sign in (1, -1)
    ]
    monkeypatch.setattr(jobs, "_dataset", lambda name, options: Dataset("made up", *tables, "", ""))
    seen = []
    monkeypatch.setattr(jobs, "run_config", lambda config, setup, **_: seen.append(setup.data) or ENDED)
    assert TABLE_1.tuning is not None
    tried = tuning_jobs(TABLE_1, TABLE_1.lines[4], TABLE_1.tuning)[0]
    assert tried.seed >= 1000
    data = {**tried.line.data, "clients": 3, "positive": [0, 1], "noise": {}, "name": "made up"}
    run_job(replace(tried, line=replace(tried.line, data=data)))
    run_job(replace(tried, line=replace(tried.line, data={**data, "validation": False})))
    assert [float(d.test.x.min()) > 0 for d in seen] == [True, False]
    assert all(float(d.validation.x.min()) > 0 for d in seen)
    assert not set(map(float, seen[0].test.x[:, 0])) & set(map(float, seen[0].train.x[:, 0]))


@pytest.mark.parametrize("task", TASKS)
def test_methods_take_the_same_steps_on_as_many_rows(task: str) -> None:
    for m in methods(TASKS[task].risk):
        made = line(task, m, Tuned(0.1))
        options, paired = made.options, made.problem == "pairwise"
        assert (made.rounds, options["local_steps"]) == (ROUNDS, LOCAL_STEPS)
        if m != CENTRALISED:
            assert options["batch_size"] * (2 if paired else 1) == 2 * BATCH
        step = options["primal_step"]
        first = options["stage_rounds"] if m == "CODASCA" else step["stages"][0][0]
        assert first == 72
        later = step["first"] * step["factor"] if m == "CODASCA" else step["stages"][1][1]
        assert later == pytest.approx(0.01)
        assert made.data == TASKS[task].data


@pytest.mark.parametrize("figure", [ABLATION, BUFFERS], ids=["1", "2"])
def test_lines_of_the_figures_take_as_many_local_steps(figure: Figure) -> None:
    for x in figure.lines:
        assert x.rounds * x.options["local_steps"] == ITERATIONS
        cut = x.options["primal_step"]["stages"][0][0]
        assert cut == 0.75 * x.rounds


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_panels_know_their_lines(figure: Figure) -> None:
    labels = {x.label for x in figure.lines}
    assert len(labels) == len(figure.lines)
    shown = [set(panel.lines) or labels for panel in figure.panels]
    assert set().union(*shown) == labels
    assert all(s <= labels for s in shown)


@pytest.mark.parametrize("figure", TABLES.values(), ids=TABLES)
def test_claims_of_the_tables(figure: Figure) -> None:
    tasks = list(dict.fromkeys(x.label.split(": ")[0] for x in figure.lines))
    ours = "FedX1" if figure is TABLE_2 else "FedX2"
    best = figure.claims(made_up(figure, {label(t, ours): 0.82 for t in tasks}))[: 4 * len(figure.panels)]
    assert len(best) == 4 * len(figure.panels)
    assert all(claim.holds for claim in best)
    one = figure.claims(made_up(figure, {label(tasks[0], ours): 0.82, label(tasks[0], "CODASCA"): 0.83}))
    held = {claim.claim.split(" (")[0] for claim in one if claim.holds}
    assert f"{tasks[0]}: {ours} ends above Local Pair" in held
    assert f"{tasks[0]}: {ours} ends above CODASCA" not in held
    assert not any(f"{task}: {ours} ends above Local Pair" in held for task in tasks[1:])
    poor = figure.claims(made_up(figure, {label(t, CENTRALISED): 0.82 for t in tasks}))
    assert not any(claim.holds for claim in poor)


def test_claims_of_normalised_weights() -> None:
    ends = {label(NORMALISED_TASK, "FedX2, K = 4, normalised"): 0.82, label(NORMALISED_TASK, "FedX2"): 0.83}
    held = [claim.claim.split(" (")[0] for claim in skew_claims(made_up(SKEW, ends)) if claim.holds]
    normalised = f"{NORMALISED_TASK}: FedX2, K = 4, normalised ends above"
    assert held == [f"{normalised} FedX2, K = 4", f"{normalised} Local SGD"]


def test_the_papers_figures_stand_beside_ours() -> None:
    claims = {c.claim: c.paper for c in TABLE_1.claims(made_up(TABLE_1, {}))}
    assert claims["CIFAR-100: FedX2 ends above Local Pair (pAUC, FPR ≤ 0.5)"] == "66.2 against 65.7"
    assert all(len(row) == 5 for row in PAPER.values())


def test_claims_of_figure_1() -> None:
    ends = {f"{ABLATION_TASK}: {variant(96)}": 0.78, f"{ABLATION_TASK}: {variant(32, 1)}": 0.7}
    claims = {c.claim: c.holds for c in ABLATION.claims(made_up(ABLATION, ends))}
    assert claims["K = 32 ends at most 1 point below K = 1 (pAUC, FPR ≤ 0.3)"]
    assert not claims["K = 96 ends at most 1 point below K = 1 (pAUC, FPR ≤ 0.3)"]
    assert claims["N = 4 ends above N = 1 (pAUC, FPR ≤ 0.5)"]
    assert not claims["N = 16 ends above N = 4 (pAUC, FPR ≤ 0.5)"]


def test_claims_of_figure_2() -> None:
    ends = {
        f"{ABLATION_TASK}: {variant(96, τ=5)}": 0.82,
        f"{ABLATION_TASK}: {variant(32, τ=5, sharing='sub-sampled')}": 0.78,
    }
    claims = {c.claim: c.holds for c in BUFFERS.claims(made_up(BUFFERS, ends))}
    assert claims["τ = 5 ends above τ = 1, K = 96 (pAUC, FPR ≤ 0.3)"]
    assert not claims["τ = 5 ends above τ = 1, K = 32 (pAUC, FPR ≤ 0.3)"]
    assert not claims["τ = 5 ends above τ = 1, K = 32, sub-sampled scores (pAUC, FPR ≤ 0.3)"]
    assert claims["K = 96 ends at most 1 point below K = 32, both with τ = 5 (pAUC, FPR ≤ 0.5)"]


@pytest.mark.parametrize("figure", some_slow(FIGURES))
def test_small_runs_their_claims_and_picture(figure: Figure, tmp_path: Path) -> None:
    """Two rounds of every line on small data, with the noise and the number of sources that it has."""
    small_data = {**SMALL, "validation_share": 0.2}
    setting = replace(figure.setting, data=small_data, model_options={"hidden": [4]})
    small = []
    for x in figure.lines:
        kept = {"noise": x.data["noise"], "sources": min(5, x.data.get("sources", 5))}
        options = {**x.options, "local_steps": 2, "batch_size": 4, "primal_step": 0.01}
        small.append(replace(x, rounds=2, evaluate_every=1, data={**SMALL, **kept}, options=options))
    runs = Runs.of([run_job(Job(setting, x, seed)) for seed in (0, 1) for x in small])
    claims = figure.claims(runs)
    assert len({claim.claim for claim in claims}) == len(claims) >= 4
    assert draw(figure, runs, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
