"""Look up a name: ours, a package's, or `module:name`."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any

from fedsaddle.config.code_names import is_code
from fedsaddle.config.entry import Entry
from fedsaddle.config.entry_points import brought, find_brought
from fedsaddle.config.own_code import first_line, load_code
from fedsaddle.config.registry import GROUPS
from fedsaddle.errors import BadInput


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
    near = get_close_matches(name.lower(), [n.lower() for n in names], 1)
    hint = next((f"did you mean {n!r}? " for n in names if near and n.lower() == near[0]), "")
    raise BadInput(key, name, f"{hint}choose one of {', '.join(names)}")


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
