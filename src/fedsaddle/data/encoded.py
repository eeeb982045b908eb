"""How a feature of the model is made from a column of a table: the same for every site and for later rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["number", "hinge", "missing", "category", "other", "site"]


@dataclass(frozen=True)
class Encoded:
    """One feature.

    - number: `(v - mean) / std`, cut to [-clip, clip]; v is the cell, or `fill` where it is missing, or with `log`
      sign(v) log(1 + |v|) of it.
    - hinge: max(0, number - knot).
    - missing: 1 where the cell is missing, else 0.
    - category: 1 where the cell is `category`, else 0.
    - other: 1 where the cell is not missing and none of `known`, else 0.
    - site: 1 at the site `category`, 0 at other known sites, `unknown` (its share of the training rows) at a new one.
    """

    column: str
    kind: Kind = "number"
    category: str | None = None
    fill: float | None = None
    log: bool = False
    mean: float = 0.0
    std: float = 1.0
    clip: float | None = None
    knot: float = 0.0
    known: tuple[str, ...] = ()
    unknown: float = 0.0
    written: str = ""  # how the file writes the numbers, where not plainly; see `RawColumn.written`

    @property
    def name(self) -> str:
        """What the feature is called in reports."""
        if self.kind in ("category", "site"):
            return f"{self.column}={self.category}"
        return {
            "number": self.column,
            "hinge": f"{self.column}>{self.knot:.2f}",
            "missing": f"{self.column} missing",
            "other": f"{self.column}=other",
        }[self.kind]

    def number(self, cells: Floats) -> Floats:
        """The feature for cells of a number column; NaN: missing."""
        missing = np.isnan(cells)
        if self.kind == "missing":
            return missing.astype(np.float64)
        v = np.where(missing, 0.0 if self.fill is None else self.fill, cells)
        z = (signed_log(v) if self.log else v) - self.mean
        z /= self.std
        if self.clip is not None:
            np.clip(z, -self.clip, self.clip, out=z)
        return z if self.kind == "number" else np.maximum(z - self.knot, 0.0)

    def text(self, cell: str | None) -> float:
        """The feature for one cell of a category column; None: missing."""
        if self.kind == "missing":
            return float(cell is None)
        if self.kind == "other":
            return float(cell is not None and cell not in self.known)
        return float(cell == self.category)

    def site(self, name: str, known: bool) -> float:
        """The feature for all rows of a site."""
        return float(name == self.category) if known else self.unknown

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON, without what has its default."""
        plain = {f: v for f, v in asdict(self).items() if v != getattr(_DEFAULT, f)}
        return {"column": self.column, "kind": self.kind, **{k: _plain(v) for k, v in plain.items()}}

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Encoded:
        """The feature that `to_dict` wrote."""
        return cls(**{**given, "known": tuple(given.get("known", ()))})


_DEFAULT = Encoded("")


@dataclass(frozen=True)
class Seen:
    """What later rows are checked against: the values of category columns in training rows, and unused columns."""

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # column -> sorted
    others: tuple[str, ...] = ()  # columns of the table that are no features


def signed_log(v: Floats) -> Floats:
    """sign(v) log(1 + |v|): log1p that also takes negative numbers."""
    return np.copysign(np.log1p(np.abs(v)), v)


def encode_column(
    features: Sequence[Encoded],
    out: NDArray[np.float32],
    places: Sequence[int],
    numbers: Floats | None = None,
    codes: NDArray[np.int32] | None = None,
    categories: Sequence[str] = (),
) -> None:
    """Write the features of one column into columns of `out (n, d)`, from its numbers or from its category codes."""
    for k, feature in zip(places, features, strict=True):
        if numbers is not None:
            out[:, k] = feature.number(numbers)
        elif codes is not None:
            of = np.array([feature.text(cell) for cell in (*categories, None)], dtype=np.float32)
            out[:, k] = of[codes]  # code -1, missing, is the last


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
