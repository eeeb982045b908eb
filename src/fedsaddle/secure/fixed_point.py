"""Fixed-point encoding of real numbers, so that sums are exact, in any order, and can be masked.

A value v with the share s of the cohort's weight becomes `round(s · v · 2^k)`, modulo `2^(8 · width)`. Shares of a
cohort add up to 1 at most, so a sum of values within `LARGEST_VALUE` cannot overflow, however many clients there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.array_types import Floats
from fedsaddle.errors import BadMessage
from fedsaddle.federation.records import Record, Visibility, tensors, visibility
from fedsaddle.files import Json

Words = NDArray[np.uint64]
LARGEST_VALUE = 2.0**22  # of a value: 4,194,304
_CHUNK = 1 << 14  # numbers at a time: they stay in the cache
SHARE_BITS = 60  # k of the shares
LEAST_SITES = 3  # of a sum: of two, each would know the other's value
LEAST_SHARE = 0.1  # of the largest weight: three sites must weigh at least that, or the sum is about one site
_DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}


class OutOfRange(BadMessage):
    """A value outside the range of the fixed point; the message does not reveal it."""

    def __init__(self, field: str) -> None:
        range_ = f"a {field!r} beyond ±{LARGEST_VALUE:,.0f}, the range of secure aggregation's fixed point"
        super().__init__(f"{range_}; scale the features, or use a smaller step")


class NotFiniteField(BadMessage):
    """A value with NaN or infinity, refused before masking."""

    def __init__(self, field: str) -> None:
        super().__init__(f"a {field!r} that is not finite")


@dataclass(frozen=True)
class Field:
    """An averaged field: its name, type, and the shape of one client's value.

    Args:
        name: of the field.
        dtype: name of its type.
        shape: of its tensor.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    @property
    def bits(self) -> int:
        """k: the step is `2^-k`."""
        return 40 if self.dtype == "float64" else 32

    @property
    def width(self) -> int:
        """Bytes of one number on the wire."""
        return 8 if self.dtype == "float64" else 7

    def to_list(self) -> list[Json]:
        """For JSON."""
        return [self.name, self.dtype, list(self.shape)]


Layout = tuple[Field, ...]  # the averaged fields of a reply, in order; the words of a reply end with that of its share


def layout_of(reply: Record) -> Layout:
    """The averaged fields of a reply of one client; whole numbers count as float32, as their mean does."""
    visible = visibility(type(reply))
    return tuple(
        Field(name, str(v.dtype).removeprefix("torch.") if v.is_floating_point() else "float32", tuple(v.shape[1:]))
        for name, v in tensors(reply)
        if visible[name] is Visibility.AVERAGED
    )


def read_layout(listed: object) -> Layout:
    """Parse the layout that a site sent; raise `BadMessage` if it is malformed."""
    layout = []
    for one in listed if isinstance(listed, list) and len(listed) <= 64 else [None]:
        name, dtype, shape = one if isinstance(one, list) and len(one) == 3 else (None, None, None)
        sizes = isinstance(shape, list) and len(shape) <= 8 and all(type(n) is int and 0 <= n < 2**48 for n in shape)
        if not isinstance(name, str) or dtype not in _DTYPES or not sizes:
            raise BadMessage("a masked reply without a list of its fields")
        layout.append(Field(name, dtype, tuple(shape or ())))
    return tuple(layout)


def shares_of(weights: Floats) -> Floats:
    """The weights of a cohort, divided by their sum; all 0 if that is 0."""
    total = float(np.abs(weights).sum())
    return weights / total if total > 0 else np.zeros_like(weights)


def too_few(shares: Sequence[float] | Floats, least: int = LEAST_SITES) -> str:
    """Why a sum with these shares would reveal a single site, or fewer than `least`; empty if it does not."""
    if len(shares) < least:
        return f"a sum of {len(shares)} sites; secure aggregation needs at least {least}"
    sizes = np.sort(np.abs(np.asarray(shares, dtype=np.float64)))
    if sizes[-1] > 0 and sizes[-least] < LEAST_SHARE * sizes[-1]:
        return f"fewer than {least} sites have more than {LEAST_SHARE:g} of the largest weight"
    return ""


def share_word(share: float) -> int:
    """A share as a whole number."""
    return round(share * 2.0**SHARE_BITS)


def encode(reply: Record, share: float) -> Words:
    """The averaged fields of one client's reply, times its share, and the share itself."""
    layout = layout_of(reply)
    words = np.empty(sum(one.size for one in layout) + 1, dtype=np.int64)
    at = 0
    for one in layout:
        value = getattr(reply, one.name).detach().cpu().reshape(-1)
        numbers = (value if value.dtype in (torch.float32, torch.float64) else value.double()).numpy()
        most = max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))  # NaN if there is one
        if not math.isfinite(most):
            raise NotFiniteField(one.name)
        if most > LARGEST_VALUE:
            raise OutOfRange(one.name)
        for begin in range(0, one.size, _CHUNK):
            scaled = np.multiply(numbers[begin : begin + _CHUNK], share * 2.0**one.bits, dtype=np.float64)
            words[at : at + len(scaled)] = np.rint(scaled, out=scaled)
            at += len(scaled)
    words[-1] = share_word(share)
    return words.view(np.uint64)


def decode(words: Words, layout: Layout) -> dict[str, Tensor]:
    """The weighted mean of each field, from the sum of all words."""
    total = int(words[-1:].view(np.int64)[0]) * 2.0**-SHARE_BITS
    means, at = {}, 0
    for one in layout:
        spare = np.int64(64 - 8 * one.width)
        whole = (words[at : at + one.size].view(np.int64) << spare) >> spare  # the sign of the bytes that are sent
        mean = whole.astype(np.float64) * 2.0**-one.bits / (total or 1.0)  # total weight 0: the sum is 0
        means[one.name] = torch.from_numpy(mean).to(_DTYPES[one.dtype]).reshape(one.shape)
        at += one.size
    return means


_PLANES = {8: (("<u8", 0, 1, 0),), 7: (("<u4", 0, 2, 0), ("<u2", 2, 4, 32), ("u1", 6, 8, 48))}
# width -> type of a part, where in a word it is, every how many, its lowest bit


def to_bytes(words: Words, layout: Layout) -> Tensor:
    """The words as they are sent: of each the lowest bytes, as many as the field's width; (bytes,) uint8.

    Of seven bytes come first the lowest four of all words, then the next two, then the last one.
    """
    sent, at, begin = np.empty(bytes_of(layout), dtype=np.uint8), 0, 0
    for size, width in _runs(layout):
        own = np.ascontiguousarray(words[at : at + size], dtype="<u8")
        for kind, start, step, _ in _PLANES[width]:
            end = begin + size * np.dtype(kind).itemsize
            sent[begin:end].view(kind)[:] = own.view(kind)[start::step]
            begin = end
        at += size
    return torch.from_numpy(sent)


def _runs(layout: Layout) -> list[tuple[int, int]]:
    """Size and width of each field, and of the share at the end."""
    return [*((one.size, one.width) for one in layout), (1, 8)]


def bytes_of(layout: Layout) -> int:
    """How many bytes the words take on the wire."""
    return sum(size * width for size, width in _runs(layout))


def require_bytes(sent: Tensor, layout: Layout) -> None:
    """Raise `BadMessage` for another number of bytes than that of the words."""
    if sent.dtype != torch.uint8 or sent.ndim != 1 or len(sent) != bytes_of(layout):
        raise BadMessage("a masked reply of another size than that of its fields")


def sum_of(replies: Sequence[Tensor], layout: Layout) -> Words:
    """The sum of the words that were sent, modulo 2^64; the bytes that were not sent count as 0.

    Each part of the words is summed separately, so that only the words of the sum are assembled.
    """
    total = np.zeros(sum(one.size for one in layout) + 1, dtype=np.uint64)
    at, begin = 0, 0
    for size, width in _runs(layout):
        for kind, _, _, bit in _PLANES[width]:
            parts = [np.frombuffer(sent.numpy().data, kind, size, begin) for sent in replies]
            _add_(total[at : at + size], parts, bit)
            begin += parts[0].nbytes
        at += size
    return total


def _add_(total: Words, parts: Sequence[NDArray[np.integer]], bit: int) -> None:
    """Add the sum of the parts, shifted by `bit` bits."""
    wide = np.uint32 if parts[0].itemsize <= 2 and len(parts) < 2**16 else np.uint64  # 32 bits are faster, and enough
    for begin in range(0, len(total), _CHUNK):
        here = slice(begin, begin + _CHUNK)
        sums: NDArray[np.uint32 | np.uint64] = parts[0][here].astype(wide)
        for part in parts[1:]:
            sums += part[here]
        total[here] += np.left_shift(sums, np.uint64(bit), dtype=np.uint64)


def shown_fields(reply: Record) -> Mapping[str, Tensor]:
    """The fields that the server sees of each client: pooled and per client."""
    visible = visibility(type(reply))
    return {name: value for name, value in tensors(reply) if visible[name] is not Visibility.AVERAGED}
