"""The [data] section of a deployment, written out from a sample table: which columns sites may read, and as what."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedsaddle.config.toml_files import toml_string
from fedsaddle.data.files.column_names import shown
from fedsaddle.data.files.identifiers import by_content, by_name
from fedsaddle.data.files.raw_table import RawColumn
from fedsaddle.data.files.read_table import read_table
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible

LEAST = 5  # rows of a category, for it to leave a site


@dataclass(frozen=True)
class SampleColumns:
    """The columns of a sample that may be read, by kind, and why the others may not."""

    numeric: tuple[str, ...]
    categorical: dict[str, int]  # column -> number of categories
    left_out: dict[str, str]  # column -> why

    def to_toml(self) -> str:
        """Lines of [data]; columns that are left out are comments."""
        kinds = dict.fromkeys(self.numeric, "numbers") | {
            name: f"{count} categories" for name, count in self.categorical.items()
        }
        listed = "".join(f"    {toml_string(name) + ',':<30} # {kind}\n" for name, kind in kinds.items())
        lines = f"features = [                     # the only columns that sites read\n{listed}]\n"
        for key, names in (("numeric", self.numeric), ("categorical", tuple(self.categorical))):
            lines += f"{key} = [{', '.join(map(toml_string, names))}]\n" if names else ""
        if self.left_out:
            lines += "# left out, so that sites do not read them; to keep one, add it to `features` and, if it looks\n"
            lines += "# like an identifier, to `columns` of each site's policy:\n"
            lines += "".join(f"#   {toml_string(name):<28} {why}\n" for name, why in self.left_out.items())
        return lines


def sample_columns(path: Path, label: str, site: str | None, patient: str | None) -> SampleColumns:
    """Judge the columns of a sample: names, identifiers, free text, dates and rare values are left out."""
    roles = {"label": label} | ({"site": site} if site else {}) | ({"patient": patient} if patient else {})
    table = read_table(path, roles=roles)
    out = {name: _why(name, table.notes) for name in table.left_out}
    dates = [c.name for c in table.features if any(f"column {shown(c.name)}: dates" in n for n in table.notes)]
    numeric: list[str] = []
    categorical: dict[str, int] = {}
    for column in table.features:
        reason = by_name(column.name) or ("it holds dates" if column.name in dates else "")
        reason = reason or _rare(column) or by_content(column)
        if reason:
            out[column.name] = reason
        elif column.numbers is not None:
            numeric.append(column.name)
        else:
            categorical[column.name] = len(column.categories)
    if not (numeric or categorical):
        raise BadInput(
            "--sample", str(path), "has no column that may be read: all look like names, identifiers or text"
        )
    return SampleColumns(tuple(numeric), categorical, out)


def _why(name: str, notes: tuple[str, ...]) -> str:
    start = f"column {shown(name)} is left out: "
    said = next((note.removeprefix(start) for note in notes if note.startswith(start)), "nothing to learn from it")
    said = re.sub(r" in all rows.*| is .* in all", " in all rows", said.partition(";")[0])
    return "it has one value in all rows" if "in all rows" in said else visible(said)


def _rare(column: RawColumn) -> str:
    if column.codes is None:
        return ""
    counts = np.bincount(column.codes[column.codes >= 0], minlength=1)
    return "" if counts.max() >= LEAST else f"no value of it occurs {LEAST} times"
