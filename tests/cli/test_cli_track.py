"""`--track`, and trackers that a run of the command line tells at its end, when there are pictures."""

from __future__ import annotations

import sys

import pytest
from cli_command import IRIS, fedsaddle

from fedsaddle.errors import Diverged
from fedsaddle.files import read_object
from fedsaddle.runs.callbacks import Callback


class Tracker(Callback):
    """Notes what there is at the end."""

    def __init__(self, fails=False):
        self.fails, self.pictures, self.rounds = fails, [], []

    def on_begin(self, beginning):
        self.folder = beginning.folder

    def on_round(self, done, record):
        self.rounds.append(done)

    def on_end(self, summary):
        if self.fails:
            raise ConnectionError("the server is down")
        self.pictures = sorted(path.name for path in self.folder.glob("*.png"))
        self.stopped = summary["stopped"]


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "iris.toml"
    path.write_text(IRIS.replace("rounds = 6", "rounds = 2"))
    return path


def test_trackers_get_the_pictures(config, tmp_path, monkeypatch):
    good, bad = Tracker(), Tracker(fails=True)
    monkeypatch.setattr("fedsaddle.commands.simulation.trackers_of", lambda config: [bad, good])
    done = fedsaddle("run", config, "--out", tmp_path / "out")
    assert done.code == 0
    assert good.rounds == [1, 2]
    assert good.stopped == "finished"
    assert {"progress.png", "mixture.png", "split.png"} <= set(good.pictures)
    assert done.err.count("warning: Tracker.on_end failed (ConnectionError: the server is down)") == 1


def test_a_run_that_diverges_is_ended_at_its_trackers(config, tmp_path, monkeypatch):
    tracker = Tracker()
    monkeypatch.setattr("fedsaddle.commands.simulation.trackers_of", lambda config: [tracker])

    def diverges(self, server, clients, rng):
        raise Diverged(0, "w")

    monkeypatch.setattr("fedsaddle.algorithms.drfa.Drfa.round", diverges)
    assert fedsaddle("run", config, "--out", tmp_path / "out").code == 3
    assert tracker.stopped == "diverged"


def test_the_option_is_a_change_of_the_config(config, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr("fedsaddle.commands.simulation.trackers_of", lambda config: seen.append(config.track) or [])
    track = ["--track", "tensorboard", "--track", "mlflow=http://127.0.0.1:5000", "--track", "wandb=my project"]
    assert fedsaddle("run", config, *track, "--out", tmp_path / "out").code == 0
    stored = read_object(tmp_path / "out" / "config.json")["track"]
    assert stored == {"tensorboard": True, "mlflow": "http://127.0.0.1:5000", "wandb": "my project"}
    assert seen[0].model_dump() == stored
    assert fedsaddle("run", config, "--out", tmp_path / "out", "--resume").code == 0, "may change when resuming"


@pytest.mark.parametrize("wish", ["tensorbord", "mlflow", "wandb=", "tensorboard=x"])
def test_unknown_trackers_are_refused(config, wish):
    done = fedsaddle("run", config, "--track", wish)
    assert done.code == 2
    assert done.err == f"error: --track = {wish!r}: must be tensorboard, mlflow=URI or wandb=PROJECT\n"


def test_a_missing_package_is_said_before_the_run(config, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = fedsaddle("run", config, "--track", "tensorboard", "--out", tmp_path / "out")
    assert done.code == 2
    assert 'pip install ".[tensorboard]"' in done.err
    assert not (tmp_path / "out").exists()
