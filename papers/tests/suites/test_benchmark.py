from __future__ import annotations

import csv
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from small_suite import DIGITS, METHODS, SMALL, TUMOURS

from fedsaddle.config.registry import Entry, find
from fedsaddle.config.schema import validate_config
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.studies.pool import WorkFailed, stored_or_run
from fedsaddle_papers.commands.benchmark import run_benchmark as benchmark
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.store import Store
from fedsaddle_papers.suites import outcome
from fedsaddle_papers.suites.jobs import Job, check_task, config_of, final_job, find_table, run_job, tuning_jobs
from fedsaddle_papers.suites.names import SUITES
from fedsaddle_papers.suites.publish import publish, published
from fedsaddle_papers.suites.ranking import final_level, ranked
from fedsaddle_papers.suites.run import (
    Results,
    all_jobs,
    at_the_edge,
    available,
    choose,
    on_cores,
    on_ray,
    run_suite,
)
from fedsaddle_papers.suites.suite import Method, Suite, each, steps


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUITES, "small", Entry("small_suite:SMALL", "does it work?"))


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return run_suite(SMALL, {}, Store(tmp_path_factory.mktemp("runs")), on_cores(1))


@pytest.mark.parametrize("name", list(SUITES))
def test_every_suite_is_whole(name: str) -> None:
    suite = find(SUITES, "benchmark", name)
    assert suite.name == name
    assert set(suite.quick_tasks) <= {task.name for task in suite.tasks}
    assert suite.minutes() / 2 < 120  # on 2 cores
    assert suite.shortened().minutes() / 2 < 5
    for task in suite.tasks:
        for method in suite.methods:
            for at in (0, suite.budget - 1):
                made = config_of(task, method, method.candidates[at], task.exchanges, 0)
                made["data"] = {"name": "file", "path": "x.csv"} if "table" in made["data"] else made["data"]
                validate_config(made)
                assert made["run"]["rounds"] * method.exchanges in (task.exchanges, task.exchanges - 1)


def test_methods_have_equal_budgets_and_tasks_their_own_names() -> None:
    with pytest.raises(BadInput, match="as many candidates"):
        replace(SMALL, methods=(*METHODS, Method("one more", {"name": "FedAvg"}, steps(1.0))))
    with pytest.raises(BadInput, match="each name once"):
        replace(SMALL, tasks=(DIGITS, DIGITS))


def test_steps_are_scaled_by_the_task_and_others_are_not() -> None:
    made = config_of(DIGITS, METHODS[2], METHODS[2].candidates[1], 8, 3)
    assert made["algorithm"] == {
        "name": "DRFA", "local_steps": 3, "batch_size": 16, "primal_step": 0.1, "dual_step": 0.1,
    }  # fmt: skip
    assert made["run"]["rounds"] == 4
    assert made["run"]["seed"] == 3


def test_steps_in_two_stages() -> None:
    fedavg = Method("a", {"name": "FedAvg"}, steps(1.0), steps="two stages")
    found = config_of(TUMOURS, fedavg, fedavg.candidates[0], 6, 0)["algorithm"]
    assert found["primal_step"] == {"name": "staged", "stages": [[3, 0.1], [3, pytest.approx(0.1 / 3)]]}
    coda = Method("b", {"name": "CODA+"}, steps(1.0), {"name": "auc"}, steps="two stages")
    found = config_of(TUMOURS, coda, coda.candidates[0], 6, 0)["algorithm"]
    assert found["primal_step"]["name"] == "geometric"
    assert found["stage_rounds"] == 3


def test_candidates_are_measured_on_held_out_rows_with_another_seed() -> None:
    candidate, final = tuning_jobs(SMALL, DIGITS, METHODS[0], 0), final_job(SMALL, DIGITS, METHODS[0], steps(1.0)[0], 0)
    tuning = candidate[0]
    assert [job.seed for job in candidate] == [*SMALL.tuning_seeds]
    assert final.seed not in SMALL.tuning_seeds
    assert tuning.config["data"]["validation_share"] > 0
    assert "validation_share" not in final.config["data"]
    assert tuning.config["run"]["rounds"] == final.config["run"]["rounds"] // 2
    curves = run_job(tuning)
    assert 0 <= curves.columns["test worst"][-1] <= curves.columns["test global"][-1] <= 1


def test_a_suite_is_run_tuned_and_ranked(done: Results) -> None:
    assert done.tuned["digits", "FedAvg"].chosen is not None
    assert {len(own) for own in done.curves.values()} == {2}
    ranking = ranked(done)
    assert ranking.ranks["FedAvg"].mean < ranking.ranks["FedAvg, tiny steps"].mean
    assert ranking.cells["digits", "FedAvg"].mean > ranking.cells["digits", "FedAvg, tiny steps"].mean
    cell = ranking.cells["digits", "DRFA"]
    assert cell.costs["exchanges"] == 8
    assert cell.costs["bytes"] > 0
    assert cell.costs["local_steps"] == 4 * 3  # of each client
    assert np.isnan([cell.low, cell.high, ranking.ranks["DRFA"].low]).all()  # two seeds have no interval
    assert cell.others["test global"] >= cell.mean


def test_files_tell_the_same(done: Results, tmp_path: Path) -> None:
    summary = outcome.write(done, ranked(done), tmp_path)
    stored = json.loads((tmp_path / "summary.json").read_text())
    assert stored["ranks"].keys() == summary["ranks"].keys()
    assert "runs" in json.loads((tmp_path / "results.json").read_text())
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert len(rows) == 6
    assert rows[0]["mean"] == str(summary["tasks"][0]["methods"][rows[0]["method"]]["mean"])
    table = (tmp_path / "table.md").read_text()
    assert table.count("\n| ") == 4  # a rule and three methods
    page = (tmp_path / "report.html").read_text()
    assert "<script src" not in page
    assert "DRFA" in page
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    written = publish(tmp_path.parent, tmp_path / "docs", {tmp_path.name: Entry("small_suite:SMALL", "small")})
    assert {file.name for file in written} == {f"{tmp_path.name}.json", f"{tmp_path.name}.png"}
    assert "**Does it work?**" in published(tmp_path.name, tmp_path / "docs")
    assert "was not run in full" in published("other", tmp_path / "docs")


def test_a_part_or_another_question_does_not_take_the_place_of_the_whole(done: Results, tmp_path: Path) -> None:
    assert SMALL.folder("my:suite") == "my.suite"
    assert SMALL.chosen([], ["DRFA"], None, None).shortened().folder("small") == "small-part-quick"
    asked = SMALL.by("auroc")
    results = replace(done, suite=asked)
    outcome.write(results, ranked(results), tmp_path / asked.folder("small"))
    some = replace(done, suite=SMALL.chosen(["digits"], [], None, None))
    outcome.write(some, ranked(some), tmp_path / "small")
    written = publish(tmp_path, tmp_path / "docs", {"small": Entry("small_suite:SMALL", "small")})
    assert [file.name for file in written] == ["small-by-auroc.json", "small-by-auroc.png"]
    page = published("small", tmp_path / "docs")
    assert "`fedsaddle benchmark small --measure auroc`" in page
    assert "benchmarks/small-by-auroc.png" in page
    assert "--tasks digits" in (tmp_path / "small" / "report.html").read_text()


def test_finished_runs_are_not_run_again(tmp_path: Path) -> None:
    jobs = [final_job(SMALL, DIGITS, METHODS[0], METHODS[0].candidates[0], seed) for seed in (0, 1)]
    curves = RunCurves("FedAvg", 0, {"test worst": [0.5]})
    told: list[tuple[Job, bool]] = []

    def tell(job: Job, stored: bool) -> None:
        told.append((job, stored))

    def fail(jobs: Any, ended: Any) -> Any:
        for job in jobs[:1]:
            ended(job, curves)
        raise KeyboardInterrupt

    def note(jobs: Any, ended: Any) -> Any:
        left.extend(jobs)
        for job in jobs:
            ended(job, curves)

    with pytest.raises(KeyboardInterrupt):
        stored_or_run(jobs, Store(tmp_path), fail, tell)
    left: list[Job] = []
    found = stored_or_run(jobs, Store(tmp_path), note, tell)
    assert left == jobs[1:]
    assert [one.columns for one in found] == [{"test worst": [0.5]}] * 2
    assert told == [(jobs[0], False), (jobs[0], True), (jobs[1], False)]


VALUES = [[0.9, 0.1], [0.6, 0.6], [0.1, 0.9]]  # of three candidates with two seeds


def test_a_candidate_that_diverges_is_not_chosen() -> None:
    good = RunCurves("a", 0, {"test worst": [0.9]})
    wild, fair = replace(good, diverged=1), RunCurves("b", 0, {"test worst": [0.1, 0.2]})
    assert choose(DIGITS, steps(1.0, 2.0), [[good, wild], [fair, fair]]).chosen == steps(2.0)[0]
    assert choose(DIGITS, steps(1.0), [[good, wild]]).chosen is None
    assert choose(DIGITS, steps(1.0, 2.0), [[good, good], [fair, fair]]).scores == (0.9, 0.2)


def test_the_mean_over_the_seeds_that_tune_counts() -> None:
    runs = [[RunCurves("a", seed, {"test worst": [value]}) for seed, value in enumerate(own)] for own in VALUES]
    assert choose(DIGITS, steps(1.0, 2.0, 3.0), runs).chosen == steps(2.0)[0]


def test_a_step_at_the_edge_of_its_grid_is_told() -> None:
    grid = (*each(steps(1.0, 2.0, 3.0), "algorithm.q", 1), *each(steps(0.1, 0.2), "algorithm.q", 5))
    apart = [0.9 if i == at else 0.1 for at in range(5) for i in range(5)]
    found = [at_the_edge(grid, apart[5 * at : 5 * at + 5], at) for at in range(5)]
    assert found == [True, False, True, True, True]
    assert not at_the_edge(steps(1.0), [0.9], 0)
    assert not at_the_edge(steps(1.0, 2.0, 3.0), [0.1, 0.896, 0.9], 2)  # hardly ahead
    assert at_the_edge(steps(1.0, 2.0), [-1e-3, -1e-2], 0)
    assert not at_the_edge(steps(1.0, 2.0), [-1.00e-3, -1.05e-3], 0)
    assert at_the_edge(steps(1.0, 2.0), [0.5, float("-inf")], 0)


def test_a_method_that_diverges_is_ranked_last_and_said(tmp_path: Path) -> None:
    wild = Method("wild", {"name": "FedAvg"}, steps(1e38, 2e38))
    results = run_suite(replace(SMALL, methods=(wild, METHODS[0]), tasks=(DIGITS,)), {}, Store(tmp_path), on_cores(1))
    ranking = ranked(results)
    assert list(ranking.ranks) == ["FedAvg", "wild"]
    assert not ranking.cells["digits", "wild"].best
    assert any("wild" in note and "diverged" in note for note in results.notes)


def test_tasks_without_data_are_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    absent = replace(DIGITS, name="absent", data={"table": "absent.csv"}, split={"name": "natural", "column": "site"})
    kept, why = available(replace(SMALL, tasks=(absent, DIGITS)))
    assert [task.name for task in kept.tasks] == ["digits"]
    assert "absent.csv" in why["absent"]
    with pytest.raises(MissingData, match="no task of small"):
        available(replace(SMALL, tasks=(absent,)))
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "absent.csv").write_text("site,age,label\n" + "a,1,0\nb,2,1\n" * 20)
    assert find_table("absent.csv").endswith("absent.csv")
    assert check_task(SMALL, absent) == ""


def test_a_task_with_a_wrong_key_is_named() -> None:
    with pytest.raises(BadInput, match="task digits: data"):
        check_task(SMALL, replace(DIGITS, data={"name": "digits", "wrong": 1}))


@pytest.mark.usefixtures("small")
def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert benchmark("small", tmp_path, quick=True, only=["fedavg", "drfa"], workers=1) == 0
    shown = capsys.readouterr().out
    assert "FedAvg" in shown
    assert "any conclusion" in shown
    assert (tmp_path / "small-part-quick" / "report.html").is_file()
    assert len(list((tmp_path / "runs").glob("*.json"))) == 2 * (2 + 2)
    benchmark("small", tmp_path, estimate=True, workers=2)
    assert "24 runs that tune, 12 final runs: about" in capsys.readouterr().out
    with pytest.raises(BadInput, match=r"did you mean 'digits'\?"):
        benchmark("small", tmp_path, tasks=["digit"])
    with pytest.raises(BadInput, match="must be a suite"):
        benchmark("small_suite:NO_SUITE", tmp_path)
    with pytest.raises(BadInput, match="choose one of test worst, test global, auroc"):
        benchmark("small", tmp_path, measure="f1")


def test_another_question_leaves_out_tasks_without_it() -> None:
    made: Suite = SMALL.by("auroc")
    assert [task.measures for task in made.tasks] == [("auroc", "test worst")]
    assert len(all_jobs(made)) == 3 * (2 * 2 + 2)  # two candidates with two seeds, and two final runs


def test_the_list_imports_nothing_heavy() -> None:
    code = "from fedsaddle_papers.commands.benchmark import run_benchmark; import sys; from pathlib import Path"
    code += "; run_benchmark('', Path('none')); assert not {'torch', 'matplotlib', 'scipy'} & set(sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert [line.split()[0] for line in shown.splitlines()[:-1]] == list(SUITES)


def test_the_final_level_is_the_mean_of_the_last_fifth() -> None:
    curves = RunCurves("a", 0, {"x": [float(v) for v in range(10)]})
    assert final_level(curves, "x") == 8.5
    assert final_level(curves, "y") != final_level(curves, "y")


class PretendRay:
    """Runs each task when it is asked for."""

    def __init__(self) -> None:
        self.open = True

    def remote(self, num_cpus: int) -> Any:
        return lambda call: SimpleNamespace(remote=lambda text: (call, text))

    def wait(self, waiting: list[Any]) -> tuple[list[Any], list[Any]]:
        return waiting[-1:], waiting[:-1]

    def get(self, reference: Any) -> Any:
        assert isinstance(reference[1], str)
        return reference[0](reference[1])

    def shutdown(self) -> None:
        self.open = False


def test_runs_on_ray_are_those_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = PretendRay()
    monkeypatch.setattr("fedsaddle.engines.ray_workers.connect", lambda address, workers: (ray, True))
    jobs = [final_job(SMALL, TUMOURS, METHODS[0], METHODS[0].candidates[0], seed) for seed in (0, 1)]
    there = stored_or_run(jobs, Store(tmp_path), on_ray("auto"))
    assert not ray.open
    for job, curves in zip(jobs, there, strict=True):
        assert curves.columns["test worst"] == run_job(job).columns["test worst"]
    wrong = Job("wrong", {**jobs[0].config, "algorithm": {"name": "nobody"}})
    with pytest.raises(WorkFailed, match="nobody"):
        stored_or_run([wrong], Store(tmp_path), on_ray("auto"))
