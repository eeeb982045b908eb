"""Rows from datasets of PyTorch: one for each client, or one for all with the client of each row."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from fedsaddle.arguments import choice, flag
from fedsaddle.data.files.array_features import ArrayFeatures
from fedsaddle.data.files.arrays import site_names, without_torch
from fedsaddle.data.files.cells import Task, targets
from fedsaddle.data.files.npz import feature_array
from fedsaddle.data.files.tables import check_clients
from fedsaddle.data.splits.client_names import plain_names
from fedsaddle.data.table import Array, Dataset, Table
from fedsaddle.errors import BadInput

CLIENT = "client"  # the column to split by
PAIR = "must be a pair of features and label, such as TensorDataset(x, y) gives"


def from_datasets(
    datasets: Any, clients: ArrayLike | None = None, *, standardise: bool = False, task: Task = "auto"
) -> Dataset:
    """Rows of `torch.utils.data.Dataset`s; split them afterwards with `Natural()`.

    Each row is a pair of features, a tensor or an array of any shape, and a label. All rows are read once, so that
    random transforms are drawn once. Names of classes are those that the datasets say in `classes`, as those of
    torchvision do.

    Arguments:
        datasets: A dictionary of client -> dataset, a list of datasets, one a client, or one dataset.
        clients: For one dataset, the client of each row: text or whole numbers; None: use a split such as `Iid(10)`.
        standardise: Features less their mean, over their deviation, by the training rows; False: as they are.
        task: "auto", "classes" or "regression".

    Raises:
        BadInput: for what is no dataset, and for rows that cannot be used, by name.

    Example:
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
    x, y = _rows(named)
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


def _named(datasets: Any, clients: object) -> dict[str, Any]:
    """Client -> dataset; a single dataset has no client's name."""
    several = isinstance(datasets, Mapping) or (
        isinstance(datasets, Sequence) and not isinstance(datasets, str | bytes)
    )
    if not several:
        _check_dataset("datasets", datasets)
        return {"": datasets}
    if len(datasets) < 2:
        remedy = "one client is no federation; give two datasets or more, or one dataset with clients="
        raise BadInput("len(datasets)", len(datasets), remedy)
    if isinstance(datasets, Mapping):
        found = {str(name): own for name, own in datasets.items()}
        if len(found) < len(datasets) or "" in found:
            raise BadInput("datasets", list(datasets), "every client needs a name of its own")
    else:
        found = dict(zip(plain_names(len(datasets)), datasets, strict=True))
    for name, own in found.items():
        _check_dataset(f"datasets[{name!r}]", own)
    if clients is not None:
        raise BadInput("clients", "given", "is for one dataset with rows of all clients; leave it out")
    return found


def _check_dataset(key: str, dataset: Any) -> None:
    sized = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not sized or isinstance(dataset, str | bytes | list | tuple | dict | range | np.ndarray | torch.Tensor | type):
        kind = type(dataset).__name__
        raise BadInput(key, kind, "must be a torch.utils.data.Dataset with __len__ and __getitem__")
    if not len(dataset):
        raise BadInput(f"len({key})", 0, "has no rows; leave the client out")


def _rows(named: Mapping[str, Any]) -> tuple[Array, Array]:
    """The features and the labels of all rows, client by client."""
    xs: list[Array] = []
    ys: list[Any] = []
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


def _pairs(named: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Where each row is, for complaints, and the row."""
    for name, own in named.items():
        for at in range(len(own)):
            yield f"row {at} of {name!r}" if name else f"row {at}", own[at]


def _numbers(where: str, value: Any) -> Array:
    given = np.asarray(without_torch(f"features of {where}", value))
    if given.dtype.kind not in "fiub":
        raise BadInput(
            f"features of {where}", type(value).__name__, "must be a tensor; use a transform such as ToTensor"
        )
    return given.reshape(1) if given.ndim == 0 else given


def _label(where: str, value: Any) -> Any:
    given = np.asarray(without_torch(f"label of {where}", value))
    if given.size != 1 or given.dtype.kind not in "fiubU":
        raise BadInput(f"label of {where}", type(value).__name__, "must be one number or text")
    return given.reshape(-1)[0].item()


def _class_names(named: Mapping[str, Any], classes: Sequence[str]) -> tuple[str, ...]:
    """The names that all datasets say, if their classes are 0, 1 and so on."""
    said = {tuple(map(str, getattr(own, "classes", None) or ())) for own in named.values()}
    names = next(iter(said)) if len(said) == 1 else ()
    plain = list(classes) == [str(k) for k in range(len(classes))]
    return names if plain and len(names) == len(classes) else tuple(classes)
