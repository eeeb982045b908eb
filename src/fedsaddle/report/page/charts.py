"""Charts as inline SVG: lines with bands, forest plots, heat maps and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True)
class Axis:
    """An axis: its label and its range; `percent` shows shares as percentages."""

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False


@dataclass(frozen=True)
class Line:
    """A line of a chart, with a band around it where `low` and `high` are given.

    `style` is one of "first", "second", "third", ... "eighth" (colours and dashes that colour-blind readers can tell
    apart), "guide" (a grey dashed reference) or "faint" (one of many, such as a site; named when it is pointed at).
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "first"
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    markers: bool = False  # dots at the points; without a line, if `joined` is False
    joined: bool = True


def line_chart(lines: Sequence[Line], x: Axis, y: Axis, *, square: bool = False, key: str = "") -> Markup:
    """Lines and bands over common axes with a legend; pointing or arrow keys show the values at an x."""
    raise NotImplementedError


@dataclass(frozen=True)
class ForestRow:
    """A row of a forest plot: a name, counts, a value and its interval; None where `why_not` says why."""

    name: str
    counts: Sequence[str]
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = "row"  # or "total": a diamond below a rule
    why_not: str = ""
    second: tuple[float, float, float] | None = None  # value, low, high of another model on the same row


def forest(
    rows: Sequence[ForestRow], axis: Axis, *, heads: Sequence[str], reference: float | None = None, key: str = ""
) -> Markup:
    """Values with intervals, one below the other, and their text beside them; `heads` names the name and counts."""
    raise NotImplementedError


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: Sequence[Sequence[float]], *, key: str = ""
) -> Markup:
    """Shares from 0 to 1 as shades, with the number in each cell where there is room."""
    raise NotImplementedError


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, from 0."""

    name: str
    value: float
    text: str = ""  # shown at its end
    style: str = "first"


def bars(values: Sequence[Bar], axis: Axis, *, key: str = "") -> Markup:
    """Horizontal bars, also below 0."""
    raise NotImplementedError
