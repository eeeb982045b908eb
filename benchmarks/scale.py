"""Seconds per round against the number of registered clients: the cost must follow the cohort, not the register.

python benchmarks/scale.py
"""

from __future__ import annotations

import json
import resource
import statistics
import time
from pathlib import Path

import numpy as np
import torch

import fedsaddle as fs
from fedsaddle.engines.choose import make_engine
from fedsaddle.federation.randomness import server_generator

COHORT, ROUNDS, ROWS = 10, 60, 100


BLOCK = torch.rand(ROWS, 784), torch.randint(0, 10, (ROWS,))


def rows_of(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same rows for every client: what loading costs is the user's, not the engine's."""
    return BLOCK


def seconds_a_round(registered: int, name: str) -> float:
    """The median round of a cohort of ten, in seconds of the processor."""
    rows = fs.Lazy(np.full(registered, ROWS, dtype=np.int64), rows_of)
    problem = fs.Supervised(fs.models.logistic_regression(784, 10))
    make = {"FedAvg": fs.FedAvg, "DRFA": fs.Drfa}[name]
    algorithm = make(problem=problem, sampled_clients=COHORT)
    engine = make_engine("vectorised", problem, rows, seed=0)
    server, seconds = algorithm.start(engine), []
    for r in range(ROUNDS):
        began = time.process_time()
        engine.begin(r)
        server = algorithm.round(server, engine, server_generator(0, r))
        engine.commit()
        seconds.append(time.process_time() - began)
    return statistics.median(seconds[5:])


def main() -> None:
    """Print the table and write it beside the other results."""
    results = {}
    for name in ("FedAvg", "DRFA"):
        for registered in (1_000, 10_000, 1_000_000):
            results[f"{name} {registered}"] = seconds_a_round(registered, name)
            print(f"{name:8} {registered:>9,} clients  {1e3 * results[f'{name} {registered}']:7.2f} ms a round")
    print(f"peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    (out / "scale.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
