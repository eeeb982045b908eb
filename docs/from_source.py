"""Reads the source for the documentation: excerpts, comments beside fields, and what docstrings say of arguments."""

from __future__ import annotations

import ast
import inspect
import logging
import textwrap
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import griffe

import fedsaddle as fs

logging.getLogger("griffe").setLevel(logging.ERROR)  # mkdocstrings says it again


def found(where: str) -> Any:
    """The object at "module:Class.method"."""
    module, _, path = where.partition(":")
    thing: Any = import_module(module)
    for name in path.split("."):
        thing = inspect.getattr_static(thing, name)
    return thing


def excerpt(where: str) -> str:
    """The source of a function, a class or (without a colon) a whole module, as a fenced block."""
    thing = found(where) if ":" in where else import_module(where)
    code = textwrap.dedent(inspect.getsource(thing)).rstrip()
    path = Path(inspect.getsourcefile(thing) or "").as_posix().rpartition("/src/")[2]
    return f'```python title="src/{path}"\n{code}\n```'


def reference(prefixes: str) -> str:
    """Directives for mkdocstrings: the public names whose modules begin with one of the prefixes, as `fs.Name`."""
    begins = tuple(prefixes.split())
    wanted = {name: f"fedsaddle.{home}.{name}" for name, home in fs._WHERE.items() if home.startswith(begins)}
    named = {name: f"{home}.{name}" for name, home in fs._named_algorithms().items()}
    wanted |= {name: path for name, path in named.items() if path.removeprefix("fedsaddle.").startswith(begins)}
    whole = {name: f"fedsaddle.{home}" for name, home in fs._WHOLE.items() if home.startswith(begins)}
    if not wanted and not whole:
        raise ValueError(f"no public name lives in {prefixes!r}")
    blocks = [_directive(f"fs.{name}", path) for name, path in [*wanted.items(), *whole.items()]]
    return "\n\n".join(blocks)


def _directive(heading: str, path: str) -> str:
    options = [f"heading: {heading}", f"toc_label: {heading}"]
    return f"::: {path}\n    options:\n" + "\n".join(f"      {option}" for option in options)


@cache
def field_comments(kind: type) -> dict[str, str]:
    """Field -> the comment beside it or on the lines above, of a dataclass or a pydantic model and what it inherits."""
    said: dict[str, str] = {}
    for parent in reversed(kind.__mro__):
        if parent.__module__.startswith("fedsaddle."):
            said |= _own_comments(parent)
    return said


def _own_comments(kind: type) -> dict[str, str]:
    lines = textwrap.dedent(inspect.getsource(kind)).splitlines()
    body = ast.parse("\n".join(lines)).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        node.target.id: _beside(lines, node) or _above(lines, node.lineno - 1)
        for node in body.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _beside(lines: list[str], node: ast.AnnAssign) -> str:
    last = lines[(node.end_lineno or node.lineno) - 1]
    rest = last.encode()[node.end_col_offset or 0 :].decode()
    return rest.partition("#")[2].strip()


def _above(lines: list[str], line: int) -> str:
    found: list[str] = []
    while line > 0 and lines[line - 1].strip().startswith("#"):
        line -= 1
        found.insert(0, lines[line].strip(" #"))
    return " ".join(found)


def argument_docs(make: Any) -> dict[str, str]:
    """Argument -> what the docstring's section of arguments says of it."""
    text = inspect.getdoc(make) or ""
    said: dict[str, str] = {}
    for section in griffe.Docstring(text, lineno=1).parse("google", warnings=False):
        if section.kind is griffe.DocstringSectionKind.parameters:
            said |= {argument.name: " ".join(argument.description.split()) for argument in section.value}
    return said
