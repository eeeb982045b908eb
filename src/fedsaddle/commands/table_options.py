"""The options about a table of your own, and errors of Python's arguments in their words."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fedsaddle.config.lookup import entry
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.data.tables.columns import listed as listed_names
from fedsaddle.data.tables.read import column_names
from fedsaddle.errors import BadCheckpoint, BadInput, NotGiven
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.text import visible

TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq", ".xlsx")
OPTIONS = {
    name: f"--{name.replace('_', '-')}"
    for name in (
        *("site", "label", "positive", "patient", "image", "numeric", "categorical", "drop", "groups", "algorithm"),
        *("sensitivity", "leave_one_site_out", "resume", "table"),
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
def table_of(table: Path | None, site: str | None, label: str | None, **others: Any) -> TableConfig | None:
    """The table that the options describe; None without one."""
    if table is None:
        for key, value in {"site": site, "label": label, **others}.items():
            if value:
                name = "--groups" if key == "groups" else f"--{key.replace('_', '-').removesuffix('s')}"
                raise BadInput(name, value, "needs your own table, such as patients.csv; leave it out, or name a table")
        return None
    if site is None or label is None:
        columns = f"name a column of {visible(table.name)}, one of {listed_names(column_names(table))}"
        raise NotGiven("--site" if site is None else "--label", columns)
    others["groups"] = listed(others.get("groups") or ())
    given: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in others.items() if v is not None}
    found = TableConfig(table, site, label, **given)
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


def is_table(path: Path) -> bool:
    """Whether a file is a table, by its name; it may be packed with gzip."""
    return Path(path.name.lower().removesuffix(".gz")).suffix in TABLES


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
