"""Flower's simulation (PyPI flwr[simulation]): ServerApp and ClientApp on the Ray backend.

There are as many Ray actors as threads asked for, each with one thread; with --variant one-actor
there is one, with all of them. No client evaluates (fraction_evaluate=0), and logging is off.
"""

from __future__ import annotations

import contextlib
import logging
import os

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import flower_client
import torch_models
import work
from flwr.app import ArrayRecord, ConfigRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation


class Enough(Exception):
    """Ends the strategy's loop."""


def main() -> None:
    args = work.arguments()
    clock = work.Clock(args)
    model = torch_models.build(args.workload, work.load(args.data, args.workload).weights)
    threads = args.threads if args.variant == "one-actor" else 1
    server = ServerApp()

    def export(arrays: ArrayRecord) -> work.Arrays:
        model.load_state_dict(arrays.to_torch_state_dict())
        return torch_models.export(model)

    def memory() -> float:
        return work.memory_mb([os.getpid(), *work.descendants(os.getpid())])

    def evaluate(round_number: int, arrays: ArrayRecord) -> None:
        """The strategy calls this once before the first round and then after every round."""
        if round_number == 0:
            clock.begin()
        elif clock.round_done(lambda: export(arrays), memory):
            raise Enough

    @server.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = FedAvg(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=args.clients,
            min_available_nodes=args.clients,
        )
        config = ConfigRecord({"data": args.data, "workload": args.workload, "threads": threads})
        with contextlib.suppress(Enough):
            strategy.start(
                grid,
                ArrayRecord(model.state_dict()),
                num_rounds=10**6,
                train_config=config,
                evaluate_fn=evaluate,
            )

    logging.getLogger("flwr").setLevel(logging.ERROR)
    run_simulation(
        server,
        flower_client.app,
        args.clients,
        backend_config={
            "client_resources": {"num_cpus": threads, "num_gpus": 0.0},
            "init_args": {"num_cpus": args.threads, "log_to_driver": False},
        },
    )
    clock.report("flwr", "ray", "torch", "numpy")


if __name__ == "__main__":
    main()
