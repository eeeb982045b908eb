"""The wire format: tensors in safetensors, everything else in JSON, no pickle.

A record is sent with its class name. The receiver looks the name up among the records of its own algorithm and refuses
any other, so a sender can choose between known records but cannot make the receiver import or run code.
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
    """One message: header fields as plain JSON, and a record."""

    about: dict[str, Any]
    record: Any = None


def name_of(kind: type) -> str:
    """A record's name on the wire."""
    return f"{kind.__module__}:{kind.__qualname__}"


def kinds_of(thing: Any) -> dict[str, type]:
    """The records of an algorithm: the dataclasses that its modules define or import."""
    found: dict[str, type] = {}
    for cls in type(thing).__mro__[:-1]:
        for value in list(vars(sys.modules[cls.__module__]).values()):
            if isinstance(value, type) and is_dataclass(value):
                found[name_of(value)] = value
    return found


def pack(message: Message) -> bytes:
    """Encode a message."""
    arrays: dict[str, Tensor] = {}
    tree = _to_json(message.record, arrays, {}, "record")
    header = json.dumps({"about": message.about, "record": tree}, separators=(",", ":"), allow_nan=False).encode()
    return _HEAD.pack(MAGIC, len(header)) + header + save_tensors(arrays)


def about(content: bytes | bytearray | memoryview) -> dict[str, Any]:
    """The header fields of a message; the record is not decoded."""
    header, _ = _split(memoryview(content))
    return header["about"]  # type: ignore[no-any-return]


def unpack(content: bytes | bytearray | memoryview, kinds: Kinds) -> Message:
    """Decode a message, or raise `BadMessage`."""
    header, body = _split(memoryview(content))
    try:
        record = _from_json(header["record"], load_tensors(bytes(body)), kinds)
    except BadMessage:
        raise
    except Exception as reason:  # any failure on untrusted bytes is a bad message
        raise BadMessage(f"a damaged message ({type(reason).__name__})") from None
    return Message(header["about"], record)


def _split(view: memoryview) -> tuple[dict[str, Any], memoryview]:
    """The JSON header, and the bytes after it."""
    if len(view) < _HEAD.size:
        raise BadMessage(f"{len(view)} bytes are too short for a message")
    magic, length = _HEAD.unpack(view[: _HEAD.size])
    if magic != MAGIC or length > min(MAX_JSON_BYTES, len(view) - _HEAD.size):
        raise BadMessage("the bytes are not a message of this version")
    body = _HEAD.size + length
    try:
        header = json.loads(bytes(view[_HEAD.size : body]))
    except (ValueError, RecursionError) as reason:
        raise BadMessage(f"a damaged message ({type(reason).__name__})") from None
    if not isinstance(header, dict) or not isinstance(header.get("about"), dict):
        raise BadMessage("a damaged message (no header)")
    return header, view[body:]


def _to_json(value: Any, arrays: dict[str, Tensor], known: dict[int, str], where: str) -> Any:
    """A value as JSON; its tensors go to `arrays`."""
    if isinstance(value, Tensor):
        return {"tensor": _add_tensor(value, arrays, known)}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _to_json(getattr(value, f.name), arrays, known, f"{where}.{f.name}") for f in fields(value)}
        return {"kind": name_of(type(value)), "fields": parts}
    if isinstance(value, dict):
        return {"dict": [[k, _to_json(v, arrays, known, f"{where}[{k!r}]")] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        parts_of = [_to_json(v, arrays, known, f"{where}[{n}]") for n, v in enumerate(value)]
        return {"tuple" if isinstance(value, tuple) else "list": parts_of}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return {"value": float(value) if isinstance(value, float) else value}  # numpy's floats are floats
    raise TypeError(f"{where} is a {type(value).__name__}; records hold tensors, numbers, strings and records")


def _add_tensor(value: Tensor, arrays: dict[str, Tensor], known: dict[int, str]) -> str:
    """Add a tensor and return its key; a tensor in two fields is sent once."""
    if id(value) not in known:
        known[id(value)] = key = str(len(arrays))
        kept = value.detach().contiguous()
        storages = {t.untyped_storage().data_ptr() for t in arrays.values()}
        arrays[key] = kept.clone() if kept.untyped_storage().data_ptr() in storages else kept
    return known[id(value)]


def _from_json(tree: dict[str, Any], arrays: dict[str, Tensor], kinds: Kinds) -> Any:
    """The value that `_to_json` encoded."""
    if "tensor" in tree:
        return arrays[tree["tensor"]]
    if "kind" in tree:
        kind = kinds.get(tree["kind"])
        if kind is None:
            raise BadMessage(f"a record of an unknown kind {tree['kind']!r}")
        return kind(**{name: _from_json(part, arrays, kinds) for name, part in tree["fields"].items()})
    if "dict" in tree:
        return {k: _from_json(v, arrays, kinds) for k, v in tree["dict"]}
    if "list" in tree:
        return [_from_json(v, arrays, kinds) for v in tree["list"]]
    if "tuple" in tree:
        return tuple(_from_json(v, arrays, kinds) for v in tree["tuple"])
    if "float" in tree:
        return float(tree["float"])
    return tree["value"]
