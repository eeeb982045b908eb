"""Every public class and function of these packages documents each of its parameters in `Args:`."""

from __future__ import annotations

import enum
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import fedsaddle as fs

DOCS = Path(__file__).parents[2] / "docs"
PACKAGES = tuple(
    f"fedsaddle.{name}."
    for name in (
        *("algorithms", "config", "data", "engines", "estimators", "federation", "metrics", "numerics", "privacy"),
        *("problems", "robust", "runs", "studies", "tracking"),
    )
)
pytest.importorskip("griffe", reason="comes with mkdocstrings, of the extra dev")


def public() -> dict[str, Callable[..., Any]]:
    """Classes and functions by name: those of `fs`, and those that its public modules define."""
    found: dict[str, Any] = {}
    for name in fs.__all__:
        thing = getattr(fs, name)
        if inspect.ismodule(thing):
            within = (thing.__name__, f"{thing.__name__}.")
            for inner, part in vars(thing).items():
                home = getattr(part, "__module__", "")
                if not inner.startswith("_") and (home == within[0] or home.startswith(within[1])):
                    found[f"{name}.{inner}"] = part
        else:
            found[name] = thing
    return {name: part for name, part in found.items() if documents_arguments(part)}


def documents_arguments(part: Any) -> bool:
    if not getattr(part, "__module__", "").startswith(PACKAGES):
        return False
    if inspect.isclass(part):
        return not issubclass(part, enum.Enum) and not getattr(part, "_is_protocol", False)
    return inspect.isfunction(part)


PUBLIC = public()


@pytest.fixture(scope="module")
def argument_docs() -> Callable[[object], dict[str, str]]:
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        from from_source import argument_docs
    finally:
        sys.path[:] = before
    found: Callable[[object], dict[str, str]] = argument_docs
    return found


@pytest.mark.parametrize("name", PUBLIC)
def test_every_parameter_is_documented(name: str, argument_docs: Callable[[object], dict[str, str]]) -> None:
    documented = {key.lstrip("*"): text for key, text in argument_docs(PUBLIC[name]).items()}
    parameters = [key for key in inspect.signature(PUBLIC[name]).parameters if not key.startswith("_")]
    assert [key for key in parameters if not documented.get(key)] == []
    assert [key for key in documented if key not in parameters] == []


def test_there_are_enough() -> None:
    assert len(PUBLIC) > 100
    assert "Drfa" in PUBLIC
    assert "pair_losses.SquaredMargin" in PUBLIC
