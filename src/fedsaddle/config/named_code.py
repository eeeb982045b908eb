"""The code of others that a config names, found without importing any of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from fedsaddle.config.code_names import CodeName, is_code, parse
from fedsaddle.config.entry_points import find_brought
from fedsaddle.config.module_digest import digest_of
from fedsaddle.config.registry import GROUPS
from fedsaddle.config.schema import Config

_SECTIONS = {"data": "datasets", "split": "splits", "model": "models", "problem": "problems", "algorithm": "algorithms"}
_PARTS = ("losses", "pair_losses", "risks", "regularisers", "projections", "schedules", "estimators")


def named_code(config: Config) -> list[CodeName]:
    """Every module and name that a run of this config would import, beside the library's own."""
    found = [code for key, groups, name in _names(config) if (code := code_behind(groups, key, name)) is not None]
    return list(dict.fromkeys(found))


def module_digests(config: Config) -> dict[str, str]:
    """Module -> digest, of all code that a config names."""
    return {code.module: digest_of(code.module) for code in named_code(config)}


def code_behind(groups: tuple[str, ...], key: str, name: str) -> CodeName | None:
    """What a name stands for outside of the library; None: a name of ours, or of nobody."""
    if is_code(name):
        return parse(key, name)
    if any(name in GROUPS[group] for group in groups):
        return None
    brings = (find_brought(group, key, name) for group in groups)
    return next((parse(key, found.target) for found in brings if found is not None), None)


def _names(config: Config) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Key, groups and name, wherever a config can name something."""
    for section, group in _SECTIONS.items():
        given = getattr(config, section)
        yield f"{section}.name", (group,), given.name
        if section in ("problem", "algorithm", "model"):
            yield from _inside(section, given.options())
    for measure in config.run.measures:
        name = measure.get("name") if isinstance(measure, dict) else measure
        if isinstance(name, str):
            yield "run.measures", ("measures",), name


def _inside(key: str, options: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, ...], str]]:
    """Names in tables of options, however deep, and of losses and risks, which need no table."""
    for option, value in options.items():
        if isinstance(value, dict):
            yield from _inside(f"{key}.{option}", value)
        elif isinstance(value, str) and (option in ("name", "loss", "risk") or option.endswith("_loss")):
            yield f"{key}.{option}", _PARTS, value
