"""A table as it was read: each feature column is numbers or categories, missing cells are marked, nothing is scaled."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

WRITTEN = ("", "decimal comma", "day first", "month first", "hours")


@dataclass(frozen=True, eq=False)
class RawColumn:
    """One feature column before it is encoded. A number column has `numbers`, a category column `codes`.

    >>> age = RawColumn("age", np.array([63.0, np.nan]))
    >>> age.kind, age.missing.tolist()
    ('number', [False, True])
    """

    name: str
    numbers: NDArray[np.float64] | None  # (n,), NaN: missing
    codes: NDArray[np.int32] | None = None  # (n,), -1: missing
    categories: tuple[str, ...] = ()  # what the codes name, sorted
    written: str = ""  # how numbers are written, where not plainly: one of `WRITTEN`

    @property
    def kind(self) -> Literal["number", "category", "empty"]:
        """What the cells are; "empty" if all of them are missing."""
        if self.missing.all():
            return "empty"
        return "category" if self.numbers is None else "number"

    @property
    def missing(self) -> NDArray[np.bool_]:
        """Which cells are missing, (n,)."""
        if self.numbers is not None:
            return np.isnan(self.numbers)
        assert self.codes is not None
        return self.codes < 0


@dataclass(frozen=True, eq=False)
class RawTable:
    """The feature columns, the columns with a role, and what the user should know about how they were read."""

    features: tuple[RawColumn, ...]
    roles: dict[str, NDArray[Any]]  # role ("label", "site" ...) -> its cells as the file writes them, '' for missing
    rows: int
    notes: tuple[str, ...]  # one line each
    left_out: tuple[str, ...] = ()  # columns that were not asked for and hold nothing to learn from
    others: tuple[str, ...] = ()  # all columns of the table that are no features
    groups: dict[str, RawColumn] = field(default_factory=dict)  # columns for whose values figures are reported apart


def empty_column(name: str, rows: int) -> RawColumn:
    """A column whose cells are all missing."""
    return RawColumn(name, np.full(rows, np.nan))
