"""What a min-max round costs: beside a plain loop of torch autograd over the clients, and beside minimisation.

OMP_NUM_THREADS=1 python benchmarks/minimax.py

Everything is timed in one process, round by round in turn, so that a busy machine slows all sides alike; a ratio is the
median over the repeats of (their time / our time).
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedsaddle as fs
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.engines.choose import make_engine
from fedsaddle.federation.randomness import ClientKeys, server_generator
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.losses import Logistic

REPEATS = 15
CLIENTS, SAMPLED, STEPS, BATCH, DIMENSION, ROWS = 500, 20, 20, 5, 100, 100
STEP = 1e-3


@dataclass
class Ours:
    """An algorithm on the vectorised engine, round by round."""

    algorithm: Any
    rows: Any

    def __post_init__(self) -> None:
        self.engine = make_engine("vectorised", self.algorithm.problem, self.rows, seed=0)
        self.server = self.algorithm.start(self.engine)
        self.rounds = 0

    def round(self) -> None:
        self.engine.begin(self.rounds)
        self.server = self.algorithm.round(self.server, self.engine, server_generator(0, self.rounds))
        self.engine.commit()
        self.rounds += 1


@dataclass
class PlainLoop:
    """FedSGDA-MB as one would write it first: one client after the other, gradients by autograd."""

    rows: Any

    def __post_init__(self) -> None:
        self.x, self.y = torch.zeros(DIMENSION), torch.zeros(DIMENSION)
        self.rounds = 0

    def draw(self) -> None:
        """The cohorts and batches that our own run draws, made outside of the timing."""
        rng = server_generator(0, self.rounds)
        self.collecting = rng.choice(CLIENTS, SAMPLED, replace=False)
        self.updating = rng.choice(CLIENTS, SAMPLED, replace=False)
        keys = ClientKeys.of(0, self.rounds, 1, self.updating)
        sizes = np.full(SAMPLED, ROWS)
        self.batches = torch.from_numpy(np.stack([keys.rows(sizes, k, BATCH) for k in range(STEPS)], axis=1))

    def round(self) -> None:
        slopes = [gradients(self.x, self.y, self.rows.client(int(i))[0]) for i in self.collecting]
        u, v = (torch.stack(parts).mean(0) for parts in zip(*slopes, strict=True))
        ends = []
        for i, picks in zip(self.updating, self.batches, strict=True):
            data = self.rows.client(int(i))[0]
            x, y = self.x, self.y
            for pick in picks:
                batch = data[pick]
                gx, gy = gradients(x, y, batch)
                gx_0, gy_0 = gradients(self.x, self.y, batch)
                x, y = x - STEP * (gx - gx_0 + u), y + STEP * (gy - gy_0 + v)
            ends.append((x, y))
        self.x, self.y = (torch.stack(parts).mean(0) for parts in zip(*ends, strict=True))
        self.rounds += 1


def gradients(x: Tensor, y: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Of the mean over rows of section 6.1's function, by autograd."""
    x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
    a, b, c = rows.chunk(3, -1)
    u, v = x - a, y - c
    bell = (1 - (-u.square() / 2).exp()).sum(-1)
    f = (bell + (u * b).sum(-1) * (b * v).sum(-1) - v.square().sum(-1) / 2).mean()
    gx, gy = torch.autograd.grad(f, (x, y))
    return gx, gy


def timed(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def against_a_loop(repeats: int) -> dict[str, float]:
    """The simulation of the paper, ours and the plain loop in turn; the iterates must agree."""
    rows = nonconvex_pl(CLIENTS, ROWS, DIMENSION)
    options = {"sampled_clients": SAMPLED, "local_steps": STEPS, "batch_size": BATCH}
    ours = Ours(fs.FedSgda(problem=NonconvexPl(DIMENSION), primal_step=STEP, dual_step=STEP, **options), rows)
    loop = PlainLoop(rows)
    fast, slow = [], []
    for _ in range(repeats + 2):
        loop.draw()
        fast.append(timed(ours.round))
        slow.append(timed(loop.round))
    apart = float((ours.server.x - loop.x).abs().max() / loop.x.abs().max())
    assert apart < 1e-3, f"the two do not agree: {apart}"
    return figures(slow[2:], fast[2:]) | {"apart": apart}


def figures(numerator: list[float], denominator: list[float]) -> dict[str, float]:
    ratios = [a / b for a, b in zip(numerator, denominator, strict=True)]
    first, second = statistics.median(numerator), statistics.median(denominator)
    return {"ratio": statistics.median(ratios), "first_ms": 1e3 * first, "second_ms": 1e3 * second}


def against_minimisation(minimax: Any, supervised: Any, rows: Any, repeats: int) -> dict[str, float]:
    """Local SGDA and FedAvg with the same model, cohort, batch and number of local gradients."""
    options = {"sampled_clients": 20, "local_steps": 10, "batch_size": 32, "primal_step": 0.01}
    both = Ours(fs.LocalSgda(problem=minimax, dual_step=0.01, **options), rows)
    one = Ours(fs.FedAvg(problem=supervised, weighting="uniform", **options), rows)
    seconds: tuple[list[float], list[float]] = ([], [])
    for _ in range(repeats + 2):
        for side, into in zip((both, one), seconds, strict=True):
            into.append(timed(side.round))
    return figures(seconds[0][2:], seconds[1][2:])


def pairs() -> dict[str, tuple[Any, Any, Any]]:
    """Min-max problem, minimisation of the same model, rows."""
    g = torch.Generator().manual_seed(0)
    n, features, clients = 20_000, 784, 100
    x, offsets = torch.randn(n, features, generator=g) / 28, np.arange(clients + 1) * (n // clients)
    ten = fs.Stacked(x, torch.randint(10, (n,), generator=g), offsets)
    two = fs.Stacked(x, torch.randint(2, (n,), generator=g), offsets)
    models = {
        "logistic": lambda k: fs.models.logistic_regression(features, k),
        "MLP 200-200": lambda k: fs.models.mlp(features, [200, 200], k),
    }
    found = {}
    for name, make in models.items():
        found[f"class-fair, {name}"] = (ClassFair(model=make(10), classes=10), fs.Supervised(make(10)), ten)
        auc = MinimaxAuc(model=make(1), positive_share=0.5)
        found[f"AUC, {name}"] = (auc, fs.Supervised(make(1), Logistic()), two)
    return found


def main() -> None:
    """Print the figures and write them beside the other results."""
    results = {"FedSGDA, plain loop / ours": against_a_loop(REPEATS)}
    for name, (minimax, supervised, rows) in pairs().items():
        results[f"{name}, Local SGDA / FedAvg"] = against_minimisation(minimax, supervised, rows, REPEATS)
    for name, found in results.items():
        print(f"{name:45} {found['ratio']:6.2f}   ({found['first_ms']:.1f} / {found['second_ms']:.1f} ms)")
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    (out / "minimax.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
