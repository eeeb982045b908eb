"""Look up a name: ours, a package's, or `module:name`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from fedsaddle.arguments import did_you_mean
from fedsaddle.config.registry import ALGORITHMS, GROUPS, Entry
from fedsaddle.errors import BadInput
from fedsaddle.own_code import brought, find_brought, first_line, is_code, load_code


def entry(table: Mapping[str, Entry], key: str, name: object, group: str = "") -> Entry:
    """Look up a name: one of the table, `module:name`, or one that a package brings.

    Code of others is imported here, and must be what its group is of. The error for an unknown name suggests the
    nearest one. `group` is that of a table which is not among `GROUPS`.
    """
    if not isinstance(name, str):
        raise BadInput(key, name, f"give a name, one of {', '.join(table)}")
    if name in table:
        return table[name]
    group = group or group_of(table)
    if group and is_code(name):
        return _own(group, key, name, name, name.partition(":")[0])
    found = find_brought(group, key, name) if group else None
    if found is not None:
        return _own(group, key, name, found.target, found.package)
    names = [*table, *dict.fromkeys(one.name for one in (brought(group) if group else ()) if one.name not in table)]
    raise BadInput(key, name, f"{did_you_mean(name, names)}choose one of {', '.join(names)}")


def keys_of_algorithm(name: object) -> set[str] | None:
    """The keys that [algorithm] may have; None for an unknown name, or one that takes any key."""
    try:
        known = entry(ALGORITHMS, "algorithm.name", name)
    except BadInput:
        return None
    parameters = inspect.signature(known.load()).parameters
    if any(one.kind is one.VAR_KEYWORD for one in parameters.values()):
        return None
    return {"name", "local_layers", "anderson", *parameters} - {"problem", *known.fixed}


def refuse_keys_of_others(section: str, name: str, given: Mapping[str, Any]) -> None:
    """Refuse a key that is a parameter of other algorithms, and name some."""
    own = keys_of_algorithm(name)
    for key, value in given.items():
        if own is None or key in own:
            continue
        others = [other for other in ALGORITHMS if key in (keys_of_algorithm(other) or ())]
        if others:
            some = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise BadInput(f"{section}.{key}", value, f"is a parameter of {some}; {name} has none: remove it")


def with_brought(table: Mapping[str, Entry], group: str = "") -> dict[str, Entry]:
    """The table, and after it what installed packages bring: where it is, and who brings it; nothing is imported."""
    others = brought(group or group_of(table)) if group or group_of(table) else ()
    added = {one.name: Entry(one.target, one.target, one.package, own=one.package) for one in others}
    return {**table, **{name: known for name, known in added.items() if name not in table}}


def group_of(table: Mapping[str, Entry]) -> str:
    """The group of entry points that adds to a table; empty: none."""
    return next((group for group, known in GROUPS.items() if known is table), "")


def _own(group: str, key: str, name: str, target: str, brings: str) -> Entry:
    """The entry of somebody else's code."""
    try:
        code, found = load_code(key, target)
    except BadInput as reason:
        if name == target:
            raise
        remedy = f"{brings} brings it as {target!r}: {reason.remedy}"
        raise BadInput(key, name, remedy) from reason
    from fedsaddle.config.code_kinds import kind_of

    kind = kind_of(group, key, name, found)
    return Entry(f"{code.module}:{code.attribute}", first_line(found), brings, kind=kind, own=brings)


def find(table: Mapping[str, Entry], key: str, name: object, group: str = "") -> Any:
    """Look up an entry and import its class or function."""
    return entry(table, key, name, group).load()
