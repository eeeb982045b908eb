"""The raw rows of one site's file, before all sites agree on an encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsaddle.data.files.cells import whole
from fedsaddle.data.files.npz import read_arrays
from fedsaddle.data.files.read_columns import read_columns, require
from fedsaddle.data.hold_out import hold_out
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput

Columns = dict[str, Array]


@dataclass(frozen=True, eq=False)
class RawRows:
    """The columns of all rows (a block of features is one column), and the training and test row numbers."""

    features: tuple[str, ...]
    target: str
    columns: Columns
    train: Array  # row numbers
    test: Array


def read_site(
    path: Path,
    target: str = "y",
    client: str | None = "client",
    features: Sequence[str] | None = None,
    test_path: Path | None = None,
    delimiter: str = ",",
    test_share: float = 0.2,
    seed: int = 0,
    stratify: bool = False,
    together: str | None = None,
) -> RawRows:
    """Read a site's CSV, Parquet or .npz file; the client column is ignored, since all rows belong to this site.

    Test rows come from `test_path` or from `x_test` of the .npz file. Otherwise `test_share` of the rows is held out;
    with `stratify`, of each class. Rows with the same value in the column `together` stay on the same side of the
    train/test split; that column is not a feature.
    """
    if path.suffix.lower() == ".npz":
        if together is not None:
            raise BadInput("together", together, "does not work with .npz files; leave it out")
        arrays = read_arrays(path)
        for name in ("x", target):
            require(name, list(arrays), "target" if name == target else "x")
        names: tuple[str, ...] = ("x",)
        train = {"x": arrays["x"], target: arrays[target]}
        test = {k: arrays[f"{k}_test"] for k in train} if "x_test" in arrays else None
    else:
        listed: list[str] = []

        def choose(there: Sequence[str]) -> Sequence[str]:
            require(target, there, "target")
            excluded = (target, client, together)
            wanted = [c for c in there if c not in excluded] if features is None else list(features)
            listed[:] = [require(c, there, "features") for c in wanted]
            return [target, *listed] if together is None else [target, require(together, there, "together"), *listed]

        train = read_columns(path, choose, delimiter)
        names = tuple(listed)
        test = None if test_path is None else read_columns(test_path, choose, delimiter)
    sizes = {len(values) for values in train.values()}
    if len(sizes) > 1 or sizes == {0}:
        raise BadInput(
            "path", str(path), f"the columns have {sorted(sizes)} rows; all need the same number, at least 1"
        )
    n = sizes.pop()
    groups = None if together is None else train.pop(together)
    if test is None:
        labels = _classes(train[target], target) if stratify else None
        kept, _, held = hold_out([np.arange(n)], test_share, seed, labels, groups)
        return RawRows(names, target, train, kept[0], held[0])
    m = len(test[target])
    both = {name: np.concatenate([values, test[name]]) for name, values in train.items()}
    return RawRows(names, target, both, np.arange(n), np.arange(n, n + m))


def _classes(values: Array, target: str) -> Array:
    labels = whole(values, target)
    if labels.dtype.kind == "f" or labels.ndim > 1:
        raise BadInput("stratify", True, "needs data with one class a row; leave it out")
    return labels
