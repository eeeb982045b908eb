"""The wire format: tensors in safetensors, everything else in JSON, no pickle.

A record is sent with its class name. The receiver looks the name up among the records of its own algorithm
(`tasks.records_of`) and refuses any other, so a sender can choose between known records but cannot make the receiver
import or run code. Fields must have the types that the record's class declares.

Numbers, texts, lists and objects are JSON as they are. What JSON lacks is an object whose first key starts with `$`.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from torch import Tensor

from fedsaddle.errors import BadMessage
from fedsaddle.federation.wire_checks import LIMITS, Limits, parse_json, read_tensors, tensor_parts

MAGIC = b"FSW2"
_HEAD = struct.Struct("<4sI")
_MARK = "$"
_CONTAINERS = (list, dict)

Kinds = Mapping[str, type]


@dataclass(frozen=True)
class Message:
    """One message: header fields as plain JSON, and a record."""

    about: dict[str, Any]
    record: Any = None


def name_of(kind: type) -> str:
    """A record's name on the wire: that of its class, wherever it is defined."""
    return kind.__qualname__


def pack(message: Message) -> bytes:
    """Encode a message."""
    arrays: dict[str, Tensor] = {}
    tree = _to_json(message.record, arrays, {}, "record")
    header = json.dumps({"about": message.about, "record": tree}, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_HEAD.pack(MAGIC, len(header)), header, *tensor_parts(arrays)])


def about(content: bytes | bytearray | memoryview, limits: Limits = LIMITS) -> dict[str, Any]:
    """The header fields of a message; the record is not decoded."""
    header, _ = _split(memoryview(content), limits)
    return header["about"]  # type: ignore[no-any-return]


def unpack(content: bytes | bytearray | memoryview, kinds: Kinds, limits: Limits = LIMITS) -> Message:
    """Decode a message, or raise `BadMessage`, before anything larger than the limits is made."""
    header, body = _split(memoryview(content), limits)
    try:
        record = _from_json(header["record"], read_tensors(body, limits), kinds)
    except BadMessage:
        raise
    except Exception as reason:  # any failure on untrusted bytes is a bad message
        raise BadMessage(f"a damaged message ({type(reason).__name__})") from None
    return Message(header["about"], record)


def _split(view: memoryview, limits: Limits) -> tuple[dict[str, Any], memoryview]:
    """The JSON header, and the bytes after it."""
    if len(view) < _HEAD.size:
        raise BadMessage(f"{len(view)} bytes are too short for a message")
    magic, length = _HEAD.unpack(view[: _HEAD.size])
    if magic != MAGIC or length > len(view) - _HEAD.size:
        raise BadMessage("the bytes are not a message of this version")
    if length > limits.json_bytes:  # before it is copied
        raise BadMessage(f"a message with {length:,} bytes of text, more than the limit of {limits.json_bytes:,}")
    body = _HEAD.size + length
    header = parse_json(bytes(view[_HEAD.size : body]), limits)
    if not isinstance(header, dict) or header.keys() != {"about", "record"} or not isinstance(header["about"], dict):
        raise BadMessage("a damaged message (no header)")
    return header, view[body:]


def _to_json(value: Any, arrays: dict[str, Tensor], known: dict[int, str], where: str) -> Any:
    """A value as JSON; its tensors go to `arrays`."""
    if isinstance(value, Tensor):
        return {"$tensor": _add_tensor(value, arrays, known)}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {f.name: _to_json(getattr(value, f.name), arrays, known, f"{where}.{f.name}") for f in fields(value)}
        return {"$record": name_of(type(value)), "fields": parts}
    if isinstance(value, dict):
        if all(isinstance(k, str) and not k.startswith(_MARK) for k in value):
            return {str(k): _to_json(v, arrays, known, f"{where}[{k!r}]") for k, v in value.items()}
        return {"$dict": [[k, _to_json(v, arrays, known, f"{where}[{k!r}]")] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        parts_of = [_to_json(v, arrays, known, f"{where}[{n}]") for n, v in enumerate(value)]
        return {"$tuple": parts_of} if isinstance(value, tuple) else parts_of
    if isinstance(value, float) and not math.isfinite(value):
        return {"$float": repr(float(value))}
    if value is None or isinstance(value, bool | int | float | str):
        return float(value) if isinstance(value, float) else value  # numpy's floats are floats
    raise TypeError(f"{where} is a {type(value).__name__}; records hold tensors, numbers, strings and records")


def _add_tensor(value: Tensor, arrays: dict[str, Tensor], known: dict[int, str]) -> str:
    """Add a tensor and return its key; a tensor in two fields is sent once."""
    if id(value) not in known:
        known[id(value)] = key = str(len(arrays))
        kept = value.detach().contiguous()
        storages = {t.untyped_storage().data_ptr() for t in arrays.values()}
        arrays[key] = kept.clone() if kept.untyped_storage().data_ptr() in storages else kept
    return known[id(value)]


def _from_json(tree: Any, arrays: dict[str, Tensor], kinds: Kinds) -> Any:
    """The value that `_to_json` encoded; lists and objects are decoded in place."""
    if isinstance(tree, list):
        for n, part in enumerate(tree):
            if isinstance(part, _CONTAINERS):
                tree[n] = _from_json(part, arrays, kinds)
        return tree
    if not isinstance(tree, dict):
        return tree
    if not any(key.startswith(_MARK) for key in tree):
        for key, part in tree.items():
            if isinstance(part, _CONTAINERS):
                tree[key] = _from_json(part, arrays, kinds)
        return tree
    return _marked(tree, arrays, kinds)


def _marked(tree: dict[str, Any], arrays: dict[str, Tensor], kinds: Kinds) -> Any:
    """What JSON has no form of its own for."""
    mark = next(iter(tree))
    if len(tree) != (2 if mark == "$record" else 1):
        raise BadMessage("a damaged message (a part of two forms)")
    inner = tree[mark]
    if mark == "$tensor":
        return arrays[inner]
    if mark == "$record":
        return _record(inner, tree["fields"], arrays, kinds)
    if mark == "$dict":
        pairs = [(k, _from_json(v, arrays, kinds)) for k, v in inner]
        if len(dict(pairs)) != len(pairs):
            raise BadMessage("a damaged message (a key stands twice)")
        return dict(pairs)
    if mark == "$tuple" and isinstance(inner, list):
        return tuple(_from_json(inner, arrays, kinds))
    if mark == "$float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    raise BadMessage("a damaged message (a part of an unknown form)")


def _record(name: Any, parts: Any, arrays: dict[str, Tensor], kinds: Kinds) -> Any:
    kind = kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadMessage(f"a record of an unknown kind {name!r:.80}")
    values = _from_json(parts, arrays, kinds)
    if not isinstance(values, dict) or not values.keys() <= _types(kind).keys():
        raise BadMessage(f"a {kind.__name__} with unknown fields")
    for field, allowed in _types(kind).items():
        if field in values and allowed is not None and type(values[field]) not in allowed:
            raise BadMessage(f"a {kind.__name__} whose {field!r} is a {type(values[field]).__name__}")
    return kind(**values)


@cache
def _types(kind: type) -> dict[str, tuple[type, ...] | None]:
    """Field -> the types that it may have; None: any."""
    hints = get_type_hints(kind, include_extras=False)
    return {f.name: _allowed(hints.get(f.name, Any)) for f in fields(kind) if f.init}


def _allowed(hint: Any) -> tuple[type, ...] | None:
    if get_origin(hint) is Annotated:
        return _allowed(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        parts = [_allowed(part) for part in get_args(hint)]
        return None if any(part is None for part in parts) else tuple(t for part in parts if part for t in part)
    if hint in (None, NoneType):
        return (NoneType,)
    origin = get_origin(hint) or hint
    if origin is float:
        return (float, int)  # a whole number is a float, too, where one is computed with
    return (origin,) if isinstance(origin, type) and (origin in _PLAIN or is_dataclass(origin)) else None


_PLAIN = (Tensor, int, bool, str, float, list, tuple, dict)
