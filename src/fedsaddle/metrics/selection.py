"""The measure by which a run chooses its best round, such as "auroc" or "worst loss"."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.metrics.spread import STATISTICS
from fedsaddle.metrics.target import figures_of, is_side

EXAMPLE = 'write it like "auroc" or "worst accuracy"'
LOWER_IS_BETTER = {"loss", "error", "gap", "gradient", "brier", "distance", "deviation", "ece", "std", "violation"}


@dataclass(frozen=True)
class Selection:
    """A pooled measure, or a statistic over the clients and a measure.

    Higher is better, but for losses, errors, gaps, gradients and standard deviations.

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
        found = list(measures)
        if f"{self.measure}_low" in found or (self.measure not in found and is_side(self.measure)):
            remedy = (
                "only bounds of it are known, because sites merge small counts (minimum_cell); choose by what sites "
                'measure exactly: "global loss", "mean loss" or "worst loss"'
            )
            raise BadInput("select", str(self), remedy)
        if self.measure not in found:
            there = ", ".join(m for m in found if not is_side(m)) or "none"
            remedy = f"is not measured on the validation rows; of this kind there are: {there}"
            raise BadInput("select", str(self), remedy)

    def figure(self, record: dict[str, Any]) -> float | None:
        """The figure of one evaluation; None where it is missing or not a number."""
        found = figures_of(record, self.statistic).get(self.measure)
        return None if found is None or math.isnan(found) else float(found)

    def better(self, new: float, old: float) -> bool:
        """Whether `new` is better than `old`; no tie is."""
        lower = self.statistic == "std" or LOWER_IS_BETTER & set(self.measure.split("_"))
        return new < old if lower else new > old

    def __str__(self) -> str:
        return f"{self.statistic or ''} {self.measure}".strip()
