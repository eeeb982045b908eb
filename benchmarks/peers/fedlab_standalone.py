"""FedLab (PyPI fedlab): StandalonePipeline with SyncServerHandler and SGDSerialClientTrainer.

This is FedLab's own way to simulate on one machine. Its data set object gives a loader per client;
FedLab's data sets give a torch DataLoader, but its trainer only iterates over it, so a list of
ready tensor slices is given instead: the same batches, faster.
"""

# ruff: noqa: E402
from __future__ import annotations

import logging
import sys
import types

import torch
import torch_models
import work

# FedLab imports torchvision for its own data sets, which are not used here, and the torchvision of
# PyPI does not load beside a CPU build of torch.
sys.modules.setdefault("torchvision", types.ModuleType("torchvision")).transforms = None

from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
from fedlab.contrib.algorithm.basic_server import SyncServerHandler
from fedlab.contrib.dataset.basic_dataset import FedDataset
from fedlab.core.standalone import StandalonePipeline


class Slices(FedDataset):
    def __init__(self, cell: work.Cell) -> None:
        used = work.STEPS * cell.batch  # FedLab counts epochs, so the rows never used are left out
        self.loaders = [
            list(
                zip(
                    torch.from_numpy(x[:used]).split(cell.batch),
                    torch.from_numpy(y[:used]).split(cell.batch),
                    strict=True,
                )
            )
            for x, y in cell.ordered()
        ]

    def get_dataloader(self, id: int, batch_size: int) -> list:
        return self.loaders[id]


class Pipeline(StandalonePipeline):
    """Its `main` calls `evaluate` at the end of every round, which is where the clock is read."""

    clock: work.Clock

    def evaluate(self) -> None:
        if self.clock.round_done(lambda: torch_models.export(self.handler.model)):
            self.handler.global_round = self.handler.round


def main() -> None:
    args = work.arguments()
    clock = work.Clock(args, torch.set_num_threads)
    cell = work.load(args.data, args.workload)
    model = torch_models.build(args.workload, cell.weights)
    logger = logging.getLogger("fedlab")
    handler = SyncServerHandler(model, global_round=10**9, sample_ratio=1.0, logger=logger)
    trainer = SGDSerialClientTrainer(model, cell.clients, logger=logger)
    trainer.setup_dataset(Slices(cell))
    trainer.setup_optim(epochs=1, batch_size=cell.batch, lr=cell.lr)
    pipeline = Pipeline(handler, trainer)
    pipeline.clock = clock
    clock.begin()
    pipeline.main()
    clock.report("fedlab", "torch", "numpy")


if __name__ == "__main__":
    main()
