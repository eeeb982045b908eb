"""Your own rows: a table with a label and a site for each row, from a file or a pandas DataFrame."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
from numpy.lib import format as npy

from fedsaddle.arguments import choice, flag, optional, renamed, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.data.table import ROW, Array, Dataset, Table
from fedsaddle.data.tables.columns import RawTable, Task, client_names, require, targets
from fedsaddle.data.tables.encode_rows import LARGEST
from fedsaddle.data.tables.features import ArrayFeatures, TableFeatures
from fedsaddle.data.tables.judge import group_names
from fedsaddle.data.tables.read import (
    ColumnChoice,
    Roles,
    check_names,
    check_positive_value,
    checked_categories,
    filled,
    labelled_rows,
    optional_text,
    some_rows,
    units,
    with_listed_classes,
    with_positive,
)
from fedsaddle.data.tables.sources import check_delimiter
from fedsaddle.data.tables.treatment import Treatment
from fedsaddle.data.tables.two_numbers import counts_and_exposures, times_and_events
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.processes import available_memory

if TYPE_CHECKING:
    import pandas as pd
    from pandas import DataFrame

_ONE_ARRAY = b"\x93NUMPY"  # how a .npy file begins
_DAMAGED = (
    ValueError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, OSError, OverflowError,
    KeyError, RecursionError, RuntimeError, MemoryError, SyntaxError, tokenize.TokenError,
)  # fmt: skip


def read_npz(path: Path, target: str, client: str | None, standardise: bool, task: Task) -> Dataset:
    """The training table, and the test table if the file has `x_test`; features are standardised after the split."""
    arrays = read_arrays(path)
    for name, key in (("x", "x"), (target, "target"), (client, "client")):
        if name is not None:
            require(name, list(arrays), key)
    ends = ["", "_test"] if "x_test" in arrays else [""]
    if len(ends) == 2:
        for name in (target, client):
            if name is not None:
                require(f"{name}_test", list(arrays), "x_test")
    xs = [feature_array(arrays[f"x{end}"], f"x{end}") for end in ends]
    labels, classes = targets([row_entries(arrays, f"{target}{end}") for end in ends], target, task)
    split_by: list[dict[str, Array]] = [{} for _ in ends]
    if client is not None:
        split_by = [{client: client_names(row_entries(arrays, f"{client}{end}"), client)} for end in ends]
    tables = [
        Table.of(np.empty((len(x), 0), dtype=np.float32), y, by, classes)
        for x, y, by in zip(xs, labels, split_by, strict=True)
    ]
    pending = [ArrayFeatures(x, standardise) for x in xs]
    both = len(tables) == 2
    return Dataset(
        path.stem,
        tables[0],
        tables[1] if both else None,
        path.name,
        "as its owner says",
        pending=pending[0],
        pending_test=pending[1] if both else None,
    )


def read_arrays(path: Path) -> dict[str, Array]:
    """Read all arrays of the file, after a check that each has the size in its header and that all fit into memory.

    Python objects are refused.
    """
    if not path.is_file():
        raise MissingData(f"{path} does not exist; check the path of the data file")
    try:
        with path.open("rb") as file:
            if file.read(len(_ONE_ARRAY)) == _ONE_ARRAY:
                raise ValueError("it holds one array, as a .npy file does")
            with zipfile.ZipFile(file) as archive:
                members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
                _check_memory(members)
                return {m.filename.removesuffix(".npy"): _read_member(archive, m) for m in members}
    except _DAMAGED as error:
        why = str(error).strip() or type(error).__name__
        remedy = f"cannot be read ({why}); save plain numbers and strings with np.savez"
        raise BadInput("path", str(path), remedy) from error


def _check_memory(members: list[zipfile.ZipInfo]) -> None:
    """Raise ValueError if the unpacked arrays do not fit into memory."""
    needed, there = sum(member.file_size for member in members), available_memory()
    if needed > there:
        raise ValueError(f"unpacked it needs {needed / 1e9:,.1f} GB, and {there / 1e9:,.1f} GB are available")


def _read_member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Array:
    """One array of the file."""
    name = member.filename.removesuffix(".npy")
    if member.flag_bits & 1:
        raise ValueError(f"the array {name!r} is encrypted")
    with archive.open(member) as file:
        _check_header(name, file, member.file_size)
    with archive.open(member) as file:
        return np.asarray(npy.read_array(file, allow_pickle=False))


def _check_header(name: str, file: IO[bytes], size: int) -> None:
    """Raise ValueError if an array is not of plain numbers or strings, or not as large as its header states."""
    version = npy.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"the array {name!r} is of an unknown version or has named fields")
    read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, _, dtype = read(file)
    if dtype.hasobject or dtype.names is not None:
        raise ValueError(f"the array {name!r} holds Python objects or named fields")
    if min(shape, default=0) < 0 or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"the array {name!r} has {size:,} bytes, which does not fit its shape {shape}")


def feature_array(x: Array, name: str) -> Array:
    """The array, after a check that its rows are finite numbers."""
    if x.dtype.kind not in "fiub":
        raise BadInput(f"{name}.dtype", str(x.dtype), "must be numbers")
    if x.ndim < 2 or len(x) == 0:
        raise BadInput(f"{name}.shape", x.shape, "needs at least one row, and a feature axis")
    flat = x.reshape(len(x), -1)
    finite = np.abs(flat) <= LARGEST
    if not finite.all():
        row, at = np.argwhere(~finite)[0]
        remedy = "is not a finite number; fill it in, or drop the row or the feature"
        raise BadInput(f"{name}, row {row + 1}, feature {at}", float(flat[row, at]), remedy)
    return x


def row_entries(arrays: dict[str, Array], name: str) -> Array:
    """An array with one entry per row; a matrix with one column is accepted."""
    array = arrays[name]
    if array.ndim == 2 and array.shape[1] == 1:
        return array[:, 0]
    if array.ndim != 1:
        raise BadInput(f"{name}.shape", array.shape, "needs one entry per row")
    return array


MOST_HINGES = 20


def from_file(
    path: str | Path,
    target: str = "y",
    client: str | None = "client",
    features: Sequence[str] | None = None,
    standardise: bool = True,
    task: Task = "auto",
    test_path: str | Path | None = None,
    delimiter: str | None = None,
    positive: str | int | bool | None = None,
    together: str | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    optional_columns: Sequence[str] = (),
    hinges: int = 0,
    site_intercept: bool = False,
    groups: Sequence[str] = (),
    classes: Sequence[str] = (),
    categories: Mapping[str, Sequence[str]] | None = None,
    event: str | None = None,
    exposure: str | None = None,
) -> Dataset:
    """Read `path`; split it afterwards with `Natural(client)`.

    Missing cells are filled with the median of the training rows, or are a category of their own, and flagged; skewed
    numbers are logged, all numbers are standardised and cut to ±5 deviations, rare categories are pooled. All of that
    is fitted by `federate`, on training rows only. Columns that identify a row, hold free text or never change are
    left out and listed in `Dataset.notes`. With `task="auto"` strings, truth values and at most 100 different whole
    numbers are classes; other numbers are a regression target. Rows without a label are left out. A .npz file holds
    arrays x, y, client, and if wanted x_test, y_test, client_test.

    Args:
        path: The file: .csv, .tsv, .txt (also .gz), .parquet, .pq, .xlsx or .npz.
        target: The column to predict.
        client: The column of clients, or None (in a config "") for a split such as `Dirichlet`.
        features: The columns to use; None: all others.
        standardise: False: numbers as they are, only filled.
        task: "auto", "classes" or "regression".
        test_path: A second file with the same columns, as the test rows.
        delimiter: Of a CSV file, one character; None: found from the first lines.
        positive: The value of the target that is class 1; all others together are class 0.
        together: A column, such as the patient, that is no feature and whose rows stay in one part of the split.
        numeric: Columns of numbers; cells that are none become missing.
        categorical: Columns of categories, also where they look like numbers.
        drop: Columns to leave out.
        optional_columns: Columns that may be absent from a file, by agreement; then all their cells are missing.
        hinges: Hinges of each number column, at its quantiles, so that a linear model can bend.
        site_intercept: A 0/1 feature for each client, so that a linear model has an intercept for each.
        groups: Columns for whose values figures are reported apart, such as the sex; also of columns in `drop`.
        classes: All labels there are, in words; needed if a real site has too few rows of one to disclose it.
        categories: Column -> all its values; each has a feature, and all others are "other".
        event: The column that says whether there was an event at the time, the target: two numbers a row, for `fs.Cox`.
        exposure: The column of what a count, the target, refers to, such as person-years: for `fs.losses.Poisson`.

    Raises:
        BadInput: for arguments of another type, and for cells, rows and columns that cannot be used, by name.
        MissingData: for a file that is not there.

    Examples:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     path = Path(folder, "rows.csv")
        ...     _ = path.write_text("age,hospital,ill\\n30,north,yes\\n,south,no\\n50,south,yes\\n")
        ...     data = from_file(path, target="ill", client="hospital")
        >>> data.train.classes, data.train.y.tolist()
        (('no', 'yes'), [1, 0, 1])
    """
    path, client = file_path("path", path), optional_text("client", client) or None
    optional(file_path, "test_path", test_path)
    if delimiter is not None:
        check_delimiter(delimiter)
    listed = checked_categories(categories)
    columns = ColumnChoice(features, numeric, categorical, drop, optional_columns, groups).with_kinds(listed)
    roles = Roles(target, client, together, event, exposure)
    how = treatment(standardise, hinges, site_intercept, listed)
    check_names("classes", classes)
    choice("task", task, ("auto", "classes", "regression"))
    check_positive_value(positive)
    if path.suffix.lower() == ".npz":
        columns.refuse_for_arrays(test_path, together or event or exposure)
        data = read_npz(path, target, client, standardise, task)
    else:
        sources = [path] if test_path is None else [path, Path(test_path)]
        data = _dataset(sources, path.stem, path.name, roles, columns, how, task, delimiter)
    if classes:
        data = _changed(data, lambda table: with_listed_classes(table, classes, target))
    if positive is not None:
        data = _changed(data, lambda table: with_positive(table, positive, target))
    data.check()
    if client is not None:
        check_clients(data, client)
    return data


def from_frame(
    frame: pd.DataFrame,
    *,
    site: str | None,
    label: str,
    patient: str | None = None,
    positive: str | int | bool | None = None,
    features: Sequence[str] | None = None,
    numeric: Sequence[str] = (),
    categorical: Sequence[str] = (),
    drop: Sequence[str] = (),
    hinges: int = 0,
    site_intercept: bool = False,
    standardise: bool = True,
    task: Task = "auto",
    groups: Sequence[str] = (),
    event: str | None = None,
    exposure: str | None = None,
) -> Dataset:
    """The rows of a pandas DataFrame, treated as those of a file; see `from_file`.

    Args:
        frame: The rows; missing values may be NaN, None or NA.
        site: The column of sites, or None.
        label: The column to predict.
        patient: A column whose rows stay in one part of the split.
        positive: The value of the label that is class 1.
        features: The columns to use; None: all others.
        numeric: Columns of numbers; cells that are none become missing.
        categorical: Columns of categories, also where they look like numbers.
        drop: Columns to leave out.
        hinges: Hinges of each number column.
        site_intercept: A 0/1 feature for each site.
        standardise: False: numbers as they are, only filled.
        task: "auto", "classes" or "regression".
        groups: Columns for whose values figures are reported apart; also of columns in `drop`.
        event: The column that says whether there was an event at the time, the label.
        exposure: The column of what a count, the label, refers to.

    Raises:
        BadInput: for arguments of another type, and for cells, rows and columns that cannot be used, by name.

    Examples:
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [30, None, 50], "hospital": ["a", "b", "b"], "ill": [True, False, True]})
        >>> from_frame(frame, site="hospital", label="ill").train.y.tolist()
        [1, 0, 1]
    """
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise BadInput("frame", type(frame).__name__, "must be a pandas DataFrame")
    columns = ColumnChoice(features, numeric, categorical, drop, groups=groups)
    how = treatment(standardise, hinges, site_intercept)
    choice("task", task, ("auto", "classes", "regression"))
    check_positive_value(positive)
    with renamed({"target": "label", "client": "site", "together": "patient"}):
        roles = Roles(label, optional_text("site", site) or None, patient, event, exposure)
        data = _dataset([frame], "frame", "a pandas DataFrame", roles, columns, how, task, None)
    if positive is not None:
        data = replace(data, train=with_positive(data.train, positive, label))
    data.check()
    if roles.client is not None:
        check_clients(data, roles.client)
    return data


def _changed(data: Dataset, change: Callable[[Table], Table]) -> Dataset:
    return replace(data, train=change(data.train), test=None if data.test is None else change(data.test))


def treatment(
    standardise: bool = True,
    hinges: int = 0,
    site_intercept: bool = False,
    categories: Mapping[str, Sequence[str]] | None = None,
    minimum_cell: int = 1,
) -> Treatment:
    """The treatment, after checks of the arguments."""
    return Treatment(
        flag("standardise", standardise),
        whole("hinges", hinges, least=0, most=MOST_HINGES),
        flag("site_intercept", site_intercept),
        whole("minimum_cell", minimum_cell, least=1),
        checked_categories(categories),
    )


def _dataset(
    sources: Sequence[str | Path | DataFrame],
    name: str,
    source: str,
    roles: Roles,
    columns: ColumnChoice,
    how: Treatment,
    task: Task,
    delimiter: str | None,
) -> Dataset:
    raws = [columns.read(sources[0], roles, delimiter)]
    notes = [*raws[0].notes]
    for other in sources[1:]:
        raws.append(columns.like(raws[0]).read(other, roles, delimiter))
    labelled = [labelled_rows(raw, roles.target) for raw in raws]
    notes += [note for _, note in labelled if note]
    raws = [raw if rows is None else some_rows(raw, rows) for raw, (rows, _) in zip(raws, labelled, strict=True)]
    two = roles.event is not None or roles.exposure is not None
    labels, classes = targets([raw.roles["target"] for raw in raws], roles.target, "regression" if two else task)
    if two:
        labels = [_two_numbers(y, raw, roles) for y, raw in zip(labels, raws, strict=True)]
    tables = []
    groups = group_names([raw.groups for raw in raws])
    for raw, y, (rows, _), own in zip(raws, labels, labelled, groups, strict=True):
        by = _split_columns(raw, roles)
        by[ROW] = np.arange(raw.rows) if rows is None else rows
        by |= own
        tables.append(Table.of(np.empty((raw.rows, 0), dtype=np.float32), y, by, classes))
    pending = [TableFeatures(raw.features, how, roles.client or "client", raw.others) for raw in raws]
    return Dataset(
        name,
        tables[0],
        tables[1] if len(tables) > 1 else None,
        source,
        "as its owner says",
        together=roles.together or "",
        pending=pending[0],
        pending_test=pending[1] if len(pending) > 1 else None,
        notes=tuple(notes),
    )


def _two_numbers(y: Array, raw: RawTable, roles: Roles) -> Array:
    if roles.event is not None:
        return times_and_events(y, raw.roles["event"].astype(str), roles.target, roles.event)
    return counts_and_exposures(y, raw.roles["exposure"].astype(str), roles.target, roles.exposure)


def _split_columns(raw: RawTable, roles: Roles) -> dict[str, Array]:
    """Columns to split by: categories, clients and groups."""
    by: dict[str, Array] = {}
    for column in raw.features:
        if column.codes is not None:
            by[column.name] = np.array([*column.categories, ""])[column.codes]
    if roles.client:
        by[roles.client] = filled(raw.roles["client"], roles.client)
    if roles.together:
        by[roles.together] = units(raw.roles["together"].astype(str))
    return by


def check_clients(data: Dataset, client: str) -> None:
    """Raise `BadInput` for a single client, and for test rows of clients that have no training rows."""
    known = np.unique(data.train.columns[client])
    if len(known) < 2:
        remedy = "one client is no federation; choose another column, or client=None and another split"
        raise BadInput(f"clients in column '{client}'", known.tolist(), remedy)
    if data.test is not None:
        new = np.setdiff1d(data.test.columns[client], known)
        if len(new):
            raise BadInput(f"test client in '{client}'", str(new[0]), "has no training rows; drop its test rows")
