"""Line charts: lines with bands or whiskers over common axes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from markupsafe import Markup

from fedsaddle.report.page.charts.axes import Axis, share
from fedsaddle.report.page.markup import compact, tag

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
_SIDE = 1000.0  # of the box in which lines are drawn, before it is stretched

Item = TypeVar("Item")
Point = tuple[float, float]  # places along x and y, from 0 to 1


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
    """Lines and bands over common axes with a legend; pointing or arrow keys show the values at an x.

    Values that are no numbers leave gaps, and what lies beyond the axes is cut off. A line that is not `joined` has
    whiskers in place of a band.
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
    x: Axis
    y: Axis
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
    """The class of a style in the page's style sheet."""
    return f"s{STYLES.index(style) + 1}" if style in STYLES else "guide" if style == "guide" else "faint"


def mark_of(style: str) -> str:
    """The page's mark of a style."""
    return f"#mark-{STYLES.index(style) + 1 if style in STYLES else 1}"


def sample(style: str, *, line: bool = True, mark: bool = False, band: bool = False) -> Markup:
    """A short piece of a line, as a legend shows it."""
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


def _axes(x: Axis, y: Axis) -> Markup:
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
