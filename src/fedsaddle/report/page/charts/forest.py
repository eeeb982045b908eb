"""Forest plots: a table whose rows have a drawing of their value and its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedsaddle.report.page.charts.axes import Axis, grid, scale, share
from fedsaddle.report.page.markup import tag

LONG = 18  # characters of a name that always fit


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
    rows: Sequence[ForestRow],
    axis: Axis,
    *,
    heads: Sequence[str],
    reference: float | None = None,
    models: Sequence[str] = (),
    key: str = "",
) -> Markup:
    """Values with intervals, one below the other, and their text beside them.

    Args:
        rows: The rows from top to bottom.
        axis: Of the values; its label heads the drawing.
        heads: Names the name and the counts, such as `["site", "rows", "deaths"]`.
        reference: Where a line goes through all rows.
        models: The names of the first and the second value of a row, for the legend.
        key: A name for the drawing.
    """
    axis = axis.usable
    first, *counts = heads or [""]
    top = tag(
        "tr",
        tag("th", first, scope="col"),
        *(tag("th", head, scope="col", class_="count") for head in counts),
        tag("th", tag("span", axis.label), scale(axis), scope="col", class_="drawn"),
        tag("th", "value (interval)", scope="col", class_="said"),
    )
    body = tag("tbody", *(_row(row, axis, len(counts)) for row in rows))
    table = tag(
        "table",
        tag("thead", top),
        body,
        class_="rows forest",
        style=grid(axis, reference),
        data_kind="rows",
        data_key=key or None,
        data_x=axis.data,
    )
    return tag("div", _legend(models), table)


def _row(row: ForestRow, axis: Axis, counts: int) -> Markup:
    """A row of the table: name, counts, drawing and text."""
    total, value = row.kind == "total", row.value
    known = value is not None and math.isfinite(value)
    said = axis.interval(value, row.low, row.high) if known and value is not None else (row.why_not or "no value")
    parts: list[Markup] = []
    if known and value is not None:
        shape = _diamond if total and row.low is not None and row.high is not None else _interval
        parts.append(shape(axis, value, row.low, row.high, "s1"))
    texts: list[Markup] = [tag("span", said, class_=None if known else "why")]
    if row.second is not None and math.isfinite(row.second[0]):
        parts.append(tag("svg", _interval(axis, *row.second, "s2"), y=9, class_="beside"))
        texts.append(tag("span", axis.interval(*row.second), class_="other"))
    padded = [*row.counts, *[""] * counts][:counts]
    return tag(
        "tr",
        name_cell(row.name),
        *(tag("td", count, class_="count") for count in padded),
        tag("td", tag("svg", *parts, class_="two" if row.second else None, aria_hidden="true"), class_="drawn"),
        tag("td", *texts, class_="said"),
        class_="total" if total else None,
    )


def name_cell(name: str) -> Markup:
    """The cell that names a row; long names are cut off by the style sheet and shown whole when pointed at."""
    return tag("th", tag("bdi", name), scope="row", title=name if len(name) > LONG else None)


def _interval(axis: Axis, value: float, low: float | None, high: float | None, style: str) -> Markup:
    """A mark and its whisker, with an arrow at an end of the axis beyond which the interval goes on."""
    parts: list[Markup] = []
    if low is not None and high is not None and not math.isnan(axis.place(low) + axis.place(high)):
        left, right = share(axis.clipped(low)), share(axis.clipped(high))
        parts.append(tag("line", x1=left, x2=right, y1=12, y2=12))
        parts += [tag("use", href="#mark-left", x="0%", y=12)] if axis.place(low) < 0 else []
        parts += [tag("use", href="#mark-right", x="100%", y=12)] if axis.place(high) > 1 else []
    if 0 <= axis.place(value) <= 1:
        mark = "#mark-3" if style == "s1" else "#mark-ring"
        parts.append(tag("use", href=mark, x=share(axis.place(value)), y=12))
    return tag("g", *parts, class_=style)


def _diamond(axis: Axis, value: float, low: float | None, high: float | None, style: str) -> Markup:
    """A diamond from the low to the high end of the interval, its tip at the value."""
    left, at, right = axis.clipped(low), axis.clipped(value), axis.clipped(high)
    if math.isnan(left + at + right) or right - left < 1e-6:
        return _interval(axis, value, None, None, style)
    tip = 100 * (at - left) / (right - left)
    shape = tag("path", d=f"M0 6L{tip:.1f} 0L100 6L{tip:.1f} 12Z")
    inner = {"viewBox": "0 0 100 12", "preserveAspectRatio": "none"}
    return tag(
        "svg", shape, class_=f"diamond {style}", x=share(left), y=6, width=share(right - left), height=12, **inner
    )


def _legend(models: Sequence[str]) -> Markup | None:
    """Which mark is whose, where there are two."""
    entries = []
    for name, mark, style in zip(models, ("#mark-3", "#mark-ring"), ("s1", "s2"), strict=False):
        shown = tag("g", tag("line", x1=0, x2=30, y1=7, y2=7), tag("use", href=mark, x=15, y=7), class_=style)
        picture = tag("svg", shown, class_="sample", viewBox="0 0 30 14", aria_hidden="true")
        entries.append(tag("li", picture, tag("bdi", name)))
    return tag("ul", *entries, class_="legend") if entries else None
