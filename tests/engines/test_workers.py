"""Workers: blocks as bytes, what is left out, failures, and what a worker is made of."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch
from torch import nn

from fedsaddle import FedAvg
from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.engines.workers import WorkersFailed
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.federation.records import same
from fedsaddle.problems.supervised import Supervised
from fedsaddle.robust.attacks import Attack, Attacked, hostile_task
from fedsaddle.robust.reduction import Guarded
from fedsaddle.robust.settings import Robust
from fedsaddle.runs.checkpoints import fingerprint
from fedsaddle.runs.worker import WorkerRecipe, build_worker
from small import classes, loopback, play, seeded


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


def fedavg(**options):
    return FedAvg(problem=problem(), **{"local_steps": 2, "batch_size": 3, **options})


@dataclass(frozen=True, kw_only=True)
class Broken(FedAvg):
    """Fails at client 3."""

    reason: str = ""

    def local_sgd(self, own, sent, site):
        if 3 in site.clients:
            raise RuntimeError("client three") if not self.reason else BadInput("batch_size", 1, self.reason)
        return super().local_sgd(own, sent, site)


@pytest.mark.parametrize("chunk", [1, 4])
def test_replies_that_are_not_finite_are_left_out_alike(chunk):
    rows = classes()
    rows.x[rows.offsets[3] : rows.offsets[4]] *= 1e200
    threads, workers = (
        VectorisedEngine(rows, chunk=chunk, workers=2),
        loopback(fedavg(local_steps=3), rows, chunk=chunk),
    )
    ours, theirs = (play(fedavg(local_steps=3), clients, 3)[-1] for clients in (workers, threads))
    assert same(ours, theirs)
    assert workers.left_out.to_dict() == threads.left_out.to_dict() != {}


def test_a_run_that_diverges():
    rows = classes()
    rows.x.mul_(1e200)
    with pytest.raises(Diverged, match=r"client [0-5] sent a 'final'"):
        play(fedavg(primal_step=1e200, local_steps=3), loopback(fedavg(primal_step=1e200, local_steps=3), rows), 1)


def test_a_sum_that_is_not_finite():
    """Each reply is finite; only a worker sees that their sum is not."""
    rows = classes()
    clients = loopback(fedavg(), rows)
    clients.begin(0)
    with pytest.raises(Diverged, match="sent a 'final'"):
        clients.ask([0, 1], fedavg().local_sgd, _start(1e308), weights=[1e10, 1e10])


def _start(size):
    from fedsaddle.algorithms.fedavg import Start

    return Start(torch.full((15,), size, dtype=torch.float64), 0.1)


@pytest.mark.parametrize("aggregation", ["mean", "median", "trimmed-mean"])
@pytest.mark.parametrize("attack", ["sign-flip", "scale"])
def test_hostile_clients_and_robust_means_are_the_same(aggregation, attack):
    rows, hostile = classes(), Attack(name=attack, clients=[1])
    robust = Robust(aggregation=aggregation, bounds=True)

    def played(engine):
        return play(fedavg(), Attacked(Guarded(engine, robust), hostile), 3)[-1]

    workers = loopback(fedavg(), rows, change=lambda task: hostile_task(hostile, np.array([1]), task))
    assert same(played(workers), played(VectorisedEngine(rows, chunk=2, workers=2)))


def test_a_failure_says_what_and_where(capsys):
    with pytest.raises(WorkersFailed, match=r"RuntimeError: client three \(.*test_workers.py, line \d+\)"):
        play(Broken(problem=problem()), loopback(Broken(problem=problem()), classes()), 1)
    assert "Traceback" in capsys.readouterr().err
    with pytest.raises(WorkersFailed, match=r"^batch_size = 1: use more$"):
        play(fedavg(), loopback(Broken(problem=problem(), reason="use more"), classes()), 1)


def test_a_task_that_workers_cannot_know():
    def task(own, sent, site):
        raise AssertionError

    with pytest.raises(BadInput, match="task = 'task': workers know an algorithm's public methods"):
        loopback(fedavg(), classes()).ask([0], task, _start(0.0))


def made():
    """The factory of the recipes below."""
    return fedavg(), classes()


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """A worker changes folder, threads and number type of its process; here they come back."""
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("FEDSADDLE_DATA", raising=False)
    yield
    torch.set_num_threads(threads)


def recipe(factory=f"{__name__}:made", **changes):
    known = WorkerRecipe(factory, 3, 0.0, fingerprint(fedavg(), classes(), 3))
    return replace(known, **changes).to_json()


def test_a_worker_makes_what_the_driver_has(elsewhere):
    worker = build_worker(recipe())
    assert torch.equal(worker.rows.x, classes().x)
    assert worker.algorithm.local_steps == 2


def test_a_worker_knows_who_is_hostile(elsewhere):
    worker = build_worker(recipe(attack={"name": "inflated-loss", "clients": [1, 2], "factor": None}))
    flipped = (worker.rows.y != classes().y).nonzero().flatten()
    assert len(flipped) > 0
    assert all(classes().offsets[1] <= at < classes().offsets[3] for at in flipped.tolist())
    assert worker.change(worker.algorithm.local_sgd).__name__ == "local_sgd"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"fingerprint": "0" * 16}, "differ from the driver's"),
        ({"seed": 4}, "give every machine the same data, code and versions"),
        ({"factory": "no_such_module:made"}, "factory = 'no_such_module:made'"),
        ({"factory": f"{__name__}:nothing"}, "AttributeError"),
        ({"factory": {"data": {"name": "file", "path": "gone.csv"}}}, "cannot begin"),
    ],
    ids=str,
)
def test_a_worker_that_cannot_begin_says_why(elsewhere, changes, said):
    with pytest.raises(WorkersFailed, match=said) as caught:
        build_worker(recipe(**changes))
    assert str(caught.value).startswith(f"a worker on {os.uname().nodename} cannot begin: ")
