"""Messages as bytes: tensors in safetensors, everything else in JSON. No pickle, and no code named by the sender.

A record travels under its class's name. The receiver looks that name up among the records its own algorithm knows, and
refuses any other: what arrives can choose between known shapes of data, never what is imported or run.
"""

from __future__ import annotations

import json
import math
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor

from fedsaddle.errors import BadMessage

MAGIC = b"FSW1"
MAX_JSON_BYTES = 64 << 20  # bytes of JSON in one message
_HEAD = struct.Struct("<4sI")

Kinds = Mapping[str, type]


@dataclass(frozen=True)
class Message:
    """What crosses: facts about the exchange as plain JSON, and a record."""

    about: dict[str, Any]
    record: Any = None


def name_of(kind: type) -> str:
    """A record's name on the wire."""
    return f"{kind.__module__}:{kind.__qualname__}"


def kinds_of(thing: Any) -> dict[str, type]:
    """The records that an algorithm knows: the dataclasses that its modules define or import."""
    found: dict[str, type] = {}
    for cls in type(thing).__mro__[:-1]:
        for value in list(vars(sys.modules[cls.__module__]).values()):
            if isinstance(value, type) and is_dataclass(value):
                found[name_of(value)] = value
    return found


def pack(message: Message) -> bytes:
    """The message as bytes."""
    arrays: dict[str, Tensor] = {}
    tree = _plain(message.record, arrays, {}, "record")
    said = json.dumps({"about": message.about, "record": tree}, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD.pack(MAGIC, len(said)) + said + save_tensors(arrays)


def about(content: bytes | bytearray | memoryview) -> dict[str, Any]:
    """What is said about the exchange, without the record."""
    said, _ = _opened(memoryview(content))
    return said["about"]  # type: ignore[no-any-return]


def unpack(content: bytes | bytearray | memoryview, kinds: Kinds) -> Message:
    """The message that the bytes stand for, or BadMessage."""
    said, body = _opened(memoryview(content))
    try:
        record = _thing(said["record"], load_tensors(bytes(body)), kinds)
    except BadMessage:
        raise
    except Exception as reason:  # whatever a stranger's bytes may do: they are refused, nothing else happens
        raise BadMessage(f"a damaged message ({type(reason).__name__})") from None
    return Message(said["about"], record)


def _opened(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The JSON and what comes after it."""
    if len(view) < _HEAD.size:
        raise BadMessage(f"{len(view)} bytes are no message")
    magic, length = _HEAD.unpack(view[: _HEAD.size])
    if magic != MAGIC or length > min(MAX_JSON_BYTES, len(view) - _HEAD.size):
        raise BadMessage("the bytes are no message of this version")
    body = _HEAD.size + length
    try:
        said = json.loads(bytes(view[_HEAD.size : body]))
    except (ValueError, RecursionError) as reason:
        raise BadMessage(f"a damaged message ({type(reason).__name__})") from None
    if not isinstance(said, dict) or not isinstance(said.get("about"), dict):
        raise BadMessage("a damaged message (no facts)")
    return said, view[body:]


def _plain(value: Any, arrays: dict[str, Tensor], known: dict[int, str], where: str) -> Any:
    """A value as JSON, its tensors put aside."""
    if isinstance(value, Tensor):
        return {"tensor": _put_aside(value, arrays, known)}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _plain(getattr(value, f.name), arrays, known, f"{where}.{f.name}") for f in fields(value)}
        return {"kind": name_of(type(value)), "fields": parts}
    if isinstance(value, dict):
        return {"dict": [[k, _plain(v, arrays, known, f"{where}[{k!r}]")] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        parts_of = [_plain(v, arrays, known, f"{where}[{n}]") for n, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts_of}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": float(value) if isinstance(value, float) else value}  # numpy's floats are floats
    raise TypeError(f"{where} is a {type(value).__name__}; records hold tensors, numbers, strings and records")


def _put_aside(value: Tensor, arrays: dict[str, Tensor], known: dict[int, str]) -> str:
    """The key of a tensor; one tensor that stands in two fields travels once."""
    if id(value) not in known:
        known[id(value)] = key = str(len(arrays))
        kept = value.detach().contiguous()
        taken = {t.untyped_storage().data_ptr() for t in arrays.values()}
        arrays[key] = kept.clone() if kept.untyped_storage().data_ptr() in taken else kept
    return known[id(value)]


def _thing(tree: dict[str, Any], arrays: dict[str, Tensor], kinds: Kinds) -> Any:
    """The value that JSON and tensors stand for."""
    if "tensor" in tree:
        return arrays[tree["tensor"]]
    if "kind" in tree:
        kind = kinds.get(tree["kind"])
        if kind is None:
            raise BadMessage(f"a record of an unknown kind {tree['kind']!r}")
        return kind(**{name: _thing(part, arrays, kinds) for name, part in tree["fields"].items()})
    if "dict" in tree:
        return {k: _thing(v, arrays, kinds) for k, v in tree["dict"]}
    if "list" in tree:
        return [_thing(v, arrays, kinds) for v in tree["list"]]
    if "tuple" in tree:
        return tuple(_thing(v, arrays, kinds) for v in tree["tuple"])
    if "float" in tree:
        return float(tree["float"])
    return tree["value"]
