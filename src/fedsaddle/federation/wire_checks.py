"""Checks of a message's bytes before anything is parsed or allocated: sizes, nesting, counts, text, and tensors.

Each check takes one pass over the bytes and memory in proportion to them. Whatever is wrong is a `BadMessage`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsaddle.errors import BadMessage

MAX_DIMENSIONS = 8
MAX_LENGTH = 2**48  # of a dimension; a tensor without numbers may have a long one
_TENSOR_HEAD = 8  # bytes: the length of the tensors' header
_PAIR = re.compile(rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_DTYPES: dict[str, tuple[torch.dtype, Any]] = {  # on the wire -> of torch, and of the numpy array with the same bits
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


def parse_json(content: bytes, limits: Limits, what: str = "message") -> Any:
    """The value in strict JSON: no NaN, no key twice in an object, no half characters; or raise `BadMessage`."""
    if not limits.trusted:
        check_json(content, limits, what)
    try:
        if limits.trusted:
            return json.loads(content)
        return _STRICT.decode(content.decode("ascii"))
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


def _check_structure(characters: np.ndarray[Any, Any], limits: Limits, what: str) -> None:
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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _no_constant(name: str) -> Any:
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
    header, parts, at = dict[str, Any](), list[memoryview](), 0
    for key, value in sorted(arrays.items(), key=lambda pair: -pair[1].element_size()):
        flat = value.cpu().contiguous().reshape(-1)
        flat = flat.clone(memory_format=torch.contiguous_format) if flat.numel() == 1 else flat  # may have any stride
        part = flat.view(torch.uint8).numpy().data
        header[key] = {"dtype": _NAMES[value.dtype], "shape": [*value.shape], "data_offsets": [at, at + part.nbytes]}
        parts.append(part)
        at += part.nbytes
    told = json.dumps(header, separators=(",", ":")).encode()
    told += b" " * (-len(told) % _TENSOR_HEAD)
    return [len(told).to_bytes(_TENSOR_HEAD, "little"), told, *parts]


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
    places = {key: _place(told, len(numbers)) for key, told in header.items() if key != "__metadata__"}
    _check_places(places, len(numbers))
    return {key: _tensor(place, numbers) for key, place in places.items()}


def _place(told: Any, size: int) -> _Place:
    """Where a tensor lies, from its header."""
    if not isinstance(told, dict) or told.keys() != {"dtype", "shape", "data_offsets"} or told["dtype"] not in _DTYPES:
        raise BadMessage("a damaged message (a tensor of an unknown type)")
    shape, at = told["shape"], told["data_offsets"]
    if (
        not _whole_numbers(shape, MAX_LENGTH)
        or not _whole_numbers(at, size)
        or len(at) != 2
        or len(shape) > MAX_DIMENSIONS
    ):
        raise BadMessage("a damaged message (a tensor of a wrong shape)")
    width = np.dtype(_DTYPES[told["dtype"]][1]).itemsize
    if math.prod(shape) * width != at[1] - at[0]:
        raise BadMessage("a damaged message (a tensor whose shape does not fit its bytes)")
    return _Place(told["dtype"], tuple(shape), at[0], at[1])


def _whole_numbers(values: Any, most: int) -> bool:
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
