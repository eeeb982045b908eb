"""What a FedX2 round costs: beside local SGD on cross-entropy, beside one client after the other, and in bytes.

OMP_NUM_THREADS=1 python benchmarks/fedx.py

Everything is timed in one process, round by round in turn, in processor time, so that a busy machine slows all sides
alike; a ratio is the median over the repeats.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import fedsaddle as fs
from fedsaddle.engines.choose import keep_freed_memory
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.wrappers import Metered

CLIENTS, ROWS, FEATURES, HIDDEN, STEPS, BATCH = 16, 400, 784, [200, 200], 32, 32


@dataclass
class Side:
    """An algorithm on an engine, round by round."""

    algorithm: Any
    engine: Any

    def __post_init__(self) -> None:
        self.server, self.rounds = self.algorithm.start(self.engine), 0

    def round(self) -> float:
        began = time.process_time()
        self.engine.begin(self.rounds)
        self.server = self.algorithm.round(self.server, self.engine, server_generator(0, self.rounds))
        self.engine.commit()
        self.rounds += 1
        return time.process_time() - began


def rows(clients: int) -> fs.Stacked:
    g = torch.Generator().manual_seed(0)
    x = torch.randn(clients * ROWS, FEATURES, generator=g)
    y = (torch.rand(clients * ROWS, generator=g) < 1 / 6).long()
    return fs.Stacked(x, y, np.arange(0, clients * ROWS + 1, ROWS))


def fedx2(model: torch.nn.Module, sharing: str, steps: int) -> fs.FedX2:
    risk = fs.risks.partial_auc(model)
    return fs.FedX2(problem=risk, local_steps=steps, batch_size=BATCH, primal_step=0.01, sharing=sharing)


def speed(repeats: int, steps: int) -> dict[str, float]:
    """Rounds of all sides in turn: seconds, and what they are beside the first."""
    data, model = rows(CLIENTS), fs.models.mlp(FEATURES, HIDDEN, 1)
    entropy = fs.FedAvg(problem=fs.Supervised(model, fs.losses.Logistic()), local_steps=steps, batch_size=2 * BATCH)
    sides = {
        "cross-entropy": Side(entropy, VectorisedEngine(data, chunk=CLIENTS)),
        "FedX2": Side(fedx2(model, "all", steps), VectorisedEngine(data, chunk=CLIENTS)),
        "FedX2 sub-sampled": Side(fedx2(model, "sub-sampled", steps), VectorisedEngine(data, chunk=CLIENTS)),
        "FedX2 one client after the other": Side(fedx2(model, "all", steps), SerialEngine(data)),
    }
    times: dict[str, list[float]] = {name: [] for name in sides}
    for k in range(repeats + 1):
        for name, side in sides.items():
            seconds = side.round()
            if k:  # the first round fills the buffers and warms up
                times[name].append(seconds)
    first = times["cross-entropy"]
    found = {f"{name}, ms a step": 1000 * statistics.median(t) / steps for name, t in times.items()}
    for name in ("FedX2", "FedX2 sub-sampled"):
        ratios = [a / b for a, b in zip(times[name], first, strict=True)]
        found[f"{name} / cross-entropy"] = statistics.median(ratios)
    alone = [a / b for a, b in zip(times["FedX2 one client after the other"], times["FedX2"], strict=True)]
    return found | {"one after the other / vectorised": statistics.median(alone)}


def traffic(clients: int, sharing: str) -> dict[str, float]:
    """Score bytes of a client in a round, up and down, without the models; and what it remembers."""
    model = fs.models.logistic_regression(FEATURES, 1)
    metered = Metered(VectorisedEngine(rows(clients), chunk=clients))
    algorithm = fedx2(model, sharing, STEPS)
    state = algorithm.start(metered)
    for r in range(2):
        before = (metered.ledger.bytes_up, metered.ledger.bytes_down)
        metered.begin(r)
        state = algorithm.round(state, metered, server_generator(0, r))
        metered.commit()
    models = 2 * 4 * (FEATURES + 1)
    up, down = metered.ledger.bytes_up - before[0], metered.ledger.bytes_down - before[1]
    kept = metered.inner.memory.kept[0]
    memory = sum(v.numel() * v.element_size() for v in (kept.u, kept.seen))
    return {"up": up / clients - models, "down": down / clients - models - 6 * 8, "memory": memory}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    keep_freed_memory()  # as every run does
    found: dict[str, Any] = {"speed": speed(given.repeats, given.steps)}
    for sharing in ("all", "sub-sampled"):
        found[f"bytes a client and round, {sharing}"] = {str(n): traffic(n, sharing) for n in (4, 8, 16)}
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
