"""A folder of pictures, and a table that names the file, the label and the site of each."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import flag, optional, text, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.data.table import Array, Dataset, Table
from fedsaddle.data.tables.columns import targets
from fedsaddle.data.tables.features import ArrayFeatures
from fedsaddle.data.tables.judge import group_names
from fedsaddle.data.tables.own import check_clients
from fedsaddle.data.tables.read import (
    check_names,
    check_positive_value,
    filled,
    read_groups,
    read_roles,
    units,
    with_listed_classes,
    with_positive,
)
from fedsaddle.errors import BadInput
from fedsaddle.processes import cores

MOST_PIXELS = 4096  # of a side
MOST_DECODED = 89_478_485  # pixels of a file; Pillow's own limit for a warning
MOST_VALUES = 4_000_000_000  # 16 GB of float32


def pictures(
    path: str | Path,
    folder: str | Path | None = None,
    file: str = "file",
    target: str = "label",
    client: str = "site",
    size: int | list[int] = 28,
    colour: bool = False,
    standardise: bool = True,
    positive: str | int | bool | None = None,
    delimiter: str | None = None,
    together: str | None = None,
    groups: Sequence[str] = (),
    classes: Sequence[str] = (),
) -> Dataset:
    """PNG, JPEG and all else that Pillow reads, resized to `size` (a side, or [height, width]).

    Rows are `(1, height, width)`, or `(3, height, width)` with `colour`.

    Args:
        path: A CSV, Parquet or Excel table, one row a picture.
        folder: Where the files are; None: the table's own folder.
        file: The column of file names; they must lie in the folder or below it.
        target: The column to predict.
        client: The column of clients.
        size: A side, or [height, width].
        colour: Three channels in place of one.
        standardise: Pixels / 255, less the mean, over the deviation of all pixels; False: pixels / 255.
        positive: The label that becomes class 1; all others together are class 0.
        delimiter: Of a CSV file, one character; None: found from the first lines.
        together: A column (e.g. patient ID) whose pictures stay on the same side of the train/test split.
        groups: Columns for whose values figures are reported apart, such as the scanner.
        classes: All labels there are; needed if a real site has too few pictures of one to disclose it.
    """
    path = file_path("path", path)
    folder = path.parent if folder is None else file_path("folder", folder)
    for key, name in (("file", file), ("target", target), ("client", client)):
        text(key, name)
    optional(text, "together", together)
    flag("colour", colour)
    flag("standardise", standardise)
    check_positive_value(positive)
    check_names("groups", groups)
    check_names("classes", classes)
    shape = picture_shape(size)

    roles = {"file": file, "target": target, "client": client} | ({} if together is None else {"together": together})
    columns = read_roles(path, roles, delimiter)
    names = filled(columns["file"], file)
    (labels,), classes = targets([filled(columns["target"], target)], target, "classes")
    x = read_pictures(folder, names, file, shape, colour)
    (split_by,) = group_names([read_groups(path, groups, delimiter)])
    split_by[client] = filled(columns["client"], client)
    if together is not None:
        split_by[together] = units(columns["together"].astype(str))
    table = Table.of(np.empty((len(x), 0), dtype=np.float32), labels, split_by, classes)
    if classes:
        table = with_listed_classes(table, classes, target)
    if positive is not None:
        table = with_positive(table, positive, target)
    pending = ArrayFeatures(x, standardise, file)
    data = Dataset(path.stem, table, None, path.name, "as its owner says", together=together or "", pending=pending)
    data.check()
    check_clients(data, client)
    return data


def read_pictures(folder: Path, names: Array, column: str, shape: tuple[int, int], colour: bool) -> Array:
    """The pictures of that folder, `(n, channels, height, width)`, from 0 to 1."""
    if len(names) * shape[0] * shape[1] * (3 if colour else 1) > MOST_VALUES:
        remedy = f"{len(names):,} pictures of this size do not fit into memory; use a smaller one"
        raise BadInput("size", list(shape), remedy)
    from PIL import Image

    def read(row: int) -> NDArray[np.float32]:
        return _read(folder, names[row], row, column, shape, colour)

    with warnings.catch_warnings(), ThreadPoolExecutor(cores()) as threads:  # decoders leave Python to others
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # checked before a picture is decoded
        return np.stack(list(threads.map(read, range(len(names)))))


def picture_shape(size: int | list[int]) -> tuple[int, int]:
    """Height and width."""
    sides = list(size) if isinstance(size, list | tuple) else [size, size]
    try:
        height, width = (whole("size", side, most=MOST_PIXELS) for side in sides)
    except (BadInput, ValueError):
        raise BadInput("size", size, f"give a side from 1 to {MOST_PIXELS}, or [height, width]") from None
    return height, width


def _read(folder: Path, name: str, row: int, column: str, shape: tuple[int, int], colour: bool) -> NDArray[np.float32]:
    from PIL import Image

    where, path = f"row {row + 1}, column '{column}'", _inside(folder, name, row, column)
    try:
        if not path.is_file():
            if path.exists():
                raise ValueError("it is no file")
            remedy = f"there is no such file in '{path.parent}'; mend the table, or say where with `folder`"
            raise BadInput(where, path.name, remedy)
        with Image.open(path) as picture:
            if picture.width * picture.height > MOST_DECODED:
                raise ValueError(f"it has {picture.width} x {picture.height} pixels, more than {MOST_DECODED:,}")
            if picture.format == "EPS":
                raise ValueError("it is a program in PostScript, which is not run")
            small = picture.convert("RGB" if colour else "L").resize(shape[::-1], Image.Resampling.BILINEAR)
    except BadInput:
        raise
    except Exception as reason:  # damaged pictures raise whatever their decoder meets
        remedy = f"cannot be read as a picture ({reason}); replace the file, or drop the row"
        raise BadInput(where, path.name, remedy) from None
    pixels: Array = np.asarray(small, dtype=np.float32) / 255
    return pixels.transpose(2, 0, 1) if colour else pixels[None]


def _inside(folder: Path, name: str, row: int, column: str) -> Path:
    """The path of a picture, which must be in the folder: a table may not point to any file of the machine."""
    path = Path(os.path.abspath(folder / name))
    if path == Path(os.path.abspath(folder)) or not path.is_relative_to(os.path.abspath(folder)):
        remedy = f"is outside of '{folder}'; name a file in that folder, or another folder with `folder`"
        raise BadInput(f"row {row + 1}, column '{column}'", name, remedy)
    return folder / name
