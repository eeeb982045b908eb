"""Which fields of an algorithm's replies secure aggregation hides, and which stay visible, from their types."""

from __future__ import annotations

import inspect
from typing import Any, get_args, get_type_hints

from fedsaddle.federation.records import Visibility, visibility


def reply_fields(algorithm: type) -> dict[str, Visibility]:
    """`{"LocalModels.final": Visibility.AVERAGED, ...}` of all tasks of an algorithm, in their order."""
    found: dict[str, Visibility] = {}
    for kind in _replies(algorithm):
        found |= {f"{kind.__name__}.{name}": seen for name, seen in visibility(kind).items()}
    return found


def _replies(algorithm: type) -> list[type]:
    """The records that its tasks send."""
    kinds: dict[type, None] = {}
    for name, method in inspect.getmembers(algorithm, inspect.isfunction):
        parameters = [*inspect.signature(method).parameters][1:]
        if not name.startswith("_") and parameters == ["own", "sent", "site"]:
            returned: Any = get_type_hints(method).get("return")
            if len(parts := get_args(returned)) == 2 and isinstance(parts[1], type):
                kinds[parts[1]] = None
    return list(kinds)
