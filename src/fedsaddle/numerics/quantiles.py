"""Special functions of scipy, which is imported when one is first called: a run begins sooner without it."""

from __future__ import annotations

from typing import Any


def stdtrit(degrees: Any, share: Any) -> Any:
    """The quantile of Student's t distribution, as `scipy.special.stdtrit`."""
    from scipy import special

    return special.stdtrit(degrees, share)


def expit(x: Any) -> Any:
    """`1 / (1 + exp(-x))`, as `scipy.special.expit`."""
    from scipy import special

    return special.expit(x)


def logit(p: Any) -> Any:
    """`log(p / (1 - p))`, as `scipy.special.logit`."""
    from scipy import special

    return special.logit(p)
