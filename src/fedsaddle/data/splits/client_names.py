"""Names of clients and classes, for reports and charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fedsaddle.shown import visible


def plain_names(clients: int) -> tuple[str, ...]:
    """Plain names: client 0, client 1, ..."""
    return tuple(f"client {i}" for i in range(clients))


def numbered_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels; one that occurs more than once is numbered from 1: "Female 1", "class 3 (1)"."""
    total, seen = Counter(labels), Counter[str]()
    names = []
    for label in labels:
        seen[label] += 1
        number = f"({seen[label]})" if label[-1:].isdigit() else str(seen[label])
        names.append(f"{label} {number}" if total[label] > 1 else label)
    return tuple(names)


def visible_name(name: str) -> str:
    """The name in one line; a blank by its own name, and signs in quotes."""
    blanks = {" ": "space", "\n": "newline", "\t": "tab"}
    if name in blanks:
        return blanks[name]
    return visible(name) if any(c.isalnum() for c in name) else repr(name)
