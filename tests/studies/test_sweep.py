"""Sweeps: cells, seeds, the best one, going on after an interruption, and what becomes of runs that fail."""

from __future__ import annotations

import csv
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.config.run_config import engine_of
from fedsaddle.config.schema import EngineSection, validate_config
from fedsaddle.documents.sweep import SweepCell, SweepSummary
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.metrics.selection import STATISTICS, Selection
from fedsaddle.studies.pool import Interrupted
from fedsaddle.studies.sweep_output import plot
from fedsaddle.studies.sweep_runs import Criterion, Job, compared_cells, mean_and_interval
from summaries import write_summary

CONFIG = {
    "data": {"name": "iris"},
    "split": {"name": "iid", "clients": 3},
    "model": {"name": "logistic"},
    "algorithm": {"name": "FedAvg", "local_steps": 2, "batch_size": 10},
    "run": {"rounds": 2, "evaluate_every": 2},
}
STEPS = {"algorithm.primal_step": [0.001, 0.1]}


@pytest.fixture
def drawn(monkeypatch) -> list[Path]:
    """Pictures are drawn once, elsewhere."""
    paths: list[Path] = []
    monkeypatch.setattr("fedsaddle.studies.sweep_output.save", lambda figure, path: paths.append(path) or path)
    return paths


def figures(cell: SweepCell) -> list[float]:
    return [run.figure for run in cell.runs]


def test_a_sweep_from_end_to_end(tmp_path):
    out = tmp_path / "sweep"
    found = fs.sweep(CONFIG, STEPS, seeds=2, out=out, workers=1)
    assert (found.document.by, found.document.part) == ("worst accuracy", "test")
    assert "chosen on test rows" in found.document.caution
    assert [cell.values for cell in found.cells] == [{"algorithm.primal_step": s} for s in (0.001, 0.1)]
    for cell in found.cells:
        for run in cell.runs:
            summary = json.loads((out / run.folder / "summary.json").read_text())
            assert run.figure == summary["test"]["accuracy"]["worst"]
            assert json.loads((out / run.folder / "config.json").read_text())["run"]["seed"] == run.seed
        assert cell.mean == pytest.approx(np.mean(figures(cell)))
    best = max(found.cells, key=lambda cell: cell.mean)
    other = next(cell for cell in found.cells if cell is not best)
    assert (best.best, other.best) == (True, False)
    assert found.best == best.values
    assert other.behind_best == pytest.approx(np.mean(np.subtract(figures(best), figures(other))))
    assert json.loads((out / "sweep.json").read_text()) == found.document.to_dict()
    rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    assert [float(row["figure"]) for row in rows] == [f for cell in found.cells for f in figures(cell)]
    assert (out / "sweep.png").read_bytes().startswith(b"\x89PNG")
    assert "best" in str(found)


def test_the_first_seed_is_the_run_itself(tmp_path, drawn):
    found = fs.sweep(CONFIG, {"algorithm.primal_step": [0.05]}, seeds=1, workers=1)
    data = fs.load("iris", split="iid", clients=3)
    torch.manual_seed(0)
    problem = fs.Supervised(fs.models.logistic_regression(4, 3))
    result = fs.run(fs.FedAvg(problem=problem, local_steps=2, batch_size=10, primal_step=0.05), data, 2)
    assert figures(found.cells[0]) == [pytest.approx(result.final())]


def test_validation_rows_choose_where_there_are_any(drawn):
    config = {**CONFIG, "data": {"name": "iris", "validation_share": 0.2}}
    found = fs.sweep(config, STEPS, seeds=1, workers=1, by="mean loss")
    assert (found.document.part, found.document.caution, found.document.by) == ("validation", "", "mean loss")
    losses = [cell.mean for cell in found.cells]
    assert found.best == found.cells[int(np.argmin(losses))].values
    assert all(cell.test_mean is not None for cell in found.cells)


def test_it_goes_on_where_it_was_interrupted(tmp_path, drawn):
    out, seen = tmp_path / "sweep", []
    stop = lambda: len(seen) >= 3  # noqa: E731
    with pytest.raises(Interrupted):
        fs.sweep(CONFIG, STEPS, seeds=2, out=out, workers=1, tell=lambda job, done: seen.append(job), stop=stop)
    first = {
        run["folder"]: run["status"] for c in json.loads((out / "sweep.json").read_text())["cells"] for run in c["runs"]
    }
    assert sorted(first.values()) == ["finished", "missing", "missing", "missing"]
    done = next(out / folder for folder, status in first.items() if status == "finished")
    stamp = (done / "summary.json").stat().st_mtime_ns
    with pytest.raises(BadInput, match="holds a sweep already"):
        fs.sweep(CONFIG, STEPS, seeds=2, out=out, workers=1)
    found = fs.sweep(CONFIG, STEPS, seeds=2, out=out, workers=1, resume=True)
    assert found.document.unfinished == 0
    assert (done / "summary.json").stat().st_mtime_ns == stamp
    whole = fs.sweep(CONFIG, STEPS, seeds=2, workers=1)
    assert [figures(c) for c in found.cells] == [figures(c) for c in whole.cells]
    more: list[object] = []
    fs.sweep(CONFIG, STEPS, seeds=3, out=out, workers=1, resume=True, tell=lambda job, n: more.append(job.seed))
    assert set(more) == {2}  # only the seed that is new
    other = fs.sweep(
        CONFIG,
        STEPS,
        seeds=2,
        out=out,
        workers=1,
        resume=True,
        by="mean loss",
        tell=lambda *_: pytest.fail("it ran again"),
    )
    assert other.document.by == "mean loss"  # another look at the same runs
    with pytest.raises(BadCheckpoint, match="another config"):
        fs.sweep({**CONFIG, "run": {"rounds": 3}}, STEPS, seeds=2, out=out, workers=1, resume=True)


def test_a_run_that_diverges_or_fails_is_a_row(tmp_path, drawn):
    config = {**CONFIG, "data": {"name": "diabetes"}, "problem": {"loss": "square"}, "run": {"rounds": 60}}
    found = fs.sweep(config, {"algorithm.primal_step": [1e-3, 1e3]}, seeds=1, workers=1)
    good, wild = found.cells
    assert (good.runs[0].status, wild.runs[0].status) == ("finished", "diverged")
    assert (wild.mean, wild.runs[0].figure) == (None, None)
    assert found.best == good.values
    assert found.document.unfinished == 1
    few = fs.sweep(CONFIG, {"algorithm.sampled_clients": [3, 9]}, seeds=1, workers=1)
    assert [cell.runs[0].status for cell in few.cells] == ["finished", "failed"]
    assert "9" in few.cells[1].runs[0].reason


def test_rounds_to_a_target(drawn):
    values = {"algorithm.primal_step": [1e-9, 0.1]}
    config = {**CONFIG, "run": {"rounds": 8}}
    found = fs.sweep(config, values, seeds=1, workers=1, target="global loss <= 1.0")
    never, soon = found.cells
    assert found.document.by == "rounds to global loss <= 1"
    assert (never.reached, soon.reached) == (0, 1)
    assert soon.best
    assert soon.mean == soon.runs[0].target_round == soon.runs[0].rounds


def test_figures_are_checked_before_anything_runs(tmp_path):
    for by, said in (("worst accurracy", "the measure is"), ("auroc", "no such figure"), ("worst", "say which client")):
        with pytest.raises(BadInput, match=said):
            fs.sweep(CONFIG, STEPS, out=tmp_path / "none", workers=1, by=by)
    with pytest.raises(BadInput, match="did you mean 'primal_step'"):
        fs.sweep(CONFIG, {"algorithm.primal_stap": [1]}, out=tmp_path / "none", workers=1)
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "axes",
    [
        {"a.step": [0.01, 0.1, 1.0], "a.steps": [1, 2]},
        {"a.name": ["FedAvg", "$x^"]},
        {"a.name": ["FedAvg", "DRFA"], "a.step": [0.001, 0.1]},
        {"a.step": ["0.001..1:log"], "a.steps": ["1..9"]},
    ],
)
def test_pictures_of_two_axes_of_names_and_of_searches(axes, tmp_path):
    lists = [values if ".." not in str(values) else [1, 2] for values in axes.values()]
    none = {"test_mean": None, "behind_best": None, "behind_interval": None, "reached": None, "runs": []}
    cells = [
        {"values": dict(zip(axes, values, strict=True)), "mean": k / 7, "interval": [0.0, 1.0], "best": k == 1, **none}
        for k, values in enumerate(itertools.product(*lists))
    ]
    about = {"by": "worst accuracy", "part": "test", "seeds": [0, 1], "config": {}, "caution": "", "unfinished": 0}
    document = SweepSummary.model_validate({"axes": axes, "cells": cells, **about})
    assert plot(document, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_the_interval_over_seeds():
    values = [0.1, 0.4, 0.3, 0.6]
    mean, (low, high) = mean_and_interval(values)
    half = 3.182446305284263 * np.std(values, ddof=1) / 2
    assert (mean, low, high) == (pytest.approx(0.35), pytest.approx(0.35 - half), pytest.approx(0.35 + half))
    assert mean_and_interval([1.0]) == (1.0, None)
    assert mean_and_interval([]) == (None, None)


@pytest.mark.parametrize("values", [[0.0, 0.0, 0.237], [0.1, 0.5, 1.0], [0.98, 1.0, 0.99], [0.4, 0.5, 0.6, 0.55, 0.45]])
def test_the_interval_of_a_share_lies_within_0_and_1(values):
    mean, (low, high) = mean_and_interval(values, share=True)
    assert 0 < low < mean < high < 1
    assert mean_and_interval([0.0, 0.0, 0.0], share=True) == (0.0, [0.0, 0.0])
    plain = mean_and_interval(values)[1]
    assert plain[0] < mean < plain[1]
    mirrored = mean_and_interval([1 - v for v in values], share=True)[1]
    assert mirrored == [pytest.approx(1 - high), pytest.approx(1 - low)]


@pytest.mark.parametrize(
    ("by", "target", "share"),
    [
        ("worst accuracy", None, True),
        ("auroc", None, True),
        ("worst loss", None, False),
        ("worst accuracy", "a", False),
    ],
)
def test_accuracies_and_areas_are_shares(by, target, share):
    assert Criterion(Selection.parse(by), "test", target).share is share


def test_cells_of_accuracies_have_bounded_intervals(tmp_path):
    criterion, figures = (
        Criterion(Selection.parse("worst accuracy"), "test"),
        {"a": (0.0, 0.0, 0.9), "b": (1.0, 0.1, 0.9)},
    )
    jobs = []
    for name, own in figures.items():
        for seed, figure in enumerate(own):
            folder = tmp_path / f"{name}{seed}"
            folder.mkdir()
            values = dict.fromkeys(STATISTICS, figure)
            write_summary(folder, test={"accuracy": values})
            jobs.append(Job({}, folder, {"name": name}, seed))
    for cell in compared_cells(jobs, tmp_path, criterion):
        assert 0 < cell.interval[0] < cell.mean < cell.interval[1] < 1
        if not cell.best:
            assert -1 <= cell.behind_interval[0] < cell.behind_best < cell.behind_interval[1] <= 1


@pytest.mark.slow
def test_processes_give_the_same(tmp_path, drawn):
    here = fs.sweep(CONFIG, STEPS, seeds=2, workers=1)
    there = fs.sweep(CONFIG, STEPS, seeds=2, workers=2)
    assert [figures(c) for c in here.cells] == [figures(c) for c in there.cells]


@pytest.mark.usefixtures("drawn")
def test_the_engine_of_the_config_runs_every_cell(tmp_path):
    wanted = {"precision": "bf16", "chunk": 2}
    fs.sweep({**CONFIG, "engine": wanted}, STEPS, seeds=1, out=tmp_path / "sweep", workers=1)
    ended = [json.loads(path.read_text())["engine"] for path in (tmp_path / "sweep").rglob("summary.json")]
    assert len(ended) == 2
    assert all(wanted.items() <= engine.items() for engine in ended)


def test_what_an_engine_section_says_reaches_the_run():
    """Every key of `[engine]` but those that build the problem."""
    given = {"name": "ray", "chunk": 3, "workers": 4, "address": "local", "device": "cuda", "precision": "bf16"}
    config = validate_config({**CONFIG, "engine": {**given, "deterministic": True}})
    engine = engine_of(config)
    options = vars(engine)
    assert engine.name == "ray"
    assert {**options, "factory": None} == {
        "factory": None, "deterministic": True, **{k: v for k, v in given.items() if k != "name"},
    }  # fmt: skip
    assert options["factory"]["engine"]["address"] == "local"
    assert {*options} - {"factory"} == {*EngineSection.model_fields} - {"name", "compile"}
