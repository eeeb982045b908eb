"""Targets such as "worst accuracy >= 0.5" or "auroc >= 0.9": a measure and a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.metrics.spread import STATISTICS

_FORM = re.compile(r"\s*(?:(\w+)\s+)?(\w+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Target:
    """When a run may stop."""

    statistic: str | None  # None: a measure of all clients' rows together
    measure: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: object) -> Target:
        """Read "STATISTIC MEASURE SIGN NUMBER", without a statistic for a pooled measure."""
        if not isinstance(text, str):
            raise BadInput("target", text, 'write it like "worst accuracy >= 0.5"')
        found = _FORM.fullmatch(text)
        if found is None:
            raise BadInput("target", text, 'write it like "worst accuracy >= 0.5"')
        statistic, measure, sign, number = found.groups()
        if statistic is not None and statistic not in STATISTICS:
            raise BadInput("target", text, f"the statistic is one of {', '.join(STATISTICS)}")
        if statistic is not None and measure not in ("accuracy", "loss"):
            raise BadInput("target", text, "the measure is accuracy or loss")
        if statistic is None and measure in ("accuracy", "loss", *STATISTICS):
            raise BadInput("target", text, f"say which client: {', '.join(STATISTICS)}")
        try:
            return cls(statistic, measure, sign, float(number))
        except ValueError:
            raise BadInput("target", text, f"{number!r} is not a number") from None

    def check(self, measures: Iterable[str]) -> None:
        """Refuse a measure that the problem does not have."""
        if self.measure not in measures and f"{self.measure}_low" not in measures:
            there = ", ".join(measures)
            if self.statistic is None and not there:
                remedy = 'this problem has no pooled metrics; use a per-client target such as "worst accuracy >= 0.5"'
                raise BadInput("target", str(self), remedy)
            raise BadInput("target", str(self), f"this problem has the metrics {there} only")

    def met(self, record: dict[str, Any]) -> bool:
        """Whether one evaluation reaches the bound; a figure of which only bounds are known must surely do so."""
        there = figures_of(record, self.statistic)
        known = bounds_in(there, self.measure)
        if known is not None:
            return all(_COMPARE[self.sign](side, self.bound) for side in known)
        if self.measure not in there:
            raise BadInput("target", str(self), f"this problem has the metrics {', '.join(there) or 'of clients only'}")
        return bool(_COMPARE[self.sign](there[self.measure], self.bound))

    def __str__(self) -> str:
        return f"{self.statistic or ''} {self.measure} {self.sign} {self.bound:g}".strip()


def main_part(record: dict[str, Any]) -> dict[str, dict[str, float]]:
    """The figures that count: on the test rows, else on the validation rows, else on the training rows."""
    part: dict[str, dict[str, float]] = record[main_part_name(record)]
    return part


def main_part_name(record: Mapping[str, Any]) -> str:
    """Of a record or a summary: "test", "validation" or "train"."""
    return next((part for part in ("test", "validation") if part in record), "train")


def pooled_part(record: Mapping[str, Any]) -> dict[str, float]:
    """The pooled figures that count: of the test rows where they were measured, else of the validation rows."""
    found: dict[str, float] = record.get("pooled", record.get("pooled_validation", {}))
    return found


def bounds_of(measure: str, bounds: tuple[float, float]) -> dict[str, float]:
    """The entries for a pooled figure of which only bounds are known."""
    return {f"{measure}_low": max(0.0, bounds[0]), f"{measure}_high": min(1.0, bounds[1])}


def bounds_in(figures: Mapping[str, float], measure: str) -> tuple[float, float] | None:
    """The bounds of a pooled figure of which nothing else is known; None for any other figure."""
    low, high = figures.get(f"{measure}_low"), figures.get(f"{measure}_high")
    return None if measure in figures or low is None or high is None else (low, high)


def is_side(measure: str) -> bool:
    """Whether a name is that of the error or of a bound of a figure, and not of a figure."""
    return measure.endswith(("_error", "_low", "_high"))


def figures_of(record: dict[str, Any], statistic: str | None) -> dict[str, float]:
    """By measure: one statistic over the clients, or without one the pooled figures."""
    if statistic is None:
        return pooled_part(record)
    return {measure: figures[statistic] for measure, figures in main_part(record).items()}
