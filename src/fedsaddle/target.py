"""Targets such as "worst accuracy >= 0.5": a statistic of a measure and a bound."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fedsaddle.errors import BadInput
from fedsaddle.metrics.spread import STATISTICS

_FORM = re.compile(r"\s*(\w+)\s+(\w+)\s*(>=|<=|>|<)\s*([-+.\deE]+)\s*")
_COMPARE = {">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt}


@dataclass(frozen=True)
class Target:
    """When a run may stop."""

    statistic: str
    measure: str
    sign: str
    bound: float

    @classmethod
    def parse(cls, text: str) -> Target:
        """Read "STATISTIC MEASURE SIGN NUMBER"."""
        found = _FORM.fullmatch(text)
        if found is None:
            raise BadInput("target", text, 'write it like "worst accuracy >= 0.5"')
        statistic, measure, sign, number = found.groups()
        if statistic not in STATISTICS:
            raise BadInput("target", text, f"the statistic is one of {', '.join(STATISTICS)}")
        if measure not in ("accuracy", "loss"):
            raise BadInput("target", text, "the measure is accuracy or loss")
        try:
            return cls(statistic, measure, sign, float(number))
        except ValueError:
            raise BadInput("target", text, f"{number!r} is not a number") from None

    def check(self, measures: Iterable[str]) -> None:
        """Refuse a measure that the problem does not have."""
        if self.measure not in measures:
            raise BadInput("target", str(self), f"this problem measures {', '.join(measures)} only")

    def met(self, measured: dict[str, Any]) -> bool:
        """Whether the statistics of one evaluation reach the bound."""
        return bool(_COMPARE[self.sign](measured[self.measure][self.statistic], self.bound))

    def __str__(self) -> str:
        return f"{self.statistic} {self.measure} {self.sign} {self.bound:g}"
