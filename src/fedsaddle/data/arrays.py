"""Rows in memory: features, labels and sites as arrays."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.arguments import choice, tensor
from fedsaddle.data.table import Array, Dataset, PendingFeatures, Table
from fedsaddle.data.tables.columns import RawColumn, Task, shown, targets, tidy_names
from fedsaddle.data.tables.encode_rows import LARGEST, cell_text
from fedsaddle.data.tables.features import ArrayFeatures, TableFeatures
from fedsaddle.data.tables.own import check_clients, feature_array, treatment
from fedsaddle.data.tables.read import check_names, check_positive_value, read_table, with_positive
from fedsaddle.data.tables.treatment import Treatment
from fedsaddle.errors import BadInput

if TYPE_CHECKING:
    import pandas as pd

SITE, PATIENT = "site", "patient"  # columns of the table


def from_arrays(
    x: ArrayLike | pd.DataFrame,
    y: ArrayLike,
    sites: ArrayLike | None = None,
    *,
    patients: ArrayLike | None = None,
    positive: str | int | bool | None = None,
    features: Sequence[str] | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    hinges: int = 0,
    site_intercept: bool = False,
    standardise: bool = True,
    task: Task = "auto",
) -> Dataset:
    """Rows in memory; split them afterwards with `Natural("site")`, or with another split where there are no sites.

    A matrix is a table whose columns are all features: NaN is a missing cell, and columns are treated as those of a
    file, see `from_file`. The columns of a DataFrame are read as `from_frame` reads them. Rows of more axes, such as
    pictures `(n, channels, height, width)`, are standardised as a whole.

    Args:
        x: The features, one row each: an array, a tensor or a pandas DataFrame.
        y: The label or target of each row.
        sites: The site of each row: text or whole numbers; None: there are none, use a split such as `Iid(10)`.
        patients: Whom each row belongs to; rows of one patient stay in one part of the split.
        positive: The value of the label that is class 1; all others together are class 0.
        features: Names of the columns of a matrix; None: x0, x1 and so on.
        numeric: Columns of numbers; cells that are none become missing.
        categorical: Columns of categories, also where they look like numbers.
        hinges: Hinges of each number column.
        site_intercept: A 0/1 feature for each site.
        standardise: False: numbers as they are, only filled.
        task: "auto", "classes" or "regression".

    Raises:
        BadInput: for arguments of another type, and for rows that cannot be used, by name.

    Examples:
        >>> import fedsaddle as fs
        >>> rows = fs.from_arrays([[1.0], [2.0], [None], [4.0]], ["no", "yes", "no", "yes"], ["a", "a", "b", "b"])
        >>> fs.federate(rows, fs.splits.Natural("site"), test_share=0.0).train.sizes.tolist()
        [2, 2]
    """
    choice("task", task, ("auto", "classes", "regression"))
    check_positive_value(positive)
    for key, names in (("features", features), ("numeric", numeric), ("categorical", categorical)):
        check_names(key, names)
    how = treatment(standardise, hinges, site_intercept)
    pending, rows, notes = read_features(x, how, features, numeric, categorical)
    labels, classes = targets([_label_cells(y)], "y", task)
    own = None if sites is None else site_names("sites", sites)
    data = rows_dataset(pending, rows, labels[0], classes, own, patients, notes)
    if positive is not None:
        data = replace(data, train=with_positive(data.train, positive, "y"))
    data.check()
    if sites is not None:
        check_clients(data, SITE)
    return data


def rows_dataset(
    pending: PendingFeatures,
    rows: int,
    labels: Array,
    classes: Sequence[str],
    sites: Array | None,
    patients: ArrayLike | None = None,
    notes: Sequence[str] = (),
    name: str = "arrays",
) -> Dataset:
    """A data set of features that are fitted after the split, with labels, sites and patients beside them."""
    by: dict[str, Array] = {}
    if sites is not None:
        by[SITE] = sites
    if patients is not None:
        by[PATIENT] = site_names("patients", patients)
    for key, column in {"y": labels, "sites": by.get(SITE), "patients": by.get(PATIENT)}.items():
        if column is not None and len(column) != rows:
            raise BadInput(f"len({key})", len(column), f"x has {rows} rows; give one entry for each row")
    table = Table.of(np.empty((rows, 0), dtype=np.float32), labels, by, classes)
    together = "" if patients is None else PATIENT
    source = "rows in memory"
    return Dataset(
        name, table, None, source, "as its owner says", together=together, pending=pending, notes=tuple(notes)
    )


def read_features(
    x: object,
    how: Treatment,
    names: Sequence[str] | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
) -> tuple[PendingFeatures, int, tuple[str, ...]]:
    """The features of rows in memory, how many rows there are, and notes about columns."""
    import pandas as pd

    if isinstance(x, pd.DataFrame):
        if names is not None:
            raise BadInput("features", list(names), "a DataFrame has names; leave it out, or give its columns as x")
        raw = read_table(x, roles={}, numeric=list(numeric), categorical=list(categorical))
        return TableFeatures(raw.features, how, SITE), raw.rows, raw.notes
    array = as_array("x", x)
    if array.ndim > 2:
        for key, given in (("features", names), ("numeric", numeric), ("categorical", categorical)):
            if given:
                raise BadInput(key, list(given), "is for rows of one axis; leave it out")
        return ArrayFeatures(feature_array(array, "x"), how.standardise), len(array), ()
    if array.ndim != 2 or not array.size:
        raise BadInput("x.shape", array.shape, "needs at least one row and one feature; use x.reshape(-1, 1)")
    named = column_names(array.shape[1], names)
    if array.dtype.kind in "fiub" and not numeric and not categorical:
        return TableFeatures(number_columns(array, named), how, SITE), len(array), ()
    frame = pd.DataFrame(array, columns=named)
    raw = read_table(frame, roles={}, features=named, numeric=list(numeric), categorical=list(categorical))
    return TableFeatures(raw.features, how, SITE), raw.rows, raw.notes


def column_names(count: int, names: Sequence[str] | None = None) -> list[str]:
    """The names of a matrix's columns."""
    if names is None:
        return [f"x{k}" for k in range(count)]
    if len(names) != count:
        raise BadInput("len(features)", len(names), f"x has {count} columns; name each, or none")
    return tidy_names(names)[0]


def number_columns(array: Array, names: Sequence[str]) -> tuple[RawColumn, ...]:
    """The columns of a matrix of numbers; NaN is a missing cell, infinity is refused."""
    wide = array.astype(np.float64)
    with np.errstate(invalid="ignore"):
        large = np.abs(wide) > LARGEST
    if large.any():
        row, at = np.argwhere(large)[0]
        remedy = "is not a finite number; mend the cell (NaN is a missing one), or drop the row or the column"
        raise BadInput(f"row {row + 1}, column {shown(names[at])}", float(wide[row, at]), remedy)
    return tuple(RawColumn(name, wide[:, k]) for k, name in enumerate(names))


def as_array(key: str, values: object) -> Array:
    """Rows as an array of numbers or of objects; None and text are unchanged."""
    values = without_torch(key, values)
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        raise BadInput(key, values, "must be an array with one row each")
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as reason:
        raise BadInput(key, type(values).__name__, f"cannot be an array ({reason}); give rows of one length") from None
    if array.dtype.kind not in "fiubUO":
        raise BadInput(f"{key}.dtype", str(array.dtype), "must be numbers or text")
    return array


def without_torch(key: str, values: object) -> object:
    """A tensor as an array; anything else unchanged."""
    import torch

    return tensor(key, values, least_axes=0).detach().cpu().numpy() if isinstance(values, torch.Tensor) else values


def site_names(key: str, values: object, missing: str | None = None) -> Array:
    """The names of sites, or of patients, as text; a row without one is refused, or is called `missing`."""
    import pandas as pd

    column = _entries(key, values)
    if column.dtype.kind in "iubU":
        names = column.astype(str)
    else:
        try:
            codes, known = pd.factorize(column)  # -1: missing
        except TypeError:
            at = next(i for i, one in enumerate(column) if not isinstance(one, Hashable))
            raise BadInput(
                f"{key}[{at}]", column[at], "must be text or a whole number; one entry for each row"
            ) from None
        names = np.array([*map(cell_text, known), ""], dtype=str)[codes]
    empty = names == ""
    if empty.any() and missing is None:
        remedy = "is missing; name the site of each row" if key == "sites" else "is missing; name each"
        raise BadInput(f"{key}[{int(np.argmax(empty))}]", "", remedy)
    return np.where(empty, missing, names) if missing is not None else names


def _label_cells(y: object) -> Array:
    """The labels as numbers or text; none may be missing."""
    import pandas as pd

    column = _entries("y", y)
    gaps = np.asarray(pd.isna(column))
    if gaps.any():
        raise BadInput(f"y[{int(np.argmax(gaps))}]", None, "the label is missing; drop the row")
    return np.array([cell_text(cell) for cell in column]) if column.dtype.kind == "O" else column


def _entries(key: str, values: object) -> Array:
    """One entry a row; a column vector is accepted."""
    values = without_torch(key, values)
    if isinstance(values, str | bytes | dict) or not hasattr(values, "__len__"):
        raise BadInput(key, values, "must be a list or an array with one entry for each row")
    try:
        column = np.asarray(values, dtype=object if _is_mixed(values) else None)
    except (TypeError, ValueError) as reason:
        raise BadInput(
            key, type(values).__name__, f"cannot be an array ({reason}); give one entry for each row"
        ) from None
    if column.ndim == 2 and column.shape[1] == 1:
        column = column[:, 0]
    if column.ndim != 1:
        raise BadInput(f"{key}.shape", column.shape, "needs one entry for each row")
    return column


def _is_mixed(values: object) -> bool:
    """Whether a list mixes text with other entries: numpy would write None as 'None'."""
    return isinstance(values, list | tuple) and len({isinstance(one, str) for one in values}) > 1
