"""Charts as inline SVG: lines with bands, forest plots, heat maps and bars.

Drawings use shares of their width, so that they fit a telephone and a sheet of paper while their text keeps its size.
Colours, dashes and marks come from the page's style sheet.

"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np
from markupsafe import Markup

from fedsaddle.report.page.parts import compact, tag

MOST_POINTS = 240  # of a line
MOST_LINES = 20  # of a table behind a line
_FAR = 1000.0  # places beyond this many widths of the axis are as good as infinite
_DECADES = 3.0  # what a log axis shows if it is said to begin at or below 0


@dataclass(frozen=True)
class ChartAxis:
    """An axis of a chart.

    Args:
        label: Of the axis.
        low: Lower end of the range.
        high: Upper end of the range.
        log: Whether the scale is logarithmic.
        percent: Whether shares are shown as percentages.
    """

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False

    @property
    def usable(self) -> ChartAxis:
        """The axis with a range that can be drawn: finite, ascending, not empty, above 0 if it is logarithmic."""
        low, high = sorted(v if math.isfinite(v) else float(i) for i, v in enumerate((self.low, self.high)))
        if self.log:
            high = high if high > 0 else 1.0
            low = low if low > 0 else high / 10**_DECADES
            if math.log10(high / low) < 1e-9:
                low, high = low / 2, high * 2
        elif high - low <= 1e-9 * max(abs(low), abs(high)):
            room = 0.05 * abs(low) or 0.5
            low, high = low - room, high + room
        return replace(self, low=low, high=high)

    def place(self, value: float | None) -> float:
        """The position of a value, 0 at the low end and 1 at the high end; NaN if it has none.

        Args:
            value: On the scale of the axis.
        """
        if value is None or math.isnan(value) or (self.log and value <= 0):
            return math.nan
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return min(max((at - low) / (high - low), -_FAR), 1 + _FAR)

    def clipped(self, value: float | None) -> float:
        """The position of a value, at an end of the axis if it is beyond it.

        Args:
            value: On the scale of the axis.
        """
        return min(max(self.place(value), 0.0), 1.0) if not math.isnan(self.place(value)) else math.nan

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the range.

        Args:
            most: About how many at most.
        """
        found = _log_ticks(self.low, self.high, most) if self.log else []
        return found if len(found) > 1 else _linear_ticks(self.low, self.high, most)

    def tick_texts(self, ticks: Sequence[float]) -> list[str]:
        """The ticks as text, with enough decimals to distinguish them.

        Args:
            ticks: Values on the axis.
        """
        shown = [100 * t for t in ticks] if self.percent else list(ticks)
        if self.log:
            texts = [f"{t:,.10g}" if 1e-4 <= abs(t) < 1e6 else f"{t:.0e}" for t in shown]
        else:
            step = min((b - a for a, b in pairwise(shown)), default=1.0)
            biggest = max(map(abs, shown), default=0.0)
            if biggest >= 1e7 or (0 < biggest < 1e-4):
                texts = [f"{t:.3g}" for t in shown]
            else:
                decimals = next((d for d in range(7) if abs(step * 10**d - round(step * 10**d)) < 1e-6 * 10**d), 6)
                texts = [f"{t:,.{decimals}f}" for t in shown]
        return [_minus(f"{text} %" if self.percent else text) for text in texts]

    def text(self, value: float) -> str:
        """A value as text, with decimals that suit the range; without the sign of percent.

        Args:
            value: On the scale of the axis.

        Examples:
            >>> ChartAxis("AUROC", 0.5, 1.0).text(0.8234), ChartAxis("share", 0, 1, percent=True).text(0.5)
            ('0.82', '50')
        """
        value, width = (100 * v if self.percent else v for v in (value, self.high - self.low))
        if self.log or value == 0:
            return _minus(f"{value:.3g}")
        decimals = min(max(2 - math.floor(math.log10(width) + 0.7), 0), 6)
        return _minus(f"{value:,.{decimals}f}")

    def interval(self, value: float, low: float | None, high: float | None) -> str:
        """A value and its interval: "0.82 (0.64 to 0.92)" or "82 % (64 to 92)".

        Args:
            value: The figure.
            low: Lower end of its interval.
            high: Upper end of its interval.
        """
        said = self.text(value) + (" %" if self.percent else "")
        return said if low is None or high is None else f"{said} ({self.text(low)} to {self.text(high)})"

    @property
    def data(self) -> str:
        """What the page's script needs to turn places into values."""
        return json.dumps(
            {"label": self.label, "low": self.low, "high": self.high, "log": self.log, "pc": self.percent}
        )


def axis_for(
    label: str, values: Iterable[float | None], *, share: bool = False, log: bool = False, percent: bool | None = None
) -> ChartAxis:
    """An axis that contains all values, with a margin.

    Args:
        label: Of the axis.
        values: Of the chart; None: no value.
        share: Whether values lie between 0 and 1.
        log: Whether the scale is logarithmic.
        percent: Whether values are shown as percentages; None (default): shares except AUROC and precision.
    """
    if percent is None:
        percent = share and not any(word in label.lower() for word in ("auroc", "precision"))
    known = [float(v) for v in values if v is not None and math.isfinite(v) and (v > 0 or not log)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if log:
        return ChartAxis(label, low / 1.5, high * 1.5, log=True)
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = low - room, high + room
    if share:
        low, high = max(0.0, low), min(1.0, high)
        return ChartAxis(label, low, high, percent=percent)
    return ChartAxis(label, max(low, 0.0) if low > -2 * room and min(known, default=0.0) >= 0 else low, high)


def picked(length: int, most: int) -> list[int]:
    """Evenly spaced indices of a sequence, with the first and the last.

    Args:
        length: Of the sequence.
        most: Number of indices at most.
    """
    return np.unique(np.linspace(0, length - 1, min(length, most)).round().astype(int)).tolist() if length else []


def thinned(values: Sequence[Item], places: Sequence[int]) -> list[Item]:
    """The values at some indices.

    Args:
        values: A sequence.
        places: The indices.
    """
    return [values[k] for k in places]


def share(place: float) -> str:
    """A position as a share of the width: "12.5%".

    Args:
        place: Between 0 and 1.
    """
    return f"{compact(100.0 * place)}%"


def scale(axis: ChartAxis, most: int = 5) -> Markup:
    """Ticks and their text in a row above rows of marks.

    Args:
        axis: Of the values.
        most: About how many ticks at most.
    """
    ticks = axis.ticks(most)
    texts = axis.tick_texts(ticks)
    ends = max(map(len, texts), default=0) > 4  # where there is little room for so long texts, the ends alone are shown
    every = max(len(texts) - 1, 1) if ends else 2
    marks = (
        tag("text", text, x=share(axis.place(tick)), y=12, class_="odd" if i % every else None)
        for i, (tick, text) in enumerate(zip(ticks, texts, strict=True))
    )
    return tag("svg", *marks, class_="scale", aria_hidden="true")


def grid(axis: ChartAxis, reference: float | None = None, most: int = 5) -> str:
    """A style that draws lines at the ticks, and a dashed one at the reference, behind every row.

    Args:
        axis: Of the values.
        reference: Where the dashed line is.
        most: About how many ticks at most.
    """
    solid = "linear-gradient(var(--grid),var(--grid)) {} 0/1px 100% no-repeat"
    dashed = "linear-gradient(var(--soft) 60%,transparent 0) {} 0/1.5px 7px repeat-y"
    lines = [dashed.format(share(axis.place(reference)))] if 0 <= axis.place(reference) <= 1 else []
    lines += [solid.format(share(axis.place(tick))) for tick in axis.ticks(most)]
    return f"--lines:{','.join(lines) or 'none'}"


def _minus(text: str) -> str:
    return text.replace("-", "−", 1) if text.startswith("-") and text.strip("-0. %") else text.removeprefix("-")


def _linear_ticks(low: float, high: float, most: int) -> list[float]:
    rough = (high - low) / max(most, 1)
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 2.5, 5, 10, 20) if m * power >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-6), math.floor(high / step + 1e-6)
    return [n * step for n in range(first, last + 1)]


def _log_ticks(low: float, high: float, most: int) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / most))
    for leads in ((1,), (1, 3), (1, 2, 5)):
        powers = range(first, last + 1, every if leads == (1,) else 1)
        found = [lead * 10.0**p for p in powers for lead in leads]
        found = [t for t in found if low * (1 - 1e-9) <= t <= high * (1 + 1e-9)]
        if len(found) >= 3:
            break
    return found


STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_SIDE = 1000.0  # of the box in which lines are drawn, before it is stretched

Item = TypeVar("Item")
Point = tuple[float, float]  # places along x and y, from 0 to 1


@dataclass(frozen=True)
class Line:
    """A line of a chart, with a band around it if `low` and `high` are given.

    Args:
        name: In the legend.
        x: Of the points.
        y: Of the points; NaN leaves a gap.
        style: "first" to "eighth" (colours and dashes that colour-blind readers can distinguish), "guide" (a grey
            dashed reference) or "faint" (one of many, such as a site; named on hover).
        low: Lower end of the band.
        high: Upper end of the band.
        markers: Whether points have dots.
        joined: Whether the points are joined; if not, whiskers replace the band.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    style: str = "first"
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None
    markers: bool = False
    joined: bool = True


def line_chart(lines: Sequence[Line], x: ChartAxis, y: ChartAxis, *, square: bool = False, key: str = "") -> Markup:
    """Lines and bands over common axes with a legend; hovering or arrow keys show the values at an x.

    Values that are not finite leave gaps; lines are clipped at the axes.

    Args:
        lines: Faint lines and guides are drawn behind the others.
        x: The horizontal axis.
        y: The vertical axis.
        square: Whether both axes have the same length.
        key: A name for the drawing.
    """
    x, y = x.usable, y.usable
    order = sorted(lines, key=lambda line: {"faint": 0, "guide": 1}.get(line.style, 2))
    drawn = [_Drawn(line, x, y, number) for number, line in enumerate(order)]
    paths = tag(
        "svg",
        *(part for line in drawn for part in line.bands),
        *(line.path for line in drawn),
        class_="paths",
        viewBox="0 0 1000 1000",
        preserveAspectRatio="none",
    )
    marks = tag("svg", *(mark for line in drawn for mark in line.marks), class_="marks")
    y_ticks = y.ticks()
    room = max(map(len, y.tick_texts(y_ticks)), default=1)
    plot = tag("div", _axes(x, y), paths, marks, tag("div", class_="hair", hidden=True), class_="plot")
    return tag(
        "div",
        _legend(lines),
        tag("div", y.label, class_="y-label"),
        plot,
        tag("div", x.label, class_="x-label"),
        class_="lines square" if square else "lines",
        style=f"--room:{room}ch",
        data_kind="lines",
        data_key=key or None,
        data_x=x.data,
        data_y=y.data,
    )


@dataclass(frozen=True)
class _Drawn:
    """A line in the box."""

    line: Line
    x: ChartAxis
    y: ChartAxis
    number: int

    @property
    def style(self) -> str:
        return style_class(self.line.style)

    @property
    def runs(self) -> list[list[Point]]:
        return list(_runs(zip(map(self.x.place, self.line.x), map(self.y.place, self.line.y), strict=False)))

    @property
    def path(self) -> Markup:
        drawn = "".join(_path(run) for run in self.runs)
        kind = "line" if self.line.joined else "line apart"
        return tag("path", d=drawn, class_=f"{kind} {self.style}", data_name=self.line.name)

    @property
    def bands(self) -> list[Markup]:
        line = self.line
        if line.low is None or line.high is None:
            return []
        both = zip(map(self.x.place, line.x), map(self.y.place, line.low), map(self.y.place, line.high), strict=False)
        ends = [((x, low), (x, high)) if not math.isnan(low + high) else None for x, low, high in both]
        shapes = []
        for run in _pieces(ends):
            pieces = [run] if line.joined else [[pair] for pair in run]
            shapes += [_path([*(high for _, high in p), *(low for low, _ in reversed(p))]) for p in pieces]
        kind = "band" if line.joined else "whisker"
        return [tag("path", d="".join(shapes), class_=f"{kind} {self.style}", data_line=self.number)] if shapes else []

    @property
    def marks(self) -> list[Markup]:
        """Marks at all points if they are wanted, and at single points, which a line would not show."""
        wanted = self.line.markers or not self.line.joined
        points = [point for run in self.runs if wanted or len(run) == 1 for point in run]
        inside = [(x, y) for x, y in points if -1e-9 <= x <= 1 + 1e-9 and -1e-9 <= y <= 1 + 1e-9]
        mark = mark_of(self.line.style)
        return [tag("use", href=mark, x=share(x), y=share(1 - y), class_=self.style) for x, y in inside]


def style_class(style: str) -> str:
    """The class of a style in the page's style sheet.

    Args:
        style: Of a line.
    """
    return f"s{STYLES.index(style) + 1}" if style in STYLES else "guide" if style == "guide" else "faint"


def mark_of(style: str) -> str:
    """The marker symbol of a style.

    Args:
        style: Of a line.
    """
    return f"#mark-{STYLES.index(style) + 1 if style in STYLES else 1}"


def sample(style: str, *, line: bool = True, mark: bool = False, band: bool = False) -> Markup:
    """A short piece of a line for the legend.

    Args:
        style: Of the line.
        line: Whether the line is drawn.
        mark: Whether the marker is drawn.
        band: Whether the band is drawn.
    """
    name = style_class(style)
    return tag(
        "svg",
        tag("rect", x=0, y=2, width=30, height=10, class_=f"band {name}") if band else None,
        tag("path", d="M0 7H30", class_=f"line {name}") if line else None,
        tag("use", href=mark_of(style), x=15, y=7, class_=name) if mark else None,
        class_="sample",
        viewBox="0 0 30 14",
        aria_hidden="true",
    )


def _legend(lines: Sequence[Line]) -> Markup | None:
    named = [line for line in lines if line.style != "faint" and line.name]
    many = [line for line in lines if line.style == "faint"]
    entries = [
        tag(
            "li",
            sample(
                line.style,
                line=line.joined,
                mark=line.markers or not line.joined,
                band=line.joined and line.low is not None and line.high is not None,
            ),
            tag("bdi", line.name),
        )
        for line in named
    ]
    if many:
        count = f"{len(many)} thin lines" if len(many) > 1 else "a thin line"
        entries.append(
            tag("li", sample("faint"), tag("span", count, tag("span", ": point at one for its name", class_="hint")))
        )
    return tag("ul", *entries, class_="legend") if entries else None


def _axes(x: ChartAxis, y: ChartAxis) -> Markup:
    """The frame, lines at the ticks and the ticks' text."""
    across, up = x.ticks(), y.ticks()
    parts = []
    for tick, text in zip(up, y.tick_texts(up), strict=True):
        at = share(1 - y.place(tick))
        parts += [tag("line", x1=0, x2="100%", y1=at, y2=at), tag("text", text, x=-8, y=at, dy="0.32em", class_="end")]
    for tick, text in zip(across, x.tick_texts(across), strict=True):
        at = share(x.place(tick))
        parts += [tag("line", x1=at, x2=at, y1=0, y2="100%"), tag("text", text, x=at, y="100%", dy="1.5em")]
    parts.append(tag("line", x1=0, x2="100%", y1="100%", y2="100%", class_="base"))
    return tag("svg", *parts, class_="axes")


def _path(points: Iterable[Point]) -> str:
    pairs = (f"{compact(_SIDE * x)} {compact(_SIDE * (1 - y))}" for x, y in points)
    return "M" + "L".join(pairs)


def _runs(points: Iterable[Point]) -> Iterator[list[Point]]:
    """Stretches without gaps."""
    return _pieces(point if not math.isnan(sum(point)) else None for point in points)


def _pieces(items: Iterable[Item | None]) -> Iterator[list[Item]]:
    run: list[Item] = []
    for item in items:
        if item is not None:
            run.append(item)
        elif run:
            yield run
            run = []
    if run:
        yield run


LONG = 18  # characters of a name that always fit


@dataclass(frozen=True)
class ForestRow:
    """A row of a forest plot.

    Args:
        name: Of the row.
        counts: Cells beside the name.
        value: None: no figure.
        low: Lower end of the interval.
        high: Upper end of the interval.
        kind: "row", or "total": a diamond below a rule.
        why_not: Why there is no figure.
        second: Value, low and high of another model on the same row.
    """

    name: str
    counts: Sequence[str]
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = "row"
    why_not: str = ""
    second: tuple[float, float, float] | None = None


def forest(
    rows: Sequence[ForestRow],
    axis: ChartAxis,
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
    body = tag("tbody", *(_forest_row(row, axis, len(counts)) for row in rows))
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
    return tag("div", _forest_legend(models), table)


def _forest_row(row: ForestRow, axis: ChartAxis, counts: int) -> Markup:
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
    """The header cell of a row; long names are truncated by the style sheet and shown in full on hover.

    Args:
        name: Of the row.
    """
    return tag("th", tag("bdi", name), scope="row", title=name if len(name) > LONG else None)


def _interval(axis: ChartAxis, value: float, low: float | None, high: float | None, style: str) -> Markup:
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


def _diamond(axis: ChartAxis, value: float, low: float | None, high: float | None, style: str) -> Markup:
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


def _forest_legend(models: Sequence[str]) -> Markup | None:
    """Which mark is whose, where there are two."""
    entries = []
    for name, mark, style in zip(models, ("#mark-3", "#mark-ring"), ("s1", "s2"), strict=False):
        shown = tag("g", tag("line", x1=0, x2=30, y1=7, y2=7), tag("use", href=mark, x=15, y=7), class_=style)
        picture = tag("svg", shown, class_="sample", viewBox="0 0 30 14", aria_hidden="true")
        entries.append(tag("li", picture, tag("bdi", name)))
    return tag("ul", *entries, class_="legend") if entries else None


@dataclass(frozen=True)
class Bar:
    """A bar of a chart, from 0.

    Args:
        name: Of the bar.
        value: Its length.
        text: Shown at its end.
        style: As of a `Line`.
    """

    name: str
    value: float
    text: str = ""
    style: str = "first"


def bars(values: Sequence[Bar], axis: ChartAxis, *, key: str = "") -> Markup:
    """Horizontal bars, also of negative values.

    Args:
        values: From top to bottom.
        axis: Of the values.
        key: A name for the drawing.
    """
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
        tag("tbody", *(_bar_row(bar, axis) for bar in values)),
        class_="rows bars",
        style=grid(axis),
        data_kind="rows",
        data_key=key or None,
        data_x=axis.data,
    )


def _bar_row(bar: Bar, axis: ChartAxis) -> Markup:
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


_MANY = 16  # columns beyond which cells have no room for a number
_WIDE = 6  # columns beyond which their heads stand upright
_SHADES = ((0.73, "deep"), (0.63, "mid"))  # where dark or light text has enough contrast, see the style sheet


def heat_map(
    rows: Sequence[str], columns: Sequence[str], shares: Sequence[Sequence[float]], *, key: str = ""
) -> Markup:
    """Shares from 0 to 1 as shades, with the number in each cell if there is room.

    Args:
        rows: Names of the rows.
        columns: Names of the columns.
        shares: By row and column.
        key: A name for the drawing.
    """
    upright = len(columns) > _WIDE or any(len(name) > 10 for name in columns)
    kinds = ["rows", "heat", *["upright"] * upright, *["dense"] * (len(columns) > _MANY)]
    heads = (tag("th", tag("bdi", name), scope="col") for name in columns)
    body = (
        tag("tr", name_cell(name), *(_cell(share) for share in cells))
        for name, cells in zip(rows, shares, strict=False)
    )
    table = tag(
        "table",
        tag("thead", tag("tr", tag("td"), *heads)),
        tag("tbody", *body),
        class_=" ".join(kinds),
        data_kind="cells",
        data_key=key or None,
    )
    return tag("div", table, class_="wide")


def _cell(share: float) -> Markup:
    if not math.isfinite(share):
        return tag("td", "–")
    shade = min(max(share, 0.0), 1.0)
    kind = next((name for least, name in _SHADES if shade >= least), None)
    return tag("td", percent(share), style=f"--share:{shade:.3g}", class_=kind)


def percent(share: float) -> str:
    """A share as a percentage that is not rounded to 0 or 100.

    Args:
        share: Between 0 and 1.

    Examples:
        >>> percent(0.123), percent(0.001), percent(0.999)
        ('12', '<1', '>99')
    """
    if 0 < share < 0.005:
        return "<1"
    return ">99" if 0.995 <= share < 1 else f"{100 * share:.0f}"
