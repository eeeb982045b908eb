"""The work of an exchange in the benchmark of deployments, whatever carries it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch

from fedsaddle.federation.wire import Message, pack, unpack


def seconds(once: Callable[[], object], times: int) -> list[float]:
    """Of each call, the first one left out."""
    once()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        once()
        found.append(time.perf_counter() - began)
    return found


def echo(content: bytes) -> bytes:
    """A site's work: read the message, write it again."""
    return pack(unpack(content, {}))


def vector(size: int) -> bytes:
    """A message with so many float32 numbers."""
    return pack(Message({}, {"v": numbers(size)}))


@cache
def numbers(size: int) -> torch.Tensor:
    """Drawn once, so that no watch sees it."""
    return torch.randn(size)
