"""Which fields of an algorithm's replies secure aggregation hides, and which stay visible, from their types."""

from __future__ import annotations

from fedsaddle.federation.records import Visibility, visibility
from fedsaddle.federation.tasks import tasks_of


def reply_fields(algorithm: type) -> dict[str, Visibility]:
    """`{"LocalModels.final": Visibility.AVERAGED, ...}` of all tasks of an algorithm, in their order."""
    replies = dict.fromkeys(reply for task in tasks_of(algorithm).values() for reply in task.replies)
    return {f"{kind.__name__}.{name}": seen for kind in replies for name, seen in visibility(kind).items()}
