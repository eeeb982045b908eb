"""Bars: a table whose rows have a bar from 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedsaddle.report.page.charts.axes import Axis, grid, scale, share
from fedsaddle.report.page.charts.forest import name_cell
from fedsaddle.report.page.charts.lines import style_class
from fedsaddle.report.page.markup import tag


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, from 0."""

    name: str
    value: float
    text: str = ""  # shown at its end
    style: str = "first"


def bars(values: Sequence[Bar], axis: Axis, *, key: str = "") -> Markup:
    """Horizontal bars, also below 0."""
    axis = axis.usable
    head = tag(
        "tr",
        tag("td"),
        tag("th", tag("span", axis.label), scale(axis), scope="col", class_="drawn"),
        tag("td", class_="said"),
    )
    return tag(
        "table",
        tag("thead", head),
        tag("tbody", *(_row(bar, axis) for bar in values)),
        class_="rows bars",
        style=grid(axis),
        data_kind="rows",
        data_key=key or None,
        data_x=axis.data,
    )


def _row(bar: Bar, axis: Axis) -> Markup:
    at, zero = axis.clipped(bar.value), axis.clipped(axis.low if axis.log else 0.0)
    parts: list[Markup] = []
    if not math.isnan(at):
        left, width = min(at, zero), abs(at - zero)
        parts.append(tag("rect", x=share(left), y=4, width=share(width), height=16, class_=style_class(bar.style)))
    parts.append(tag("line", x1=share(zero), x2=share(zero), y1=0, y2="100%", class_="base"))
    said = bar.text or (axis.interval(bar.value, None, None) if math.isfinite(bar.value) else "no value")
    return tag(
        "tr",
        name_cell(bar.name),
        tag("td", tag("svg", *parts, aria_hidden="true"), class_="drawn"),
        tag("td", said, class_="said"),
    )
