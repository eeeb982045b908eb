"""Euclidean projections, each stated as the argmin it solves. All act on the last axis."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from fedsaddle.arguments import number
from fedsaddle.errors import BadInput


@runtime_checkable
class Projection(Protocol):
    """`argmin_{u in W} |u - w|`, for each vector along the last axis."""

    def __call__(self, w: Tensor, /) -> Tensor:
        """The nearest point of the set."""
        ...


@dataclass(frozen=True)
class Everywhere:
    """No constraint: the identity."""

    def __call__(self, w: Tensor) -> Tensor:
        """The point itself."""
        return w


def is_everywhere(project: object) -> bool:
    """Whether a projection is known to change nothing.

    Args:
        project: a projection.
    """
    return isinstance(project, Everywhere)


@dataclass(frozen=True)
class Ball:
    """`{w : |w| <= radius}`.

    Args:
        radius: largest norm.
    """

    radius: float

    def __post_init__(self) -> None:
        number("radius", self.radius, above=0)

    def __call__(self, w: Tensor) -> Tensor:
        """Scale points outside back to the sphere."""
        norm = torch.linalg.vector_norm(w, dim=-1, keepdim=True)
        inside: Tensor = w * (self.radius / norm.clamp(min=self.radius))
        return inside


@dataclass(frozen=True)
class Box:
    """`{w : low <= w_j <= high}`; `low` may be -inf and `high` inf.

    Args:
        low: lower bound; may be -inf.
        high: upper bound; may be inf.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        number("low", self.low, below=inf, infinite=True)
        number("high", self.high, above=-inf, infinite=True)
        if not self.low <= self.high:
            raise BadInput("low", self.low, f"must not exceed high = {self.high}")

    def __call__(self, w: Tensor) -> Tensor:
        """Clip each coordinate."""
        return w.clamp(self.low, self.high)


@dataclass(frozen=True)
class Simplex:
    """`{w : w_j >= 0, sum_j w_j = 1}`."""

    def __call__(self, w: Tensor) -> Tensor:
        """Subtract the one threshold that makes the positive parts sum to 1: `max_k (sum of the k largest - 1) / k`."""
        w = w - w.amax(-1, keepdim=True)  # the same projection, and exact for huge entries too
        d = w.shape[-1]
        if w.ndim == 1 and d > 4096:
            return _few_passes(w)
        excess = w.sort(dim=-1, descending=True).values.cumsum(-1).sub_(1)
        threshold = excess.div_(torch.arange(1, d + 1, dtype=w.dtype, device=w.device)).amax(-1, keepdim=True)
        return (w - threshold).clamp_(min=0)


def _few_passes(w: Tensor) -> Tensor:
    """Michelot's algorithm: drop what falls below the threshold until nothing does; no sort."""
    active = w
    while True:
        threshold = (active.sum() - 1) / len(active)
        above = active[active > threshold]
        if len(above) == len(active):
            return (w - threshold).clamp(min=0)
        active = above


@dataclass(frozen=True)
class CappedSimplex:
    """`{w : 0 <= w_j <= high, sum_j w_j = 1}`; `high` times the dimension is at least 1.

    Args:
        high: largest entry; at least 1 / the dimension.
    """

    high: float

    def __post_init__(self) -> None:
        number("high", self.high, above=0)

    def __call__(self, w: Tensor) -> Tensor:
        """Subtract the one threshold that makes the parts between 0 and `high` sum to 1."""
        if self.high * w.shape[-1] < 1 - 1e-12:  # 1 / 49 * 49 is less than 1 by rounding
            remedy = f"must be at least 1 / {w.shape[-1]}, or the entries cannot sum to 1"
            raise BadInput("high", self.high, remedy)
        rows = [self.clipped(row, torch.ones_like(row)) for row in w.reshape(-1, w.shape[-1])]
        return torch.stack(rows).view(w.shape)

    def clipped(self, w: Tensor, copies: Tensor) -> Tensor:
        """The projection of one vector in which the entry `w_j` occurs `copies_j` times, once for each.

        Their sum falls with the threshold and is linear between the corners `w_j - high` and `w_j`; a binary search
        finds the last corner at which it is 1 or more. Entries are seen from the corner's own: huge ones blur nothing.
        """
        d = len(w)
        order = torch.cat([w - self.high, w]).argsort(stable=True).tolist()

        def seen_from(corner: int) -> Tensor:
            return w - w[corner % d] + (self.high if corner < d else 0)

        low, end = 0, 2 * d  # the sum is at least 1 at `low`, and less at `end`
        while end - low > 1:
            middle = (low + end) // 2
            enough = copies @ seen_from(order[middle]).clamp_(0, self.high) >= 1
            low, end = (middle, end) if enough else (low, middle)
        u = seen_from(order[low])
        excess = copies @ u.clamp(0, self.high) - 1
        falling = copies @ ((u > 0) & (u <= self.high)).to(w.dtype)
        return (u - excess / falling).clamp_(0, self.high)


def check_projection(key: str, project: Projection, start: Tensor) -> None:
    """Refuse what is no projection along the last axis, and a start outside of its set.

    Args:
        key: name of the argument, for the error.
        project: the projection.
        start: a point that must be in its set.
    """
    if isinstance(project, Everywhere):
        return
    name = _name(project)
    slope = torch.linspace(-2, 3, len(start), dtype=start.dtype, device=start.device)
    probe = torch.stack([start, start + slope, start - 10 * slope])
    once, alone = check_map(key, project, probe), check_map(key, project, probe[1])
    if not torch.allclose(once[1], alone, atol=1e-5):
        raise BadInput(key, name, "mixes vectors of several clients; project each along the last axis by itself")
    if not torch.allclose(project(once.clone()), once, atol=1e-5):
        raise BadInput(key, name, "is not a projection: applied twice it moves the point again")
    if not torch.allclose(once[0], start, atol=1e-5):
        raise BadInput(key.replace("project", "start"), start.tolist()[:5], f"lies outside of {key}; start inside")


def check_map(key: str, project: Projection, points: Tensor) -> Tensor:
    """Raise `BadInput` unless it maps points to points of the same shape.

    Args:
        key: name of the argument, for the error.
        project: the map.
        points: points to try it with.
    """
    if isinstance(project, type) or not callable(project):
        raise BadInput(key, project, "must be a function, such as fs.projections.Ball(1.0)")
    name = _name(project)
    try:
        image: object = project(points.clone())
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as reason:
        first = str(reason).strip().split("\n")[0]
        raise BadInput(key, name, f"cannot take points of shape {tuple(points.shape)}: {first}") from reason
    if not isinstance(image, Tensor):
        raise BadInput(key, name, f"gave a {type(image).__name__}; it must give the nearest point, a tensor")
    if image.shape != points.shape or image.dtype != points.dtype:
        got, want = (f"{tuple(v.shape)} {v.dtype}" for v in (image, points))
        raise BadInput(key, got, f"changed the shape or type of {want}; project along the last axis")
    return image


def _name(project: object) -> str:
    return str(getattr(project, "__name__", type(project).__name__))
