"""The choice of engine, chunk and workers by a deterministic rule from the model and the machine.

The chunk affects the rounding of sums. It must not depend on measured times, or a resumed run would differ.
"""

from __future__ import annotations

import ctypes
import sys

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import did_you_mean, whole
from fedsaddle.data.store import ClientRows
from fedsaddle.engines.device import ROOM, free_bytes
from fedsaddle.engines.simulated import DeviceEngine, SerialEngine, VectorisedEngine
from fedsaddle.errors import BadInput
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.modules import quick_alone, step_numbers
from fedsaddle.numerics.tensors import ScoresCohorts
from fedsaddle.problems.protocols import HasModel, MinimaxProblem, MinimisationProblem
from fedsaddle.processes import thread_budget

CACHE_BYTES = 32 << 20  # models and batches of a chunk should fit into the caches of common machines
PARAMETERS = 200_000  # of a chunk: enough to keep a thread busy, and few enough that all threads have chunks
FEWEST_CLIENTS = 5  # per chunk of models that are larger
BUSY = 50_000  # parameters of a chunk; steps of fewer are shorter than threads take to make way for each other
BATCH_ROWS = 64  # a typical batch
MAX_CLIENTS = 64  # per chunk; more are no faster
MEMORY_BYTES = 1 << 30  # for the rows of a chunk
COPIES = 32  # of a client's model and batch that a step may hold on a device: gradients, states, layers' outputs
ELSEWHERE = 8 << 30  # free memory of a device that is not here, as on Ray whose head has no GPU

Engine = SerialEngine | VectorisedEngine
Objective = MinimisationProblem | MinimaxProblem  # a problem with a starting point


def make_engine(
    name: str, problem: Objective, rows: ClientRows, seed: int, chunk: int | None = None, workers: int | None = None
) -> Engine:
    """The engine of that name; `chunk` and `workers` default to `chunk_and_workers`."""
    if name == "serial":
        for key, value in (("chunk", chunk), ("workers", workers)):
            if value is not None:
                raise BadInput(f"engine.{key}", value, "the serial engine has no such option; leave it out")
        return SerialEngine(rows, seed)
    if name != "vectorised":
        names = ("vectorised", "processes", "ray", "serial")
        hint = "is for `fedsaddle run`; here " if name == "nvflare" else did_you_mean(name, names)
        raise BadInput("engine", name, f"{hint}choose one of {', '.join(names)}")
    if workers is not None:
        whole("workers", workers, most=1 << 20)
    keep_freed_memory()
    size, by_rule = chunk_for(problem, rows, chunk), chunk_and_workers(problem, rows)[1]
    return VectorisedEngine(rows, seed, chunk=size, workers=by_rule if workers is None else workers)


def device_engine(
    device: torch.device, problem: Objective, rows: ClientRows, seed: int, chunk: int | None
) -> DeviceEngine:
    """The vectorised engine on a device; by default as many clients take a step together as its free memory holds."""
    return DeviceEngine(rows, seed, device=device, chunk=device_chunk(device, problem, rows, chunk))


def device_chunk(device: torch.device | None, problem: Objective, rows: ClientRows, chunk: int | None) -> int:
    """The given chunk, or as many clients as the device's free memory holds; None: the device is missing."""
    if chunk is not None:
        return chunk_for(problem, rows, chunk)
    x = _first_rows(rows)
    if not _takes_cohorts(problem, x):
        return 1
    client_bytes = COPIES * sum(_sizes(problem, x)[1:]) + 4 * _gate_bytes(problem, x)
    free = ELSEWHERE if device is None else free_bytes(device)
    return MAX_CLIENTS if free is None else int(max(1, min(MAX_CLIENTS, ROOM * free // client_bytes)))


def chunk_for(problem: Objective, rows: ClientRows, chunk: int | None) -> int:
    """The given chunk, or by default that of `chunk_and_workers`."""
    if chunk is None:
        return chunk_and_workers(problem, rows)[0]
    whole("chunk", chunk, most=1 << 20)
    return chunk


def chunk_and_workers(problem: Objective, rows: ClientRows) -> tuple[int, int]:
    """The default chunk, from the model and the rows alone, and the default workers of the vectorised engine.

    Convolutions are bound by arithmetic, LSTM in float32 has a kernel of its own, and what `torch.func.vmap` cannot
    take runs one client at a time: these get one client per chunk. Small models are faster with many clients per step,
    as long as their models and batches fit into the caches and their rows into memory. Chunks run on as many threads as
    torch has, but for the smallest models, which are quicker on one.
    """
    model = problem.model if isinstance(problem, HasModel) else None
    threads = 1 if rows.count == 1 else thread_budget()  # a client alone has torch's own threads
    if model is not None and quick_alone(model):
        return 1, threads
    x = _first_rows(rows)
    if not _takes_cohorts(problem, x):
        return 1, threads
    model_entries, model_bytes, batch_bytes = _sizes(problem, x)
    row_bytes = batch_bytes // BATCH_ROWS
    by_cache = CACHE_BYTES // (model_bytes + batch_bytes + _gate_bytes(problem, x))
    by_memory = MEMORY_BYTES // (row_bytes * int(rows.sizes.max()))
    by_work = max(FEWEST_CLIENTS, PARAMETERS // model_entries)
    size = int(max(1, min(by_cache, by_memory, by_work, MAX_CLIENTS)))
    return size, min(threads, -(-rows.count // size)) if size * model_entries >= BUSY else 1


def _first_rows(rows: ClientRows) -> Tensor:
    """Two rows of the first client, or its only one twice, `(1, 2, ...)`."""
    first = np.zeros(1, dtype=np.int64)
    return rows.gather(first, np.array([[0, min(1, int(rows.sizes[0]) - 1)]], dtype=np.int64))[0]


def _takes_cohorts(problem: Objective, x: Tensor) -> bool:
    flat = getattr(problem, "flat", None)
    return not isinstance(flat, FlatModel) or flat.takes_cohorts(x)


def _sizes(problem: Objective, x: Tensor) -> tuple[int, int, int]:
    """Entries and bytes of a model, and bytes of a typical batch."""
    start: Tensor | tuple[Tensor, ...] = problem.initial()
    parts = start if isinstance(start, tuple) else (start,)
    entries, size = sum(v.numel() for v in parts), sum(v.numel() * v.element_size() for v in parts)
    return entries, size, BATCH_ROWS * max(1, x[0, 0].numel() * x.element_size())


def _gate_bytes(problem: Objective, x: Tensor) -> int:
    """Bytes that recurrent layers keep of a typical batch for the backward pass; 0 without any."""
    model = problem.model if isinstance(problem, HasModel) else None
    if model is None or isinstance(model, ScoresCohorts):
        return 0
    steps = x.shape[2] if x.ndim > 2 else 1
    return 4 * BATCH_ROWS * steps * step_numbers(model)


def keep_freed_memory() -> None:
    """Make glibc keep large freed blocks; returning them and faulting them in again costs up to half the time."""
    if sys.platform.startswith("linux"):
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every libc
        if mallopt is not None:
            mallopt(-3, 1 << 30)  # M_MMAP_THRESHOLD
            mallopt(-1, (1 << 31) - 1)  # M_TRIM_THRESHOLD
