"""Everything a user names is in `fs`, and type checkers are told the same."""

from __future__ import annotations

import ast
import inspect

import pytest

import fedsaddle as fs
from fedsaddle.config import registry
from fedsaddle.config.registry import Entry


def imports_for_type_checkers() -> dict[str, str]:
    """Name -> module, of the imports under TYPE_CHECKING."""
    tree = ast.parse(inspect.getsource(fs))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {
        str(alias.asname): str(node.module)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }


def test_type_checkers_are_told_the_same():
    names = {name: f"fedsaddle.{home}" for name, home in fs._WHERE.items()}
    whole = {name: f"fedsaddle.{home}".rpartition(".")[0] for name, home in fs._WHOLE.items()}
    assert imports_for_type_checkers() == names | whole


def test_no_name_stands_twice():
    names = [name for names in fs._NAMES.values() for name in names.split()] + list(fs._WHOLE)
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", fs.__all__)
def test_every_name_is_there(name):
    assert getattr(fs, name) is not None
    assert name in dir(fs)


@pytest.mark.parametrize("name", registry.ALGORITHMS)
def test_every_algorithm_is_there(name):
    found = registry.ALGORITHMS[name].load()
    assert getattr(fs, found.__name__) is found


def test_an_algorithm_that_names_itself_needs_no_line(monkeypatch):
    entry = Entry("fedsaddle.problems.supervised:OverNothing", "a class that no table of ours holds")
    monkeypatch.setitem(registry.ALGORITHMS, "New", entry)
    with pytest.raises(AttributeError, match="supervised"):
        fs.OverNothing  # noqa: B018
    real = Entry("fedsaddle.problems.protocols:DataFacts", "a class that no table of ours holds")
    monkeypatch.setitem(registry.ALGORITHMS, "New", real)
    assert fs.DataFacts is real.load()
    assert "DataFacts" in dir(fs)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'Drfaa'"):
        fs.Drfaa  # noqa: B018
