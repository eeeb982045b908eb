"""The raw rows of one site's file, before all sites agree on an encoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
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
    """The columns of all rows (a block of features is one column), and the row numbers of each part."""

    features: tuple[str, ...]
    target: str
    columns: Columns
    train: Array  # row numbers
    test: Array
    validation: Array = field(default_factory=lambda: np.array([], dtype=np.int64))


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
    validation_share: float = 0.0,
) -> RawRows:
    """Read a site's CSV, Parquet or .npz file; the client column is ignored, since all rows belong to this site.

    Test rows come from `test_path` or from `x_test` of the .npz file. Otherwise `test_share` of the rows is held out;
    with `stratify`, of each class. Validation rows come from `x_validation` of the .npz file, or are held out of the
    training rows. Rows with the same value in the column `together` stay on the same side of the
    split; that column is not a feature.
    """
    if path.suffix.lower() == ".npz":
        if together is not None:
            raise BadInput("together", together, "does not work with .npz files; leave it out")
        arrays = read_arrays(path)
        for name in ("x", target):
            require(name, list(arrays), "target" if name == target else "x")
        names: tuple[str, ...] = ("x",)
        train = {"x": arrays["x"], target: arrays[target]}
        test, validation = (
            {k: arrays[f"{k}_{part}"] for k in train} if f"x_{part}" in arrays else None
            for part in ("test", "validation")
        )
    else:
        listed: list[str] = []
        validation = None

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
    shares = 0.0 if test is not None else test_share, 0.0 if validation is not None else validation_share
    labels = _classes(train[target], target) if stratify and any(shares) else None
    held = hold_out([np.arange(n)], shares[0], seed, labels, groups, shares[1])
    tables = [train, test, validation]
    columns = {name: np.concatenate([one[name] for one in tables if one is not None]) for name in train}
    ends = np.cumsum([0 if one is None else len(one[target]) for one in tables])
    parts = (
        (held.test[0] if test is None else np.arange(ends[0], ends[1])),
        (held.validation[0] if validation is None else np.arange(ends[1], ends[2])),
    )
    return RawRows(names, target, columns, held.train[0], *parts)


def _classes(values: Array, target: str) -> Array:
    labels = whole(values, target)
    if labels.dtype.kind == "f" or labels.ndim > 1:
        raise BadInput("stratify", True, "needs data with one class a row; leave it out")
    return labels
