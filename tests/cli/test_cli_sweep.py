"""`fedsaddle sweep`: options, exit codes, the table, and its document."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cli_command import fedsaddle

from fedsaddle.commands.documents import SweepPlanDocument
from fedsaddle.commands.info import adapter
from fedsaddle.documents.sweep import SweepDocument
from fedsaddle.processes import Interruption

TWO = ("--set", "algorithm.primal_step=0.01,0.1", "--seeds", "2", "--workers", "1", "--set", "run.rounds=1")


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("fedsaddle.studies.sweep_output.save", lambda figure, path: path)


def test_a_sweep_prints_a_table_and_leaves_its_runs(config):
    outcome = fedsaddle("sweep", config, *TWO, "--out", "s")
    assert outcome.code == 0, outcome.err
    assert "worst accuracy, test rows, mean over 2 seeds" in outcome.out
    assert "chosen on test rows" in outcome.out
    assert outcome.out.splitlines()[-1] == "written to s"
    assert outcome.err.splitlines()[0] == "4 runs, 0 of them done before; workers: 1"
    assert len(list(Path("s/runs").iterdir())) == 4
    assert "run.rounds" not in outcome.out  # one value: a part of the config
    assert json.loads(Path("s/sweep.json").read_text())["config"]["run"]["rounds"] == 1
    assert fedsaddle("sweep", config, *TWO, "--out", "s").err == (
        "error: out = 's': holds a sweep already; resume it, or choose another folder\n"
    )
    again = fedsaddle("sweep", config, *TWO, "--out", "s", "--resume", "--json", "-q")
    assert (again.code, again.err) == (0, "")
    said = json.loads(again.out)
    adapter(SweepDocument).validate_python(said)
    assert {k: said[k] for k in ("by", "part", "unfinished", "interrupted")} == {
        "by": "worst accuracy", "part": "test", "unfinished": 0, "interrupted": False,
    }  # fmt: skip


def test_a_cell_that_fails_is_told_by_the_exit_code(config):
    values = ("--set", "algorithm.sampled_clients=3,99", "--seeds", "1", "--workers", "1", "--set", "run.rounds=1")
    outcome = fedsaddle("sweep", config, *values, "--out", "s")
    assert outcome.code == 3
    assert "warning: algorithm.sampled_clients=99, seed 0 failed" in outcome.err
    assert "1 failed" in outcome.out


def test_ctrl_c_keeps_what_is_done(config, monkeypatch):
    real = Interruption.__enter__
    monkeypatch.setattr(Interruption, "__enter__", lambda self: setattr(self, "requested", True) or self)
    outcome = fedsaddle("sweep", config, *TWO, "--out", "s")
    assert outcome.code == 130
    assert outcome.err.splitlines()[-1] == "interrupted; what is done is kept. Go on with --resume"
    monkeypatch.setattr(Interruption, "__enter__", real)
    assert fedsaddle("sweep", config, *TWO, "--out", "s", "--resume").code == 0


def test_a_dry_run_counts_and_writes_nothing(config):
    outcome = fedsaddle("sweep", config, *TWO, "--out", "s", "--dry-run", "--json")
    assert outcome.code == 0, outcome.err
    said = json.loads(outcome.out)
    adapter(SweepPlanDocument).validate_python(said)
    assert [said[k] for k in ("cells", "seeds", "runs", "finished", "workers")] == [2, 2, 4, 0, 1]
    assert said["bytes_up"] == 4 * said["plan"]["cost"]["bytes_up"]
    assert not Path("s").exists()
    assert "2 cells x 2 seeds = 4 runs" in fedsaddle("sweep", config, *TWO, "--dry-run").out


def test_a_config_that_is_not_there():
    outcome = fedsaddle("sweep", "none.toml", "--set", "algorithm.primal_step=1,2")
    assert outcome.err == "error: config = 'none.toml': the file does not exist; `fedsaddle init` writes one\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "--set is missing: name at least one key"),
        (("--set", "algorithm.primal_stp=1,2"), "algorithm.primal_stp = 1: unknown key; did you mean 'primal_step'"),
        (("--set", "algorithm.primal_step=0.1..1"), "--set = 'algorithm.primal_step=0.1..1': a range is for a search"),
        (("--set", "algorithm.primal_step=1", "--seeds", "0"), "--seeds = 0"),
        (("--set", "algorithm.primal_step=1", "--workers", "0"), "--workers = 0"),
        (("--set", "algorithm.primal_step=1", "--by", "best"), "--by = 'best'"),
        (("--set", "algorithm.primal_step=1", "--target", "x"), "--target = 'x'"),
        (("--set", "algorithm.primal_step=1", "--resume"), "--resume = True: there is no sweep in"),
    ],
)
def test_what_is_refused(config, words, said):
    outcome = fedsaddle("sweep", config, *words, "--out", "s")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {said}")
    assert not Path("s").exists()
