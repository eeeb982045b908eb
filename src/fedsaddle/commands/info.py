"""`fedsaddle list`, `doctor` and `schema`: what a config can name, what is installed, what --json prints."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Annotated, TypeGuard, get_args, get_origin, get_type_hints

import typer
from typing_extensions import is_typeddict

from fedsaddle import __version__
from fedsaddle.commands.documents import DOCUMENTS, SCHEMA, DoctorDocument, ListDocument, ModelAt, SchemaDocument
from fedsaddle.commands.options import beginning
from fedsaddle.commands.output import JsonOption, output
from fedsaddle.config.registry import LISTED, group_of, with_brought
from fedsaddle.errors import BadInput, install
from fedsaddle.files import JsonObject
from fedsaddle.own_code import clashes, plugins_of
from fedsaddle.processes import loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from pydantic import BaseModel, TypeAdapter

PACKAGES = ("torch", "numpy", "scikit-learn", "safetensors")
TOLERANCE = 1e-4  # of the largest difference between the engines' models


def doctor(as_json: JsonOption = False) -> None:
    """Check this installation: versions, data sets, and that the two engines agree."""
    with loading():
        import torch

        from fedsaddle.algorithms.drfa import Drfa
        from fedsaddle.config.build import load
        from fedsaddle.data.sets.locate import search_folders
        from fedsaddle.engines.device import available_devices
        from fedsaddle.problems.models.networks import logistic_regression
        from fedsaddle.problems.supervised import Supervised
        from fedsaddle.runs.run import run

    screen = output.screen()
    cores, versions = os.cpu_count() or 1, {name: version(name) for name in PACKAGES}
    screen.print(f"fedsaddle {__version__}, Python {platform.python_version()}, {cores} cores")
    screen.print(", ".join(f"{name} {number}" for name, number in versions.items()))
    screen.print(_workers(), markup=False, highlight=False, soft_wrap=True)
    devices = available_devices()
    screen.print(f"devices: {', '.join(devices)}", markup=False, highlight=False)
    folders = {f: sorted(p.name for p in f.iterdir() if p.is_dir()) if f.is_dir() else [] for f in search_folders()}
    for folder, found in folders.items():
        screen.print(f"data in {folder}: {', '.join(found) or 'none'}", highlight=False)
    data = load("digits", split="by-class", clients=10)
    algorithm = Drfa(problem=Supervised(logistic_regression(64, 10)), sampled_clients=5)
    serial, vectorised = (run(algorithm, data, 5, engine=name) for name in ("serial", "vectorised"))
    difference = float((serial.model - vectorised.model).abs().max())
    agree = difference < TOLERANCE and bool(torch.isfinite(vectorised.model).all())
    screen.print(f"serial and vectorised engines differ by {difference:.1e}: {'good' if agree else 'NOT GOOD'}")
    document: DoctorDocument = {
        "schema": SCHEMA,
        "command": "doctor",
        "fedsaddle": __version__,
        "python": platform.python_version(),
        "cores": cores,
        "versions": versions,
        "devices": devices,
        "data": [{"folder": str(folder), "datasets": found} for folder, found in folders.items()],
        "difference": difference,
        "agree": agree,
    }
    output.emit(document)
    raise typer.Exit(0 if agree else 1)


def _workers() -> str:
    """Which engines with workers can run here."""
    try:
        return f"workers: processes, and Ray {version('ray')}"
    except PackageNotFoundError:
        return f"workers: processes; Ray is not installed (for it, {install('ray')})"


def complete_kinds(incomplete: str) -> list[str]:
    """What `fedsaddle list` lists."""
    return beginning(incomplete, LISTED)


def list_names(
    what: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help=f"One of {', '.join(LISTED)}; by default all.",
            show_default=False,
            autocompletion=complete_kinds,
        ),
    ] = "",
    as_json: JsonOption = False,
) -> None:
    """List the names that a config can use."""
    if what and what not in LISTED:
        raise BadInput("list", what, f"choose one of {', '.join(LISTED)}")
    tables = {kind: with_brought(LISTED[kind]) for kind in ([what] if what else LISTED)}
    for line in (line for kind in tables for line in clashes(group_of(LISTED[kind]), LISTED[kind])):
        typer.echo(f"warning: {line}", err=True)
    document: ListDocument = {
        "schema": SCHEMA,
        "command": "list",
        "names": {
            kind: [{"name": n, "about": e.about, "source": e.source} for n, e in table.items()]
            for kind, table in tables.items()
        },
    }
    output.emit(document)
    if output.json:
        return
    width = max(len(name) for table in tables.values() for name in table)
    for kind, table in tables.items():
        typer.echo(typer.style(kind, bold=True))
        for name, entry in table.items():
            source = f"  ({entry.source})" if entry.source else ""
            typer.echo(visible(f"  {name:<{width}}  {entry.about}{source}"))


def schema(as_json: JsonOption = True) -> None:
    """Print the JSON Schema of all that --json prints."""
    document: SchemaDocument = {
        "schema": SCHEMA,
        "command": "schema",
        "documents": {kind.__name__: json_schema(kind) for kind in all_documents()},
    }
    output.json = True
    output.emit(document)


def all_documents() -> list[type]:
    """Our documents, and `DOCUMENTS` of the modules with other packages' commands."""
    modules = dict.fromkeys(one.target.partition(":")[0] for one in plugins_of("commands"))
    ours = [kind.load() if isinstance(kind, ModelAt) else kind for kind in DOCUMENTS]
    return [*ours, *(kind for module in modules for kind in getattr(import_module(module), "DOCUMENTS", ()))]


def json_schema(kind: type) -> JsonObject:
    """The JSON Schema of a document, with the texts of its keys."""
    found = adapter(kind).json_schema()
    for part in (found, *found.get("$defs", {}).values()):
        described = next((t for t in parts_of(kind) if t.__name__ == part.get("title")), None)
        for key, about in (texts(described) if described else {}).items():
            if about and key in part.get("properties", {}):
                part["properties"][key]["description"] = about
    return found


def adapter(kind: type) -> TypeAdapter[JsonObject]:
    """What validates a document; keys that it does not have are refused."""
    from pydantic import TypeAdapter, with_config

    for one in parts_of(kind):
        if is_typeddict(one):
            with_config({"extra": "forbid"})(one)
    return TypeAdapter(kind)


def texts(kind: type) -> dict[str, str]:
    """By key: what it means, from the annotations of a typed dictionary or the fields of a model."""
    if (model := _model(kind)) is None:
        return {key: about_of(hint) for key, hint in get_type_hints(kind, include_extras=True).items()}
    return {one.alias or name: one.description or "" for name, one in model.model_fields.items()}


def hints_of(kind: type) -> Mapping[str, object]:
    """By key: its type."""
    if (model := _model(kind)) is None:
        return get_type_hints(kind)
    return {one.alias or name: one.annotation for name, one in model.model_fields.items()}


def _model(kind: object) -> type[BaseModel] | None:
    from pydantic import BaseModel

    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def is_document(kind: object) -> TypeGuard[type]:
    """Whether a type is a typed dictionary or a model."""
    return inspect.isclass(kind) and (is_typeddict(kind) or _model(kind) is not None)


def about_of(hint: object) -> str:
    """The text of an annotated type; empty if it has none."""
    if get_origin(hint) is not Annotated:
        return ""
    return next((mark for mark in get_args(hint)[1:] if isinstance(mark, str)), "")


def parts_of(kind: type) -> list[type]:
    """The types of a document and of all objects in it."""
    found = [kind]
    for hint in hints_of(kind).values():
        for part in _parts(hint):
            if is_document(part):
                found += [one for one in parts_of(part) if one not in found]
    return found


def _parts(hint: object) -> list[object]:
    return [hint, *(deep for part in get_args(hint) for deep in _parts(part))]
