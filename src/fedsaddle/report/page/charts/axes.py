"""Axes: places of values, ticks at round numbers, and numbers as text."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from markupsafe import Markup

from fedsaddle.report.page.markup import compact, tag

_FAR = 1000.0  # places beyond this many widths of the axis are as good as infinite
_DECADES = 3.0  # what a log axis shows if it is said to begin at or below 0


@dataclass(frozen=True)
class Axis:
    """An axis: its label and its range; `percent` shows shares as percentages."""

    label: str
    low: float
    high: float
    log: bool = False
    percent: bool = False

    @property
    def usable(self) -> Axis:
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
        """Where a value lies, 0 at the low end and 1 at the high one; NaN where it has no place."""
        if value is None or math.isnan(value) or (self.log and value <= 0):
            return math.nan
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return min(max((at - low) / (high - low), -_FAR), 1 + _FAR)

    def clipped(self, value: float | None) -> float:
        """The place of a value, at an end of the axis if it lies beyond it."""
        return min(max(self.place(value), 0.0), 1.0) if not math.isnan(self.place(value)) else math.nan

    def ticks(self, most: int = 6) -> list[float]:
        """Round values within the range, at most about `most`."""
        found = _log_ticks(self.low, self.high, most) if self.log else []
        return found if len(found) > 1 else _linear_ticks(self.low, self.high, most)

    def tick_texts(self, ticks: Sequence[float]) -> list[str]:
        """The ticks as text, with the decimals that tell them apart."""
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

        Example:
            >>> Axis("AUROC", 0.5, 1.0).text(0.8234), Axis("share", 0, 1, percent=True).text(0.5)
            ('0.82', '50')
        """
        value, width = (100 * v if self.percent else v for v in (value, self.high - self.low))
        if self.log or value == 0:
            return _minus(f"{value:.3g}")
        decimals = min(max(2 - math.floor(math.log10(width) + 0.7), 0), 6)
        return _minus(f"{value:,.{decimals}f}")

    def interval(self, value: float, low: float | None, high: float | None) -> str:
        """A value and its interval: "0.82 (0.64 to 0.92)" or "82 % (64 to 92)"."""
        said = self.text(value) + (" %" if self.percent else "")
        return said if low is None or high is None else f"{said} ({self.text(low)} to {self.text(high)})"

    @property
    def data(self) -> str:
        """What the page's script needs to turn places into values."""
        return json.dumps(
            {"label": self.label, "low": self.low, "high": self.high, "log": self.log, "pc": self.percent}
        )


def share(place: float) -> str:
    """A place as a share of the width: "12.5%"."""
    return f"{compact(100.0 * place)}%"


def scale(axis: Axis, most: int = 5) -> Markup:
    """Ticks and their text in a row of their own, above rows of marks."""
    ticks = axis.ticks(most)
    texts = axis.tick_texts(ticks)
    ends = max(map(len, texts), default=0) > 4  # where there is little room for so long texts, the ends alone are shown
    every = max(len(texts) - 1, 1) if ends else 2
    marks = (
        tag("text", text, x=share(axis.place(tick)), y=12, class_="odd" if i % every else None)
        for i, (tick, text) in enumerate(zip(ticks, texts, strict=True))
    )
    return tag("svg", *marks, class_="scale", aria_hidden="true")


def grid(axis: Axis, reference: float | None = None, most: int = 5) -> str:
    """A style that draws lines at the ticks, and a dashed one at the reference, behind every row."""
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
