"""A local step of the CNN of McMahan et al. (batches of 32): by hand, by autograd, and as a plain loop in torch.

    OMP_NUM_THREADS=1 python benchmarks/image_step.py [--steps 40]

Seconds of the processor, the three in turn in one process; after the first step all must have the same weights.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable

import torch
from torch.nn.functional import cross_entropy

import fedsaddle as fs
from fedsaddle.engines.choose import keep_freed_memory
from fedsaddle.federation.clients import Batch

BATCH, STEP = 32, 0.01
Side = tuple[Callable[[], object], Callable[[], torch.Tensor]]  # a step, and the weights after it


def ours(model: torch.nn.Module, batch: Batch, by_hand: bool) -> Side:
    problem = fs.Supervised(model)
    if not by_hand:
        problem.flat._images = None
    w = problem.initial()[None].clone()
    return lambda: problem.descend_(w, batch, STEP), lambda: w[0]


def loop(model: torch.nn.Module, batch: Batch) -> Side:
    optimiser = torch.optim.SGD(model.parameters(), lr=STEP)

    def step() -> None:
        optimiser.zero_grad()
        cross_entropy(model(batch.x[0]), batch.y[0]).backward()
        optimiser.step()

    return step, lambda: torch.nn.utils.parameters_to_vector(model.parameters()).detach()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    steps = parser.parse_args().steps
    torch.set_num_threads(1)
    torch.manual_seed(0)
    keep_freed_memory()
    model = fs.models.McMahanCnn()
    batch = Batch(torch.rand(1, BATCH, 1, 28, 28), torch.randint(10, (1, BATCH)))
    sides = {
        "by hand": ours(model, batch, by_hand=True),
        "by autograd": ours(model, batch, by_hand=False),
        "plain loop in torch": loop(copy.deepcopy(model), batch),
    }
    for step, _ in sides.values():
        step()
    first, *others = [weights().clone() for _, weights in sides.values()]
    assert all(torch.allclose(first, other, atol=1e-5) for other in others), "the sides must agree"
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(steps):
        for name, (step, _) in sides.items():
            begun = time.process_time()
            step()
            seconds[name].append(time.process_time() - begun)
    for name, taken in seconds.items():
        ratio = statistics.median(t / own for t, own in zip(taken, seconds["by hand"], strict=True))
        print(f"{name:20} {1e3 * statistics.median(taken):6.1f} ms a step, {ratio:.2f} times the step by hand")


if __name__ == "__main__":
    main()
