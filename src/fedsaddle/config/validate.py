"""Check keyword arguments against a signature: unknown keys, missing keys and wrong types."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, PydanticUserError, ValidationError, create_model
from pydantic_core import ErrorDetails

from fedsaddle.arguments import did_you_mean
from fedsaddle.errors import BadInput

_STRICT = ConfigDict(extra="forbid", strict=True, arbitrary_types_allowed=True, protected_namespaces=())
_OPEN: ConfigDict = {**_STRICT, "extra": "allow"}  # for functions with `**options`


def check_options(
    section: str, target: Callable[..., Any], given: dict[str, Any], built: Iterable[str] = ()
) -> dict[str, Any]:
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
        raise to_bad_input(section, first_error(error), fields, given) from None
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


def hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a signature; none where a user's name what cannot be found."""
    plain_class = isinstance(target, type) and not is_dataclass(target)
    try:
        return get_type_hints(getattr(target, "__init__") if plain_class else target)  # noqa: B009
    except (NameError, AttributeError, TypeError):
        return {}


def first_error(error: ValidationError) -> ErrorDetails:
    """The error to report: an unknown key, which explains why another one is missing, or else the first."""
    errors = error.errors()
    return next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])


def to_bad_input(section: str, error: ErrorDetails, known: Iterable[str], given: Any = None) -> BadInput:
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
