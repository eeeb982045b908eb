"""Targets such as "worst accuracy >= 0.5" or "auroc >= 0.9": a measure and a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedsaddle import arguments
from fedsaddle.errors import BadInput
from fedsaddle.metrics.spread import STATISTICS
from fedsaddle.runs.result import main_part

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
    def parse(cls, text: str) -> Target:
        """Read "STATISTIC MEASURE SIGN NUMBER", without a statistic for a pooled measure."""
        found = _FORM.fullmatch(arguments.text("target", text, empty=True))
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
        if self.measure not in measures:
            there = ", ".join(measures) or "the clients one by one"
            raise BadInput("target", str(self), f"this problem measures {there} only")

    def met(self, record: dict[str, Any]) -> bool:
        """Whether one evaluation reaches the bound."""
        if self.statistic is None:
            there = record.get("pooled", {})
        else:
            there = {k: v[self.statistic] for k, v in main_part(record).items()}
        if self.measure not in there:
            raise BadInput("target", str(self), f"this problem measures {', '.join(there) or 'no such thing'}")
        return bool(_COMPARE[self.sign](there[self.measure], self.bound))

    def __str__(self) -> str:
        return f"{self.statistic or ''} {self.measure} {self.sign} {self.bound:g}".strip()
