"""Worker processes and Ray: what an ask costs, what two workers gain, memory, and a million registered clients.

OMP_NUM_THREADS=1 python benchmarks/workers.py [--only asks cnn scale] [--engines processes ray] [--rounds 5]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import fedsaddle as fs
from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import Averaged
from fedsaddle.problems.models.networks import McMahanCnn
from fedsaddle.runs.checkpoints import fingerprint
from fedsaddle.runs.engines import EngineJob, Processes, Ray, Vectorised

WORKERS, FLOATS, REGISTERED = 2, 100_000, (100, 1_000_000)


@dataclass(frozen=True)
class Vector:
    w: Tensor


@dataclass(frozen=True)
class Mean:
    w: Averaged


@dataclass(frozen=True, kw_only=True)
class Echo:
    """Clients that send back what they were sent: an exchange without work."""

    problem: Any
    size: int = FLOATS

    def start(self, clients: Any) -> Vector:
        return Vector(torch.zeros(self.size))

    def round(self, server: Vector, clients: Any, rng: Any) -> Vector:
        _, mean = clients.ask(range(clients.count), self.echo, server)
        return Vector(mean.w)

    def echo(self, own: Any, sent: Vector, site: Any) -> tuple[None, Mean]:
        return None, Mean(site.broadcast(sent.w))

    def model(self, server: Vector) -> Tensor:
        return server.w


def logistic() -> Any:
    torch.manual_seed(0)
    return fs.Supervised(fs.models.logistic_regression(20, 2))


def echo(size: int = FLOATS) -> tuple[Any, Any]:
    """Two clients, one for each worker."""
    return Echo(problem=logistic(), size=size), fs.Stacked(torch.zeros(4, 20), torch.tensor([0, 1, 0, 1]), [0, 2, 4])


def trivial() -> tuple[Any, Any]:
    return echo(1)


def cnn(clients: int = 10) -> tuple[Any, Any]:
    """W3: the CNN of McMahan et al., 10 local steps, batches of 32."""
    generator = torch.Generator().manual_seed(0)
    rows = 60 * clients
    torch.manual_seed(0)
    problem = fs.Supervised(McMahanCnn(1, 10, side=28))
    x, y = torch.rand(rows, 1, 28, 28, generator=generator), torch.randint(0, 10, (rows,), generator=generator)
    return fs.FedAvg(problem=problem, local_steps=10, batch_size=32), fs.Stacked(x, y, np.arange(clients + 1) * 60)


def half_cnn() -> tuple[Any, Any]:
    return cnn(5)


BLOCK = torch.rand(100, 784), torch.randint(0, 10, (100,))


def registered(count: int) -> tuple[Any, Any]:
    """Ten of `count` clients a round; the rows are the same for all."""
    torch.manual_seed(0)
    problem = fs.Supervised(fs.models.logistic_regression(784, 10))
    rows = fs.Lazy(np.full(count, 100, dtype=np.int64), lambda client: BLOCK)
    return fs.FedAvg(problem=problem, sampled_clients=10), rows


def few() -> tuple[Any, Any]:
    return registered(REGISTERED[0])


def many() -> tuple[Any, Any]:
    return registered(REGISTERED[1])


@contextmanager
def engine(name: str, factory: str, chunk: int | None) -> Iterator[tuple[Any, Any]]:
    """The algorithm and its engine; vectorised has one worker."""
    algorithm, rows = globals()[factory]()
    mark = fingerprint(algorithm, rows, 0)
    with_workers = name in ("processes", "ray")
    made = f"{Path(__file__).stem}:{factory}" if with_workers else None
    workers = WORKERS if with_workers or name == "threads" else 1
    common = {"chunk": chunk, "workers": workers}
    settings = (
        {"processes": Processes, "ray": Ray}[name](**common, factory=made) if with_workers else Vectorised(**common)
    )
    with settings.open(EngineJob(algorithm, rows, None, 0, 0.0, mark), print) as found:
        yield algorithm, found


def seconds(name: str, factory: str, rounds: int, chunk: int | None = None) -> tuple[float, dict[str, float]]:
    """The median round without the first two, and the memory of the driver and of a worker."""
    with engine(name, factory, chunk) as (algorithm, clients):
        server, found = algorithm.start(clients), []
        for r in range(rounds + 2):
            began = time.perf_counter()
            clients.begin(r)
            server = algorithm.round(server, clients, server_generator(0, r))
            clients.commit()
            found.append(time.perf_counter() - began)
        pids = getattr(getattr(clients, "carrier", None), "pids", [])
        memory = {"driver": megabytes(os.getpid()), **({"worker": megabytes(pids[0])} if pids else {})}
    return statistics.median(found[2:]), memory


def megabytes(pid: int) -> float:
    """Memory of a process, with its part of what is shared."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return float("nan")


def by_hand(rounds: int) -> float:
    """Two forks that know nothing of each other run half the clients each: the most that two workers can gain."""

    def half() -> None:
        torch.set_num_threads(1)
        algorithm, rows = half_cnn()
        clients = VectorisedEngine(rows, chunk=1)
        server = algorithm.start(clients)
        for r in range(rounds):
            clients.begin(r)
            server = algorithm.round(server, clients, server_generator(0, r))
            clients.commit()

    began, children = time.perf_counter(), []
    for _ in range(WORKERS):
        if (pid := os.fork()) == 0:
            half()
            os._exit(0)
        children.append(pid)
    for pid in children:
        os.waitpid(pid, 0)
    return (time.perf_counter() - began) / rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", default=["asks", "cnn", "scale"])
    parser.add_argument("--engines", nargs="+", default=["processes", "ray"])
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    results: dict[str, Any] = {}

    def tell(what: str, found: float, memory: dict[str, float] | None = None) -> None:
        results[what] = {"seconds": found, **(memory or {})}
        said = ", ".join(f"{who} {size:.0f} MB" for who, size in (memory or {}).items())
        print(f"{what:45} {1e3 * found:9.2f} ms a round   {said}", flush=True)

    if "asks" in given.only:
        for name in ("vectorised", *given.engines):
            for factory in ("trivial", "echo"):
                tell(f"{name}, {factory}, 2 clients", *seconds(name, factory, 20 * given.rounds, chunk=1))
    if "cnn" in given.only:
        for name in ("vectorised", "threads", *given.engines):
            tell(f"{name}, cnn, 10 clients", *seconds(name, "cnn", given.rounds))
        tell("two processes by hand, cnn, 10 clients", by_hand(given.rounds))
    if "scale" in given.only:
        for name in ("vectorised", *given.engines):
            for factory, count in zip(("few", "many"), REGISTERED, strict=True):
                tell(f"{name}, {count:,} registered", *seconds(name, factory, 10 * given.rounds))
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    (out / "workers.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    import workers  # by the name that workers know it by

    workers.main()
