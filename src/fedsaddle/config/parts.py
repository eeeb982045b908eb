"""Options of a config as arguments: checked against the signature, with named parts built as objects."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from types import UnionType
from typing import Any, Union, get_args, get_origin

from fedsaddle.algorithms.fedsgda import Estimator
from fedsaddle.algorithms.fedx.scores import ScorePrivacy
from fedsaddle.arguments import whole
from fedsaddle.config.code_kinds import require_made
from fedsaddle.config.lookup import entry, group_of
from fedsaddle.config.registry import (
    ESTIMATORS,
    LOCAL_OPTIMISERS,
    LOSSES,
    PAIR_LOSSES,
    PROJECTIONS,
    REGULARISERS,
    SCHEDULES,
    SERVER_OPTIMISERS,
    Entry,
)
from fedsaddle.config.validate import check_options, hints_of
from fedsaddle.errors import BadInput, within
from fedsaddle.numerics.optimisers import LocalOptimiser, ServerOptimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.regularisers import Regulariser
from fedsaddle.numerics.schedules import Schedule, Warmup
from fedsaddle.own_code import told_in_one_line
from fedsaddle.problems.losses import Loss
from fedsaddle.problems.pair_losses import MarginLoss, PairLoss

# The types of objects that a config can name, and the registry of their names.
NAMED_KINDS: dict[type, Mapping[str, Entry]] = {
    Regulariser: REGULARISERS,
    Projection: PROJECTIONS,
    Schedule: SCHEDULES,
    Estimator: ESTIMATORS,
    LocalOptimiser: LOCAL_OPTIMISERS,
    ServerOptimiser: SERVER_OPTIMISERS,
    Loss: LOSSES,
    PairLoss: PAIR_LOSSES,
    MarginLoss: PAIR_LOSSES,
}


def arguments_of(
    section: str, make: Callable[..., Any], given: Mapping[str, Any], built: Iterable[str] = ()
) -> dict[str, Any]:
    """The options of a section as arguments of `make`; the caller supplies those in `built`."""
    hints = hints_of(make)
    options = {key: _tuples(value) for key, value in given.items()}
    for key in options.keys() & inspect.signature(make).parameters.keys():
        options[key] = _part(f"{section}.{key}", hints.get(key), options[key])
    return check_options(section, make, options, built)


def _part(key: str, hint: Any, value: Any) -> Any:
    """Build the object that a table (or, for losses, a name) describes; return any other value unchanged."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    table = next((NAMED_KINDS[kind] for kind in kinds if kind in NAMED_KINDS), None)
    if value is None or isinstance(value, tuple(kind for kind in kinds if kind in NAMED_KINDS)):
        return value  # already an object
    if ScorePrivacy in kinds:
        if isinstance(value, ScorePrivacy):
            return value
        if not isinstance(value, dict):
            raise BadInput(key, value, "write a table: { bound = 1.0, noise = 2.0 }")
        return _make(key, ScorePrivacy, value)
    if table is None or (table is SCHEDULES and not isinstance(value, dict)):
        return value
    by_name = (LOSSES, PAIR_LOSSES, LOCAL_OPTIMISERS, SERVER_OPTIMISERS)  # a name alone will do
    if isinstance(value, str) and table in by_name:
        value = {"name": value}
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise BadInput(key, value, f"write a table with a name: one of {', '.join(table)}")
    named = f"{key}.name" if table not in by_name else key
    known = entry(table, named, value["name"])
    options = {k: v for k, v in value.items() if k != "name"}
    warmup = options.pop("warmup", None) if table is SCHEDULES else None
    with told_in_one_line(named, value["name"], known.own):
        made = _make(key, known.load(), options)
    if known.own:
        require_made(group_of(table), named, value["name"], made)
    if warmup is None:
        return made
    with within(key):
        return Warmup(whole("warmup", warmup, least=0), made)


def _make(key: str, make: Callable[..., Any], options: Mapping[str, Any]) -> Any:
    with within(key):
        return make(**arguments_of(key, make, options, built=("prior", "first_is_higher")))


def _tuples(value: Any) -> Any:
    """Convert lists of lists, such as the stages of a schedule, to lists of tuples."""
    if isinstance(value, list) and value and all(isinstance(part, list) for part in value):
        return [tuple(part) for part in value]
    return value
