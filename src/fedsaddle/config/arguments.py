"""Options of a config as arguments: named parts built as objects, then checked against the signature."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import is_dataclass
from types import UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic_core import ErrorDetails

from fedsaddle.algorithms.fedsgda import Estimator
from fedsaddle.algorithms.fedx.scores import ScorePrivacy
from fedsaddle.arguments import did_you_mean, whole
from fedsaddle.config.code_kinds import require_made
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
    entry,
    group_of,
)
from fedsaddle.errors import BadInput, within
from fedsaddle.numerics.optimisers import LocalOptimiser, ServerOptimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.regularisers import Regulariser
from fedsaddle.numerics.schedules import Schedule, Warmup
from fedsaddle.own_code import user_code_errors
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
    section: str, make: Callable[..., object], given: Mapping[str, object], built: Iterable[str] = ()
) -> dict[str, object]:
    """The options of a section as arguments of `make`; the caller supplies those in `built`."""
    hints = hints_of(make)
    options = {key: _tuples(value) for key, value in given.items()}
    for key in options.keys() & inspect.signature(make).parameters.keys():
        options[key] = _part(f"{section}.{key}", hints.get(key), options[key])
    return check_options(section, make, options, built)


def _part(key: str, hint: object, value: object) -> object:
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
    with user_code_errors(named, value["name"], known.own):
        made = _make(key, known.load(), options)
    if known.own:
        require_made(group_of(table), named, value["name"], made)
    if warmup is None:
        return made
    assert isinstance(made, Schedule)
    with within(key):
        return Warmup(whole("warmup", warmup, least=0), made)


def _make(key: str, make: Callable[..., object], options: Mapping[str, object]) -> object:
    with within(key):
        return make(**arguments_of(key, make, options, built=("prior", "first_is_higher")))


def _tuples(value: object) -> object:
    """Convert lists of lists, such as the stages of a schedule, to lists of tuples."""
    if isinstance(value, list) and value and all(isinstance(part, list) for part in value):
        return [tuple(part) for part in value]
    return value


_STRICT = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
_OPEN: ConfigDict = {**_STRICT, "extra": "allow"}  # for functions with `**options`


def check_options(
    section: str, target: Callable[..., object], given: Mapping[str, object], built: Iterable[str] = ()
) -> dict[str, object]:
    """Check `given` against the signature of `target`; the caller supplies the keys in `built`."""
    hints = hints_of(target)
    fields: dict[str, Any] = {}
    config = _STRICT
    for name, parameter in inspect.signature(target).parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            config = _OPEN
        unnamed = parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL) or name.startswith("_")
        if name in built or unnamed:
            continue
        kind = hints.get(name, Any)
        fields[name] = (kind, ... if parameter.default is parameter.empty else parameter.default)
    model = _model(config, fields)
    try:
        accepted = model(**given)
    except ValidationError as error:
        raise to_bad_input(section, first_error(error), fields) from None
    return {name: getattr(accepted, name) for name in given}


def _model(config: ConfigDict, fields: dict[str, Any]) -> type[BaseModel]:
    """The model of the options; of own code, whose annotations pydantic may not know, without their types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # an argument may be called `copy`, as a method of models is
        try:
            return create_model("Options", __config__=config, **fields)
        except PydanticUserError:
            plain: dict[str, Any] = {name: (Any, default) for name, (_, default) in fields.items()}
            return create_model("Options", __config__=config, **plain)


def hints_of(target: Callable[..., object]) -> dict[str, object]:
    """The annotations of a signature; none if they cannot be resolved."""
    plain_class = isinstance(target, type) and not is_dataclass(target)
    try:
        return get_type_hints(getattr(target, "__init__") if plain_class else target)  # noqa: B009
    except (NameError, AttributeError, TypeError):
        return {}


def first_error(error: ValidationError) -> ErrorDetails:
    """The error to report: an unknown key, which explains why another one is missing, or else the first."""
    errors = error.errors()
    return next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])


def to_bad_input(section: str, error: ErrorDetails, known: Iterable[str]) -> BadInput:
    """Convert an error of pydantic to `BadInput`: key, value, remedy."""
    path = [str(part) for part in error["loc"] if not str(part).startswith(("function-", "is-instance"))]
    key = ".".join(p for p in [section, *path[:3]] if p and p not in ("int", "float", "str", "none", "bool"))
    if error["type"] == "extra_forbidden":
        hint = did_you_mean(path[-1], known)
        return BadInput(key, error["input"], f"unknown key; {hint}known keys: {', '.join(known) or 'none'}")
    if error["type"] == "missing":
        return BadInput(key, None, "is required")
    if error["type"] in ("model_type", "dict_type"):
        return BadInput(key, error["input"], f"must be a section: write [{key}] and its keys below")
    if error["type"] == "is_instance_of" and error["msg"].endswith("Sequence"):
        return BadInput(key, error["input"], "must be a list")
    if error["type"] == "literal_error":
        allowed = re.findall("'([^']*)'", error["ctx"]["expected"])
        hint = did_you_mean(error["input"], allowed)
        return BadInput(key, error["input"], f"{hint}choose one of {', '.join(map(repr, allowed))}")
    message = error["msg"].removeprefix("Value error, ")
    return BadInput(key, error["input"], message[0].lower() + message[1:])
