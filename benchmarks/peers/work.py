"""The work every implementation does, and how a round is timed; it needs nothing but numpy.

One cell is (workload, clients). Its data, its batches and its initial weights are in one npz file,
so every implementation starts from the same bytes and takes the same ten steps in the same order.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import numpy as np

IMPORTED = time.time()
STEPS, SAMPLES, CLASSES, SEED = 10, 500, 10, 2024
CHECKED_ROUND = 3  # the weights after this round are the ones compared
MIN_TIMED = 3

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Workload:
    title: str
    shape: tuple[int, ...]  # of one sample
    batch: int
    lr: float
    layers: tuple[tuple[int, ...], ...]  # the weight of each layer as torch has it; the bias has its first size


WORKLOADS = {
    "W1": Workload("logistic regression 784-10", (784,), 50, 0.1, ((10, 784),)),
    "W2": Workload("MLP 784-200-200-10", (784,), 50, 0.1, ((200, 784), (200, 200), (10, 200))),
    "W3": Workload(
        "CNN of McMahan et al. 2017 (1,663,370 parameters)",
        (1, 28, 28),
        32,
        0.01,  # at 0.1 a max-pool tie decided by rounding grows to 1e-3 in three rounds: nothing to compare
        ((32, 1, 5, 5), (64, 32, 5, 5), (512, 3136), (10, 512)),
    ),
}


def operations(name: str) -> int:
    """Additions and multiplications of a step's matrix products: forward and backward, one batch."""
    work, side, total = WORKLOADS[name], 28, 0
    for k, shape in enumerate(work.layers):
        products = int(np.prod(shape))
        if len(shape) == 4:  # a convolution that keeps the size, before pooling halves it
            products, side = products * side**2, side // 2
        total += 2 * products * (2 if k == 0 else 3)  # the first layer needs no gradient of its input
    return total * work.batch


def make(path: Path, name: str, clients: int) -> None:
    """Write the cell's npz: x, y, batches (clients, steps, batch) and the initial weights w0, b0, w1, ..."""
    work = WORKLOADS[name]
    rng = np.random.default_rng(SEED)
    out: Arrays = {}
    for k, shape in enumerate(work.layers):
        bound = 1.0 / np.sqrt(np.prod(shape[1:]))
        out[f"w{k}"] = rng.uniform(-bound, bound, shape).astype(np.float32)
        out[f"b{k}"] = rng.uniform(-bound, bound, shape[0]).astype(np.float32)
    coarse = rng.random((CLASSES, 7, 7), dtype=np.float32)  # each class is a pattern of 4x4 patches
    prototypes = np.kron(coarse, np.ones((1, 4, 4), np.float32)).reshape(CLASSES, 784)
    out["x"] = np.empty((clients, SAMPLES, 784), np.float32)
    out["y"] = np.empty((clients, SAMPLES), np.int64)
    out["batches"] = np.empty((clients, STEPS, work.batch), np.int64)
    for i in range(clients):
        rng = np.random.default_rng([SEED, i])
        y = rng.integers(0, CLASSES, SAMPLES)
        noise = rng.random((SAMPLES, 784), dtype=np.float32)
        out["x"][i] = 0.7 * prototypes[y] + 0.3 * noise
        wrong = rng.random(SAMPLES) < 0.1  # so that the gradients never vanish
        out["y"][i] = np.where(wrong, rng.integers(0, CLASSES, SAMPLES), y)
        out["batches"][i] = rng.permutation(SAMPLES)[: STEPS * work.batch].reshape(STEPS, work.batch)
    np.savez(path, **out)


@dataclass
class Cell:
    """A loaded cell: x (clients, samples, *shape), y (clients, samples), batches, weights."""

    name: str
    x: np.ndarray
    y: np.ndarray
    batches: np.ndarray
    weights: Arrays

    @property
    def clients(self) -> int:
        return len(self.x)

    @property
    def lr(self) -> float:
        return WORKLOADS[self.name].lr

    @property
    def batch(self) -> int:
        return WORKLOADS[self.name].batch

    def ordered(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Sort each client's rows in place: those of step 0 first, then step 1, ..., then those never used.

        A loader that reads them in order, without shuffling, makes exactly the batches of the cell.
        """
        for i, batches in enumerate(self.batches):
            first = batches.ravel()
            order = np.concatenate([first, np.setdiff1d(np.arange(SAMPLES), first)])
            self.x[i], self.y[i] = self.x[i][order], self.y[i][order]
        self.batches[:] = np.arange(STEPS * self.batch).reshape(STEPS, self.batch)
        return list(zip(self.x, self.y, strict=True))


def load(path: str | Path, name: str) -> Cell:
    with np.load(path) as data:
        arrays = dict(data)
    x, y, batches = arrays.pop("x"), arrays.pop("y"), arrays.pop("batches")
    return Cell(name, x.reshape(*x.shape[:2], *WORKLOADS[name].shape), y, batches, arrays)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True)
    parser.add_argument("--workload", required=True, choices=WORKLOADS)
    parser.add_argument("--clients", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=1000, help="at most this many rounds")
    parser.add_argument("--seconds", type=float, default=15.0, help="stop after about this much timed work")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--started", type=float, default=IMPORTED, help="when the process was started")
    parser.add_argument("--weights", default="", help="file for the weights after the checked round")
    parser.add_argument("--variant", default="", help="a way of using the implementation; see its script")
    return parser.parse_args()


class Clock:
    """Times rounds: call `begin` before the first round and `round_done` after each one.

    The first round (compilation, allocation, start of workers) counts for the time to the first
    round only. `round_done` returns True when there have been rounds enough. An implementation of
    several processes gives `memory`, which is read after the first round and after the last one.

    With `set_threads` (the call that sets how many threads an operation has) rounds 2 to 5 are tried
    with one thread and with all of them in turn, and the timed rounds have what was faster: small
    models are often faster with one.
    """

    def __init__(self, args: argparse.Namespace, set_threads: Callable[[int], None] | None = None) -> None:
        self.args, self.seconds, self.first, self.peak = args, [], 0.0, 0.0
        self.threads, self.set_threads = args.threads, set_threads
        self.trials = [1, args.threads] * 2 if set_threads is not None and args.threads > 1 else []
        if set_threads is not None:
            set_threads(args.threads)

    def begin(self) -> None:
        self.last = time.perf_counter()

    def round_done(self, weights: Callable[[], Arrays], memory: Callable[[], float] | None = None) -> bool:
        self.seconds.append(time.perf_counter() - self.last)
        done = len(self.seconds)
        if done == 1:
            self.first = time.time() - self.args.started
        if done == CHECKED_ROUND and self.args.weights:
            np.savez(self.args.weights, **weights())
        timed = self.timed()
        enough = len(timed) >= MIN_TIMED and (sum(timed) >= self.args.seconds or done >= self.args.rounds)
        if memory is not None and (done == 1 or enough):
            self.peak = max(self.peak, memory())
        if self.trials and done <= 1 + len(self.trials):
            self.tune(done)
        self.last = time.perf_counter()
        return enough

    def timed(self) -> list[float]:
        return self.seconds[1 + len(self.trials) :]

    def tune(self, done: int) -> None:
        """Choose the threads of the round after this one."""
        if done <= len(self.trials):
            self.threads = self.trials[done - 1]
        else:
            tried = zip(self.seconds[1:], self.trials, strict=True)
            self.threads = min(tried)[1]
        self.set_threads(self.threads)

    def report(self, *packages: str) -> None:
        """Print the cell's result as one line of JSON."""
        timed = sorted(self.timed())
        own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        result = {
            "rounds_per_second": 1.0 / statistics.median(timed),
            "rounds_timed": len(timed),
            "threads": self.threads,
            "seconds_quartiles": [timed[len(timed) // 4], timed[(3 * len(timed)) // 4]],
            "first_round_seconds": self.first,
            "peak_mb": max(own, self.peak),
            "versions": versions(*packages),
            "weights_digest": self.args.weights,
        }
        print(json.dumps(result), flush=True)


def versions(*packages: str) -> dict[str, str]:
    """Of Python and of packages; where a package says which build it is, that too."""
    builds = {p: getattr(sys.modules.get(p), "__version__", None) for p in packages}
    return {"Python": platform.python_version(), **{p: builds[p] or version(p) for p in packages}}


def descendants(root: int) -> list[int]:
    """The process ids of all descendants of `root`, without itself."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            continue
        children.setdefault(parent, []).append(int(entry.name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def memory_mb(pids: list[int]) -> float:
    """Memory of these processes now, in MB; pages they share are counted once (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            total += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return total / 1024
