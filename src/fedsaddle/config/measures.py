"""The extra measures of a run: by name, as a table with a name and options, or as objects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedsaddle.config.code_kinds import require_made
from fedsaddle.config.lookup import entry
from fedsaddle.config.own_code import told_in_one_line
from fedsaddle.config.registry import MEASURES
from fedsaddle.config.validate import check_options
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure

MeasureSpec = str | Mapping[str, Any] | Measure


def build_measures(given: Sequence[MeasureSpec], key: str = "measures") -> tuple[Measure, ...]:
    """Build the measures of a run, each name once; errors name `key`."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise BadInput("measures", given, f"give a list of measures: {', '.join(MEASURES)}")
    found = tuple(_measure(one, key) for one in given)
    names = [measure.name for measure in found]
    for name in names:
        if names.count(name) > 1:
            raise BadInput("measures", name, "is listed twice; keep one")
    return found


def _measure(given: MeasureSpec, key: str) -> Measure:
    if not isinstance(given, str | Mapping):
        if isinstance(given, type) or not isinstance(given, Measure) or not callable(given):
            raise BadInput("measures", given, "your own measure needs a name and __call__(position)")
        return given
    table = {"name": given} if isinstance(given, str) else dict(given)
    if not isinstance(table.get("name"), str):
        raise BadInput("measures", given, f"write a name, or a table with a name; names are {', '.join(MEASURES)}")
    name = table.pop("name")
    known = entry(MEASURES, key, name)
    make, section = known.load(), f"{key}.{name}"
    options = check_options(section, make, table)
    with within(section), told_in_one_line(key, name, known.own):
        measure: Measure = make(**options)
    if known.own:
        require_made("measures", key, name, measure)
    return measure
