"""Your own rows: a CSV, Parquet or NumPy .npz file with a target and a client for each row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from pathlib import Path

import numpy as np

from fedsaddle.arguments import choice, flag, optional, text
from fedsaddle.arguments import path as file_path
from fedsaddle.data.files.cells import Task, client_ids, is_number, need_numbers, numbers, targets
from fedsaddle.data.files.encode import Scale, one_hot
from fedsaddle.data.files.npz import read_npz
from fedsaddle.data.files.read_columns import Choose, check_delimiter, read_columns, require
from fedsaddle.data.table import Array, Dataset, Encoded, Table
from fedsaddle.errors import BadInput

MAX_CATEGORIES = 1000

Columns = dict[str, Array]


def from_file(
    path: str | Path,
    target: str = "y",
    client: str | None = "client",
    features: Sequence[str] | None = None,
    standardise: bool = True,
    task: Task = "auto",
    test_path: str | Path | None = None,
    delimiter: str = ",",
    positive: str | int | bool | None = None,
    together: str | None = None,
) -> Dataset:
    """Read `path`; split it afterwards with `Natural(client)`.

    Without `features`, every column but the target and the client is one. Numbers are used as they are,
    or standardised with the statistics of all rows of `path`; a column of strings becomes one 0/1 feature
    per value (a value that only the test file has gives zeros), and can be split by. With `task="auto"`
    strings, truth values and at most 100 different whole numbers are classes; other numbers are a
    regression target. A .npz file holds arrays x, y, client, and if wanted x_test, y_test, client_test.
    `client=None` (or "", in a config) says that there is no client column, for a split such as `Dirichlet`.
    `positive` is the value of the target that becomes class 1; all others together are class 0. `together` is a column
    that is no feature, such as the patient: of its rows, none are held out for the test while others are trained on.

    Arguments:
        path: The file, .csv, .tsv, .txt, .parquet, .pq or .npz.
        target: The column to predict.
        client: The column of clients, or None.
        features: The columns to use; None: all others.
        standardise: Whether numbers are scaled to mean 0 and deviation 1.
        task: "auto", "classes" or "regression".
        test_path: A second file with the same columns, as the test rows.
        delimiter: Of a CSV file, one character.
        positive: The value of the target that is class 1.
        together: A column whose rows stay on the same side of the train/test split.

    Raises:
        BadInput: for arguments of another type, and for cells, rows and columns that cannot be used, by name.
        MissingData: for a file that is not there.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.csv")
    ...     _ = path.write_text("age,hospital,ill\\n30,north,yes\\n40,south,no\\n50,south,yes\\n")
    ...     data = from_file(path, target="ill", client="hospital")
    >>> data.train.features, data.train.classes, data.train.y.tolist()
    (('age',), ('no', 'yes'), [1, 0, 1])
    """
    path, client = file_path("path", path), optional_text("client", client) or None
    text("target", target)
    flag("standardise", standardise)
    choice("task", task, ("auto", "classes", "regression"))
    optional_text("together", together)
    optional(file_path, "test_path", test_path)
    check_features(features)
    check_delimiter(delimiter)
    check_positive_value(positive)
    if path.suffix.lower() == ".npz":
        for key, value in (("features", features), ("test_path", test_path), ("together", together)):
            if value is not None:
                raise BadInput(key, value, "not for .npz files, which hold the arrays x and x_test; leave it out")
        train, test = read_npz(path, target, client, standardise, task)
        encoding: list[Encoded] = []
    else:
        roles = _Roles(target, client, None if features is None else tuple(features), together)
        raw = [read_columns(path, roles.choose, delimiter, client)]
        if test_path is not None:
            raw.append(read_columns(Path(test_path), _like(raw[0]), delimiter, client))
        (train, *rest), encoding = _tables(raw, roles, standardise, task)
        test = rest[0] if rest else None
    if positive is not None:
        train = with_positive(train, positive, target)
        test = None if test is None else with_positive(test, positive, target)
    data = Dataset(path.stem, train, test, path.name, "as its owner says", tuple(encoding), together or "")
    data.check()
    if client is not None:
        check_clients(data, client)
    return data


def check_features(features: object) -> None:
    """Refuse what is neither None nor a list of names."""
    if features is None:
        return
    if not isinstance(features, list | tuple) or not all(isinstance(name, str) for name in features):
        raise BadInput("features", features, "must be a list of column names, such as ['age', 'sex']")


def optional_text(key: str, value: object) -> str | None:
    """None or a name, which may be empty."""
    return None if value is None else text(key, value, empty=True)


def check_positive_value(positive: object) -> None:
    """Refuse what can be no value of a target column."""
    if positive is not None and not isinstance(positive, str | Integral):
        raise BadInput("positive", positive, "must be a value of the target: text, a whole number or a truth value")


@dataclass(frozen=True)
class _Roles:
    """Which column is what."""

    target: str
    client: str | None
    features: tuple[str, ...] | None
    together: str | None

    def choose(self, there: Sequence[str]) -> Sequence[str]:
        """The columns to read: target, client, who stays together, features."""
        apart = [require(self.target, there, "target")]
        if self.client is not None:
            apart.append(require(self.client, there, "client"))
        if self.together is not None:
            apart.append(require(self.together, there, "together"))
        listed = [c for c in there if c not in apart] if self.features is None else self.features
        wanted = [require(c, there, "features") for c in listed]
        if not wanted or self.target in wanted:
            raise BadInput("features", wanted, f"name at least one column, and not the target '{self.target}'")
        return list(dict.fromkeys([*apart, *wanted]))

    def listed(self, raw: Columns) -> Sequence[str]:
        """The feature columns, in order."""
        return self.features or [c for c in raw if c not in (self.target, self.client, self.together)]


def _like(first: Columns) -> Choose:
    """Chooses in the test file what was read of the training file."""
    return lambda there: [require(name, there, "column of test_path") for name in first]


def _tables(raw: list[Columns], roles: _Roles, standardise: bool, task: Task) -> tuple[list[Table], list[Encoded]]:
    labels, classes = targets([columns[roles.target] for columns in raw], roles.target, task)
    blocks: list[list[Array]] = [[] for _ in raw]
    split_by: list[Columns] = [{} for _ in raw]
    encoding: list[Encoded] = []
    for column in roles.listed(raw[0]):
        values = [columns[column] for columns in raw]
        first = numbers(values[0], column)
        if first is None:
            features, new = _one_hot(values, column)
            for by, strings in zip(split_by, values, strict=True):
                by[column] = strings.astype(str)
        else:
            others = [need_numbers(v, column) for v in values[1:]]
            features, new = _scaled([first, *others], standardise, column)
        for block, feature in zip(blocks, features, strict=True):
            block.append(feature)
        encoding += new
    for named in (roles.client, roles.together):
        if named is not None:
            ids = client_ids([columns[named] for columns in raw], named)
            for by, own in zip(split_by, ids, strict=True):
                by[named] = own
    parts = zip(blocks, labels, split_by, strict=True)
    names = [e.column if e.category is None else f"{e.column}={e.category}" for e in encoding]
    return [Table.of(np.concatenate(block, axis=1), y, by, classes, names) for block, y, by in parts], encoding


def _scaled(values: list[Array], standardise: bool, column: str) -> tuple[list[Array], list[Encoded]]:
    if standardise:
        scale = Scale.fit(values[0][:, None])
        how = Encoded(column, mean=float(scale.mean[0]), std=float(scale.std[0]))
        return [scale.apply(v[:, None]) for v in values], [how]
    with np.errstate(over="ignore"):  # Table.check names the cell
        return [v[:, None].astype(np.float32) for v in values], [Encoded(column)]


def _one_hot(values: list[Array], column: str) -> tuple[list[Array], list[Encoded]]:
    categories = np.unique(values[0])
    if len(categories) > MAX_CATEGORIES:
        odd = next((str(c) for c in categories if not is_number(str(c))), "")
        remedy = f"too many for 0/1 features; leave it out of `features`, or if it holds numbers mend '{odd}'"
        raise BadInput(f"different values of column '{column}'", len(categories), remedy)
    return [one_hot(v.astype(str), categories) for v in values], [Encoded(column, str(c)) for c in categories]


def with_positive(table: Table, positive: str | int | bool, target: str) -> Table:
    """Class 1 is the value `positive` of the target, class 0 all others."""
    index, classes = two_classes(table.classes, positive, target)
    return replace(table, y=(table.y == index).astype(np.int64), classes=classes)


def two_classes(classes: Sequence[str], positive: str | int | bool, target: str) -> tuple[int, tuple[str, str]]:
    """Which of the classes is the positive one, and the names of the two that are left."""
    written = [str(positive), str(positive).lower(), str(int(positive))] if isinstance(positive, bool) else [positive]
    name = next((str(w) for w in written if str(w) in classes), None)
    if name is None:
        there = ", ".join(classes[:10]) or "numbers; say task = 'classes'"
        raise BadInput("positive", positive, f"is no value of column '{target}'; there are: {there}")
    others = [c for c in classes if c != name]
    return list(classes).index(name), (others[0] if len(others) == 1 else f"not {name}", name)


def check_clients(data: Dataset, client: str) -> None:
    """Refuse a single client, and test rows of clients that have no training rows."""
    known = np.unique(data.train.columns[client])
    if len(known) < 2:
        remedy = "one client is no federation; choose another column, or client=None and another split"
        raise BadInput(f"clients in column '{client}'", known.tolist(), remedy)
    if data.test is not None:
        new = np.setdiff1d(data.test.columns[client], known)
        if len(new):
            raise BadInput(f"test client in '{client}'", str(new[0]), "has no training rows; drop its test rows")
