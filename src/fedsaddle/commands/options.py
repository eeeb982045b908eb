"""Options that several commands share, and the names that the shell completes; nothing heavy is imported."""

from __future__ import annotations

import csv
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from fedsaddle.config.registry import ALGORITHMS, DATASETS, ENGINES, MODELS, PROBLEMS, SPLITS, entry
from fedsaddle.errors import BadCheckpoint, BadInput, NotGiven
from fedsaddle.files import JsonObject, require_path
from fedsaddle.processes import loading
from fedsaddle.text import visible

if TYPE_CHECKING:
    from fedsaddle.studies.table_config import TableConfig

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


Paths = TypeVar("Paths", Path | None, list[Path], list[str])


def usable(parameter: typer.CallbackParam, path: Paths) -> Paths:
    """Refuse paths that no file can have, such as very long ones, whatever the command does with them."""
    for one in path if isinstance(path, list | tuple) else [path]:
        if one is not None:
            require_path(str(parameter.name), Path(one))
    return path


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


def refuse_options(options: Mapping[str, object], what: str) -> None:
    """Refuse options that have no effect."""
    for key, value in options.items():
        if value is not None and value is not False:
            raise BadInput(f"--{key.replace('_', '-')}", value, f"is for {what}; leave it out")


def complete_algorithms(incomplete: str) -> list[tuple[str, str]]:
    """Names of algorithms, and what they are."""
    return [(name, entry.about) for name, entry in ALGORITHMS.items() if name.startswith(incomplete)]


def complete_changes(incomplete: str) -> list[str]:
    """Keys of a config with `=`, and names after it.

    Examples:
        >>> complete_changes("algorithm.name=DRFA-")
        ['algorithm.name=DRFA-GA', 'algorithm.name=DRFA-Prox']
    """
    key, equals, begun = incomplete.partition("=")
    if equals:
        done, comma, last = begun.rpartition(",")  # of a sweep: name=FedAvg,DR
        return [f"{key}={done}{comma}{name}" for name in beginning(last, NAMED.get(key, ()))]
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


def beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with what is there."""
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
    typer.Option(
        metavar="COLUMN",
        help="Label: two classes, several, or a number.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
FamilyOption = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Overrides what the label says: classes, number, or poisson for counts.",
        show_default=False,
        rich_help_panel=YOUR_TABLE,
    ),
]
TimeOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Time to an event, in place of a label.", show_default=False, rich_help_panel=YOUR_TABLE
    ),
]
EventOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Whether there was an event at --time.", show_default=False, rich_help_panel=YOUR_TABLE
    ),
]
ExposureOption = Annotated[
    str | None,
    typer.Option(
        metavar="COLUMN", help="Of counts, such as person-years.", show_default=False, rich_help_panel=YOUR_TABLE
    ),
]
HorizonOption = Annotated[
    float | None,
    typer.Option(
        metavar="TIME", help="Time at which survival is judged.", show_default=False, rich_help_panel=YOUR_TABLE
    ),
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


OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("site", "label", "positive", "patient", "image", "numeric", "categorical", "drop", "groups", "algorithm"),
        *("sensitivity", "leave_one_site_out", "resume", "table", "family", "time", "event", "exposure", "horizon"),
    )
} | {"aim": "--for", "test_sites": "--test-site"}
IN_REMEDIES = OPTIONS | {"out": "--out", "seed": "--seed"}


@contextmanager
def in_options() -> Iterator[None]:
    """Errors of arguments name the options of the command line."""
    try:
        yield
    except NotGiven as error:
        raise NotGiven(OPTIONS.get(error.key, error.key), _worded(error.remedy)) from None
    except BadInput as error:
        raise BadInput(OPTIONS.get(error.key, error.key), error.value, _worded(error.remedy)) from None
    except BadCheckpoint as error:
        raise BadCheckpoint(_worded(str(error))) from None


def _worded(text: str) -> str:
    return re.sub(r"`([a-z_]+)`", lambda found: IN_REMEDIES.get(found[1], found[0]), text)


@in_options()
def table_of(
    table: Path | None, site: str | None, label: str | None, **others: str | int | float | list[str] | None
) -> TableConfig | None:
    """The table that the options describe; None without one. `time` is the label of a time to an event."""
    if table is None:
        for key, value in {"site": site, "label": label, **others}.items():
            if value:
                name = "--groups" if key == "groups" else f"--{key.replace('_', '-').removesuffix('s')}"
                raise BadInput(name, value, "needs your own table, such as patients.csv; leave it out, or name a table")
        return None
    with loading():
        from fedsaddle.data.tables.columns import listed as listed_names
        from fedsaddle.data.tables.read import column_names
        from fedsaddle.studies.table_config import TableConfig

    time = others.pop("time", None)
    if (time is None) != (others.get("event") is None):
        raise NotGiven("--event" if time is not None else "--time", "a time to an event needs both columns")
    if time is not None and label is not None:
        raise BadInput("--label", label, "is the time of the event here; leave it out")
    label = label if time is None else str(time)
    if site is None or label is None:
        columns = f"name a column of {visible(table.name)}, one of {listed_names(column_names(table))}"
        raise NotGiven("--site" if site is None else "--label", columns)
    given: JsonObject = {k: tuple(v) if isinstance(v, list) else v for k, v in others.items() if v is not None}
    found = TableConfig(table, site, label, **{**given, "groups": listed(given.get("groups", ()))})
    found.refuse_two_roles()
    if found.algorithm is not None:
        entry(ALGORITHMS, "algorithm", found.algorithm)
    return found


def listed(options: Sequence[str]) -> tuple[str, ...]:
    """The names in options such as "sex,age"; a name with a comma stands in double quotes.

    Examples:
        >>> listed(["sex, age", '"weight, kg"'])
        ('sex', 'age', 'weight, kg')
    """
    names = [name.strip() for line in csv.reader(options, skipinitialspace=True) for name in line]
    return tuple(dict.fromkeys(name for name in names if name))


def seconds_of(text: str) -> float:
    """A time such as 90s, 2m or 1.5h; a plain number is seconds.

    Examples:
        >>> seconds_of("2m")
        120.0
    """
    found = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([smh]?)\s*", text)
    if found is None or float(found[1]) == 0:
        raise BadInput("--budget", text, "give a time such as 90s, 2m or 1h")
    return float(found[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[found[2]]
