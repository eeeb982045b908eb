"""Deployed runs tell callbacks, name sites in metrics.csv, and say which sites are up."""

from __future__ import annotations

import csv
import json

from in_process import config, deployed, sites

from fedsaddle.deployment.courier import Arrival
from fedsaddle.runs.callbacks import Callback

FEDAVG = {"name": "FedAvg", "local_steps": 2}


class Listener(Callback):
    def __init__(self):
        self.begun, self.rounds, self.ends = [], [], []

    def on_begin(self, beginning):
        self.begun.append(beginning)

    def on_round(self, done, record):
        self.rounds.append(done)

    def on_end(self, summary):
        self.ends.append(summary["stopped"])


class Losing:
    """Site 2 answers until the run has begun, and never again."""

    def __init__(self, made):
        self.made, self.asked = made, 0

    def exchange(self, clients, content, least, timeout):
        self.asked += 1
        lost = {1} if self.asked > 4 else set()
        return [Arrival(i, None if i in lost else self.made[i].answer(content)) for i in clients]


def test_a_deployed_run_is_tracked_and_continues(tmp_path, monkeypatch):
    listener = Listener()
    monkeypatch.setattr("fedsaddle.deployment.server.trackers_of", lambda config: [listener])
    monkeypatch.setattr("fedsaddle.runs.folder.SECONDS", 0.0)
    short, long = config(FEDAVG, rounds=3), config(FEDAVG, rounds=5)
    made, out = sites(long, tmp_path), tmp_path / "out"
    deployed(short, made, out)
    deployed(long, made, out)
    assert [(b.done, b.resumed) for b in listener.begun] == [(0, False), (3, True)]
    assert listener.rounds == [1, 2, 3, 4, 5]
    assert listener.ends == ["finished", "finished"]
    assert listener.begun[0].clients == tuple(f"site-{i}" for i in (1, 2, 3, 4))
    with (out / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["round"]) for row in rows] == [1, 2, 3, 4, 5]
    assert {f"clients.test.loss.site-{i}" for i in (1, 2, 3, 4)} <= set(rows[0])
    progress = json.loads((out / "progress.json").read_text())
    assert (progress["round"], progress["rounds"], progress["after"]) == (5, 5, 3)
    assert set(progress["sites"].values()) == {"up"}


def test_a_lost_site_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("fedsaddle.runs.folder.SECONDS", 0.0)
    given = config(FEDAVG, rounds=4)
    made = sites(given, tmp_path)
    deployed(given, made, tmp_path / "out", Losing(made), timeout=0.1)
    states = json.loads((tmp_path / "out" / "progress.json").read_text())["sites"]
    assert states == {"site-1": "up", "site-2": "lost", "site-3": "up", "site-4": "up"}
