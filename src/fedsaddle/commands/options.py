"""Options that several commands share, and the names that the shell completes; nothing heavy is imported."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsaddle.config.registry import ALGORITHMS, DATASETS, ENGINES, LISTED, MODELS, PROBLEMS, SPLITS
from fedsaddle.errors import BadInput
from fedsaddle.files import require_path

YOUR_TABLE, TRAINING, CONFIG, OUTPUT = "Your table", "What to train", "Config", "Output"  # panels of `run --help`
NAMED = {  # keys of a config that take a name
    "algorithm.name": ALGORITHMS,
    "problem.name": PROBLEMS,
    "data.name": DATASETS,
    "split.name": SPLITS,
    "model.name": MODELS,
    "engine.name": ENGINES,
}
KEYS = (
    "algorithm.sampled_clients",
    "algorithm.local_steps",
    "algorithm.batch_size",
    "algorithm.primal_step",
    "algorithm.dual_step",
    "data.test_share",
    "data.validation_share",
    "problem.loss",
    "problem.l2",
    "run.rounds",
    "run.seed",
    "run.evaluate_every",
    "run.checkpoint_every",
    "run.target",
    "run.select",
    "run.patience",
    "run.lost_replies",
    "run.dtype",
    "robust.aggregation",
    "attack.name",
    "split.clients",
    "split.alpha",
)  # what is changed most
BASH = "complete_bash"
VARIABLE = "_FEDSADDLE_COMPLETE"


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
    changes = []
    for tracker in track or []:
        name, equals, value = tracker.partition("=")
        if name == "tensorboard" and not equals:
            changes.append("track.tensorboard=true")
        elif name in ("mlflow", "wandb") and value:
            changes.append(f"track.{name}={json.dumps(value)}")
        else:
            raise BadInput("--track", tracker, "must be tensorboard, mlflow=URI or wandb=PROJECT")
    return changes


def refuse_options(options: dict[str, Any], what: str) -> None:
    """Refuse options that have no effect."""
    for key, value in options.items():
        if value is not None and value is not False:
            raise BadInput(f"--{key.replace('_', '-')}", value, f"is for {what}; leave it out")


def complete_algorithms(incomplete: str) -> list[tuple[str, str]]:
    """Names of algorithms, and what they are."""
    return [(name, entry.about) for name, entry in ALGORITHMS.items() if name.startswith(incomplete)]


def complete_engines(incomplete: str) -> list[str]:
    """Names of engines."""
    return _beginning(incomplete, ENGINES)


def complete_kinds(incomplete: str) -> list[str]:
    """What `fedsaddle list` lists."""
    return _beginning(incomplete, LISTED)


def complete_aims(incomplete: str) -> list[str]:
    """What a search can be for."""
    return _beginning(incomplete, ("auroc", "average-precision", "partial-auroc", "worst-site", "accuracy"))


def complete_changes(incomplete: str) -> list[str]:
    """Keys of a config with `=`, and names after it.

    Examples:
        >>> complete_changes("algorithm.name=DRFA-")
        ['algorithm.name=DRFA-GA', 'algorithm.name=DRFA-Prox']
    """
    key, equals, begun = incomplete.partition("=")
    if equals:
        done, comma, last = begun.rpartition(",")  # of a sweep: name=FedAvg,DR
        return [f"{key}={done}{comma}{name}" for name in _beginning(last, NAMED.get(key, ()))]
    return [f"{known}=" for known in (*NAMED, *KEYS) if known.startswith(incomplete)]


def after_equals(environment: dict[str, str] | None = None) -> list[str] | None:
    """Names after `--set KEY=` in bash, which takes `=` for a word of its own; None where it is something else."""
    given = dict(os.environ) if environment is None else environment
    words, at = given.get("COMP_WORDS", "").split("\n"), given.get("COMP_CWORD", "")
    if given.get(VARIABLE) != BASH or not at.isdecimal() or not 3 <= int(at) <= len(words):
        return None
    here = words[int(at)] if int(at) < len(words) else ""
    before = words[: int(at)] if here != "=" else words[: int(at) + 1]
    if len(before) < 3 or before[-1] != "=" or before[-3] != "--set":
        return None
    begun = "" if here == "=" else here
    completed = complete_changes(f"{before[-2]}={begun}")
    return [one.partition("=")[2].replace(" ", "\\ ") for one in completed]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


OutOption = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR", help="Folder for the results.", show_default=False, callback=usable, rich_help_panel=OUTPUT
    ),
]
SiteOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Site of each row.", show_default=False, rich_help_panel=YOUR_TABLE),
]
LabelOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Label, with two values.", show_default=False, rich_help_panel=YOUR_TABLE),
]
PositiveOption = Annotated[
    str | None,
    typer.Option(
        metavar="VALUE",
        help="Positive label; by default 1, yes or the rarer value.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
ImageOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN",
        help="Path of an image, relative to the table.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
PatientOption = Annotated[
    str | None,
    typer.Option(
        "--patient",
        "--together",
        metavar="COLUMN",
        help="Groups such as patients, which are not split.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
NumericOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Treat as numeric; cells that cannot be parsed become missing.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
CategoricalOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMN",
        help="Treat as categorical, even if it looks numeric.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
DropOption = Annotated[
    list[str] | None,
    typer.Option(metavar="COLUMN", help="Do not use as a feature.", show_default=False, rich_help_panel=YOUR_TABLE),
]
GroupsOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="COLUMNS",
        help="Report metrics by subgroup, such as sex,ethnicity.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
TestSiteOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME",
        help="Test on this site and do not train on it.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
TrackOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="TRACKER",
        help="Log to tensorboard, mlflow=URI or wandb=PROJECT.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
AlgorithmOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Train this algorithm only, without a search.",
        show_default=False,
        autocompletion=complete_algorithms,
        rich_help_panel=TRAINING,
    ),
]
