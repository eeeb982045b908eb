"""Optional packages."""

from __future__ import annotations

from importlib.util import find_spec

from fedsaddle.errors import MissingData


def require_package(package: str, extra: str) -> None:
    """Raise `MissingData` if a package is not installed; says how to install it."""
    try:
        there = find_spec(package) is not None
    except (ImportError, ValueError):
        there = False
    if not there:
        raise MissingData(f'track.{extra}: needs the package {package}; pip install "fedsaddle[{extra}]"')
