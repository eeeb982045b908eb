"""FedSaddle: FedAvg on the vectorised engine, with the chunk and the threads that its own rule chooses."""

from __future__ import annotations

import numpy as np
import torch
import torch_models
import work

from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.data.store import Stacked
from fedsaddle.engines.choose import make_engine
from fedsaddle.federation.randomness import ClientKeys, server_generator
from fedsaddle.problems.supervised import Supervised


class Given(ClientKeys):
    """The rows of the cell. They are drawn as usual first, all steps but the first in one go, and so paid for."""

    batches: np.ndarray
    clients: np.ndarray

    def rows(self, sizes: np.ndarray, step: int, size: int, stream: int = 0) -> np.ndarray:
        if step < 2:
            super().rows_of_steps(sizes, step, 1 if step == 0 else work.STEPS - 1, size, stream)
        return self.batches[self.clients, step]


def draws(batches: np.ndarray):
    def draw(seed: int, round: int, exchange: int, clients: np.ndarray) -> Given:
        given = Given(ClientKeys.of(seed, round, exchange, clients).keys)
        object.__setattr__(given, "batches", batches)
        object.__setattr__(given, "clients", clients)
        return given

    return draw


def main() -> None:
    args = work.arguments()
    clock = work.Clock(args)
    torch.set_num_threads(args.threads)
    cell = work.load(args.data, args.workload)
    n = cell.x.shape[1]
    rows = Stacked(
        torch.from_numpy(cell.x.reshape(-1, *cell.x.shape[2:])),
        torch.from_numpy(cell.y.ravel()),
        np.arange(cell.clients + 1) * n,
    )
    problem = Supervised(torch_models.build(args.workload, cell.weights))
    algorithm = FedAvg(
        problem=problem,
        local_steps=work.STEPS,
        batch_size=cell.batch,
        primal_step=cell.lr,
        weighting="uniform",
    )
    engine = make_engine("vectorised", problem, rows, seed=0)
    engine.draw = draws(cell.batches)
    server, r = algorithm.start(engine), 0
    clock.begin()
    while True:
        engine.begin(r)
        server = algorithm.round(server, engine, server_generator(0, r))
        engine.commit()
        r += 1
        w = server.w
        if clock.round_done(lambda w=w: torch_models.export(problem.module(w))):
            break
    clock.report("fedsaddle", "torch", "numpy")


if __name__ == "__main__":
    main()
