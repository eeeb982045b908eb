"""Rows from datasets of Hugging Face or PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedsaddle.arguments import choice, flag, optional, text
from fedsaddle.data.arrays import site_names, without_torch
from fedsaddle.data.splits.partition import plain_names
from fedsaddle.data.table import Array, Dataset, Table
from fedsaddle.data.tables.columns import Task, require, targets
from fedsaddle.data.tables.features import ArrayFeatures
from fedsaddle.data.tables.own import check_clients, feature_array, from_frame
from fedsaddle.data.tables.read import check_names, check_positive_value, with_positive
from fedsaddle.errors import BadInput, install

if TYPE_CHECKING:
    from pandas import DataFrame

INSTALL = f"needs the package datasets; {install('hugging-face')}"


class HuggingFaceRows(Protocol):
    """The part of a `datasets.Dataset` that is used."""

    @property
    def column_names(self) -> Sequence[str]:
        """Names of the columns."""
        ...

    @property
    def features(self) -> Mapping[str, object]:
        """What each column holds."""
        ...

    def __getitem__(self, column: str) -> Sequence[Any]: ...

    def select(self, indices: Sequence[int]) -> Self:
        """Some rows."""
        ...

    def select_columns(self, column_names: list[str]) -> Self:
        """Some columns."""
        ...

    def to_pandas(self) -> DataFrame:
        """A frame."""
        ...


class TorchRows(Protocol):
    """The part of a `torch.utils.data.Dataset` that is used."""

    def __len__(self) -> int: ...

    def __getitem__(self, at: int) -> object: ...


def from_hugging_face(
    dataset: HuggingFaceRows,
    *,
    label: str,
    client: str | None,
    positive: str | int | bool | None = None,
    features: Sequence[str] | None = None,
    standardise: bool = True,
    site_intercept: bool = False,
    task: Task = "auto",
) -> Dataset:
    """A `datasets.Dataset`; split it afterwards with `Natural(client)`.

    Plain columns are treated as those of a table, see `from_frame`. One column of pictures or of arrays makes rows of
    that shape: pictures are `(channels, height, width)` from 0 to 1, and all must be of one size. Labels that the
    dataset names (`ClassLabel`) keep their names and their order.

    Args:
        dataset: The rows, one split: `load_dataset(...)["train"]`, or `Dataset.from_dict(...)`.
        label: The column to predict.
        client: The column of clients, or None for a split such as `Iid(10)`.
        positive: The value of the label that is class 1; all others together are class 0.
        features: The columns to use; None: all others.
        standardise: Less the mean, over the deviation of the training rows; False: as they are.
        site_intercept: A 0/1 feature for each client, for tables.
        task: "auto", "classes" or "regression".

    Raises:
        BadInput: for anything that is not a dataset, and for cells, rows and columns that cannot be used, by name.

    Examples:
        >>> import fedsaddle as fs
        >>> from datasets import Dataset  # doctest: +SKIP
        >>> rows = {"age": [30, 40, 50, 60], "ill": [0, 1, 0, 1], "hospital": ["a", "a", "b", "b"]}
        >>> data = fs.from_hugging_face(Dataset.from_dict(rows), label="ill", client="hospital")  # doctest: +SKIP
    """
    choice("task", task, ("auto", "classes", "regression"))
    check_names("features", features)
    check_positive_value(positive)
    _check(dataset)
    there = list(dataset.column_names)
    require(text("label", label), there, "label")
    if optional(text, "client", client) is not None:
        require(str(client), there, "client")
    chosen = [name for name in there if name not in (label, client)] if features is None else list(features)
    for name in chosen:
        require(name, there, "features")
    names = getattr(dataset.features[label], "names", ())
    data = _rows(dataset, chosen, label, client, site_intercept, standardise, task)
    table = _in_order(data.train, names) if names and data.train.classes else data.train
    return replace(data, train=table if positive is None else with_positive(table, positive, label))


def _rows(
    dataset: HuggingFaceRows,
    chosen: list[str],
    label: str,
    client: str | None,
    site_intercept: bool,
    standardise: bool,
    task: Task,
) -> Dataset:
    """A table, or rows of one column of pictures or arrays."""
    shaped = [name for name in chosen if _is_shaped(dataset.features[name])]
    if not shaped:
        frame = dataset.select_columns(list(dict.fromkeys([*chosen, label, *([client] if client else [])]))).to_pandas()
        frame[label] = _labels(dataset, label)
        return from_frame(
            frame, site=client, label=label, site_intercept=site_intercept, standardise=standardise, task=task
        )
    if len(chosen) > 1:
        remedy = f"{shaped[0]!r} holds pictures or arrays, which stand alone; name it in `features`, and no other"
        raise BadInput("features", chosen, remedy)
    return _shaped(dataset, shaped[0], label, client, standardise, task)


def _check(dataset: object) -> None:
    """Raise `BadInput` for anything but one split in memory."""
    try:
        import datasets
    except ImportError:
        raise BadInput("dataset", type(dataset).__name__, INSTALL) from None
    if isinstance(dataset, datasets.DatasetDict):
        splits = ", ".join(map(repr, dataset))
        raise BadInput("dataset", "DatasetDict", f"has several splits; choose one, such as dataset[...]: {splits}")
    if not isinstance(dataset, datasets.Dataset):
        kind = type(dataset).__name__
        raise BadInput("dataset", kind, "must be a datasets.Dataset; load it without streaming, and choose one split")
    if not len(dataset):
        raise BadInput("len(dataset)", 0, "the dataset has no rows; at least one is needed")


def _is_shaped(kind: object) -> bool:
    """Whether the cells of a column are pictures, arrays or lists of numbers."""
    return type(kind).__name__ in ("Image", "Array2D", "Array3D", "Array4D", "Array5D", "List", "Sequence", "LargeList")


def _labels(dataset: HuggingFaceRows, label: str) -> list[object]:
    """The labels, by name where the dataset names them; -1 is a missing label there."""
    cells = list(dataset[label])
    names = getattr(dataset.features[label], "names", None)
    if names is None:
        return cells
    return [None if cell is None or cell < 0 else names[cell] for cell in cells]


def _shaped(
    dataset: HuggingFaceRows, column: str, label: str, client: str | None, standardise: bool, task: Task
) -> Dataset:
    """Rows of pictures or arrays."""
    labels = _labels(dataset, label)
    labelled = [at for at, one in enumerate(labels) if one is not None]
    if not labelled:
        raise BadInput(f"column {label!r}", None, "has no label at all; choose another column")
    some = dataset.select(labelled)
    x = _stacked(some, column)
    codes, classes = targets([np.array([labels[at] for at in labelled])], label, task)
    by: dict[str, Array] = {} if client is None else {client: site_names("client", list(some[client]))}
    table = Table.of(np.empty((len(x), 0), dtype=np.float32), codes[0], by, classes)
    note = f"{len(labels) - len(labelled):,} rows have no label and are left out"
    data = Dataset(
        "hugging-face",
        table,
        None,
        "a dataset of Hugging Face",
        "as its owner says",
        pending=ArrayFeatures(feature_array(x, column), standardise),
        notes=(note,) if len(labelled) < len(labels) else (),
    )
    data.check()
    if client is not None:
        check_clients(data, client)
    return data


def _in_order(table: Table, names: Sequence[str]) -> Table:
    """The classes in the dataset's own order, as far as they occur."""
    order = [name for name in names if name in table.classes]
    place = np.array([order.index(name) for name in table.classes], dtype=np.int64)
    return replace(table, y=place[table.y], classes=tuple(order))


def _stacked(dataset: HuggingFaceRows, column: str) -> Array:
    """The cells of a column as one array."""
    rows = [_cell(column, at, cell) for at, cell in enumerate(dataset[column])]
    odd = next((at for at, row in enumerate(rows) if row.shape != rows[0].shape), None)
    if odd is not None:
        remedy = f"the first row has {rows[0].shape}; bring all rows to one size, such as by dataset.map"
        raise BadInput(f"shape of row {odd}, column {column!r}", rows[odd].shape, remedy)
    return np.stack(rows)


def _cell(column: str, at: int, cell: Any) -> Array:
    """One picture, channels first and from 0 to 1, or one array."""
    if hasattr(cell, "convert") and hasattr(cell, "getbands"):
        picture = cell if cell.mode in ("L", "RGB") else cell.convert("RGB" if len(cell.getbands()) >= 3 else "L")
        pixels: Array = np.asarray(picture, dtype=np.float32) / 255
        return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)
    try:
        return np.asarray(cell, dtype=np.float32)
    except (TypeError, ValueError):
        raise BadInput(f"row {at}, column {column!r}", type(cell).__name__, "must be numbers or a picture") from None


CLIENT = "client"  # the column to split by
PAIR = "must be a pair of features and label, such as TensorDataset(x, y) gives"


def from_datasets(
    datasets: Mapping[str, TorchRows] | Sequence[TorchRows] | TorchRows,
    clients: ArrayLike | None = None,
    *,
    standardise: bool = False,
    task: Task = "auto",
) -> Dataset:
    """Rows of `torch.utils.data.Dataset`s; split them afterwards with `Natural()`.

    Each row is a pair of features, a tensor or an array of any shape, and a label. All rows are read once, so that
    random transforms are drawn once. Names of classes are those in `classes` of the datasets, as those of
    torchvision have.

    Args:
        datasets: A dictionary of client -> dataset, a list of datasets, one a client, or one dataset.
        clients: For one dataset, the client of each row: text or whole numbers; None: use a split such as `Iid(10)`.
        standardise: Features less their mean, over their deviation, by the training rows; False: as they are.
        task: "auto", "classes" or "regression".

    Raises:
        BadInput: for anything that is not a dataset, and for rows that cannot be used, by name.

    Examples:
        >>> import fedsaddle as fs, torch
        >>> def rows(n):
        ...     return torch.utils.data.TensorDataset(torch.randn(n, 3), torch.arange(n) % 2)
        >>> data = fs.from_datasets({"north": rows(4), "south": rows(6)})
        >>> fs.federate(data, fs.splits.Natural(), test_share=0.0).names
        ('north', 'south')
    """
    choice("task", task, ("auto", "classes", "regression"))
    flag("standardise", standardise)
    named = _named(datasets, clients)
    x, y = _all_rows(named)
    labels, classes = targets([y], "label", task)
    by: dict[str, Array] = {}
    if clients is not None:
        by[CLIENT] = site_names("clients", clients)
        if len(by[CLIENT]) != len(x):
            remedy = f"the dataset has {len(x)} rows; give one entry for each row"
            raise BadInput("len(clients)", len(by[CLIENT]), remedy)
    elif len(named) > 1:
        by[CLIENT] = np.repeat(np.array(list(named)), [len(own) for own in named.values()])
    table = Table.of(np.empty((len(x), 0), dtype=np.float32), labels[0], by, _class_names(named, classes))
    pending = ArrayFeatures(feature_array(x, "features"), standardise)
    data = Dataset("datasets", table, None, "datasets of PyTorch", "as their owner says", pending=pending)
    data.check()
    if by:
        check_clients(data, CLIENT)
    return data


def _named(
    datasets: Mapping[str, TorchRows] | Sequence[TorchRows] | TorchRows, clients: object
) -> dict[str, TorchRows]:
    """Client -> dataset; a single dataset has no client's name."""
    if isinstance(datasets, str | bytes) or not isinstance(datasets, Mapping | Sequence):
        _check_dataset("datasets", datasets)
        return {"": datasets}
    if len(datasets) < 2:
        remedy = "one client is no federation; give two datasets or more, or one dataset with clients="
        raise BadInput("len(datasets)", len(datasets), remedy)
    if isinstance(datasets, Mapping):
        named = {str(name): own for name, own in datasets.items()}
        if len(named) < len(datasets) or "" in named:
            raise BadInput("datasets", list(datasets), "every client needs a name of its own")
    else:
        named = dict(zip(plain_names(len(datasets)), datasets, strict=True))
    for name, own in named.items():
        _check_dataset(f"datasets[{name!r}]", own)
    if clients is not None:
        raise BadInput("clients", "given", "is for one dataset with rows of all clients; leave it out")
    return named


def _check_dataset(key: str, dataset: object) -> None:
    indexed = isinstance(dataset, Sized) and hasattr(dataset, "__getitem__")
    if not indexed or isinstance(dataset, str | bytes | list | tuple | dict | range | np.ndarray | torch.Tensor | type):
        kind = type(dataset).__name__
        raise BadInput(key, kind, "must be a torch.utils.data.Dataset with __len__ and __getitem__")
    if isinstance(dataset, Sized) and not len(dataset):
        raise BadInput(f"len({key})", 0, "has no rows; leave the client out")


def _all_rows(named: Mapping[str, TorchRows]) -> tuple[Array, Array]:
    """The features and the labels of all rows, client by client."""
    xs: list[Array] = []
    ys: list[object] = []
    for where, pair in _pairs(named):
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise BadInput(where, type(pair).__name__, PAIR)
        x = _numbers(where, pair[0])
        if xs and x.shape != xs[0].shape:
            remedy = f"other rows have features of shape {xs[0].shape}; all rows need the same"
            raise BadInput(f"{where}.shape", x.shape, remedy)
        xs.append(x)
        ys.append(_label(where, pair[1]))
    return np.stack(xs), np.array(ys)


def _pairs(named: Mapping[str, TorchRows]) -> Iterator[tuple[str, object]]:
    """Where each row is, for errors, and the row."""
    for name, own in named.items():
        for at in range(len(own)):
            yield f"row {at} of {name!r}" if name else f"row {at}", own[at]


def _numbers(where: str, value: object) -> Array:
    given = np.asarray(without_torch(f"features of {where}", value))
    if given.dtype.kind not in "fiub":
        raise BadInput(
            f"features of {where}", type(value).__name__, "must be a tensor; use a transform such as ToTensor"
        )
    return given.reshape(1) if given.ndim == 0 else given


def _label(where: str, value: object) -> object:
    given = np.asarray(without_torch(f"label of {where}", value))
    if given.size != 1 or given.dtype.kind not in "fiubU":
        raise BadInput(f"label of {where}", type(value).__name__, "must be one number or text")
    return given.reshape(-1)[0].item()


def _class_names(named: Mapping[str, TorchRows], classes: Sequence[str]) -> tuple[str, ...]:
    """The names that all datasets have, if their classes are 0, 1 and so on."""
    listed = {tuple(map(str, getattr(own, "classes", None) or ())) for own in named.values()}
    names = next(iter(listed)) if len(listed) == 1 else ()
    plain = list(classes) == [str(k) for k in range(len(classes))]
    return names if plain and len(names) == len(classes) else tuple(classes)
