"""Worker processes: real ones, as forks, which share the rows of the test; and what happens when they die."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle import Codasca, FedAvg, FedX2
from fedsaddle.engines import processes
from fedsaddle.engines.processes import WorkerProcesses, forker
from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.engines.workers import Distributed, Worker, WorkersFailed
from fedsaddle.federation.records import same
from fedsaddle.numerics.schedules import Geometric
from fedsaddle.problems import risks
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run
from small import classes, play, seeded

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks share rows on Linux only")


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


def score():
    return seeded(lambda: nn.Linear(4, 1))


def fedavg():
    return FedAvg(problem=problem(), local_steps=2, batch_size=3)


def codasca():
    auc = MinimaxAuc(model=score(), positive_share=0.4)
    return Codasca(problem=auc, local_steps=2, batch_size=3, primal_step=Geometric(0.2, 0.5), stage_rounds=2)


def fedx2():
    steps = {"local_steps": 2, "batch_size": 3, "second_batch_size": 2, "primal_step": 0.02}
    return FedX2(problem=risks.partial_auc(score(), temperature=2.0), **steps)


def workers(algorithm, rows, count=2, chunk=2, told=None):
    warn = (lambda text: None) if told is None else told.append
    carrier = WorkerProcesses(forker(Worker(algorithm, rows)), count, warn)
    return Distributed(rows, carrier=carrier, name="processes", chunk=chunk)


def gone(pid):
    """Whether a process has ended, within a few seconds."""
    for _ in range(500):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("make", [fedavg, codasca, fedx2])
def test_processes_have_the_bits_of_threads(make):
    rows = classes(classes=2)
    expected = VectorisedEngine(rows, chunk=2, workers=2)
    states = play(make(), expected, 3)
    with closing(workers(make(), rows)) as clients:
        for a, b in zip(play(make(), clients, 3), states, strict=True):
            assert same(a, b)
        assert all(same(clients.memory.kept[i], record) for i, record in expected.memory.kept.items())
        pids = clients.carrier.pids
        assert len(pids) == 2
        assert os.getpid() not in pids
    assert all(gone(pid) for pid in pids)


@dataclass(frozen=True, kw_only=True)
class Dying(FedAvg):
    """Kills the process that works on client 3, `times` times."""

    folder: str = ""
    times: int = 1

    def local_sgd(self, own, sent, site):
        deaths = len(list(Path(self.folder).iterdir())) if self.folder else self.times
        if 3 in site.clients and deaths < self.times:
            (Path(self.folder) / str(deaths)).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().local_sgd(own, sent, site)


def test_a_worker_killed_in_the_middle_of_an_ask_changes_nothing(tmp_path):
    rows, told = classes(), []
    expected = play(fedavg(), VectorisedEngine(rows, chunk=2, workers=2), 2)[-1]
    dying = Dying(problem=problem(), local_steps=2, batch_size=3, folder=str(tmp_path), times=2)
    with closing(workers(dying, rows, told=told)) as clients:
        assert same(play(dying, clients, 2)[-1], expected)
        assert clients.report() == {"workers": {"count": 2, "lost": 2}}
    assert len(told) == 2
    assert "was killed by SIGKILL (is there enough memory?); its clients are asked again" in told[0]


def test_a_worker_killed_between_asks_changes_nothing():
    rows = classes()
    expected = play(fedavg(), VectorisedEngine(rows, chunk=2, workers=2), 2)
    with closing(workers(fedavg(), rows)) as clients:
        play(fedavg(), clients, 1)
        for pid in clients.carrier.pids:
            os.kill(pid, signal.SIGKILL)
        assert same(play(fedavg(), clients, 1, state=expected[1], first=1)[-1], expected[2])
        assert clients.carrier.lost >= 1


def test_clients_that_take_every_worker_with_them_end_the_run(tmp_path):
    dying = Dying(problem=problem(), folder=str(tmp_path), times=99)
    with (
        closing(workers(dying, classes())) as clients,
        pytest.raises(WorkersFailed, match=r"3 workers in a row were lost over the same clients; .* SIGKILL"),
    ):
        play(dying, clients, 1)


def test_too_many_lost_workers_end_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "MOST_LOST", 1)
    dying = Dying(problem=problem(), folder=str(tmp_path), times=2)
    with (
        closing(workers(dying, classes())) as clients,
        pytest.raises(WorkersFailed, match="2 workers were lost in this run"),
    ):
        play(dying, clients, 1)


def test_a_run_goes_on_with_other_workers(tmp_path):
    """Begun with threads, interrupted with processes, ended with threads."""
    rows = classes()

    def interrupt(done, record):
        if done == 4:
            raise KeyboardInterrupt

    options = {"out": tmp_path, "options": fs.RunOptions(report=False)}
    run(fedavg(), rows, 2, engine=fs.Vectorised(chunk=2, workers=2), **options)
    with pytest.raises(KeyboardInterrupt):
        run(
            fedavg(),
            rows,
            6,
            resume=True,
            engine=fs.Processes(workers=2, chunk=2),
            callbacks=[fs.LambdaCallback(on_round=interrupt)],
            **options,
        )
    ended = run(fedavg(), rows, 6, resume=True, engine=fs.Vectorised(chunk=2, workers=3), **options)
    whole = run(fedavg(), rows, 6, engine=fs.Processes(workers=1, chunk=2))
    assert torch.equal(ended.model, whole.model)
    assert whole.summary["engine"] == {"name": "processes", "chunk": 2}
    assert whole.summary["workers"] == {"count": 1, "lost": 0}


def test_workers_end_when_their_driver_is_killed():
    """The driver is a fork of this process, which tells its workers' numbers and waits to be killed."""
    here, there = os.pipe()
    driver = os.fork()
    if driver == 0:
        try:
            clients = workers(fedavg(), classes())
            play(fedavg(), clients, 1)
            os.write(there, " ".join(str(pid) for pid in clients.carrier.pids).encode())
            time.sleep(60)
        finally:
            os._exit(1)
    try:
        pids = [int(pid) for pid in os.read(here, 1000).split()]
    finally:
        os.kill(driver, signal.SIGKILL)
        os.waitpid(driver, 0)
        os.close(here), os.close(there)
    assert len(pids) == 2
    assert all(gone(pid) for pid in pids)
