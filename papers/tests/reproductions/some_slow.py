"""A few cases for every change, and the others with the slow tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest


def some_slow(cases: Mapping[str, Any], quick: int = 2) -> list[Any]:
    """The first `quick` cases as they are, the others marked slow."""
    marks: list[Any] = [() if k < quick else (pytest.mark.slow,) for k in range(len(cases))]
    return [pytest.param(case, id=name, marks=m) for (name, case), m in zip(cases.items(), marks, strict=True)]
