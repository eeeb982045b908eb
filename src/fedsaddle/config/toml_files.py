"""TOML from files and the command line: one clear error for whatever it holds; strings to write."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path

from fedsaddle.errors import BadInput
from fedsaddle.files import Json, JsonObject

MOST_BYTES = 10_000_000  # bytes of a file
DEEPEST = 30  # tables in tables


def read_toml(key: str, path: Path) -> JsonObject:
    """The tables of a TOML file.

    Raises:
        FileNotFoundError: if there is no such file.
        BadInput: if it cannot be read, or is no TOML; names `key` and the path.
    """
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise BadInput(key, str(path), f"cannot be read ({why}); name a TOML file") from None
    if len(content) > MOST_BYTES:
        raise BadInput(key, str(path), f"has more than {MOST_BYTES // 1_000_000} MB; name a TOML file")
    try:
        return parse_toml(content.decode("utf-8"))
    except ValueError as error:
        raise BadInput(key, str(path), f"is not valid TOML: {error}") from None


def parse_toml(text: str) -> JsonObject:
    """The tables of a TOML text; raises a ValueError with the reason if it is invalid."""
    try:
        content = tomllib.loads(text)
    except RecursionError:
        raise TooDeep(f"more than {DEEPEST} levels in each other") from None
    level: list[object] = [content]
    for _ in range(DEEPEST):
        level = [part for value in level for part in _parts(value)]
    if level:
        raise TooDeep(f"more than {DEEPEST} levels in each other")
    return content


def toml_string(text: str) -> str:
    r"""A string in TOML syntax; what cannot be printed is escaped, and bytes that are no text become U+FFFD.

    Examples:
        >>> toml_string('a"b'), toml_string("tab\t and \x7f")
        ('"a\\"b"', '"tab\\t and \\U0000007f"')
    """
    text = "".join("\ufffd" if "\ud800" <= c <= "\udfff" else c for c in text)
    quoted = json.dumps(text, ensure_ascii=False)
    return "".join(c if c.isprintable() else f"\\U{ord(c):08x}" for c in quoted)


def toml_value(value: Json) -> str:
    """A value in TOML: lists and tables in one line.

    Examples:
        >>> toml_value({"name": "cosine", "first": 0.1, "on": [1, True]})
        '{ name = "cosine", first = 0.1, on = [1, true] }'
    """
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml_value(own)}" for key, own in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return toml_string(value) if isinstance(value, str) else repr(value)


def toml_lines(section: Mapping[str, Json], comments: Mapping[str, str]) -> list[str]:
    """The lines of a section; `comments` are by key."""
    lines = []
    for key, value in section.items():
        line = f"{key} = {toml_value(value)}"
        lines.append(f"{line:<32} # {comments[key]}" if key in comments else line)
    return lines


class TooDeep(ValueError):
    """Tables in tables in tables."""


def _parts(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
