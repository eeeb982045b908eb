"""A table of labelled rows with its official test rows, and the encoding of columns as features."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats
from fedsaddle.data.tables.encode_rows import Encoded as Encoded
from fedsaddle.errors import BadInput


@dataclass(frozen=True)
class Seen:
    """Values of category columns in training rows, and unused columns, which later rows are checked against."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> sorted
    others: tuple[str, ...] = ()  # columns of the table that are no features


def encode_column(
    features: Sequence[Encoded],
    out: NDArray[np.float32],
    places: Sequence[int],
    numbers: Floats | None = None,
    codes: NDArray[np.int32] | None = None,
    categories: Sequence[str] = (),
) -> None:
    """Write the features of one column into columns of `out (n, d)`, from its numbers or from its category codes."""
    for k, feature in zip(places, features, strict=True):
        if numbers is not None:
            out[:, k] = feature.number(numbers)
        elif codes is not None:
            of = np.array([feature.text(cell) for cell in (*categories, None)], dtype=np.float32)
            out[:, k] = of[codes]  # code -1, missing, is the last


Array = NDArray[Any]
Pending = TypeVar("Pending", contravariant=True)
ROW = "row of the data set"  # name of the column of row numbers, where a split leaves rows out
GROUP = "group:"  # prefix of a column of subgroups that metrics are reported for


@dataclass(frozen=True, eq=False)
class Table:
    """Labelled rows.

    `x` is float32 `(n, ...)`, or int64 for character codes. `y` is int64 classes, or float32 targets when
    `classes` is empty; it has one entry a row, or `(n, L)` for sequences. `columns` are what one can
    split by, and `features` names the entries of a row (it may be empty).

    Args:
        x: Features, one row each.
        y: Class numbers or targets, one entry each row.
        columns: Further columns by name, such as the client or the patient of each row.
        classes: Names of the classes; empty (default): regression.
        features: Names of the features; empty (default): unnamed.
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
        """Raise `BadInput` for rows that a client could not train on."""
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


class FittedFeatures(Protocol[Pending]):
    """Fitted feature transforms."""

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

    def apply(self, pending: Pending, parts: Sequence[Array], names: Sequence[str]) -> Array:
        """The features of some rows: of the client `names[i]` the rows `parts[i]`, one client after the other."""
        ...


class PendingFeatures(Protocol):
    """Features that are fitted after the split, as their statistics are those of the training rows."""

    def fit(self, train: Sequence[Array], names: Sequence[str]) -> FittedFeatures[Self]:
        """Compute the statistics from the training rows of each of the clients `names`."""
        ...


@dataclass(frozen=True, eq=False)
class Dataset:
    """A named training table, the official test table if there is one, and where they come from.

    Args:
        name: Of the data set.
        train: Training rows.
        test: Official test rows; None: `federate` holds out rows of each client.
        source: Where the rows come from, for reports.
        licence: Of the rows, for reports.
        encoding: How each feature is computed from the columns of a file, to encode later rows the same way.
        together: Column of the group, such as the patient, whose rows must all be training rows or all be test rows;
            empty (default): rows are independent.
        pending: Features of the training table that `federate` fits once it knows the training rows; None (default):
            the table has its features.
        pending_test: The same for the test table.
        notes: What a user should know about the columns, a line each.
        seen: Values and columns of the training rows, which later rows are checked against.
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

    def fit_transform(self) -> Dataset:
        """Fit the features on all training rows, rather than those of one split, and transform both tables."""
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
        fitted_data = replace(
            self,
            train=with_features(self.train, self.pending),
            test=test,
            encoding=fitted.encoding,
            seen=fitted.seen,
            pending=None,
            pending_test=None,
        )
        fitted_data.check()
        return fitted_data

    def check(self) -> None:
        """Check both tables, and that they have the same features and classes."""
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


Singles = NDArray[np.float32]
ROUNDING = 1e-12  # standard deviation of a constant column, relative to its mean


@dataclass(frozen=True, eq=False)
class Scale:
    """A mean and a standard deviation per feature; one pair for all pixels of an image.

    Args:
        mean: Subtracted from each feature.
        std: Divided by.
    """

    mean: Array
    std: Array

    @classmethod
    def fit(cls, x: Array) -> Scale:
        """Compute the moments of `x`; a constant feature gets the standard deviation 1, so it becomes 0."""
        axis = 0 if x.ndim == 2 else None
        with np.errstate(over="ignore", invalid="ignore"):
            mean = np.mean(x, axis=axis, dtype=np.float64)
            std = np.std(x, axis=axis, dtype=np.float64)
        return cls.from_moments(np.asarray(mean), np.asarray(std))

    @classmethod
    def from_moments(cls, mean: Array, std: Array) -> Scale:
        """Build a scale from a known mean and standard deviation."""
        return cls(mean, np.where(is_constant(mean, std), 1.0, std))

    def apply(self, x: Array) -> Singles:
        """Subtract the mean and divide by the standard deviation. Overflow gives NaN, which `Table.check` reports."""
        with np.errstate(over="ignore", invalid="ignore"):
            return np.asarray((x - self.mean) / self.std, dtype=np.float32)


def is_constant(mean: Array | float, std: Array | float) -> NDArray[np.bool_]:
    """Whether a standard deviation is no more than the rounding error of a constant column with that mean.

    The bound is relative to the mean, so that the unit of a column does not matter.

    Examples:
        >>> is_constant(np.array([0.1, 0.0, 1e-15]), np.array([3e-17, 0.0, 1e-15])).tolist()
        [True, True, False]
    """
    return np.asarray(std <= ROUNDING * np.abs(mean))


def ordinal(values: Array, categories: Array) -> NDArray[np.int64]:
    """Positions in the sorted `categories`, and -1 for a value that is not among them."""
    at = np.minimum(np.searchsorted(categories, values), len(categories) - 1)
    return np.where(categories[at] == values, at, -1).astype(np.int64)


def one_hot(values: Array, categories: Array) -> Singles:
    """One column per category; a value that is not among them gives a row of zeros."""
    out = np.zeros((len(values), len(categories)), dtype=np.float32)
    codes = ordinal(values, categories)
    known = np.flatnonzero(codes >= 0)
    out[known, codes[known]] = 1.0
    return out
