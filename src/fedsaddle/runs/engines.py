"""The engine of a run: settings that open it, a name, or a user's own object; its workers end with the run."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import torch

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.arguments import choice, did_you_mean, flag, text, whole
from fedsaddle.data.store import Rows
from fedsaddle.engines.choose import Objective, chunk_for, device_chunk, device_engine, make_engine
from fedsaddle.engines.device import CPU, deterministic_algorithms, device_name, find_device, shared_out
from fedsaddle.engines.workers import Carrier, Distributed
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.files import Json
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.processes import cores
from fedsaddle.robust.attacks import Attack, with_flipped_labels
from fedsaddle.runs.worker import FACTORY, WorkerRecipe, attacked_worker, build_worker, check_factory

SERVE, BUILD = "fedsaddle.runs.worker", f"{build_worker.__module__}:{build_worker.__name__}"
MOST = 1 << 20
PRECISIONS = ("full", "bf16")
Warn = Callable[[str], None]


@dataclass(frozen=True)
class EngineJob:
    """What is to be run: the algorithm, the rows as they are, who is hostile, the draws, and the fingerprint."""

    algorithm: AnyAlgorithm
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

    @property
    def problem(self) -> Objective:
        """The problem, with a starting point."""
        problem = self.algorithm.problem
        assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
        return problem


@dataclass(frozen=True, kw_only=True)
class EngineSettings(ABC):
    """Which engine a run has, and its options."""

    deterministic: bool = False
    name: ClassVar[str]

    def __post_init__(self) -> None:
        flag("deterministic", self.deterministic)

    @contextmanager
    def open(self, job: EngineJob, warn: Warn) -> Iterator[Clients]:
        """The engine; the workers that it started end with the context."""
        engine = self.engine(job, warn)
        try:
            with deterministic_algorithms(self.deterministic):
                yield engine
        finally:
            if isinstance(engine, Distributed):
                engine.close()

    @abstractmethod
    def engine(self, job: EngineJob, warn: Warn) -> Clients:
        """The engine, whose workers begin with the first exchange."""

    def in_process(self) -> EngineSettings:
        """The settings of an engine in this process that computes the same, in place of one with workers."""
        return self

    def evaluation_device(self) -> torch.device:
        """Where this process evaluates."""
        return CPU


@dataclass(frozen=True, kw_only=True)
class Serial(EngineSettings):
    """One client after the other, in this process: the slow reference.

    Args:
        deterministic: refuse operations of torch whose bits may differ from run to run.

    Raises:
        BadInput: if a value is invalid, with its name.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Serial().name
        'serial'
    """

    name: ClassVar[str] = "serial"

    def engine(self, job: EngineJob, warn: Warn) -> Clients:
        """The serial engine."""
        return make_engine("serial", job.problem, job.trained, job.seed)


@dataclass(frozen=True, kw_only=True)
class _Blocks(EngineSettings):
    """Options of the engines that run blocks of clients."""

    chunk: int | None = None
    workers: int | None = None
    device: str = "cpu"
    precision: str = "full"

    def __post_init__(self) -> None:
        super().__post_init__()
        for key in ("chunk", "workers"):
            if (value := getattr(self, key)) is not None:
                whole(key, value, most=MOST)
        device_name(self.device)
        choice("precision", self.precision, PRECISIONS)

    def here(self) -> torch.device | None:
        """The device in this process; None if it has none and does not need one."""
        return find_device(self.device)

    def evaluation_device(self) -> torch.device:
        """The engine's device, or the CPU if this process does not have it."""
        return self.here() or CPU

    def in_process(self) -> EngineSettings:
        """The vectorised engine, with the same blocks."""
        return Vectorised(
            chunk=self.chunk,
            device=str(self.evaluation_device()),
            precision=self.precision,
            deterministic=self.deterministic,
        )


@dataclass(frozen=True, kw_only=True)
class Vectorised(_Blocks):
    """Many clients take each local step together, on this machine's cores or a device.

    Args:
        chunk: clients that take a step together; None: by a rule from the model and the rows.
        workers: threads; None: by the same rule. For `device="cpu"` and full precision only.
        device: where clients' tasks run: "cpu", "auto", "cuda", "cuda:1" or "mps".
        precision: "full", or "bf16": the network's layers compute in bfloat16.
        deterministic: refuse operations of torch whose bits may differ from run to run.

    Raises:
        BadInput: if a value is invalid, with its name.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Vectorised(chunk=10, workers=2).device
        'cpu'
    """

    name: ClassVar[str] = "vectorised"

    def engine(self, job: EngineJob, warn: Warn) -> Clients:
        """The vectorised engine, on the CPU or a device."""
        if (device := find_device(self.device)).type == "cpu" and self.precision == "full":
            return make_engine(self.name, job.problem, job.trained, job.seed, self.chunk, self.workers)
        if self.workers is not None:
            remedy = f"are threads of the CPU; leave it out with device = {self.device!r}, or use 'processes'"
            raise BadInput("engine.workers", self.workers, remedy)
        engine = device_engine(device, job.problem, job.trained, job.seed, self.chunk)
        engine.precision = self.precision
        return engine

    def in_process(self) -> EngineSettings:
        """The same."""
        return self


@dataclass(frozen=True, kw_only=True)
class _Workers(_Blocks):
    """Options of the engines whose blocks run in other processes."""

    factory: str | Mapping[str, Json] | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.factory is not None:
            check_factory(self.factory)

    def engine(self, job: EngineJob, warn: Warn) -> Clients:
        """The engine, whose workers begin with the first exchange."""
        rows, device = job.trained, self.here()
        kind = torch.device(self.device if device is None else device).type
        on_cpu = kind == "cpu" and self.precision == "full"
        return Distributed(
            rows,
            job.seed,
            carrier=self._carrier(job, warn),
            name=self.name,
            chunk=(chunk_for if on_cpu else partial(device_chunk, device))(job.problem, rows, self.chunk),
            device=kind,
            precision=self.precision,
        )

    @abstractmethod
    def _carrier(self, job: EngineJob, warn: Warn) -> Carrier:
        """The carrier of blocks to workers."""

    def _recipe(self, factory: str | Mapping[str, Json], job: EngineJob, device: str) -> str:
        if type(job.algorithm).__module__ == "__main__":
            remedy = "is defined in the script that runs; workers cannot import it: move it to a module of its own"
            raise BadInput("algorithm", type(job.algorithm).__name__, remedy)
        attack = None if job.attack is None else asdict(job.attack)
        return WorkerRecipe(
            factory,
            job.seed,
            job.lost_replies,
            job.fingerprint,
            attack,
            device,
            self.precision,
            self.deterministic,
        ).to_json()


@dataclass(frozen=True, kw_only=True)
class Processes(_Workers):
    """Worker processes on this machine.

    Args:
        workers: processes; None: one for each core, or each GPU.
        factory: how workers make their own algorithm and rows: "module:function", which returns the algorithm and the
            data, or a config as a dictionary. On Linux, without a device, workers share those of this process instead.
        chunk: clients that take a step together; None: by a rule from the model and the rows.
        device: where clients' tasks run: "cpu", "auto", "cuda:1", "mps", or "cuda": every GPU, one for each worker.
        precision: "full", or "bf16": the network's layers compute in bfloat16.
        deterministic: refuse operations of torch whose bits may differ from run to run.

    Raises:
        BadInput: if a value is invalid, with its name.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Processes(workers=4).name
        'processes'
    """

    name: ClassVar[str] = "processes"

    def _carrier(self, job: EngineJob, warn: Warn) -> Carrier:
        from fedsaddle.engines.processes import WorkerProcesses, forker, spawner

        devices = shared_out(self.device)
        there = devices != ["cpu"]
        if self.factory is not None:
            start = spawner(SERVE, [self._recipe(self.factory, job, device).encode() for device in devices])
        elif there:
            told = "workers on a device are new processes, which make the algorithm and the rows for themselves"
            raise BadInput("factory", None, f"{told}; {FACTORY}")
        elif torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            raise BadInput("factory", None, f"this process has used a GPU, which its forks cannot; {FACTORY}")
        elif sys.platform.startswith("linux"):
            start = forker(attacked_worker(job.algorithm, job.rows, job.attack, precision=self.precision))
        else:
            raise BadInput("factory", None, f"on this system the engine 'processes' needs one; {FACTORY}")
        return WorkerProcesses(start, self.workers or (len(devices) if there else cores()), warn)


@dataclass(frozen=True, kw_only=True)
class Ray(_Workers):
    """Workers on many machines, with Ray.

    Args:
        address: of a Ray cluster: "auto", one that runs here, else a new one; "local", a new one; or "host:port".
        workers: how many; None: one for each CPU, or GPU, of the cluster.
        factory: how workers make their own algorithm and rows: "module:function", which returns the algorithm and the
            data, or a config as a dictionary.
        chunk: clients that take a step together; None: by a rule from the model and the rows.
        device: "cpu", or "cuda": every GPU, one for each worker.
        precision: "full", or "bf16": the network's layers compute in bfloat16.
        deterministic: refuse operations of torch whose bits may differ from run to run.

    Raises:
        BadInput: if a value is invalid, with its name.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Ray(workers=8, factory="hospital:make").address
        'auto'
    """

    address: str = "auto"
    name: ClassVar[str] = "ray"

    def __post_init__(self) -> None:
        super().__post_init__()
        text("address", self.address)
        if self.device in ("auto", "mps") or self.device.startswith("cuda:"):
            raise BadInput("device", self.device, "Ray hands out whole GPUs; use 'cuda' or 'cpu' with the engine 'ray'")

    def here(self) -> torch.device | None:
        """The device in this process; None if it has none: Ray's GPUs are elsewhere."""
        try:
            return find_device(self.device)
        except BadInput:
            return None

    def _carrier(self, job: EngineJob, warn: Warn) -> Carrier:
        from fedsaddle.engines.ray_workers import RayWorkers, require_ray

        if self.factory is None:
            told = "the engine 'ray' needs one, since workers on other machines cannot see the objects of this process"
            raise BadInput("factory", None, f"{told}; {FACTORY}")
        require_ray()
        gpus = self.device == "cuda"
        recipe = self._recipe(self.factory, job, "cuda:0" if gpus else self.device)
        return RayWorkers(BUILD, recipe, self.address, self.workers, warn, gpus=gpus)


@dataclass(frozen=True, kw_only=True)
class OwnEngine(EngineSettings):
    """A user's own engine."""

    clients: Clients

    def engine(self, job: EngineJob, warn: Warn) -> Clients:
        """The same object."""
        if self.clients.count != job.rows.count:
            raise BadInput("engine", f"{self.clients.count} clients", f"the data have {job.rows.count} clients")
        return self.clients


ENGINES: dict[str, type[EngineSettings]] = {kind.name: kind for kind in (Vectorised, Processes, Ray, Serial)}


def engine_settings(engine: object) -> EngineSettings:
    """The settings that a user means: settings, the name of an engine, or an engine.

    Raises:
        BadInput: if it is none of these.
    """
    if isinstance(engine, EngineSettings):
        return engine
    if isinstance(engine, str):
        if engine not in ENGINES:
            hint = "is for `fedsaddle run`; here " if engine == "nvflare" else did_you_mean(engine, ENGINES)
            raise BadInput("engine", engine, f"{hint}choose one of {', '.join(ENGINES)}")
        return ENGINES[engine]()
    if isinstance(engine, type) or not isinstance(engine, Clients):
        kind = engine.__name__ if isinstance(engine, type) else type(engine).__name__
        remedy = "settings such as fs.Processes(workers=4), or an object that inherits from fs.Clients"
        raise BadInput("engine", kind, f"give one of {', '.join(ENGINES)}, {remedy}")
    return OwnEngine(clients=engine)
