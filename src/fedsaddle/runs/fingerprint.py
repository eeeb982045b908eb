"""Fingerprints that identify a run: a digest of algorithm, problem, starting point, data and seed."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle import __version__
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.data.store import ClientRows, Ints, Stacked
from fedsaddle.problems.models.frozen import fixed_tensors
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem

DIGEST = 64  # hex digits of a tensor's


def fingerprint(algorithm: Algorithm[Any], rows: ClientRows, seed: int, lost_replies: float = 0.0) -> str:
    """Sixteen hex digits that differ if anything that affects the trajectory differs."""
    return _fingerprint(algorithm, rows.sizes, _row_digests(rows), rows.positives, seed, lost_replies)


def remote_fingerprint(
    algorithm: Algorithm[Any], sizes: Ints, positives: float | None, seed: int, lost_replies: float
) -> str:
    """The fingerprint of a deployed run; of the rows it includes the sizes only."""
    return _fingerprint(algorithm, sizes, [], positives, seed, lost_replies)


def _fingerprint(
    algorithm: Algorithm[Any], sizes: Ints, rows: list[str], positives: float | None, seed: int, lost_replies: float
) -> str:
    content = {
        "algorithm": to_plain(algorithm),
        "start": to_plain(_start(algorithm)),
        "clients": digest(torch.from_numpy(np.ascontiguousarray(sizes, dtype=np.int64))),
        "rows": rows,
        "positives": positives,
        "seed": int(seed),
        "lost_replies": float(lost_replies),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def _start(algorithm: Algorithm[Any]) -> Tensor | tuple[Tensor, Tensor]:
    problem = algorithm.problem
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)
    return problem.initial()


def _row_digests(rows: ClientRows) -> list[str]:
    """Digests of all targets and of about 256 feature rows; none for lazy rows."""
    if not isinstance(rows, Stacked):
        return []
    return [digest(rows.y), digest(rows.x[:: max(1, len(rows.x) // 256)])]


def digest(v: Tensor) -> str:
    """The SHA-256 of a tensor's type and bytes."""
    return hashlib.sha256(str(v.dtype).encode() + v.detach().contiguous().numpy().tobytes()).hexdigest()


def to_plain(thing: Any) -> Any:
    """A value as plain JSON: dataclasses by name and fields, modules by their `repr`, functions by their name."""
    if isinstance(thing, Tensor):
        return digest(thing)
    if isinstance(thing, nn.Module):
        fixed = {name: digest(v) for name, v in sorted(fixed_tensors(thing).items())}  # what no message carries
        return [repr(thing), fixed] if fixed else repr(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        values = {f.name: to_plain(getattr(thing, f.name)) for f in fields(thing) if f.init}
        return {"": type(thing).__name__, **values}
    if isinstance(thing, list | tuple):
        return [to_plain(t) for t in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return getattr(thing, "__qualname__", type(thing).__qualname__)


TRAINING_ONLY = ("model", "l2", "l2_biases", "compiled", "clip", "trimmed", "hardest")  # not in the loss of a row


def measured_loss(problem: object) -> str:
    """What the loss of a run's figures is: the problem and its options, without the model and penalties.

    Two runs with the same text have losses that can be compared.
    """
    if not is_dataclass(problem) or isinstance(problem, type):
        return type(problem).__name__
    return _as_call({k: v for k, v in to_plain(problem).items() if k not in TRAINING_ONLY})


def _as_call(thing: Any) -> str:
    """Plain JSON of `to_plain` as text, such as "Supervised(loss=Logistic())"."""
    if isinstance(thing, list):
        return f"[{', '.join(map(_as_call, thing))}]"
    if not isinstance(thing, dict):
        return thing[:16] if isinstance(thing, str) and len(thing) == DIGEST else str(thing)
    named = ", ".join(f"{key}={_as_call(value)}" for key, value in thing.items() if key)
    return f"{thing.get('', '')}({named})"


def versions() -> str:
    """The versions that decide about the bits of a task; builds for other devices count as the same version."""
    found = {"fedsaddle": __version__, "torch": torch.__version__.partition("+")[0], "numpy": np.__version__}
    return ", ".join(f"{name} {version}" for name, version in found.items())


def shared_fingerprint(algorithm: Algorithm[Any], count: int, seed: int) -> str:
    """The fingerprint that server and sites compare before a run: everything that affects a task except the rows."""
    content = {
        "versions": versions(),
        "algorithm": to_plain(algorithm),
        "start": to_plain(_start(algorithm)),
        "clients": count,
        "seed": int(seed),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
