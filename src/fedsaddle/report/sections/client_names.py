"""Names of clients, fit to be shown."""

from __future__ import annotations

from collections.abc import Sequence

from fedsaddle.report.stored_run import StoredRun
from fedsaddle.shown import visible


def named(names: Sequence[str], clients: int) -> list[str]:
    """Names of that many clients; numbers where there are too few names.

    Example:
        >>> named(["A"], 2)
        ['A', 'client 2']
    """
    return [*map(visible, names[:clients]), *(f"client {i + 1}" for i in range(len(names), clients))]


def trained_and_tested(run: StoredRun) -> tuple[str, ...]:
    """The clients of a run: those that were trained on, and after them those that are for the test only."""
    if run.is_deployed:
        return tuple(map(str, run.summary["sites"]))
    return (*run.client_names, *map(str, run.split.get("test_clients") or {}))
