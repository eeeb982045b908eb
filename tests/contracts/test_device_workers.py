"""Workers on a device of Python's making: the bits of one process there, and of the CPU."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from device_forks import FEW, binary, fedavg

from fedsaddle import FedAvg
from fedsaddle.data.store import Lazy
from fedsaddle.engines.simulated import DeviceEngine, VectorisedEngine
from fedsaddle.engines.workers import Distributed, Loopback, Worker
from fedsaddle.federation.records import same
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.supervised import Supervised
from fedsaddle.robust.reduction import Guarded
from fedsaddle.robust.settings import Robust
from pretend import PRETEND, TRANSFERS
from small import play, seeded


def here(algorithm, rows, **options):
    """Workers in this process, asked through bytes."""
    carrier = Loopback([Worker(algorithm, rows, device=PRETEND, **options) for _ in range(2)])
    return Distributed(rows, carrier=carrier, name="loopback", chunk=2, device="pretend")


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks share rows on Linux only")
def test_processes_on_a_device_have_the_bits_of_one_process():
    """In a process of its own, which forks before it computes on the device: torch refuses the other order."""
    paths = os.pathsep.join(path for path in sys.path if path)
    told = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "device_forks.py")],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["FedAvg", "Drfa", "Codasca", "FedX2"]


def test_workers_send_rows_that_are_lazy_or_do_not_fit():
    rows = binary()
    lazy = Lazy(rows.sizes, rows.client)
    expected = play(fedavg(), VectorisedEngine(rows, chunk=2), 2)[-1]
    assert same(play(fedavg(), here(fedavg(), lazy), 2)[-1], expected)
    streamed = here(fedavg(), rows)
    for worker in streamed.carrier.workers:
        assert worker._there is not None
        worker._there = None
    assert same(play(fedavg(), streamed, 2)[-1], expected)


def test_rows_go_to_a_workers_device_once():
    clients = here(fedavg(), binary())
    first = play(fedavg(), clients, 1)
    few = []
    for r in (1, 2):
        TRANSFERS.reset()
        first = play(fedavg(), clients, 1, state=first[-1], first=r)
        few.append((TRANSFERS.down, TRANSFERS.up))
    assert few[0] == few[1]
    assert few[0][0] <= 3 * 3  # the message once for each of two workers, and keys for each of three blocks
    assert few[0][1] <= 3


def test_replies_on_a_workers_device_that_are_not_finite_are_left_out():
    rows = binary()
    poisoned = replace(rows, x=rows.x.clone())
    poisoned.x[rows.offsets[2] : rows.offsets[3]] *= 1e200
    alg = fedavg()
    engines = VectorisedEngine(poisoned, chunk=2), DeviceEngine(poisoned, device=PRETEND, chunk=2), here(alg, poisoned)
    ends = [play(alg, clients, 1)[-1] for clients in engines]
    assert same(ends[0], ends[1])
    assert same(ends[0], ends[2])
    reports = [clients.report()["left_out"] for clients in engines]
    assert reports[0] == reports[1] == reports[2]
    assert set(reports[0]) == {"2"}


@pytest.mark.parametrize("robust", [Robust(bounds=True), Robust(aggregation="median")], ids=["bounds", "median"])
def test_robust_aggregation_of_workers_on_a_device(robust):
    rows = binary()
    ours, theirs = Guarded(here(fedavg(), rows), robust), Guarded(VectorisedEngine(rows, chunk=2), robust)
    assert same(play(fedavg(), ours, 2)[-1], play(fedavg(), theirs, 2)[-1])


def test_the_precision_of_workers_is_that_of_one_process():
    rows = binary()
    single = replace(rows, x=rows.x.float())
    alg = FedAvg(problem=Supervised(seeded(lambda: mlp(4, [5], 2)).float()), **FEW)
    alone = DeviceEngine(single, device=torch.device("cpu"), chunk=2, precision="bf16")
    workers = [Worker(alg, single, precision="bf16")]
    clients = Distributed(single, carrier=Loopback(workers), name="loopback", chunk=2, precision="bf16")
    end = play(alg, clients, 2)[-1]
    assert same(end, play(alg, alone, 2)[-1])
    assert not same(end, play(alg, VectorisedEngine(single, chunk=2), 2)[-1])
    assert clients.settings() == {"name": "loopback", "chunk": 2, "precision": "bf16"}
