"""Runs that are killed, interrupted or told to stop: what they saved, and that going on ends in the same bits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
from cli_command import IRIS, run
from test_cli_run import same_end, story, summary

from fedsaddle.commands.progress import RoundProgress

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
STARTED = [sys.executable, "-c", "from fedsaddle.cli import main; main()"]
PROX = """name = "DRFA-Prox"
regulariser = { name = "kl", strength = 0.01 }"""
ONE_THREAD = """
[engine]
workers = 1
"""
VARIATES = """
[data]
name = "breast-cancer"
[split]
name = "dirichlet"
clients = 6
alpha = 1.0
[model]
name = "mlp"
hidden = [4]
[problem]
name = "auc"
[algorithm]
name = "CODASCA"
sampled_clients = 3
local_steps = 2
stage_rounds = 9
[run]
rounds = 40
checkpoint_every = 3
"""
HEAPS = """
[data]
name = "breast-cancer"
[split]
name = "dirichlet"
clients = 6
alpha = 1.0
[model]
name = "mlp"
hidden = [4]
[problem]
name = "pairwise"
risk = "partial-auc"
[algorithm]
name = "FedX2"
sampled_clients = 3
local_steps = 2
batch_size = 4
primal_step = 0.05
buffer_rounds = 2
[run]
rounds = 40
checkpoint_every = 3
"""
CONFIGS = {
    "heaps and inner means": HEAPS + ONE_THREAD,
    "variates": VARIATES + ONE_THREAD,
    "drfa": IRIS.replace("rounds = 6", "rounds = 40") + ONE_THREAD,
    "lossy": IRIS.replace('name = "DRFA"', PROX)
    .replace("rounds = 6", "rounds = 50\nlost_replies = 0.4\nevaluate_every = 3")
    .replace("checkpoint_every = 2", "checkpoint_every = 7")
    + ONE_THREAD,
}


FAST = ("heaps and inner means", "lossy")


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    """The folders that killing.py leaves, and what it says of them: for the fast configs, or the others."""
    return cache(lambda fast: killed(tmp_path_factory.mktemp("killed"), fast))


def killed(home, fast):
    names = [name for name in CONFIGS if (name in FAST) == fast]
    for name in names:
        (home / f"{name}.toml").write_text(CONFIGS[name])
    script = [sys.executable, str(Path(__file__).with_name("killing.py")), *(f"{name}.toml" for name in names)]
    done = subprocess.run(script, cwd=home, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return home, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("how", ["killed", "stopped"])
@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in FAST else [pytest.mark.slow]) for n in CONFIGS])
def test_killed_or_stopped_and_resumed(processes, name, how):
    home, said = processes(name in FAST)
    assert len(said[name]["left"]) >= 3, "too few kills hit a running process"
    assert said[name]["code"] == 130
    broken, whole = home / f"{name}-{how}", home / f"{name}-whole"
    assert len(story(whole)) in (40, 17)
    assert same_end(broken, whole)
    a, b = summary(broken), summary(whole)
    assert {**a, "seconds": 0} == {**b, "seconds": 0}
    newest = sorted((whole / "checkpoints").glob("*.safetensors"))[-1]
    assert (broken / "checkpoints" / newest.name).read_bytes() == newest.read_bytes()
    assert leftovers(broken) == []


def leftovers(out):
    """Drafts, and tensors of checkpoints without their JSON."""
    return [*out.rglob(".*.tmp"), *(p for p in out.glob("checkpoints/*s") if not p.with_suffix(".json").exists())]


@pytest.mark.usefixtures("quick")
def test_ctrl_c(config):
    """It saves, says so and exits with 130; going on (in this process) gives the whole run."""
    many = ["--set", "run.rounds=100000", "--set", "run.checkpoint_every=1000"]
    process = subprocess.Popen([*STARTED, "run", str(config), *many, "--out", "out"], stderr=subprocess.PIPE, text=True)
    metrics = Path("out/metrics.jsonl")
    while not (metrics.exists() and metrics.read_bytes().count(b"\n") > 3):
        assert process.poll() is None
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    rounds = summary(Path("out"))["rounds"]
    assert err.splitlines()[-1] == f"interrupted after round {rounds}; continue with --resume"
    assert "Traceback" not in err
    assert Path(f"out/checkpoints/{rounds:08d}.json").exists()
    assert [r["round"] for r in story(Path("out"))] == list(range(1, rounds + 1))
    last = ("run.checkpoint_every=1000", f"run.rounds={rounds + 5}")
    assert run(config, *last, out=Path("out"), resume=True).code == 0
    assert run(config, *last, out=Path("whole")).code == 0
    assert same_end(Path("out"), Path("whole"))


@pytest.fixture
def stop_after(monkeypatch):
    """Ctrl-C while that round's end is being shown; so many times."""

    def arrange(round, times=1):
        shown = RoundProgress.__call__

        def show(self, done, record):
            shown(self, done, record)
            if done == round:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)

        monkeypatch.setattr(RoundProgress, "__call__", show)

    return arrange


def test_interrupted_before_the_first_evaluation(config, stop_after):
    """There is no curve to draw yet."""
    stop_after(3)
    outcome = run(config, "run.evaluate_every=5", out=Path("out"))
    assert outcome.code == 130
    assert summary(Path("out"))["stopped"] == "interrupted"
    assert story(Path("out")) == []
    assert "DRFA: 3 rounds, interrupted" in outcome.out


@pytest.mark.usefixtures("quick")
def test_interrupted_in_the_last_round(config, stop_after):
    stop_after(6)
    outcome = run(config, out=Path("out"))
    assert (outcome.code, summary(Path("out"))["stopped"]) == (0, "finished")


@pytest.mark.usefixtures("quick")
def test_a_second_ctrl_c_ends_at_once(config, stop_after, monkeypatch):
    run(config, out=Path("whole"))
    with monkeypatch.context() as only_now:
        only_now.setattr(RoundProgress, "__call__", RoundProgress.__call__)
        stop_after(5, times=2)
        outcome = run(config, out=Path("out"))
        assert outcome.code == 130
        assert "Traceback" not in outcome.err
        assert not Path("out/summary.json").exists()
        assert sorted(p.name for p in Path("out/checkpoints").glob("*.json")) == ["00000004.json", "00000005.json"]
    monkeypatch.undo()
    monkeypatch.chdir(config.parent)
    assert run(config, out=Path("out"), resume=True).code == 0
    assert same_end(Path("out"), Path("whole"))


def test_ctrl_c_while_loading(config, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsaddle.commands.simulation.build", interrupted)
    outcome = run(config, out=Path("out"))
    assert outcome.code == 130
    assert "Traceback" not in outcome.err
    assert not Path("out").exists()
