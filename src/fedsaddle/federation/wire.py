"""The wire format: tensors in safetensors, everything else in JSON, no pickle.

A record is sent with its class name. The receiver looks the name up among the records of its own algorithm
(`tasks.records_of`) and refuses any other, so a sender can choose between known records but cannot make the receiver
import or run code. Fields must have the types that the record's class declares.

Numbers, texts, lists and objects are JSON as they are. What JSON lacks is an object whose first key starts with `$`.
"""

from __future__ import annotations

import json
import math
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType, UnionType
from typing import Annotated, NamedTuple, TypeGuard, Union, get_args, get_origin, get_type_hints

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.errors import BadMessage
from fedsaddle.federation.records import Record, cached_by_class, is_record
from fedsaddle.files import Json, JsonObject

MAX_DIMENSIONS = 8
MAX_LENGTH = 2**48  # of a dimension; a tensor without numbers may have a long one
_TENSOR_HEAD = 8  # bytes: the length of the tensors' header
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DTYPES: dict[str, tuple[torch.dtype, type[np.number]]] = {  # on the wire -> of torch, of numpy with the same bits
    "F64": (torch.float64, np.float64),
    "F32": (torch.float32, np.float32),
    "F16": (torch.float16, np.float16),
    "BF16": (torch.bfloat16, np.int16),
    "I64": (torch.int64, np.int64),
    "I32": (torch.int32, np.int32),
    "I16": (torch.int16, np.int16),
    "I8": (torch.int8, np.int8),
    "U8": (torch.uint8, np.uint8),
    "BOOL": (torch.bool, np.uint8),
}
_NAMES = {dtype: name for name, (dtype, _) in _DTYPES.items()}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How large a message may be, apart from the numbers in its tensors.

    Whatever the bytes are, reading them takes at most twice their size and 32 MB more.
    """

    json_bytes: int = 8 << 20
    elements: int = 200_000  # entries of lists and objects
    depth: int = 32
    text: int = 12_000  # characters of one string, as they are written
    tensors: int = 1000
    trusted: bool = False  # the bytes were made by this run itself: nothing is counted before it is parsed


LIMITS = Limits()  # of any message
SMALL = Limits(json_bytes=64 << 10, elements=5000, depth=16, text=2000, tensors=64)  # of a record of tensors


def parse_json(content: bytes, limits: Limits, what: str = "message") -> object:
    """The value in strict JSON: no NaN, no key twice in an object, no half characters; or raise `BadMessage`."""
    if not limits.trusted:
        check_json(content, limits, what)
    try:
        value: object = json.loads(content) if limits.trusted else _STRICT.decode(content.decode("ascii"))
        return value
    except (ValueError, RecursionError, MemoryError) as reason:
        raise BadMessage(f"a damaged {what} ({type(reason).__name__})") from None


def check_json(content: bytes, limits: Limits, what: str = "message") -> None:
    """Raise `BadMessage` for text that is too large, too deep, not ASCII or no Unicode; it need not be JSON."""
    if len(content) > limits.json_bytes:
        raise BadMessage(f"a {what} with {len(content):,} bytes of text, more than the limit of {limits.json_bytes:,}")
    if not content.isascii():
        raise BadMessage(f"a damaged {what} (its text is not ASCII)")
    brackets = content.count(b"[") + content.count(b"{")
    if brackets <= limits.depth and len(content) <= min(limits.text, limits.elements) and b"\\" not in content:
        return  # too short to break any of the limits
    plain = content.replace(rb"\\", b"__") if b"\\" in content else content  # a backslash that stands for itself
    if _SURROGATE.search(plain) and _SURROGATE.search(_PAIR.sub(b"", plain)):
        raise BadMessage(f"a {what} with half a character in its text (a lone surrogate)")
    plain = plain.replace(rb"\"", b"__")
    characters = np.frombuffer(plain, dtype=np.uint8)
    quotes = np.flatnonzero(characters == ord('"'))
    if len(quotes) > 4 * limits.elements:
        raise BadMessage(f"a {what} with more than {limits.elements:,} elements")
    if len(quotes) % 2:
        raise BadMessage(f"a damaged {what} (a string without an end)")
    if len(quotes) and int((quotes[1::2] - quotes[::2]).max()) - 1 > limits.text:
        raise BadMessage(f"a {what} with a string longer than {limits.text:,} characters")
    _check_structure(characters, limits, what)


def _check_structure(characters: NDArray[np.uint8], limits: Limits, what: str) -> None:
    """Count and nest what stands outside of strings."""
    inside = np.cumsum(characters == ord('"'), dtype=np.uint8) & 1  # its parity survives the overflow
    outside = characters[inside == 0]
    opens = (outside == ord("[")) | (outside == ord("{"))
    closes = (outside == ord("]")) | (outside == ord("}"))
    begun, ended = int(np.count_nonzero(opens)), int(np.count_nonzero(closes))
    if begun + int(np.count_nonzero(outside == ord(","))) > limits.elements:
        raise BadMessage(f"a {what} with more than {limits.elements:,} elements")
    if begun != ended:
        raise BadMessage(f"a damaged {what} (its brackets do not match)")
    steps = opens.view(np.int8) - closes.view(np.int8)
    depth = np.cumsum(steps[steps != 0], dtype=np.int32)
    if len(depth) and int(depth.max()) > limits.depth:
        raise BadMessage(f"a {what} nested deeper than {limits.depth}")


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        raise ValueError("a key stands twice")
    return unique


def _no_constant(name: str) -> object:
    raise ValueError(f"{name} is no number of JSON")


_STRICT = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_constant)


class _Place(NamedTuple):
    """Where a tensor lies, and what it is."""

    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def tensor_parts(arrays: Mapping[str, Tensor]) -> list[bytes | memoryview]:
    """Tensors in safetensors format, as parts to be joined: each is copied once, then. Wide numbers come first."""
    header, parts, at = dict[str, Json](), list[memoryview](), 0
    for key, value in sorted(arrays.items(), key=lambda pair: -pair[1].element_size()):
        flat = value.cpu().contiguous().reshape(-1)
        flat = flat.clone(memory_format=torch.contiguous_format) if flat.numel() == 1 else flat  # may have any stride
        part = flat.view(torch.uint8).numpy().data
        header[key] = {"dtype": _NAMES[value.dtype], "shape": [*value.shape], "data_offsets": [at, at + part.nbytes]}
        parts.append(part)
        at += part.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _TENSOR_HEAD)
    return [len(text).to_bytes(_TENSOR_HEAD, "little"), text, *parts]


def read_tensors(body: memoryview, limits: Limits) -> dict[str, Tensor]:
    """The tensors in safetensors format, each checked against the bytes that are there before it is made."""
    if len(body) < _TENSOR_HEAD:
        raise BadMessage("a damaged message (no tensors)")
    length = int.from_bytes(body[:_TENSOR_HEAD], "little")
    if length > len(body) - _TENSOR_HEAD:
        raise BadMessage("a damaged message (tensors with a wrong length)")
    small = Limits(json_bytes=min(limits.json_bytes, 1024 * limits.tensors), elements=20 * limits.tensors, depth=3,
                   text=200, tensors=limits.tensors, trusted=limits.trusted)  # fmt: skip
    header = parse_json(bytes(body[_TENSOR_HEAD : _TENSOR_HEAD + length]), small, "header of tensors")
    numbers = body[_TENSOR_HEAD + length :]
    if not isinstance(header, dict) or len(header) > limits.tensors:
        raise BadMessage(f"more than {limits.tensors} tensors, or none that can be read")
    places = {key: _place(entry, len(numbers)) for key, entry in header.items() if key != "__metadata__"}
    _check_places(places, len(numbers))
    return {key: _tensor(place, numbers) for key, place in places.items()}


def _place(entry: object, size: int) -> _Place:
    """Where a tensor lies, from its header."""
    if (
        not isinstance(entry, dict)
        or entry.keys() != {"dtype", "shape", "data_offsets"}
        or entry["dtype"] not in _DTYPES
    ):
        raise BadMessage("a damaged message (a tensor of an unknown type)")
    shape, at = entry["shape"], entry["data_offsets"]
    if (
        not _whole_numbers(shape, MAX_LENGTH)
        or not _whole_numbers(at, size)
        or len(at) != 2
        or len(shape) > MAX_DIMENSIONS
    ):
        raise BadMessage("a damaged message (a tensor of a wrong shape)")
    width = np.dtype(_DTYPES[entry["dtype"]][1]).itemsize
    if math.prod(shape) * width != at[1] - at[0]:
        raise BadMessage("a damaged message (a tensor whose shape does not fit its bytes)")
    return _Place(entry["dtype"], tuple(shape), at[0], at[1])


def _whole_numbers(values: object, most: int) -> TypeGuard[list[int]]:
    return isinstance(values, list) and all(type(n) is int and 0 <= n <= most for n in values)


def _check_places(places: Mapping[str, _Place], size: int) -> None:
    """The tensors lie one after the other and fill the bytes: no byte is used twice, and none is left over."""
    at = 0
    for place in sorted(places.values(), key=lambda place: (place.begin, place.end)):
        if place.begin != at:
            raise BadMessage("a damaged message (tensors that overlap, or bytes between them)")
        at = place.end
    if at != size:
        raise BadMessage("a damaged message (bytes after the tensors)")


def _tensor(place: _Place, numbers: memoryview) -> Tensor:
    dtype, like = _DTYPES[place.dtype]
    own = np.frombuffer(numbers[place.begin : place.end], dtype=like).copy()
    if dtype is torch.bool and len(own) and int(own.max()) > 1:
        raise BadMessage("a damaged message (a truth value other than 0 and 1)")
    return torch.from_numpy(own).view(dtype).reshape(place.shape)


MAGIC = b"FSW2"
_HEAD = struct.Struct("<4sI")
_MARK = "$"
_CONTAINERS = (list, dict)

Kinds = Mapping[str, type[Record]]


@dataclass(frozen=True)
class Message:
    """One message: header fields as plain JSON, and a record."""

    about: JsonObject
    record: object = None


def require_record(value: object) -> Record:
    """What came with a message, or raise `BadMessage` if it is no record."""
    if is_record(value):
        return value
    raise BadMessage("a message without a record")


def name_of(kind: type) -> str:
    """A record's name on the wire: that of its class, wherever it is defined."""
    return kind.__qualname__


def pack(message: Message) -> bytes:
    """Encode a message."""
    arrays: dict[str, Tensor] = {}
    tree = _to_json(message.record, arrays, {}, "record")
    header = json.dumps({"about": message.about, "record": tree}, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_HEAD.pack(MAGIC, len(header)), header, *tensor_parts(arrays)])


def about(content: bytes | bytearray | memoryview, limits: Limits = LIMITS) -> JsonObject:
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


def _split(view: memoryview, limits: Limits) -> tuple[JsonObject, memoryview]:
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


def _to_json(value: object, arrays: dict[str, Tensor], known: dict[int, str], where: str) -> Json:
    """A value as JSON; its tensors go to `arrays`."""
    if isinstance(value, Tensor):
        return {"$tensor": _add_tensor(value, arrays, known)}
    if is_record(value):
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
        copy = value.detach().contiguous()
        storages = {t.untyped_storage().data_ptr() for t in arrays.values()}
        arrays[key] = copy.clone() if copy.untyped_storage().data_ptr() in storages else copy
    return known[id(value)]


def _from_json(tree: object, arrays: dict[str, Tensor], kinds: Kinds) -> object:
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


def _marked(tree: JsonObject, arrays: dict[str, Tensor], kinds: Kinds) -> object:
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
        _from_json(inner, arrays, kinds)  # in place
        return tuple(inner)
    if mark == "$float" and inner in ("nan", "inf", "-inf"):
        return float(inner)
    raise BadMessage("a damaged message (a part of an unknown form)")


def _record(name: object, parts: object, arrays: dict[str, Tensor], kinds: Kinds) -> Record:
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


@cached_by_class
def _types(kind: type) -> dict[str, tuple[type, ...] | None]:
    """Field -> the types that it may have; None: any."""
    hints = get_type_hints(kind, include_extras=False)
    return {f.name: _allowed(hints.get(f.name, object)) for f in fields(kind) if f.init}


def _allowed(hint: object) -> tuple[type, ...] | None:
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
