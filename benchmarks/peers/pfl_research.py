"""pfl-research (PyPI pfl): FederatedAveraging on SimulatedBackend with PyTorchModel.

Run plainly it is one process. Run by torchrun, which is how pfl-research
spreads a simulation, every process has its share of the clients and of the threads. The users are
PyTorchTensorDataset objects made once: pfl-research keeps their batches as ready slices.
"""

from __future__ import annotations

import os

os.environ["PFL_PYTORCH_DEVICE"] = "cpu"  # else pfl-research looks for a device at every batch

import torch
import torch_models
import work
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm import FederatedAveraging, NNAlgorithmParams
from pfl.callback.base import TrainingProcessCallback
from pfl.data import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


class Trained(torch.nn.Module):
    """pfl-research asks a module for its loss and its metrics; without metrics it evaluates nothing."""

    def __init__(self, net: torch.nn.Module) -> None:
        super().__init__()
        self.net = net

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.net(x), y)

    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict:
        return {}


class Timer(TrainingProcessCallback):
    def __init__(self, clock: work.Clock, net: torch.nn.Module) -> None:
        self.clock, self.net = clock, net

    def after_central_iteration(self, aggregate_metrics: Metrics, model: PyTorchModel, *, central_iteration: int):
        memory = None if WORLD == 1 else lambda: work.memory_mb(work.descendants(os.getppid()))
        stop = self.clock.round_done(lambda: torch_models.export(self.net), memory)
        if WORLD > 1:  # the first process decides for all of them
            flag = torch.tensor([float(stop)])
            torch.distributed.broadcast(flag, 0)
            stop = bool(flag.item())
            self.clock.begin()
        return stop, Metrics()


def main() -> None:
    args = work.arguments()
    args.weights = "" if RANK else args.weights
    args.threads = max(1, args.threads // WORLD)
    clock = work.Clock(args, torch.set_num_threads)
    cell = work.load(args.data, args.workload)
    net = torch_models.build(args.workload, cell.weights)
    users = [PyTorchTensorDataset((torch.from_numpy(x), torch.from_numpy(y))) for x, y in cell.ordered()]
    data = FederatedDataset(
        users.__getitem__, get_user_sampler("minimize_reuse", list(range(cell.clients)))
    )  # "minimize_reuse" is every user once before any is used again: here, all of them in each round
    module = Trained(net)
    model = PyTorchModel(
        module,
        local_optimizer_create=torch.optim.SGD,
        central_optimizer=torch.optim.SGD(module.parameters(), lr=1.0),
    )
    clock.begin()
    FederatedAveraging().run(
        NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=cell.clients,
            val_cohort_size=None,
        ),
        SimulatedBackend(data, data),
        model,
        NNTrainHyperParams(
            local_num_epochs=None,
            local_num_steps=work.STEPS,
            local_learning_rate=cell.lr,
            local_batch_size=cell.batch,
        ),
        callbacks=[Timer(clock, net)],
        send_metrics_to_platform=False,
    )
    if RANK == 0:
        clock.report("pfl", "torch", "numpy")
    if WORLD > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
