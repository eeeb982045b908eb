"""Fingerprints that identify a run: a digest of algorithm, problem, starting point, data and seed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle import __version__
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.data.store import ClientRows, Ints, Lazy, Stacked
from fedsaddle.problems.models.frozen import fixed_tensors
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem

DIGEST = 64  # hex digits of a tensor's
LAZY_CLIENTS = 8  # of lazy rows, whose rows are compared: loading all of them may take hours
_SHORT = 40  # characters of a value that a message can show


@dataclass(frozen=True)
class Identity:
    """The fingerprint of a run, and a digest of each part of it, so that a message can name the part that differs."""

    fingerprint: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        algorithm: Algorithm[Any],
        train: ClientRows,
        held_out: Mapping[str, Stacked | None],
        seed: int,
        lost_replies: float = 0.0,
    ) -> Identity:
        """Of a simulated run. Held-out rows do not affect the trajectory, but they affect its figures."""
        rows = _row_digests(train)
        mark = _fingerprint(algorithm, train.sizes, rows, train.positives, seed, lost_replies)
        found = _named("algorithm", to_plain(algorithm)) | _named("problem", to_plain(algorithm.problem))
        found.pop("algorithm.problem", None)
        found["starting model"] = _value(to_plain(_start(algorithm)))
        found["rows of each client"] = digest(torch.from_numpy(np.ascontiguousarray(train.sizes, dtype=np.int64)))
        found |= dict(zip(("training labels", "training features"), rows, strict=True))
        for part, held in held_out.items():
            if held is not None:
                found[f"{part} rows of each client"] = digest(torch.from_numpy(held.offsets))
                found |= {f"{part} labels": digest(held.y), f"{part} features": digest(held.x)}
        return cls(mark, found | {"seed": str(int(seed)), "lost_replies": str(float(lost_replies))})

    def differences(self, stored: Mapping[str, str]) -> list[str]:
        """In which parts a stored run differs, such as "test labels" or "seed = 1 there, 0 here"."""
        found = []
        for name in self.parts.keys() | stored.keys():
            now, before = self.parts.get(name, "none"), stored.get(name, "none")
            if now != before:
                readable = max(len(now), len(before)) <= _SHORT
                found.append(f"{name} = {before} there, {now} here" if readable else name)
        return sorted(found)


def _named(key: str, plain: Any) -> dict[str, str]:
    if not isinstance(plain, dict):
        return {key: _value(plain)}
    return {f"{key}.{k}" if k else key: _value(v) for k, v in plain.items()}


def _value(plain: Any) -> str:
    """A short value as it is, any other as a digest."""
    text = plain if isinstance(plain, str) else json.dumps(plain, sort_keys=True)
    return text if len(text) <= _SHORT else hashlib.sha256(text.encode()).hexdigest()


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
    """Digests of all labels and all features; of lazy rows, those of a few clients."""
    if isinstance(rows, Stacked):
        return [digest(rows.y), digest(rows.x)]
    if not isinstance(rows, Lazy):
        return ["", ""]
    some = np.unique(np.linspace(0, rows.count - 1, LAZY_CLIENTS).astype(np.int64))
    both = [rows.client(int(i)) for i in some]
    return [hashlib.sha256("".join(map(digest, each)).encode()).hexdigest() for each in zip(*both, strict=True)][::-1]


def digest(v: Tensor) -> str:
    """The SHA-256 of a tensor's type, shape and bytes."""
    found = hashlib.sha256(f"{v.dtype}{tuple(v.shape)}".encode())
    found.update(v.detach().contiguous().numpy().reshape(-1).view(np.uint8).data)
    return found.hexdigest()


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
