"""The tasks of an algorithm by name, for whoever asks across a wire."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

from fedsaddle.errors import BadMessage
from fedsaddle.federation.clients import Task


def task_of(algorithm: Any, name: str) -> Task[Any]:
    """The algorithm's task of that name: a public method with the arguments (own, sent, site)."""
    method = getattr(type(algorithm), name, None) if name.isidentifier() and not name.startswith("_") else None
    if not inspect.isfunction(method) or not _takes_a_site(method):
        raise BadMessage(f"{type(algorithm).__name__} has no task {name!r:.40}")
    task: Callable[[Any, Any, Any], tuple[Any, Any]] = getattr(algorithm, name)
    return task


@cache
def _takes_a_site(method: Callable[..., Any]) -> bool:
    return [*inspect.signature(method).parameters][1:] == ["own", "sent", "site"]
