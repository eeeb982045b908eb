"""Forked workers on the pretended device, beside one process there and the CPU; one of them is killed.

A device in Python's own memory survives a fork; but torch refuses autograd on a device in a fork of a process that has
done some before. So all forks work first, and `test_device_workers.py` runs this file in a process of its own.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import closing, suppress
from pathlib import Path

import torch.distributed.tensor  # noqa: F401 - torch imports it at the first operation on the device; once will do

from fedsaddle import Codasca, Drfa, FedAvg, FedX2
from fedsaddle.engines.processes import WorkerProcesses, forker
from fedsaddle.engines.simulated import DeviceEngine, VectorisedEngine
from fedsaddle.engines.workers import Distributed, Worker
from fedsaddle.federation.records import same
from fedsaddle.problems import risks
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.supervised import Supervised
from pretend import PRETEND
from small import classes, play, seeded

FEW = {"local_steps": 2, "batch_size": 3}


def binary():
    return classes(sizes=(7, 3, 11, 5), classes=2)


def supervised():
    return Supervised(seeded(lambda: mlp(4, [5], 2)))


def scores():
    return seeded(lambda: mlp(4, [5], 1))


def fedavg():
    return FedAvg(problem=supervised(), **FEW)


def drfa():
    return Drfa(problem=supervised(), sampled_clients=4, **FEW)


def codasca():
    return Codasca(problem=MinimaxAuc(model=scores(), positive_share=0.4), stage_rounds=2, **FEW)


def fedx2():
    return FedX2(problem=risks.partial_auc(scores(), temperature=2.0), second_batch_size=2, primal_step=0.02, **FEW)


class Killed(Worker):
    """Kills its process in the second round, once."""

    mark = Path()

    def answer(self, sent, content):
        if b'"round":1' in content:
            with suppress(FileExistsError):  # two workers may be here at once; one of them makes the file
                self.mark.touch(exist_ok=False)
                os.kill(os.getpid(), 9)
        return super().answer(sent, content)


def forked(make, count, mark):
    """The states and the clients' memory with so many workers."""
    rows, worker = binary(), Killed(make(), binary(), device=PRETEND)
    worker.mark = mark
    carrier = WorkerProcesses(forker(worker), count)
    with closing(Distributed(rows, carrier=carrier, name="processes", chunk=2, device="pretend")) as clients:
        states = play(make(), clients, 2)
        return states, clients.state().records, clients.samples, carrier.lost


def here(make, clients):
    states = play(make(), clients, 2)
    return states, clients.state().records, clients.samples


def alike(ours, theirs):
    assert all(same(a, b) for a, b in zip(ours[0], theirs[0], strict=True))
    assert ours[1].keys() == theirs[1].keys()
    assert all(same(ours[1][i], theirs[1][i]) for i in ours[1])
    assert ours[2] == theirs[2]


def main():
    makes = (fedavg, drfa, codasca, fedx2)
    cpu = [here(make, VectorisedEngine(binary(), chunk=2)) for make in makes]  # what is imported here, forks need not
    with tempfile.TemporaryDirectory() as folder:
        there, mark = Path(folder), Path(folder) / "killed"
        one = [forked(make, 1, there) for make in makes]
        two = [forked(make, 2, mark if make is codasca else there) for make in makes]
    for n, make in enumerate(makes):
        for ours in (one[n], two[n], here(make, DeviceEngine(binary(), device=PRETEND, chunk=2))):
            alike(ours, cpu[n])
        assert (one[n][3], two[n][3]) == (0, int(make is codasca))
        print(type(make()).__name__)


if __name__ == "__main__":
    main()
