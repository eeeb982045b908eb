"""Options that several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsaddle.commands.completion import algorithms
from fedsaddle.errors import BadInput
from fedsaddle.writable import require_path


def usable(parameter: typer.CallbackParam, path: Any) -> Any:
    """Refuse paths that no file can have, such as very long ones, whatever the command does with them."""
    for one in path if isinstance(path, list | tuple) else [path]:
        if one is not None:
            require_path(str(parameter.name), Path(one))
    return path


def usable_each(key: str, paths: list[str]) -> None:
    """Refuse paths that no file can have."""
    for one in paths:
        require_path(key, Path(one))


def tracked(track: list[str] | None) -> list[str]:
    """`--track tensorboard --track mlflow=URI --track wandb=PROJECT` as changes of a config."""
    found = []
    for wish in track or []:
        name, equals, value = wish.partition("=")
        if name == "tensorboard" and not equals:
            found.append("track.tensorboard=true")
        elif name in ("mlflow", "wandb") and value:
            found.append(f"track.{name}={json.dumps(value)}")
        else:
            raise BadInput("--track", wish, "must be tensorboard, mlflow=URI or wandb=PROJECT")
    return found


OutOption = Annotated[Path | None, typer.Option(help="Folder for the results.", show_default=False, callback=usable)]
SiteOption = Annotated[str | None, typer.Option(help="Column with the site.", show_default=False)]
LabelOption = Annotated[str | None, typer.Option(help="Column with the label (two values).", show_default=False)]
PositiveOption = Annotated[
    str | None,
    typer.Option(help="The positive value of the label; by default 1, yes or the rarer one.", show_default=False),
]
ImageOption = Annotated[
    str | None, typer.Option(help="Column with the path of an image, relative to the table.", show_default=False)
]
PatientOption = Annotated[
    str | None,
    typer.Option(
        "--patient",
        "--together",
        help="Column (e.g. patient ID) whose rows stay in one part of the split.",
        show_default=False,
    ),
]
NumericOption = Annotated[
    list[str] | None, typer.Option(help="Column of numbers; cells that are none become missing.", show_default=False)
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(help="Column of categories, also where it looks like numbers.", show_default=False),
]
DropOption = Annotated[list[str] | None, typer.Option(help="Column to leave out.", show_default=False)]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        help="Columns to report figures for apart, such as sex,ethnicity; also dropped ones.", show_default=False
    ),
]
TestSiteOption = Annotated[
    list[str] | None, typer.Option(help="Site to test on, and not to train on.", show_default=False)
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(help="Follow the run with tensorboard, mlflow=URI or wandb=PROJECT.", show_default=False),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        help="One algorithm instead of a choice, such as CODASCA.", show_default=False, autocompletion=algorithms
    ),
]
ComparisonOption = Annotated[
    Path | None,
    typer.Option(
        help="Write the comparison plot here, or a page if the name ends in .html.", show_default=False, callback=usable
    ),
]
HtmlOption = Annotated[
    Path | None,
    typer.Option(help="Write a page that compares every run with the first.", show_default=False, callback=usable),
]
