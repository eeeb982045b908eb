"""What trackers check: their packages, and the parameters that they are given."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from fedsaddle.errors import BadInput, MissingData, install


def require_parameters(given: object) -> None:
    """Raise `BadInput` if parameters are no dictionary."""
    if not isinstance(given, Mapping):
        raise BadInput("parameters", type(given).__name__, 'must be a dictionary, such as {"seed": 3}')


def require_package(package: str, extra: str) -> None:
    """Raise `MissingData` if a package is not installed; says how to install it."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise MissingData(f"track.{extra}: needs the package {package}; {install(extra)}")
