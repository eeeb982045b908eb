"""The values of a sweep: `algorithm.primal_step=0.01,0.03` or a range, `algorithm.primal_step=0.001..1:log`."""

from __future__ import annotations

import copy
import itertools
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedsaddle.config.build import check_keys
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.config.toml_files import DEEPEST, parse_toml
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, JsonObject

MOST_CELLS = 10_000
EXAMPLE = "write it like algorithm.primal_step=0.01,0.03,0.1"
_NUMBER = r"[-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?)"
_RANGE = re.compile(rf"\s*({_NUMBER})\s*\.\.\s*({_NUMBER})\s*(?::\s*(log|linear))?\s*")


@dataclass(frozen=True)
class Range:
    """All numbers between two, for a search."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __str__(self) -> str:
        return f"{self.low:g}..{self.high:g}{':log' if self.log else ''}"


@dataclass(frozen=True)
class Axis:
    """A key of the config and its values, or a range."""

    key: str
    values: tuple[Json, ...] | Range

    @property
    def listed(self) -> list[Json]:
        """For JSON."""
        return [str(self.values)] if isinstance(self.values, Range) else list(self.values)


def parse_axis(text: str, option: str = "--set") -> Axis:
    """Read `KEY=VALUE,VALUE,...` with values in TOML, or `KEY=LOW..HIGH[:log]`.

    Examples:
        >>> parse_axis("algorithm.name=FedAvg,DRFA").values
        ('FedAvg', 'DRFA')
        >>> parse_axis("algorithm.primal_step=1e-3..1:log").values
        Range(low=0.001, high=1.0, log=True, whole=False)
    """
    key, equals, given = text.partition("=")
    if not equals or not given.strip():
        raise BadInput(option, text, EXAMPLE)
    return make_axis(key.strip(), range_of(given) or _values(given), option)


def make_axis(key: str, values: Json | Range, option: str = "values") -> Axis:
    """An axis of a key and a list of values or a range, checked."""
    parts = key.split(".") if isinstance(key, str) else []
    if not 2 <= len(parts) <= DEEPEST or not all(parts):
        raise BadInput(option, key, EXAMPLE)
    if key == "run.seed":
        raise BadInput(option, key, "every cell is run with all seeds already; say how many with --seeds")
    if isinstance(values, str):
        values = range_of(values) or (values,)
    if isinstance(values, Range):
        return Axis(key, values)
    if not isinstance(values, Sequence) or not values:
        values = (values,) if not isinstance(values, Sequence) else ()
    if not values:
        raise BadInput(option, key, "name at least one value")
    seen = [json.dumps(value, sort_keys=True, default=str) for value in values]
    again = next((value for value, text in zip(values, seen, strict=True) if seen.count(text) > 1), None)
    if again is not None:
        raise BadInput(option, again, f"is there twice among the values of {key}; name each value once")
    return Axis(key, tuple(values))


def range_of(text: str) -> Range | None:
    """The range that a text names; None if it is none."""
    found = _RANGE.fullmatch(text)
    if found is None:
        return None
    low, high, log = float(found[1]), float(found[2]), found[3] == "log"
    if not low < high or (log and low <= 0) or not math.isfinite(high):
        raise BadInput("range", text, "write the lower end first, above 0 for :log, such as 0.001..1:log")
    return Range(low, high, log, all(re.fullmatch(r"[-+]?\d+", found[k]) for k in (1, 2)))


def _values(text: str) -> tuple[Json, ...]:
    try:
        return tuple(parse_toml(f"v = [{text}]")["v"])
    except ValueError:
        return tuple(_value(part.strip()) for part in text.split(","))


def _value(text: str) -> Json:
    try:
        value: Json = parse_toml(f"v = {text}")["v"]
    except ValueError:
        return text
    return value


def cells_of(axes: Sequence[Axis]) -> list[dict[str, Json]]:
    """Every combination of the values; the last axis changes fastest.

    Raises:
        BadInput: if a key is there twice, an axis is a range, or there are too many combinations.
    """
    keys, lists = [axis.key for axis in axes], []
    require_once(keys)
    for axis in axes:
        if isinstance(axis.values, Range):
            raise BadInput(
                "--set", f"{axis.key}={axis.values}", "a range is for a search; add --optuna 30, or list values"
            )
        lists.append(axis.values)
    if (count := math.prod(map(len, lists))) > MOST_CELLS:
        raise BadInput(
            "--set", f"{count:,} cells", f"at most {MOST_CELLS:,}; name fewer values, or search with --optuna"
        )
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*lists)]


def require_once(keys: Sequence[str]) -> None:
    """Refuse a key that is there twice."""
    again = next((key for key in keys if keys.count(key) > 1), None)
    if again is not None:
        raise BadInput("--set", again, "is there twice; name all its values once")


def with_values(content: Mapping[str, Json], values: Mapping[str, Json]) -> JsonObject:
    """A copy of a config's content, with other values of some keys."""
    made: JsonObject = copy.deepcopy(dict(content))
    for key, value in values.items():
        *sections, last = key.split(".")
        place = made
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise BadInput("--set", key, f"{section!r} is a value, not a section")
        place[last] = value
    return made


def config_of(content: Mapping[str, Json], values: Mapping[str, Json], seed: int) -> Config:
    """The config of one run, with all keys checked.

    Raises:
        BadInput: for a key or value that cannot be; suggests the nearest key.
    """
    made = with_values(content, values)
    made.setdefault("run", {})["seed"] = seed
    config = validate_config(made)
    if config.engine.name == "nvflare":
        raise BadInput("engine.name", "nvflare", "a sweep is for simulations; choose vectorised or serial")
    check_keys(config)
    return config
