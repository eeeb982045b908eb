"""The cells of one column as a file or a frame gave them, before anybody decides what they mean."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fedsaddle.data.table import Array

# The markers of missing cells, in lower case; which ones count depends on the other cells of the column.
_MARKERS = "na n/a #n/a #na n.a. nan <na> nat null #null! . ? - -- --- missing #value! #div/0! #ref! #num!"
MISSING = frozenset(_MARKERS.split()) | {""}  # in any column
NOTHING = frozenset({"none", "nil"})  # missing among numbers and truth values, a value among other words
MISSING_NUMBER = MISSING | NOTHING | {"unknown", "unk", "not known"}  # among numbers; some are values among words
MISSING_ROLE = MISSING - {"-", "--", "---", "missing"}  # those may be classes or sites
TRUTH = frozenset({"true", "false"})

# How to read a column: as it comes, as text to the letter, or not at all.
How = Literal["infer", "text", "skip"]
# Are commas before decimals? "perhaps": cells are parted by ';', "surely": so they are in another column of the file.
Comma = Literal["no", "perhaps", "surely"]
Plan = Callable[[Sequence[str]], dict[str, How]]


@dataclass(frozen=True, eq=False)
class Cells:
    """Numbers, or codes of distinct texts; `meaning` says what numbers stand for that were no numbers in the file."""

    numbers: NDArray[np.float64] | None = None  # (n,), NaN: missing
    codes: NDArray[np.int32] | None = None  # (n,), -1: missing
    texts: Sequence[str] = ()  # in any order; may repeat
    meaning: str = ""  # such as "days since 1970-01-01"
    declared: bool = False  # the frame itself says that this is a category
    unreadable: str = ""  # the type, where the cells are neither numbers nor text

    def __len__(self) -> int:
        return len(self.numbers if self.numbers is not None else self.codes if self.codes is not None else ())


@dataclass(frozen=True, eq=False)
class Loaded:
    """All columns of a source that were wanted."""

    columns: dict[str, Cells]
    rows: int
    notes: list[str] = field(default_factory=list)
    comma: Comma = "no"


def text_cells(codes: Array, texts: Sequence[str], missing: frozenset[str]) -> tuple[NDArray[np.int32], list[str]]:
    """Codes of the sorted distinct texts, stripped; -1 where the text is one of the `missing` markers."""
    stripped = [text.strip() for text in texts]
    if {t for t in stripped if t.lower() not in MISSING} == {"+"}:  # a column of + and -
        missing = missing - {"-"}
    used = np.zeros(len(stripped), dtype=bool)
    used[codes[codes >= 0]] = True
    keep = sorted({t for t, u in zip(stripped, used, strict=True) if u and t.lower() not in missing})
    places = {text: code for code, text in enumerate(keep)}
    new = np.array([places.get(t, -1) for t in stripped] + [-1], dtype=np.int32)  # the last entry is for -1
    return new[codes], keep


def role_cells(cells: Cells) -> NDArray[Any]:
    """The cells of a column with a role, as text; '' where one is missing."""
    assert cells.codes is not None
    codes, texts = text_cells(cells.codes, cells.texts, MISSING_ROLE)
    return np.array([*texts, ""], dtype=object)[codes]
