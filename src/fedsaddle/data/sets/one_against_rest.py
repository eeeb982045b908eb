"""Two classes from many: some against the rest, as AUC problems want them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral

import numpy as np

from fedsaddle.data.table import Table
from fedsaddle.errors import BadInput

COLUMN = "class"


def one_against_rest(table: Table, positive: Sequence[int | str]) -> Table:
    """Class 1 are the `positive` classes, by number or name, class 0 are all others; the old ones go to a column."""
    check_positive(positive)
    codes = sorted({_code(entry, table.classes) for entry in positive})
    if not 0 < len(codes) < len(table.classes):
        raise BadInput("positive", list(positive), f"name at least one of the {len(table.classes)} classes, not all")
    names = [table.classes[code] for code in codes]
    classes = ("rest", " or ".join(names) if len(names) <= 3 else f"{len(names)} classes")
    y = np.isin(table.y, codes).astype(np.int64)
    return replace(table, y=y, classes=classes, columns={**table.columns, COLUMN: np.array(table.classes)[table.y]})


def _code(entry: int | str, classes: tuple[str, ...]) -> int:
    if isinstance(entry, str):
        if entry in classes:
            return classes.index(entry)
    elif 0 <= entry < len(classes):
        return int(entry)
    some = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    raise BadInput("positive", entry, f"is none of the classes 0 to {len(classes) - 1}: {some}")


def check_positive(positive: object) -> None:
    """Refuse what is neither None nor a list of classes, by number or name."""
    if positive is None:
        return
    if not isinstance(positive, list | tuple):
        raise BadInput("positive", positive, "must be a list of classes, by number or name, such as [0] or ['cat']")
    for entry in positive:
        if isinstance(entry, bool) or not isinstance(entry, str | Integral):
            raise BadInput("positive", entry, "is no class; give its number or its name")
