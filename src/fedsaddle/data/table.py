"""A table of labelled rows, and a data set: a training table with or without an official test table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import Encoded, Seen
from fedsaddle.errors import BadInput

Array = NDArray[Any]
ROW = "row of the data set"  # a column: the number of a row in the file, where rows were left out
GROUP = "group:"  # begins the name of a column that tells for whom figures are reported apart


@dataclass(frozen=True, eq=False)
class Table:
    """Labelled rows.

    `x` is float32 `(n, ...)`, or int64 for character codes. `y` is int64 classes, or float32 targets when
    `classes` is empty; it has one entry a row, or `(n, L)` for sequences. `columns` are what one can
    split by, and `features` names the entries of a row (it may be empty).
    """

    x: Array
    y: Array
    columns: dict[str, Array] = field(default_factory=dict)
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        x: Array,
        y: Array,
        columns: Mapping[str, Array] | None = None,
        classes: Sequence[str] = (),
        features: Sequence[str] = (),
    ) -> Table:
        """Make a table from arrays of any numeric type: features become float32, classes int64."""
        labels = np.asarray(y, dtype=np.int64 if classes else np.float32)
        split_by = {name: np.asarray(values) for name, values in (columns or {}).items()}
        return cls(np.asarray(x, dtype=np.float32), labels, split_by, tuple(classes), tuple(features))

    def __len__(self) -> int:
        return len(self.x)

    def check(self) -> None:
        """Raise `BadInput` for anything that a client could not train on."""
        self._check_rows()
        self._check_features()
        self._check_labels()

    def _check_rows(self) -> None:
        rows = len(self.x)
        if rows == 0:
            raise BadInput("number of rows", 0, "the table is empty; check the file, or the filter that made it")
        if self.x.ndim < 2:
            raise BadInput("x.shape", self.x.shape, "needs a row axis and a feature axis; use x.reshape(-1, 1)")
        for name, values in {"y": self.y, **self.columns}.items():
            if len(values) != rows:
                raise BadInput(f"len({name})", len(values), f"x has {rows} rows; give one entry for each row")
        width = int(np.prod(self.x.shape[1:]))
        if self.features and len(self.features) != width:
            raise BadInput("len(features)", len(self.features), f"a row has {width} features; name each, or none")

    def _check_features(self) -> None:
        if self.x.dtype == np.int64:
            if self.x.min() < 0:
                raise BadInput("smallest entry of x", int(self.x.min()), "character codes start at 0")
            return
        if self.x.dtype != np.float32:
            raise BadInput("x.dtype", str(self.x.dtype), "must be float32, or int64 for text; use Table.of(...)")
        if np.isfinite(self.x).all():
            return
        flat = self.x.reshape(len(self.x), -1)
        row, at = np.argwhere(~np.isfinite(flat))[0]
        name = self.features[at] if self.features else f"feature {at}"
        remedy = "is not a finite number; fill it in, or drop the row or the column"
        raise BadInput(f"row {row}, column '{name}'", float(flat[row, at]), remedy)

    def _check_labels(self) -> None:
        if not self.classes:
            if self.y.dtype != np.float32:
                raise BadInput("y.dtype", str(self.y.dtype), "targets must be float32; for classes name them")
            if not np.isfinite(self.y).all():
                row = int(np.argwhere(~np.isfinite(self.y))[0][0])
                raise BadInput(f"y[{row}]", str(self.y[row]), "is not a finite target; drop the row")
            return
        if self.y.dtype != np.int64:
            raise BadInput("y.dtype", str(self.y.dtype), "classes must be int64; use Table.of(...)")
        wrong = np.argwhere((self.y < 0) | (self.y >= len(self.classes)))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            top = len(self.classes) - 1
            raise BadInput(f"y{list(at)}", int(self.y[at]), f"the labels of {top + 1} classes run from 0 to {top}")


class FittedFeatures(Protocol):
    """Features whose statistics are settled."""

    @property
    def encoding(self) -> tuple[Encoded, ...]:
        """How each feature came from a column; empty: not from columns."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """The features' names; may be empty."""
        ...

    @property
    def seen(self) -> Seen:
        """The values and columns of the training rows."""
        ...

    def apply(self, pending: Any, parts: Sequence[Array], names: Sequence[str]) -> Array:
        """The features of some rows: of the client `names[i]` the rows `parts[i]`, one client after the other."""
        ...


class PendingFeatures(Protocol):
    """Features that wait for the split, because their statistics are those of the training rows."""

    def fit(self, train: Sequence[Array], names: Sequence[str]) -> FittedFeatures:
        """Settle the statistics from the training rows of each of the clients `names`."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named training table, the official test table if there is one, and where they come from.

    `encoding` tells for each feature how to make it from the columns of a file, for rows that come later; `together`
    is the column, such as the patient, whose rows must not be parted between training and test. Where features are
    `pending`, the tables have none yet: `federate` makes them when it knows the training rows.
    """

    name: str
    train: Table
    test: Table | None
    source: str
    licence: str
    encoding: tuple[Encoded, ...] = ()
    together: str = ""
    pending: PendingFeatures | None = None  # of the training table
    pending_test: PendingFeatures | None = None
    notes: tuple[str, ...] = ()  # what a user should know about the columns, a line each
    seen: Seen = Seen()

    def settled(self) -> Dataset:
        """The data set with its features, whose statistics are then those of all training rows, not of one split."""
        if self.pending is None:
            return self
        nobody = ("",)
        fitted = self.pending.fit([np.arange(len(self.train))], nobody)

        def with_features(table: Table, pending: PendingFeatures) -> Table:
            x = fitted.apply(pending, [np.arange(len(table))], nobody)
            return replace(table, x=x, features=fitted.names)

        test = self.test
        if test is not None and self.pending_test is not None:
            test = with_features(test, self.pending_test)
        found = replace(
            self,
            train=with_features(self.train, self.pending),
            test=test,
            encoding=fitted.encoding,
            seen=fitted.seen,
            pending=None,
            pending_test=None,
        )
        found.check()
        return found

    def check(self) -> None:
        """Check both tables, and that they fit each other."""
        self.train.check()
        if self.test is None:
            return
        self.test.check()
        if self.test.x.shape[1:] != self.train.x.shape[1:] or self.test.x.dtype != self.train.x.dtype:
            shape = f"{self.test.x.shape[1:]} {self.test.x.dtype}"
            remedy = f"training rows are {self.train.x.shape[1:]} {self.train.x.dtype}; encode both alike"
            raise BadInput("test.x", shape, remedy)
        if self.test.classes != self.train.classes:
            raise BadInput("test.classes", self.test.classes, f"must be those of training, {self.train.classes}")
