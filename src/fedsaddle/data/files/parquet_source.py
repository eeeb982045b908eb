"""Reads the columns of a Parquet file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.data.files.cells_as_read import Cells, How, Loaded, Plan
from fedsaddle.data.files.column_names import tidy_names
from fedsaddle.data.files.frame_source import cell_text
from fedsaddle.data.files.parse_dates import DAYS, HOURS
from fedsaddle.errors import BadInput, install


def read_parquet(path: Path, plan: Plan) -> Loaded:
    """The columns of the file as the plan says."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise BadInput("path", str(path), f"Parquet needs pyarrow; {install('parquet')}") from error
    try:
        with pq.ParquetFile(path) as file:
            written = file.schema_arrow.names
            names, notes = tidy_names(written)
            how = plan(names)
            wanted = {name: old for name, old in zip(names, written, strict=True) if how[name] != "skip"}
            table = file.read(columns=list(wanted.values()))
            if table.num_rows == 0:
                raise BadInput("path", str(path), "has no rows; at least one is needed")
            table.validate(full=True)
            columns = {name: arrow_cells(table.column(old), how[name]) for name, old in wanted.items()}
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        reason = str(error).strip().partition("\n")[0][:200]
        raise BadInput("path", str(path), f"is not a readable Parquet file ({reason}); write it again") from error
    return Loaded(columns, table.num_rows, notes)


def arrow_cells(column: Any, how: How) -> Cells:
    """One column of an Arrow table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if (
        pa.types.is_nested(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
    ):
        return Cells(unreadable=str(kind), codes=np.full(len(column), -1, dtype=np.int32))
    if how == "infer":
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
            return Cells(numbers=_numbers(column.cast(pa.float64(), safe=False)))
        if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
            stamps = column.cast(pa.timestamp("us", getattr(kind, "tz", None)), safe=False).cast(pa.int64())
            return Cells(numbers=_numbers(stamps.cast(pa.float64(), safe=False)) / 86400e6, meaning=DAYS)
        if pa.types.is_time(kind):
            micros = column.cast(pa.time64("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
            return Cells(numbers=_numbers(micros) / 3600e6, meaning=HOURS)
        if pa.types.is_duration(kind):
            micros = column.cast(pa.duration("us"), safe=False).cast(pa.int64()).cast(pa.float64(), safe=False)
            return Cells(numbers=_numbers(micros) / 86400e6, meaning="days")
    if pa.types.is_null(kind):
        if how == "text":
            return Cells(codes=np.full(len(column), -1, dtype=np.int32))
        return Cells(numbers=np.full(len(column), np.nan))
    coded = pc.dictionary_encode(column).combine_chunks()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.unify_dictionaries().combine_chunks().chunk(0)
    codes = coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
    return Cells(codes=codes, texts=["" if v is None else cell_text(v) for v in coded.dictionary.to_pylist()])


def _numbers(column: Any) -> Any:
    """Nulls are NaN."""
    return np.array(column.to_numpy(), dtype=np.float64)
