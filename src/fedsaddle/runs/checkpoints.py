"""Checkpoints of a run, written atomically: the fingerprint by which one belongs to a run, and what changed since."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from fedsaddle import __version__
from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.array_types import Ints
from fedsaddle.data.store import ClientRows, Lazy, Stacked
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadCheckpoint
from fedsaddle.files import Json, JsonObject, disk_failures, read_object, write_atomically, write_json
from fedsaddle.own_code import OURS, file_digest, loaded_files, named_packages
from fedsaddle.problems.models.transfer import fixed_tensors
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.text import visible

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

DIGEST = 64  # hex digits of a tensor's
LAZY_CLIENTS = 8  # of lazy rows, whose rows are compared: loading all of them may take hours
_SHORT = 40  # characters of a value that a message can show


@dataclass(frozen=True)
class RunIdentity:
    """The fingerprint of a run, and a digest of each part of it, so that a message can name the part that differs."""

    fingerprint: str
    parts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        algorithm: AnyAlgorithm,
        train: ClientRows,
        held_out: Mapping[str, Stacked | None],
        seed: int,
        lost_replies: float = 0.0,
    ) -> RunIdentity:
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


def _named(key: str, plain: Json) -> dict[str, str]:
    if not isinstance(plain, dict):
        return {key: _value(plain)}
    return {f"{key}.{k}" if k else key: _value(v) for k, v in plain.items()}


def _value(plain: Json) -> str:
    """A short value itself, any other as a digest."""
    text = plain if isinstance(plain, str) else json.dumps(plain, sort_keys=True)
    return text if len(text) <= _SHORT else hashlib.sha256(text.encode()).hexdigest()


def fingerprint(algorithm: AnyAlgorithm, rows: ClientRows, seed: int, lost_replies: float = 0.0) -> str:
    """Sixteen hex digits that differ if anything that affects the trajectory differs."""
    return _fingerprint(algorithm, rows.sizes, _row_digests(rows), rows.positives, seed, lost_replies)


def remote_fingerprint(
    algorithm: AnyAlgorithm, sizes: Ints, positives: float | None, seed: int, lost_replies: float
) -> str:
    """The fingerprint of a deployed run; of the rows it includes the sizes only."""
    return _fingerprint(algorithm, sizes, [], positives, seed, lost_replies)


def _fingerprint(
    algorithm: AnyAlgorithm, sizes: Ints, rows: list[str], positives: float | None, seed: int, lost_replies: float
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


def _start(algorithm: AnyAlgorithm) -> Tensor | tuple[Tensor, Tensor]:
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


def to_plain(thing: object) -> Json:
    """A value as plain JSON: dataclasses by name and fields, modules by their `repr`, functions by their name."""
    if isinstance(thing, Tensor):
        return digest(thing)
    if isinstance(thing, nn.Module):
        fixed = {name: digest(v) for name, v in sorted(fixed_tensors(thing).items())}  # what no message carries
        return [repr(thing), fixed] if fixed else repr(thing)
    if is_dataclass(thing) and not isinstance(thing, type):
        return {"": type(thing).__name__, **_plain_fields(thing)}
    if isinstance(thing, list | tuple):
        return [to_plain(t) for t in thing]
    if thing is None or isinstance(thing, bool | int | float | str):
        return thing
    return str(getattr(thing, "__qualname__", type(thing).__qualname__))


def _plain_fields(thing: DataclassInstance) -> dict[str, Json]:
    used = [f.name for f in fields(thing) if f.init and f.metadata.get("fingerprint", True)]
    return {name: to_plain(getattr(thing, name)) for name in used}


TRAINING_ONLY = ("model", "l2", "l2_biases", "compiled", "clip", "trimmed", "hardest")  # not in the loss of a row


def measured_loss(problem: object) -> str:
    """What the loss of a run's figures is: the problem and its options, without the model and penalties.

    Two runs with the same text have losses that can be compared.
    """
    if not is_dataclass(problem) or isinstance(problem, type):
        return type(problem).__name__
    own = {key: value for key, value in _plain_fields(problem).items() if key not in TRAINING_ONLY}
    return _as_call({"": type(problem).__name__, **own})


def _as_call(thing: Json) -> str:
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


def shared_fingerprint(algorithm: AnyAlgorithm, count: int, seed: int) -> str:
    """The fingerprint that server and sites compare before a run: everything that affects a task except the rows."""
    content = {
        "versions": versions(),
        "algorithm": to_plain(algorithm),
        "start": to_plain(_start(algorithm)),
        "clients": count,
        "seed": int(seed),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


FORMAT = 3
S = TypeVar("S", bound="DataclassInstance")


def to_safetensors(tensors: Mapping[str, Tensor]) -> bytes:
    """Encode tensors as safetensors; tensors that share memory, which it does not allow, are copied."""
    storages: set[int] = set()
    separate: dict[str, Tensor] = {}
    for name, value in tensors.items():
        kept = value.detach().contiguous()
        storage = kept.untyped_storage().data_ptr()
        separate[name] = kept.clone() if storage in storages else kept
        storages.add(storage)
    return save_tensors(separate)


@dataclass(frozen=True)
class Checkpoint:
    """A run after some rounds: the server's state, the clients' state, the totals so far, the best model so far."""

    rounds: int
    server: Mapping[str, Tensor | Json]  # the fields of its state
    memory: dict[int, dict[str, Tensor]]
    notes: JsonObject
    selected: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run; damaged ones and those of other runs are refused."""

    path: Path
    identity: RunIdentity
    keep: int = 2

    def save(
        self,
        rounds: int,
        server: DataclassInstance,
        memory: Mapping[int, DataclassInstance],
        notes: JsonObject,
        selected: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write a checkpoint, and delete all but the last `keep`."""
        with disk_failures(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        tensors = {f"server.{k}": v for k, v in _fields(server).items() if isinstance(v, Tensor)}
        numbers = {k: v for k, v in _fields(server).items() if not isinstance(v, Tensor)}
        for client, record in memory.items():
            tensors |= {f"own.{client}.{k}": v for k, v in _fields(record).items() if isinstance(v, Tensor)}
        tensors |= {f"selected.{k}": v for k, v in (selected or {}).items()}
        content = to_safetensors(tensors)
        stem = self.path / f"{rounds:08d}"
        write_atomically(stem.with_suffix(".safetensors"), content)
        about = {
            "format": FORMAT,
            "fingerprint": self.identity.fingerprint,
            "parts": dict(self.identity.parts),
            "rounds": rounds,
            "server": numbers,
            "notes": notes,
        }
        write_json(stem.with_suffix(".json"), {**about, "sha256": _checksum(about, content)})
        for old in sorted(p for p in self.path.glob("*.json") if p.stem <= stem.name)[: -self.keep]:
            old.unlink(missing_ok=True)
            old.with_suffix(".safetensors").unlink(missing_ok=True)

    def newest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest valid checkpoint and, for each newer one that was refused, the reason."""
        refused: list[str] = []
        for about in sorted(self.path.glob("*.json"), reverse=True):
            try:
                return self.read(about), refused
            except BadCheckpoint as reason:
                refused.append(str(reason))
        if refused:
            raise BadCheckpoint(f"no checkpoint in {self.path} is usable: " + "; ".join(refused))
        return None, refused

    def read(self, about: Path) -> Checkpoint:
        """Read and verify one checkpoint."""
        try:
            header = json.loads(about.read_text())
            content = about.with_suffix(".safetensors").read_bytes()
            if header["format"] != FORMAT:
                raise BadCheckpoint(f"{about.name} has format {header['format']}; this version reads {FORMAT}")
            if _checksum(header, content) != header["sha256"]:
                raise BadCheckpoint(f"{about.name} or its .safetensors is damaged (the checksum differs)")
            differences = self.identity.differences(header["parts"])
            if differences or header["fingerprint"] != self.identity.fingerprint:
                which = ", ".join(differences) or "data, model, algorithm or seed"
                raise BadCheckpoint(f"{about.name} belongs to another run (different: {which})")
            tensors = load_tensors(content)
            rounds, server, notes = header["rounds"], dict(header["server"]), header["notes"]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError, SafetensorError) as reason:
            raise BadCheckpoint(f"{about.name} is damaged ({type(reason).__name__}: {reason})") from reason
        memory: dict[int, dict[str, Tensor]] = {}
        selected: dict[str, Tensor] = {}
        for key, value in tensors.items():
            owner, _, name = key.partition(".")
            if owner == "server":
                server[name] = value
            elif owner == "selected":
                selected[name] = value
            else:
                client, _, name = name.partition(".")
                memory.setdefault(int(client), {})[name] = value
        return Checkpoint(rounds, server, memory, notes, selected)


def restore_record(template: S, values: Mapping[str, Tensor | Json]) -> S:
    """Restore a record of the template's type from the stored values."""
    known = {f.name for f in fields(template)}
    if known != set(values):
        raise BadCheckpoint(f"the checkpoint is of another version: it has {sorted(values)}, expected {sorted(known)}")
    return replace(template, **values)


def _checksum(about: JsonObject, content: bytes) -> str:
    """The SHA-256 of the tensors and of the header without its own checksum."""
    header = {k: v for k, v in about.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + content).hexdigest()


def _fields(record: DataclassInstance) -> dict[str, object]:
    return {f.name: getattr(record, f.name) for f in fields(record)}


_INSTALLED = {"site-packages", "dist-packages"}  # folders of libraries
_DEEPEST = 8  # objects in objects


def note_code(folder: RunFiles, *things: object) -> list[str]:
    """Record the files that define the classes of these objects; return warnings of those that have changed since.

    Own code is that of packages named in a config, and whatever lies outside of the installed libraries; of scripts
    (`__main__`), which change when a run is resumed, nothing is noted.
    """
    files = {name: path for package in sorted(own_packages(*things)) for name, path in loaded_files(package).items()}
    if not files:
        return []
    try:
        before = read_object(folder.code)
    except ValueError:
        before = {}
    warnings, known = [], {name: [str(d) for d in used] for name, used in before.items() if isinstance(used, list)}
    for name, path in files.items():
        digest, used = file_digest(path), known.setdefault(name, [])
        if used and used[-1] != digest:
            told = f"{visible(path)} has changed since the run began; its later rounds are computed by other code"
            warnings.append(f"{told}: run it anew, unless you know that the change does not matter")
        if not used or used[-1] != digest:
            used.append(digest)
    write_json(folder.code, known)
    return warnings


def own_packages(*things: object) -> set[str]:
    """The packages that these objects, and what they hold, are of, without ours and the installed libraries."""
    found = {type(part).__module__.partition(".")[0] for thing in things for part in _parts(thing, _DEEPEST)}
    others = {OURS, "torch", "__main__", *sys.stdlib_module_names}
    return {package for package in found - others if package in named_packages() or not _installed(package)}


def _installed(package: str) -> bool:
    file = getattr(sys.modules.get(package), "__file__", None)
    return file is None or bool(_INSTALLED & set(Path(file).parts))


def _parts(thing: object, deep: int) -> Iterator[object]:
    """The object, and those in its fields."""
    yield thing
    if deep == 0:
        return
    inner: list[object] = []
    if isinstance(thing, nn.Module):
        yield from thing.modules()
    elif is_dataclass(thing) and not isinstance(thing, type):
        inner = [getattr(thing, each.name, None) for each in fields(thing)]
    elif isinstance(thing, list | tuple):
        inner = list(thing[:100])
    for part in inner:
        yield from _parts(part, deep - 1)


BLOCKS = ("vectorised", "processes", "ray")  # engines that round alike: blocks of `chunk` clients, in cohort order


def rounding_of(settings: Mapping[str, Json]) -> dict[str, Json]:
    """What of an engine's settings rounds sums: the number of workers does not, nor which engine runs the blocks."""
    kept = {key: value for key, value in settings.items() if key not in ("workers", "device")}
    return {**kept, "name": BLOCKS[0]} if kept.get("name") in BLOCKS else kept


def on_another_device(before: Mapping[str, Json], now: Mapping[str, Json]) -> list[str]:
    """A warning about a checkpoint of another kind of device."""
    old, new = before.get("device", "cpu"), now.get("device", "cpu")
    told = f"the run began on {old} and goes on on {new}"
    return [] if old == new else [f"{told}; sums are rounded differently there, so the last digits may differ"]


def cut_by_workers(settings: Mapping[str, Json]) -> list[str]:
    """A warning about a checkpoint of an earlier version, whose blocks followed the number of workers."""
    workers = settings.get("workers", 1)
    if workers == 1 or settings.get("chunk", 1) == 1:
        return []
    told = f"the run began in an earlier version, which cut cohorts by its {workers} workers"
    return [f"{told}; from here on blocks have {settings['chunk']} clients, and the last digits may differ"]
