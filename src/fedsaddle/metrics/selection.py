"""Choice of metrics: spread over clients, targets such as "worst accuracy >= 0.5", and the metric of the best round."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.errors import BadInput
from fedsaddle.files import Record

STATISTICS = ("global", "mean", "worst", "best", "std", "bottom10")


def spread(values: ArrayLike, sizes: ArrayLike, *, higher_is_better: bool) -> dict[str, float]:
    """Statistics of a measure over clients; clients without rows are left out.

    `global` weighs clients by their rows, as one pooled data set would; `mean`, `std`, `worst` and `best` count each
    client once; `bottom10` is the mean over the worst tenth of the clients (at least one).

    Args:
        values: The measure of each client.
        sizes: Number of rows of each client.
        higher_is_better: Which end is the worst: the lowest value for an accuracy, the highest for a loss.
    """
    n = np.asarray(sizes, dtype=np.float64)
    v = np.asarray(values, dtype=np.float64)[n > 0]
    n = n[n > 0]
    worst_first = np.sort(v) if higher_is_better else np.sort(v)[::-1]
    tenth = int(np.ceil(len(v) / 10))
    with np.errstate(over="ignore"):  # of a run that diverges
        std = float(v.std())
    return {
        "global": float(v @ n / n.sum()),
        "mean": float(v.mean()),
        "worst": float(worst_first[0]),
        "best": float(worst_first[-1]),
        "std": std,
        "bottom10": float(worst_first[:tenth].mean()),
    }


_FORM = re.compile(r"\s*(?:(\w+)\s+)?(\w+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Target:
    """A bound on a metric at which a run stops."""

    statistic: str | None  # None: a measure of all clients' rows together
    measure: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: object) -> Target:
        """Read "STATISTIC MEASURE SIGN NUMBER", without a statistic for a pooled measure."""
        if not isinstance(text, str):
            raise BadInput("target", text, 'write it like "worst accuracy >= 0.5"')
        match = _FORM.fullmatch(text)
        if match is None:
            raise BadInput("target", text, 'write it like "worst accuracy >= 0.5"')
        statistic, measure, sign, number = match.groups()
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

    def met(self, record: Record) -> bool:
        """Whether an evaluation reaches the target; where only an interval of the metric is known, both ends must."""
        there = figures_of(record, self.statistic)
        known = bounds_in(there, self.measure)
        if known is not None:
            return all(_COMPARE[self.sign](side, self.bound) for side in known)
        if self.measure not in there:
            raise BadInput("target", str(self), f"this problem has the metrics {', '.join(there) or 'of clients only'}")
        return bool(_COMPARE[self.sign](there[self.measure], self.bound))

    def __str__(self) -> str:
        return f"{self.statistic or ''} {self.measure} {self.sign} {self.bound:g}".strip()


def main_part(record: Record) -> dict[str, dict[str, float]]:
    """The metrics of the test rows, else of the validation rows, else of the training rows."""
    part: dict[str, dict[str, float]] = record[main_part_name(record)]
    return part


def main_part_name(record: Mapping[str, object]) -> str:
    """Of a record or a summary: "test", "validation" or "train"."""
    return next((part for part in ("test", "validation") if part in record), "train")


def pooled_part(record: Mapping[str, Any]) -> dict[str, float]:
    """The pooled metrics of the test rows where they were measured, else of the validation rows."""
    figures: dict[str, float] = record.get("pooled", record.get("pooled_validation", {}))
    return figures


def bounds_of(measure: str, bounds: tuple[float, float]) -> dict[str, float]:
    """The entries of a pooled metric of which only bounds are known."""
    return {f"{measure}_low": max(0.0, bounds[0]), f"{measure}_high": min(1.0, bounds[1])}


def bounds_in(figures: Mapping[str, float], measure: str) -> tuple[float, float] | None:
    """The bounds of a pooled metric of which only bounds are known; None for any other metric."""
    low, high = figures.get(f"{measure}_low"), figures.get(f"{measure}_high")
    return None if measure in figures or low is None or high is None else (low, high)


def is_side(measure: str) -> bool:
    """Whether this is the name of an error or a bound, rather than of a metric."""
    return measure.endswith(("_error", "_low", "_high"))


def figures_of(record: Record, statistic: str | None) -> dict[str, float]:
    """By measure: one statistic over the clients, or without one the pooled figures."""
    if statistic is None:
        return pooled_part(record)
    return {measure: figures[statistic] for measure, figures in main_part(record).items()}


EXAMPLE = 'write it like "auroc" or "worst accuracy"'
LOWER_IS_BETTER = {"loss", "error", "gap", "gradient", "brier", "distance", "deviation", "ece", "std", "violation"}


@dataclass(frozen=True)
class Selection:
    """A pooled measure, or a statistic over the clients and a measure.

    Higher is better, except for losses, errors, gaps, gradients and standard deviations.

    Examples:
        >>> Selection.parse("worst loss").better(0.3, 0.4), Selection.parse("auroc").better(0.3, 0.4)
        (True, False)
    """

    statistic: str | None  # None: a measure of all clients' rows together
    measure: str

    @classmethod
    def parse(cls, text: object) -> Selection:
        """Read "MEASURE" or "STATISTIC MEASURE"."""
        words = text.split() if isinstance(text, str) else []
        if not 1 <= len(words) <= 2:
            raise BadInput("select", text, EXAMPLE)
        statistic, measure = words if len(words) == 2 else (None, words[0])
        if statistic is not None and statistic not in STATISTICS:
            raise BadInput("select", text, f"the statistic is one of {', '.join(STATISTICS)}")
        if statistic is not None and measure not in ("accuracy", "loss"):
            raise BadInput("select", text, "the measure is accuracy or loss")
        if statistic is None and measure in ("accuracy", "loss", *STATISTICS):
            raise BadInput("select", text, f"say which client: {', '.join(STATISTICS)}")
        return cls(statistic, measure)

    def check(self, measures: Iterable[str]) -> None:
        """Refuse a measure that the validation rows do not have, or of which only bounds are known."""
        known = list(measures)
        if f"{self.measure}_low" in known or (self.measure not in known and is_side(self.measure)):
            remedy = (
                "only bounds of it are known, because sites merge small counts (minimum_cell); choose by what sites "
                'measure exactly: "global loss", "mean loss" or "worst loss"'
            )
            raise BadInput("select", str(self), remedy)
        if self.measure not in known:
            there = ", ".join(m for m in known if not is_side(m)) or "none"
            remedy = f"is not measured on the validation rows; of this kind there are: {there}"
            raise BadInput("select", str(self), remedy)

    def figure(self, record: Record) -> float | None:
        """The figure of one evaluation; None where it is missing or not a number."""
        value = figures_of(record, self.statistic).get(self.measure)
        return None if value is None or math.isnan(value) else float(value)

    def better(self, new: float, old: float) -> bool:
        """Whether `new` is strictly better than `old`."""
        lower = self.statistic == "std" or LOWER_IS_BETTER & set(self.measure.split("_"))
        return new < old if lower else new > old

    def __str__(self) -> str:
        return f"{self.statistic or ''} {self.measure}".strip()
