"""`fedsaddle schema`: the JSON Schema of all that `--json` prints."""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, with_config
from typing_extensions import is_typeddict

from fedsaddle.commands.documents import DOCUMENTS
from fedsaddle.own_code import brought


def all_documents() -> list[Any]:
    """Our documents, and `DOCUMENTS` of the modules with other packages' commands."""
    modules = dict.fromkeys(one.target.partition(":")[0] for one in brought("commands"))
    return [*DOCUMENTS, *(kind for module in modules for kind in getattr(import_module(module), "DOCUMENTS", ()))]


def json_schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a document, with the texts of its keys."""
    found = adapter(kind).json_schema()
    for part in (found, *found.get("$defs", {}).values()):
        described = next((t for t in parts_of(kind) if t.__name__ == part.get("title")), None)
        for key, about in (texts(described) if described else {}).items():
            if about and key in part.get("properties", {}):
                part["properties"][key]["description"] = about
    return found


def adapter(kind: Any) -> TypeAdapter[Any]:
    """What validates a document; keys that it does not have are refused."""
    for one in parts_of(kind):
        with_config({"extra": "forbid"})(one)
    return TypeAdapter(kind)


def texts(kind: Any) -> dict[str, str]:
    """By key: what it means, from the annotations."""
    hints = get_type_hints(kind, include_extras=True)
    return {key: about_of(hint) for key, hint in hints.items()}


def about_of(hint: Any) -> str:
    """The text of an annotated type; empty if it has none."""
    if get_origin(hint) is not Annotated:
        return ""
    return next((mark for mark in get_args(hint)[1:] if isinstance(mark, str)), "")


def parts_of(kind: Any) -> list[Any]:
    """The types of a document and of all objects in it."""
    found = [kind]
    for hint in get_type_hints(kind).values():
        for part in _parts(hint):
            if inspect.isclass(part) and is_typeddict(part):
                found += [one for one in parts_of(part) if one not in found]
    return found


def _parts(hint: Any) -> list[Any]:
    return [hint, *(deep for part in get_args(hint) for deep in _parts(part))]
