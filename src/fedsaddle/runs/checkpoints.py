"""Checkpoints of a run: tensors in a safetensors file, the rest in a JSON file, both written atomically."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedsaddle.atomic import disk_failures, write_atomically, write_json
from fedsaddle.errors import BadCheckpoint
from fedsaddle.runs.fingerprint import Identity

FORMAT = 3
S = TypeVar("S")


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
    server: dict[str, Any]
    memory: dict[int, dict[str, Tensor]]
    notes: dict[str, Any]
    selected: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoints:
    """The checkpoints of one run; damaged ones and those of other runs are refused."""

    path: Path
    identity: Identity
    keep: int = 2

    def save(
        self,
        rounds: int,
        server: Any,
        memory: Mapping[int, Any],
        notes: dict[str, Any],
        selected: Mapping[str, Tensor] | None = None,
    ) -> None:
        """Write a checkpoint, and delete all but the last `keep`."""
        with disk_failures(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        tensors = {f"server.{k}": v for k, v in _fields(server).items() if isinstance(v, Tensor)}
        numbers = {k: v for k, v in _fields(server).items() if not isinstance(v, Tensor)}
        for client, record in memory.items():
            tensors |= {f"own.{client}.{k}": v for k, v in _fields(record).items()}
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


def restore_record(template: S, values: dict[str, Any]) -> S:
    """Restore a record of the template's type from the stored values."""
    known = {f.name for f in fields(template)}  # type: ignore[arg-type]
    if known != set(values):
        raise BadCheckpoint(f"the checkpoint is of another version: it has {sorted(values)}, expected {sorted(known)}")
    return replace(template, **values)  # type: ignore[type-var]


def _checksum(about: dict[str, Any], content: bytes) -> str:
    """The SHA-256 of the tensors and of the header without its own checksum."""
    header = {k: v for k, v in about.items() if k != "sha256"}
    return hashlib.sha256(json.dumps(header, sort_keys=True).encode() + content).hexdigest()


def _fields(record: Any) -> dict[str, Any]:
    return {f.name: getattr(record, f.name) for f in fields(record)}
