"""`fedsaddle list`: the names that a config can use."""

from __future__ import annotations

import typer

from fedsaddle.commands.documents import SCHEMA, ListDocument
from fedsaddle.commands.output import output
from fedsaddle.config.entry_points import clashes
from fedsaddle.config.lookup import group_of, with_brought
from fedsaddle.config.registry import LISTED
from fedsaddle.errors import BadInput
from fedsaddle.shown import visible


def list_names(what: str) -> None:
    """Print the names of one kind, or of all."""
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
