"""Reads the cells of CSV, Excel and Parquet files and of DataFrames, in whatever dialect or types they come."""

from __future__ import annotations

import csv
import gzip
import io
import math
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, SupportsFloat, TextIO, cast

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.data.table import Array
from fedsaddle.data.tables.columns import Cells, How, Loaded, Plan, listed, shown, tidy_names
from fedsaddle.data.tables.encode_rows import MISSING, MISSING_NUMBER, cell_text
from fedsaddle.data.tables.parse import DAYS, HOURS
from fedsaddle.errors import BadInput, FedSaddleError, install

if TYPE_CHECKING:
    from pandas import DataFrame, Series
    from pyarrow import ChunkedArray

SUFFIXES = (".csv", ".tsv", ".txt")
_CANDIDATES = ",;\t|"
_UNIT_SEPARATOR = "\x1f"  # stands for a delimiter that is not ASCII, which pandas' parser cannot have
_SAMPLE = 1 << 20  # characters from which the delimiter and the kinds of columns are guessed
_LONGEST = csv.field_size_limit()
_NUMBER_GAPS = sorted(
    {form(m) for m in MISSING_NUMBER for form in (str, str.upper, str.title, str.capitalize)}
    | {"NaN", "NaT", "N/a", "Null"}
)
_USUAL_GAPS = {"", "NA", "NaN", "nan", "NULL"}
_PARTED = re.compile(r"[+-]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+")
_GERMAN = re.compile(r"[+-]?[0-9]+,[0-9]+")
_MARKS = {b"\xef\xbb\xbf": "utf-8-sig", b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}


@dataclass(frozen=True)
class _Layout:
    """How the file is written."""

    encoding: str
    delimiter: str
    header: list[str]
    skip: int  # lines before the rows


def read_csv(path: Path, plan: Plan, delimiter: str | None = None) -> Loaded:
    """Read the columns by the plan; numbers come as numbers, all else as codes of distinct texts."""
    if delimiter is not None:
        check_delimiter(delimiter)
    *first, last = _encodings(path)
    for encoding in first:
        try:
            return _read(path, encoding, plan, delimiter)
        except UnicodeDecodeError:
            continue
    return _read(path, last, plan, delimiter)


def check_delimiter(delimiter: object) -> None:
    """Raise `BadInput` unless it is one character."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n\0':
        raise BadInput("delimiter", delimiter, "use one character, such as ',' or ';'")


def _encodings(path: Path) -> list[str]:
    with _opened(path, "latin-1") as file:
        start = file.read(4).encode("latin-1")
    marked = [name for mark, name in _MARKS.items() if start.startswith(mark)]
    return marked or ["utf-8", "cp1252", "latin-1"]


@contextmanager
def _opened(path: Path, encoding: str) -> Iterator[TextIO]:
    """The decoded text; broken bytes raise one clear `BadInput`."""
    zipped = path.suffix.lower() == ".gz"
    try:
        with gzip.open(path) if zipped else path.open("rb") as raw:
            yield io.TextIOWrapper(cast(BinaryIO, raw), encoding=encoding, newline="")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise BadInput("path", str(path), f"is not a whole gzip file ({error}); copy it again") from error
    except csv.Error as error:
        raise _no_csv(path, error) from error
    except UnicodeDecodeError as error:
        if encoding in ("utf-8", "cp1252"):
            raise
        raise BadInput("path", str(path), f"is not {encoding} text ({error.reason}); save it as UTF-8") from error
    except OSError as error:
        raise BadInput("path", str(path), f"cannot be read ({error.strerror or error})") from error


def _no_csv(path: Path, reason: object) -> BadInput:
    return BadInput("path", str(path), f"is not a CSV file ({str(reason).strip()}); check the quotes and the delimiter")


def _read(path: Path, encoding: str, plan: Plan, delimiter: str | None) -> Loaded:
    with _opened(path, encoding) as file:
        sample = file.read(_SAMPLE)
    if "\0" in sample:
        raise _has_nul(path)
    layout = _layout(path, sample, encoding, delimiter)
    names, notes = tidy_names(layout.header)
    if encoding in ("cp1252", "latin-1"):
        notes.append(f"the file is not UTF-8 and was read as {'Windows-1252' if encoding == 'cp1252' else 'Latin-1'}")
    how = plan(names)
    guess = _guess(path, sample, layout)
    numeric = {i for i, name in enumerate(names) if how[name] != "text" and guess.numeric[i]}
    frame = _frame(path, layout, numeric, guess)
    if len(frame) == 0:
        raise BadInput("path", str(path), "needs a line of column names and at least one row")
    again = {i for i in numeric if how[names[i]] == "infer" and frame[i].dtype.kind not in "iuf"}
    if any(gap.lower() not in MISSING for gap in guess.gaps):  # a column of nothing but "none" holds words
        again |= {i for i in numeric if how[names[i]] == "infer" and frame[i].isna().all()}
    if again:  # text further down: read these columns to the letter
        del frame
        frame = _frame(path, layout, numeric - again, guess)
    rows = len(frame)
    german = [names[i] for i in sorted(numeric - again) if how[names[i]] == "infer" and frame[i].dtype.kind == "f"]
    if guess.decimal == "," and german:
        notes.append(f"columns {listed(german)}: a comma is read as a decimal comma (otherwise: --categorical COLUMN)")
    places = {i: frame[i].to_numpy() for i, name in enumerate(names) if how[name] != "skip"}
    del frame
    columns = {names[i]: _cells(names[i], places.pop(i)) for i in list(places)}
    return Loaded(
        columns, rows, notes, comma="surely" if guess.decimal == "," else "perhaps" if layout.delimiter == ";" else "no"
    )


def _has_nul(path: Path) -> BadInput:
    return BadInput("path", str(path), "holds NUL bytes, so it is not text; save it as UTF-8 CSV")


def _layout(path: Path, sample: str, encoding: str, delimiter: str | None) -> _Layout:
    first, skip = sample.split("\n", 1)[0].strip("\r\ufeff "), 0
    if re.fullmatch(r"sep=.", first, re.IGNORECASE):  # as Excel writes it
        delimiter, skip = delimiter or first[-1], 1
        sample = sample.partition("\n")[2]
    delimiter = delimiter or _sniff(sample, ("\t" if ".tsv" in path.name.lower() else "") + _CANDIDATES)
    source = io.StringIO(sample, newline="")
    read = csv.reader(source, delimiter=delimiter, skipinitialspace=True)
    try:
        header = next((row for row in read if "".join(row).strip()), None)
    except csv.Error as error:
        raise _no_csv(path, error) from error
    if header is not None and len(sample) >= _SAMPLE and not source.read(1):
        raise _no_csv(path, f"the first line has more than {_SAMPLE:,} characters")
    if header is None:
        raise BadInput("path", str(path), "is empty; it needs a line of column names and at least one row")
    return _Layout(encoding, delimiter, header, skip + read.line_num)


def _sniff(sample: str, candidates: str) -> str:
    """The delimiter that gives the most columns, the same number in all lines."""
    lines = sample.splitlines(keepends=True)
    whole = "".join(lines[:-1] if len(lines) > 1 and len(sample) >= _SAMPLE else lines)
    best, score = ",", (False, 1)
    for delimiter in dict.fromkeys(candidates):
        read = csv.reader(io.StringIO(whole, newline=""), delimiter=delimiter, skipinitialspace=True)
        try:
            widths = [len(row) for row in islice((row for row in read if row), 30)]
        except csv.Error:
            continue
        now = (len(set(widths)) == 1, widths[0]) if widths and widths[0] > 1 else (False, 1)
        if now > score:
            best, score = delimiter, now
    return best


@dataclass(frozen=True)
class _Guess:
    numeric: list[bool]  # a column a header name
    decimal: str
    gaps: list[str]  # markers of missing numbers that are likely; others make a column text, which is read again


def _guess(path: Path, sample: str, layout: _Layout) -> _Guess:
    """Which columns hold numbers, from the first rows."""
    lines = io.StringIO(sample, newline="").readlines()
    rows = lines[layout.skip :]
    if len(sample) >= _SAMPLE and len(rows) > 1:
        rows = rows[:-1]
    width = len(layout.header)
    try:
        texts = list(islice(csv.reader(rows, delimiter=layout.delimiter, skipinitialspace=True), 1000))
    except csv.Error as error:
        raise _no_csv(path, error) from error
    if any(len(row) > width for row in texts):  # pandas takes the first row for the width, however long it is
        _refuse_ragged_rows(path, layout)
    gaps = set(_NUMBER_GAPS)
    seen = {t for row in texts for t in row if t in gaps}
    columns = [[t for row in texts if i < len(row) and (t := row[i].strip()) not in gaps] for i in range(width)]
    decimal = "."
    german = [c for c in columns if c and all(map(_GERMAN.fullmatch, c))]
    proven = all(any(len(t.partition(",")[2]) != 3 or t.lstrip("+-")[0] == "0" for t in c) for c in german)
    if german and (layout.delimiter == ";" or (layout.delimiter != "," and proven)):
        with_points = any(
            c and any("." in t and not _PARTED.fullmatch(t) for t in c) and all(map(_is_number, c)) for c in columns
        )
        decimal = "." if with_points else ","
    changed = [[t.replace(".", "_").replace(",", ".") for t in c] if decimal == "," else c for c in columns]
    return _Guess([all(map(_is_number, c)) for c in changed], decimal, sorted(seen | _USUAL_GAPS))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


class _Counted:
    """The text as pandas reads it: counts delimiters and quotes, and keeps the error."""

    def __init__(self, path: Path, file: TextIO, delimiter: str) -> None:
        self.path, self.file, self.delimiter = path, file, delimiter
        self.delimiters, self.quoted = 0, False
        self.error: Exception | None = None

    def read(self, size: int = -1) -> str:
        """The next piece."""
        try:
            text = self.file.read(size)
            if "\0" in text:
                raise _has_nul(self.path)
        except Exception as error:
            self.error = error
            raise
        if not self.delimiter.isascii():
            text = text.replace(self.delimiter, _UNIT_SEPARATOR)
            self.delimiters += text.count(_UNIT_SEPARATOR)
        else:
            self.delimiters += text.count(self.delimiter)
        self.quoted = self.quoted or '"' in text
        return text

    def __iter__(self) -> Iterator[str]:
        return iter(self.file)


def _frame(path: Path, layout: _Layout, numeric: set[int], guess: _Guess) -> DataFrame:
    """All columns by their place: those of numbers inferred, the others as exact text."""
    import pandas as pd

    width = len(layout.header)
    delimiter = layout.delimiter
    how: dict[str, object] = {
        "header": None, "index_col": False, "keep_default_na": False, "skipinitialspace": True, "engine": "c",
        "sep": delimiter if delimiter.isascii() else _UNIT_SEPARATOR, "decimal": guess.decimal,
        "dtype": {i: object for i in range(width) if i not in numeric},
        "na_values": dict.fromkeys(numeric, guess.gaps),
    }  # fmt: skip
    with _opened(path, layout.encoding) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # columns of numbers and text are read again
        for _ in range(layout.skip):
            file.readline()
        source = _Counted(path, file, delimiter)
        try:
            frame = pd.read_csv(source, **how)
        except pd.errors.EmptyDataError:
            return pd.DataFrame()
        except (pd.errors.ParserError, ValueError, OverflowError) as error:
            if source.error is not None:
                raise source.error from None
            _refuse_ragged_rows(path, layout)
            raise _no_csv(path, error) from error
    complete = not source.quoted and source.delimiters == (width - 1) * len(frame)
    if frame.shape[1] != width or not (complete or _is_full(frame[width - 1])):
        _refuse_ragged_rows(path, layout)
    if frame.shape[1] != width:
        raise _no_csv(path, f"its rows have {frame.shape[1]} cells below {width} names")
    return frame


def _is_full(column: Series) -> bool:
    """No cell is empty; pandas fills up short rows with empty cells."""
    if column.dtype.kind in "iuf":
        return bool(column.notna().all())
    return bool((column.notna() & (column != "")).all())


def _refuse_ragged_rows(path: Path, layout: _Layout) -> None:
    """Name the first row whose number of cells is not that of the first line."""
    width = len(layout.header)
    with _opened(path, layout.encoding) as file:
        for _ in range(layout.skip):
            file.readline()
        read = csv.reader(file, delimiter=layout.delimiter, skipinitialspace=True, strict=True)
        rows = (row for row in read if len(row) > 1 or "".join(row).strip(" \t"))  # pandas skips blank lines
        for number, row in enumerate(rows, 1):
            if len(row) != width:
                remedy = f"the first line names {width} columns; mend the row, or the delimiter {layout.delimiter!r}"
                raise BadInput(f"cells in row {number}", len(row), remedy)


def _cells(name: str, column: Array) -> Cells:
    if column.dtype.kind in "iuf":
        return Cells(numbers=column.astype(np.float64, copy=False))
    import pandas as pd

    codes, values = pd.factorize(column)
    texts = [str(t) for t in values]
    longest = max(map(len, texts), default=0)
    if longest > _LONGEST:
        remedy = f"more than {_LONGEST:,} characters in a cell; check the quotes, or cut the text"
        raise BadInput(f"longest cell of column {shown(name)}", longest, remedy)
    return Cells(codes=codes.astype(np.int32), texts=texts)


DAYS_LONG = "days"
NEITHER = (list, tuple, dict, set, frozenset, np.ndarray, bytes, complex, np.complexfloating)  # numbers nor text


def read_frame(frame: object, plan: Plan) -> Loaded:
    """The columns of a frame by the plan; its index is ignored."""
    import pandas as pd

    if not isinstance(frame, pd.DataFrame):
        raise BadInput("source", type(frame).__name__, "must be the path of a file or a pandas DataFrame")
    if isinstance(frame.columns, pd.MultiIndex):
        raise BadInput("column name", list(frame.columns[:1]), "must be one name; flatten the header to one line")
    names, notes = tidy_names(frame.columns)
    how = plan(names)
    if not len(frame):
        raise BadInput("rows", 0, "the table has no rows; at least one is needed")
    columns = {
        name: series_cells(name, frame.iloc[:, at], how[name]) for at, name in enumerate(names) if how[name] != "skip"
    }
    return Loaded(columns, len(frame), notes)


def series_cells(name: str, column: Series, how: How) -> Cells:
    """One column of a frame."""
    import pandas as pd

    kind = column.dtype
    if how == "text" or isinstance(kind, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(kind):
        return _as_text(name, column, declared=isinstance(kind, pd.CategoricalDtype))
    if pd.api.types.is_complex_dtype(kind):
        return Cells(unreadable=str(kind), codes=np.full(len(column), -1, dtype=np.int32))
    if pd.api.types.is_numeric_dtype(kind):
        return Cells(numbers=column.to_numpy(dtype=np.float64, na_value=np.nan))
    if pd.api.types.is_datetime64_any_dtype(kind) or isinstance(kind, pd.PeriodDtype):
        return Cells(numbers=_days(column), meaning=DAYS)
    if pd.api.types.is_timedelta64_dtype(kind):
        return Cells(numbers=column.dt.total_seconds().to_numpy(dtype=np.float64) / 86400, meaning=DAYS_LONG)
    return _from_objects(name, column)


def _days(column: Series) -> Floats:
    import pandas as pd

    if isinstance(column.dtype, pd.PeriodDtype):
        column = column.dt.to_timestamp()
    utc = pd.to_datetime(column, utc=True)
    days: Floats = ((utc - pd.Timestamp(0, tz="UTC")).dt.total_seconds() / 86400).to_numpy(dtype=np.float64)
    return days


def _from_objects(name: str, column: Series) -> Cells:
    import pandas as pd

    there = column[column.notna()]
    if all(isinstance(cell, Real | Decimal) and not isinstance(cell, bool) for cell in there):
        numbers = np.full(len(column), np.nan)
        numbers[column.notna().to_numpy()] = [_float(cell) for cell in there]
        return Cells(numbers=numbers)
    odd = next((cell for cell in there if isinstance(cell, NEITHER)), None)
    if odd is not None:
        return Cells(unreadable=type(odd).__name__, codes=np.full(len(column), -1, dtype=np.int32))
    if pd.api.types.is_object_dtype(column.dtype):  # 1, 1.0 and True are one key, so write before counting
        column = (
            there.map(cell_text).astype(object).reindex(column.index) if column.index.is_unique else _written(column)
        )
    return _as_text(name, column)


def _written(column: Series) -> Series:
    import pandas as pd

    return pd.Series(
        [None if gap else cell_text(c) for c, gap in zip(column, column.isna(), strict=True)], dtype=object
    )


def _float(cell: SupportsFloat) -> float:
    try:
        return float(cell)
    except (ArithmeticError, ValueError):  # too large, or a signalling NaN
        return math.inf


def _as_text(name: str, column: Series, declared: bool = False) -> Cells:
    import pandas as pd

    try:
        codes, values = pd.factorize(column)
    except TypeError:
        raise BadInput(f"type of column {shown(name)}", str(column.dtype), "use numbers or text") from None
    return Cells(codes=codes.astype(np.int32), texts=[cell_text(v) for v in values], declared=declared)


MOST_UNPACKED = 2**31  # bytes within the file, so that a small one cannot fill the memory


def read_excel(path: Path, plan: Plan) -> Loaded:
    """The columns of the first sheet by the plan; its first row that is not blank has the names."""
    import pandas as pd

    try:
        import openpyxl
    except ImportError as error:
        raise BadInput("path", str(path), f"Excel files need openpyxl; {install('excel')}") from error
    try:
        with zipfile.ZipFile(path) as parts:
            size = sum(part.file_size for part in parts.infolist())
        if size > MOST_UNPACKED:
            raise BadInput("path", str(path), f"unpacks to {size:,} bytes; save the table as CSV or Parquet")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of styles and extensions, which do not matter here
            book = openpyxl.load_workbook(path, read_only=True, data_only=True)
            try:
                rows = [list(row) for row in book.worksheets[0].iter_rows(values_only=True)]
                more = book.sheetnames[1:]
            finally:
                book.close()
    except FedSaddleError:
        raise
    except Exception as error:  # openpyxl lets errors of zip and XML through
        reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
        raise BadInput("path", str(path), f"is not a readable .xlsx file ({reason}); save it again") from error
    header, body = _parts(rows)
    if not body:
        raise BadInput("path", str(path), "needs a row of column names and at least one more row")
    loaded = read_frame(pd.DataFrame(body, columns=header, dtype=object), plan)
    if more:
        loaded.notes.append(f"only the first sheet was read; there are {len(more)} more")
    return loaded


def _parts(rows: list[list[object]]) -> tuple[list[object], list[list[object]]]:
    """The names and the rows, without blank rows and blank columns at the end."""
    filled = [row for row in rows if any(_is_there(cell) for cell in row)]
    width = max((at for row in filled for at, cell in enumerate(row, 1) if _is_there(cell)), default=0)
    padded = [[*row[:width], *[None] * (width - len(row))] for row in filled]
    return (padded[0], padded[1:]) if padded else ([], [])


def _is_there(cell: object) -> bool:
    return cell is not None and str(cell).strip() != ""


def read_parquet(path: Path, plan: Plan) -> Loaded:
    """The columns of the file by the plan."""
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


def arrow_cells(column: ChunkedArray, how: How) -> Cells:
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


def _numbers(column: ChunkedArray) -> Floats:
    """Nulls are NaN."""
    return np.array(column.to_numpy(), dtype=np.float64)
