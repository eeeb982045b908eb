"""The engine of a run: by name, with its workers, or a user's own object; its workers end with the run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.arguments import choice as one_of
from fedsaddle.arguments import flag, text, whole
from fedsaddle.config.schema import Config
from fedsaddle.engines.choose import chunk_for, device_chunk, device_engine, make_engine
from fedsaddle.engines.device import deterministic_algorithms, device_name, find_device, shared_out
from fedsaddle.engines.distributed import Carrier, Distributed
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.processes import cores
from fedsaddle.robust.attacks import Attack, with_flipped_labels
from fedsaddle.runs.compatibility import Rows
from fedsaddle.runs.worker_recipe import FACTORY, Recipe, attacked_worker, build_worker, check_factory

SERVE, BUILD = "fedsaddle.runs.serve_worker", f"{build_worker.__module__}:{build_worker.__name__}"
WITH_WORKERS = ("processes", "ray")
NAMES = ("vectorised", "processes", "ray", "serial")
MOST = 1 << 20
PRECISIONS = ("full", "bf16")
ON_DEVICES, DEVICES = ("vectorised", *WITH_WORKERS), "the engines 'vectorised', 'processes' and 'ray'"


@dataclass(frozen=True)
class EngineChoice:
    """The engine that a user wants, and its options."""

    engine: object = "vectorised"
    chunk: int | None = None
    workers: int | None = None
    address: str | None = None
    factory: str | Mapping[str, Any] | None = None
    device: str = "cpu"
    precision: str = "full"
    deterministic: bool = False

    @property
    def name(self) -> str:
        """The engine's name; none for a user's own object."""
        return self.engine if isinstance(self.engine, str) else ""

    def check(self) -> None:
        """Refuse options that the engine does not have."""
        if self.address is not None and self.name != "ray":
            raise BadInput("engine.address", self.address, "is an option of the engine 'ray'; leave it out")
        if self.factory is not None:
            if self.name not in WITH_WORKERS:
                remedy = "is for the engines 'processes' and 'ray'; leave it out"
                raise BadInput("factory", self.factory, remedy)
            check_factory(self.factory)
        one_of("engine.precision", self.precision, PRECISIONS)
        flag("engine.deterministic", self.deterministic)
        if device_name(self.device) != "cpu" and self.name not in ON_DEVICES:
            raise BadInput("device", self.device, f"{DEVICES} run on devices; choose one, or leave it out")
        if self.precision != "full" and self.name not in ON_DEVICES:
            raise BadInput("engine.precision", self.precision, f"is for {DEVICES}; choose one, or leave it out")
        if self.name == "ray" and (self.device in ("auto", "mps") or self.device.startswith("cuda:")):
            raise BadInput("device", self.device, "Ray hands out whole GPUs; use 'cuda' or 'cpu' with the engine 'ray'")

    def here(self) -> torch.device | None:
        """The device in this process; None if it has none and does not need one: Ray's GPUs are elsewhere."""
        try:
            return find_device(self.device)
        except BadInput:
            if self.name != "ray":
                raise
            return None


def engine_options(config: Config) -> dict[str, Any]:
    """What `[engine]` of a config means for `run`: the arguments that choose its engine."""
    given = config.engine
    return {
        "engine": given.name,
        "chunk": given.chunk,
        "workers": given.workers,
        "address": given.address,
        "factory": config.model_dump(mode="json") if given.name in WITH_WORKERS else None,
        "device": given.device,
        "precision": given.precision,
        "deterministic": given.deterministic,
    }


@dataclass(frozen=True)
class Task:
    """What is to be run: the algorithm, the rows as they are, who is hostile, the draws, and the fingerprint."""

    algorithm: Algorithm[Any]
    rows: Rows
    attack: Attack | None
    seed: int
    lost_replies: float
    fingerprint: str

    @property
    def trained(self) -> Rows:
        """The rows that clients train on: the hostile ones may have flipped the labels of theirs."""
        if self.attack is None:
            return self.rows
        hostile = self.attack.hostile(self.rows.count)
        return with_flipped_labels(self.rows, hostile) if self.attack.flips_labels else self.rows


@contextmanager
def opened(choice: EngineChoice, work: Task, warn: Callable[[str], None] = warnings.warn) -> Iterator[Clients]:
    """The engine; the workers that it started end with the context."""
    choice.check()
    if choice.name not in WITH_WORKERS:
        with deterministic_algorithms(choice.deterministic):
            yield _here(choice, work)
        return
    engine = _with_workers(choice, work, warn)
    try:
        with deterministic_algorithms(choice.deterministic):
            yield engine
    finally:
        engine.close()


def _here(choice: EngineChoice, work: Task) -> Clients:
    """An engine in this process: by name, or a user's own."""
    engine, problem = choice.engine, work.algorithm.problem
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
    if isinstance(engine, str):
        if (device := find_device(choice.device)).type != "cpu" or choice.precision != "full":
            if choice.workers is not None:
                remedy = f"are threads of the CPU; leave it out with device = {choice.device!r}, or use 'processes'"
                raise BadInput("engine.workers", choice.workers, remedy)
            found = device_engine(device, problem, work.trained, work.seed, choice.chunk)
            found.precision = choice.precision
            return found
        return make_engine(engine, problem, work.trained, work.seed, choice.chunk, choice.workers)
    if isinstance(engine, type) or not isinstance(engine, Clients):
        kind = engine.__name__ if isinstance(engine, type) else type(engine).__name__
        raise BadInput("engine", kind, f"give one of {', '.join(NAMES)}, or an object that inherits from fs.Clients")
    for key, value in (("chunk", choice.chunk), ("workers", choice.workers)):
        if value is not None:
            raise BadInput(f"engine.{key}", value, "is an option of the engines that have a name; leave it out")
    if engine.count != work.rows.count:
        raise BadInput("engine", f"{engine.count} clients", f"the data have {work.rows.count} clients")
    return engine


def _with_workers(choice: EngineChoice, work: Task, warn: Callable[[str], None]) -> Distributed:
    """An engine whose blocks run in other processes; they begin with the first exchange."""
    problem, name = work.algorithm.problem, choice.name
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
    count = None if choice.workers is None else whole("workers", choice.workers, most=MOST)
    rows, device = work.trained, choice.here()
    kind = torch.device(choice.device if device is None else device).type
    on_cpu = kind == "cpu" and choice.precision == "full"
    return Distributed(
        rows,
        work.seed,
        carrier=_ray(choice, work, count, warn) if name == "ray" else _processes(choice, work, count, warn),
        name=name,
        chunk=(chunk_for if on_cpu else partial(device_chunk, device))(problem, rows, choice.chunk),
        device=kind,
        precision=choice.precision,
    )


def _recipe(factory: str | Mapping[str, Any], work: Task, choice: EngineChoice, device: str) -> str:
    if type(work.algorithm).__module__ == "__main__":
        remedy = "is defined in the script that runs; workers cannot import it: move it to a module of its own"
        raise BadInput("algorithm", type(work.algorithm).__name__, remedy)
    attack = None if work.attack is None else asdict(work.attack)
    return Recipe(
        factory,
        work.seed,
        work.lost_replies,
        work.fingerprint,
        attack,
        device,
        choice.precision,
        choice.deterministic,
    ).to_json()


def _processes(choice: EngineChoice, work: Task, count: int | None, warn: Callable[[str], None]) -> Carrier:
    from fedsaddle.engines.worker_processes import WorkerProcesses
    from fedsaddle.engines.worker_starts import forker, spawner

    devices = shared_out(choice.device)
    there = devices != ["cpu"]
    if choice.factory is not None:
        start = spawner(SERVE, [_recipe(choice.factory, work, choice, device).encode() for device in devices])
    elif there:
        told = "workers on a device are new processes, which make the algorithm and the rows for themselves"
        raise BadInput("factory", None, f"{told}; {FACTORY}")
    elif torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise BadInput("factory", None, f"this process has used a GPU, which its forks cannot; {FACTORY}")
    elif sys.platform.startswith("linux"):
        start = forker(attacked_worker(work.algorithm, work.rows, work.attack, precision=choice.precision))
    else:
        raise BadInput("factory", None, f"on this system the engine 'processes' needs one; {FACTORY}")
    return WorkerProcesses(start, count or (len(devices) if there else cores()), warn)


def _ray(choice: EngineChoice, work: Task, count: int | None, warn: Callable[[str], None]) -> Carrier:
    from fedsaddle.engines.ray_workers import RayWorkers, require_ray

    address = "auto" if choice.address is None else text("engine.address", choice.address)
    if choice.factory is None:
        told = "the engine 'ray' needs one, since workers on other machines cannot see the objects of this process"
        raise BadInput("factory", None, f"{told}; {FACTORY}")
    require_ray()
    gpus = choice.device == "cuda"
    recipe = _recipe(choice.factory, work, choice, "cuda:0" if gpus else choice.device)
    return RayWorkers(BUILD, recipe, address, count, warn, gpus=gpus)
