"""BlazeFL 2 (PyPI blazefl): the FedAvg of its contrib package, in its three modes.

Plainly it is FedAvgBaseClientTrainer, one client after the other, with the threads of torch that are faster.
With --variant threads it is FedAvgThreadPoolClientTrainer and with --variant processes
FedAvgProcessPoolClientTrainer with shared memory, both with a worker for each thread that is asked for. BlazeFL
recommends threads with a Python without global lock; the one here has it. Its data set object gives a loader
per client, which its trainers only iterate over: here it is a list of ready tensor slices, and worker
processes, which it forks in every round, find them in memory. A model is a copy of one that was made before,
what torch imports for its first optimiser is imported before the forks, and the generators that process workers
keep in files are in /dev/shm where there is one.
"""

from __future__ import annotations

import copy
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

os.environ["TQDM_DISABLE"] = "1"

import torch
import torch_models
import work
from blazefl.contrib import (
    FedAvgBaseClientTrainer,
    FedAvgBaseServerHandler,
    FedAvgProcessPoolClientTrainer,
    FedAvgThreadPoolClientTrainer,
)
from blazefl.core import IPCMode

LOADERS: list[list[tuple[torch.Tensor, torch.Tensor]]] = []  # of each client; forked workers have them too
MODELS: list[torch.nn.Module] = []


class Loader(list):
    """A client's batches; BlazeFL gives the data set of a loader back after training."""

    dataset = None


class Slices:
    """Nothing but a way to the slices in memory: it is pickled for every client of every round."""

    def get_dataloader(self, type_: str, cid: int, batch_size: int | None, generator: object) -> Loader:
        return Loader(LOADERS[cid])

    def set_dataset(self, type_: str, cid: int | None, dataset: object) -> None:
        pass


class Selector:
    def select_model(self, model_name: str) -> torch.nn.Module:
        return copy.deepcopy(MODELS[0])


class Processes(FedAvgProcessPoolClientTrainer):
    """Its pool ends with every round, so the memory of its workers is read within the first."""

    peak = 0.0

    def progress_fn(self, it: list) -> Iterator:
        for k, job in enumerate(it):
            if k + 1 == len(it) and not self.peak:
                job.wait()
                self.peak = work.memory_mb([os.getpid(), *work.descendants(os.getpid())])
            yield job


def trainer_of(args, cell: work.Cell, folder: Path):
    common = {
        "model_selector": Selector(),
        "model_name": args.workload,
        "dataset": Slices(),
        "device": "cpu",
        "num_clients": cell.clients,
        "epochs": 1,
        "batch_size": cell.batch,
        "lr": cell.lr,
        "seed": 0,
    }
    if args.variant == "threads":
        return FedAvgThreadPoolClientTrainer(**common, num_parallels=args.threads)
    if args.variant == "processes":
        return Processes(
            **common,
            num_parallels=args.threads,
            share_dir=folder / "share",
            state_dir=folder / "state",
            ipc_mode=IPCMode.SHARED_MEMORY,
        )
    return FedAvgBaseClientTrainer(**common)


def main() -> None:
    args = work.arguments()
    clock = work.Clock(args, None if args.variant else torch.set_num_threads)
    if args.variant:
        torch.set_num_threads(1)
    cell = work.load(args.data, args.workload)
    used = work.STEPS * cell.batch
    for x, y in cell.ordered():
        pairs = zip(
            torch.from_numpy(x[:used]).split(cell.batch), torch.from_numpy(y[:used]).split(cell.batch), strict=True
        )
        LOADERS.append(list(pairs))
    MODELS.append(torch_models.build(args.workload, cell.weights))
    torch.optim.SGD(MODELS[0].parameters(), lr=cell.lr).zero_grad()
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="blazefl-", dir=place) as folder:
        trainer = trainer_of(args, cell, Path(folder))
        handler = FedAvgBaseServerHandler(
            Selector(), args.workload, Slices(), 10**9, cell.clients, 1.0, "cpu", cell.batch, 0
        )
        clock.begin()
        while True:
            sampled = handler.sample_clients()
            trainer.local_process(handler.downlink_package(), sampled)
            for package in trainer.uplink_package():
                handler.load(package)
            memory = (lambda: trainer.peak) if args.variant == "processes" else None
            if clock.round_done(lambda: torch_models.export(handler.model), memory):
                break
    clock.report("blazefl", "torch", "numpy")


if __name__ == "__main__":
    main()
