"""Labels of two numbers a row: a time and whether there was an event, or a count and its exposure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Bools, Floats
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.text import visible

POSITIVE = {"1", "1.0", "true", "yes", "y", "positive", "pos", "died", "dead", "case"}  # of two values


def times_and_events(times: Array, cells: Array, target: str, column: str) -> Array:
    """Times and events, `(n, 2)`.

    Raises:
        BadInput: for a negative time, a cell without a value, an event that never or always happens.
    """
    _refuse(times < 0, times, target, "is a negative time; correct it, or drop the row")
    values = np.unique(cells)
    if "" in values:
        raise BadInput(f"column {visible(column)!r}", "", "an empty cell says nothing of the event; fill it in")
    some = ", ".join(repr(visible(v)) for v in values[:6])
    if len(values) == 1:
        raise BadInput("event", column, f"never or always happens: all rows have {some}; name another column")
    named = [v for v in values if v.strip().lower() in POSITIVE]
    if len(values) != 2 or len(named) != 1:
        raise BadInput("event", column, f"has the values {some}; write 1 for an event and 0 for none")
    return np.stack([times, cells == named[0]], 1).astype(np.float32)


def counts_and_exposures(counts: Array, cells: Array | None, target: str, column: str | None) -> Array:
    """Counts and exposures, `(n, 2)`; without a column each exposure is 1.

    Raises:
        BadInput: for a count that is negative or not whole, and an exposure that is not above 0.
    """
    _refuse((counts < 0) | (counts != np.round(counts)), counts, target, "is no count; counts are 0, 1, 2 and so on")
    exposure = np.ones(len(counts))
    if cells is not None and column is not None:
        exposure = _numbers(cells, column)
        _refuse(~(np.isfinite(exposure) & (exposure > 0)), exposure, column, "is no exposure, which must be above 0")
    return np.stack([counts, exposure], 1).astype(np.float32)


def _numbers(cells: NDArray[np.str_], column: str) -> Floats:
    try:
        return cells.astype(np.float64)
    except ValueError:
        remedy = "has cells that are empty or no numbers; fill them in, or drop the rows"
        raise BadInput("exposure", column, remedy) from None


def _refuse(wrong: Bools, values: Floats, column: str, why: str) -> None:
    if wrong.any():
        row = int(np.argmax(wrong))
        more = f" ({int(wrong.sum())} such rows)" if wrong.sum() > 1 else ""
        raise BadInput(f"row {row + 1}, column {visible(column)!r}", float(values[row]), why + more)
