"""Rows that come after training, read as the training rows were: the same kinds, the same way to write numbers."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fedsaddle.array_types import Floats
from fedsaddle.data.arrays import number_columns
from fedsaddle.data.table import Array, Encoded
from fedsaddle.data.tables.columns import Cells, RawColumn, listed, shown
from fedsaddle.data.tables.encode_rows import LARGEST, MISSING, TRUTH, cell_text, is_missing_number, number, word
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.sources import series_cells
from fedsaddle.data.tables.treatment import Treatment
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, JsonObject

if TYPE_CHECKING:
    from pandas import DataFrame, Series


@dataclass(frozen=True)
class ReadColumn:
    """How the cells of a column were read."""

    name: str
    words: bool = False  # categories, not numbers
    written: str = ""  # how numbers are written; see `RawColumn.written`
    truth: bool = False  # True and true are one category
    dash: bool = False  # "-" is a category, not a missing cell
    known: tuple[str, ...] = ()  # the categories, without rare ones that are pooled
    pooled: bool = False  # rare and new categories have a feature
    lenient: bool = False  # cells that are not numbers are missing, by the user's choice

    @classmethod
    def of(cls, column: RawColumn, features: Sequence[Encoded] = (), lenient: bool = False) -> ReadColumn:
        """How this column was read, and the features that it became."""
        known = set(column.categories)
        words = column.codes is not None
        truth = words and bool(known) and known <= TRUTH
        pooled = any(feature.kind == "other" for feature in features)
        if pooled:  # name rare ones only where they would be taken for another way to write a frequent one
            frequent = {feature.category for feature in features if feature.kind == "category"}
            folded = {_folded(value) for value in frequent if value is not None}
            known = {value for value in known if value in frequent or _folded(value) in folded}
        values = tuple(sorted(known)) if words else ()
        return cls(column.name, words, column.written, truth, "-" in known, values, pooled, lenient)

    def read(self, cells: Series) -> RawColumn:
        """The cells of later rows, a pandas Series.

        Raises:
            BadInput: for a cell of a column of numbers that is not one, and for a known category in another spelling.
        """
        read = series_cells(self.name, cells, "text" if self.words else "infer")
        if self.words:
            return self._categories(read)
        if read.unreadable:
            raise BadInput(f"type of column {shown(self.name)}", read.unreadable, "use numbers, or text as in fit")
        column = RawColumn(self.name, self._numbers(read), written=self.written)
        if not self.lenient:
            self._check_numbers(read, column)
        return column

    def _categories(self, cells: Cells) -> RawColumn:
        assert cells.codes is not None
        known = TRUTH if self.truth else self.known
        values = [word(text, known, MISSING - {"-"} if self.dash else MISSING) for text in cells.texts]
        names = sorted({value for value in values if value is not None})
        places = {value: code for code, value in enumerate(names)}
        at = np.array([-1 if value is None else places[value] for value in values] + [-1], dtype=np.int32)
        self._check_categories(names)
        return RawColumn(self.name, None, at[cells.codes], tuple(names))

    def _numbers(self, cells: Cells) -> Floats:
        if cells.numbers is not None:
            with np.errstate(invalid="ignore"):
                return np.where(np.abs(cells.numbers) <= LARGEST, cells.numbers, np.nan)
        assert cells.codes is not None
        return np.array([*(number(text, self.written) for text in cells.texts), np.nan])[cells.codes]

    def _check_categories(self, names: Sequence[str]) -> None:
        """Refuse other spellings of a known category; warn of a new one that no feature stands for."""
        new = [name for name in names if name not in self.known] if self.known else []
        alike = {_folded(value): value for value in self.known}
        for name in new:
            if _folded(name) in alike:
                remedy = f"is written {shown(alike[_folded(name)])} in the rows of fit; write it so"
                raise BadInput(f"column {shown(self.name)}", name, remedy)
        if new and not self.pooled:
            known = listed(self.known, 10)
            text = (
                f"column {shown(self.name)}: no row of fit has {listed(new, 3)}, so that it counts as none of {known}"
            )
            warnings.warn(text, stacklevel=6)

    def _check_numbers(self, cells: Cells, column: RawColumn) -> None:
        """Refuse cells that are there but became missing."""
        if cells.numbers is not None:
            there = ~np.isnan(cells.numbers)
        else:
            assert cells.codes is not None
            read = np.array([not is_missing_number(text) for text in cells.texts] + [False])
            there = read[cells.codes]
        lost = np.flatnonzero(there & column.missing)
        if len(lost):
            row = int(lost[0])
            cell = float(cells.numbers[row]) if cells.numbers is not None else cells.texts[_code(cells, row)]
            remedy = (
                "is not a number as in the rows of fit; correct it, leave it empty, or list the column in `numeric`"
            )
            raise BadInput(f"row {row + 1}, column {shown(self.name)}", cell, remedy)

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        return {**asdict(self), "known": list(self.known)}


def _folded(value: str) -> str:
    return " ".join(value.casefold().split())


def _code(cells: Cells, row: int) -> int:
    assert cells.codes is not None
    return int(cells.codes[row])


@dataclass(frozen=True, eq=False)
class Encoder:
    """Makes the features of later rows from their columns, by name."""

    encoding: tuple[Encoded, ...]
    columns: tuple[ReadColumn, ...]  # those that the encoding uses

    @classmethod
    def of(cls, encoding: Sequence[Encoded], pending: TableFeatures, numeric: Sequence[str] = ()) -> Encoder:
        """The encoder of a table with the encoding fitted on its training rows.

        In columns that the user listed as `numeric`, a cell that is not a number is missing, as in training.
        """
        used = {feature.column for feature in encoding if feature.kind != "site"}
        features: dict[str, list[Encoded]] = {}
        for feature in encoding:
            features.setdefault(feature.column, []).append(feature)
        own = tuple(
            ReadColumn.of(column, features[column.name], column.name in numeric)
            for column in pending.columns
            if column.name in used
        )
        return cls(tuple(encoding), own)

    def encode(self, rows: Array | DataFrame, names: Sequence[str], sites: Array | None = None) -> NDArray[np.float32]:
        """The features of rows: a matrix of numbers or a DataFrame, whose columns have these names by their place.

        `sites` names the site of each row; a site that was not there in training, or None, has the mean intercept.
        """
        place = {name: k for k, name in enumerate(names)}
        at = [place[column.name] for column in self.columns]
        if isinstance(rows, np.ndarray) and any(column.words for column in self.columns):
            import pandas as pd

            rows = pd.DataFrame(rows)
        if isinstance(rows, np.ndarray):
            own = number_columns(rows[:, at], [column.name for column in self.columns])
        else:
            own = tuple(c.read(rows.iloc[:, k]) for c, k in zip(self.columns, at, strict=True))
        table = TableFeatures(own, Treatment())
        if sites is None:
            return table.encode(self.encoding, [np.arange(len(rows))], [""])
        known, codes = np.unique(sites, return_inverse=True)
        order = np.argsort(codes, kind="stable")
        parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(known)))[:-1])
        encoded = np.empty((len(rows), len(self.encoding)), dtype=np.float32)
        encoded[order] = table.encode(self.encoding, parts, [str(name) for name in known])
        return encoded

    def encode_later(self, rows: object, site: str | None) -> NDArray[np.float32]:
        """The features of rows as a DataFrame, a dictionary or a list of dictionaries.

        Args:
            rows: With all columns that were trained on.
            site: The column of sites; without it all rows are of a site that was not trained on.

        Raises:
            BadInput: for a missing column, and for cells that cannot be read.
        """
        import pandas as pd

        if isinstance(rows, pd.DataFrame):
            frame = rows
        else:
            each = [rows] if isinstance(rows, Mapping) else rows
            if not isinstance(each, Sequence) or not all(isinstance(row, Mapping) for row in each):
                raise BadInput("rows", type(rows).__name__, "must be a DataFrame, a dictionary or a list of them")
            frame = pd.DataFrame.from_records(list(each))
        needed = [column.name for column in self.columns]
        missing = [name for name in needed if name not in frame.columns]
        if missing:
            raise BadInput("rows", f"no column {missing[0]!r}", f"needs the columns {', '.join(map(repr, needed))}")
        sites = None
        if site is not None and site in frame.columns:
            sites = np.array([cell_text(cell).strip() for cell in frame[site]], dtype=str)
        return self.encode(frame[needed], needed, sites)

    def to_dict(self) -> dict[str, Json]:
        """Plain JSON."""
        return {
            "encoding": [feature.to_dict() for feature in self.encoding],
            "columns": [column.to_dict() for column in self.columns],
        }

    @classmethod
    def from_dict(cls, given: JsonObject) -> Encoder:
        """The encoder that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: if it is none.
        """
        encoding = tuple(Encoded.from_dict(feature) for feature in given["encoding"])
        columns = tuple(
            ReadColumn(**{**column, "known": tuple(column.get("known", ()))}) for column in given["columns"]
        )
        if {feature.column for feature in encoding if feature.kind != "site"} != {column.name for column in columns}:
            raise ValueError("other columns than features")
        return cls(encoding, columns)
