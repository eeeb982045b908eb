"""Rows that come after training, read as the training rows were: the same kinds, the same way to write numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.encoded import Encoded
from fedsaddle.data.files.arrays import number_columns
from fedsaddle.data.files.cells_as_read import MISSING, NOTHING, TRUTH, How, text_cells
from fedsaddle.data.files.frame_source import series_cells
from fedsaddle.data.files.judge_column import Wish, judge_column
from fedsaddle.data.files.raw_table import RawColumn, empty_column
from fedsaddle.data.files.table_features import TableFeatures
from fedsaddle.data.files.treatment import Treatment
from fedsaddle.data.table import Array


@dataclass(frozen=True)
class ReadColumn:
    """How the cells of a column were read."""

    name: str
    words: bool = False  # categories, not numbers
    written: str = ""  # how numbers are written; see `RawColumn.written`
    truth: bool = False  # True and true are one category
    dash: bool = False  # "-" is a category, not a missing cell

    @classmethod
    def of(cls, column: RawColumn) -> ReadColumn:
        """How this column was read."""
        known = set(column.categories)
        words = column.codes is not None
        return cls(column.name, words, column.written, words and bool(known) and known <= TRUTH, "-" in known)

    def read(self, cells: Any) -> RawColumn:
        """The cells of later rows, a pandas Series; what is no number in a column of numbers is missing."""
        how: How = "text" if self.words else "infer"
        found = series_cells(self.name, cells, how)
        if self.words:
            assert found.codes is not None
            texts = [text.lower() for text in found.texts] if self.truth else found.texts
            missing = (MISSING - {"-"} if self.dash else MISSING) | (NOTHING if self.truth else frozenset())
            codes, names = text_cells(found.codes, texts, missing)
            return RawColumn(self.name, None, codes, tuple(names))
        judged = judge_column(self.name, found, Wish(numeric=True, listed=True, written=self.written)).column
        assert judged is not None  # as it is listed
        return judged if judged.numbers is not None else empty_column(self.name, len(cells))

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return asdict(self)


@dataclass(frozen=True, eq=False)
class Encoder:
    """Makes the features of later rows from their columns, by name."""

    encoding: tuple[Encoded, ...]
    columns: tuple[ReadColumn, ...]  # those that the encoding uses

    @classmethod
    def of(cls, encoding: Sequence[Encoded], pending: TableFeatures) -> Encoder:
        """The encoder of a table whose training rows settled that encoding."""
        used = {feature.column for feature in encoding if feature.kind != "site"}
        own = tuple(ReadColumn.of(column) for column in pending.columns if column.name in used)
        return cls(tuple(encoding), own)

    def encode(self, rows: Any, names: Sequence[str], sites: Array | None = None) -> NDArray[np.float32]:
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
        found = np.empty((len(rows), len(self.encoding)), dtype=np.float32)
        found[order] = table.encode(self.encoding, parts, [str(name) for name in known])
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON."""
        return {
            "encoding": [feature.to_dict() for feature in self.encoding],
            "columns": [column.to_dict() for column in self.columns],
        }

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Encoder:
        """The encoder that `to_dict` wrote.

        Raises:
            KeyError, TypeError, ValueError: if it is none.
        """
        encoding = tuple(Encoded.from_dict(feature) for feature in given["encoding"])
        columns = tuple(ReadColumn(**column) for column in given["columns"])
        if {feature.column for feature in encoding if feature.kind != "site"} != {column.name for column in columns}:
            raise ValueError("other columns than features")
        return cls(encoding, columns)
