"""Read a NumPy .npz file with the arrays x, y, client and, optionally, x_test, y_test, client_test."""

from __future__ import annotations

import lzma
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from fedsaddle.data.files.array_features import ArrayFeatures
from fedsaddle.data.files.cells import LARGEST, Task, client_names, targets
from fedsaddle.data.files.column_names import require
from fedsaddle.data.table import Array, Dataset, Table
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.memory_room import available_memory

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
    """Read all arrays of the file, after a check that each is as large as it says and that all fit into memory.

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
    """Raise ValueError if an array is not of plain numbers or strings, or not as large as its header says."""
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
    """The array, if it is rows of finite numbers."""
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
