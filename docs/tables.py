"""Tables of the documentation, made from the registry, the schema of configs, dataclasses and signatures."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from from_source import argument_docs, field_comments
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from fedsaddle.algorithms.fedx.scores import ScorePrivacy
from fedsaddle.commands import documents
from fedsaddle.commands.info import all_documents, hints_of, is_document, parts_of, texts
from fedsaddle.config import schema
from fedsaddle.config.arguments import NAMED_KINDS
from fedsaddle.config.registry import ALGORITHMS, KINDS, LISTED, MODELS, SCHEDULES, Entry
from fedsaddle.federation.records import Visibility
from fedsaddle.privacy import accountant
from fedsaddle.secure.secured import reply_fields

PAGES = Path(__file__).parent / "algorithms"
WORDS = {int: "whole number", float: "number", str: "string", bool: "boolean", Path: "string", dict: "table"}
SHAPES = {"inputs", "outputs", "classes", "channels", "side", "characters"}  # of models: they come from the data
MISSING = (inspect.Parameter.empty, dataclasses.MISSING, PydanticUndefined)
Row = tuple[str, ...]


def table(what: str) -> str:
    """The table that a marker asks for."""
    kind, _, rest = what.partition(" ")
    if kind == "algorithms":
        return algorithms(rest)
    if kind == "algorithm":
        return algorithm([name.strip() for name in rest.split(",")])
    if kind == "names":
        return laid_out(("name", "what it is"), ((f"`{name}`", e.about) for name, e in LISTED[rest].items()))
    if kind == "options":
        return options(LISTED[rest])
    if kind.startswith("config."):
        return section(kind.removeprefix("config."))
    if kind == "secure":
        return what_secure_aggregation_hides()
    if kind == "private":
        return what_can_be_private()
    if kind == "json":
        return json_documents()
    raise ValueError(f"no table {what!r}; docs/hooks.py lists them")


def laid_out(head: Row, rows: Iterable[Row]) -> str:
    """A Markdown table."""
    lines = [head, ("---",) * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def json_documents() -> str:
    """What `--json` prints: the keys of every document and of the objects in it, but for those that all have."""
    every = dict.fromkeys(part for kind in all_documents() for part in parts_of(kind))
    return "\n\n".join(f"**{one.__name__}**. {one.__doc__}\n\n{_keys(one)}" for one in every)


def _keys(kind: Any) -> str:
    hints = hints_of(kind)
    common = get_type_hints(documents.Document) if kind is not documents.ErrorDocument else {}
    rows = ((f"`{k}`", json_words(hints[k]), text) for k, text in texts(kind).items() if k not in common)
    return laid_out(("key", "value", "meaning"), rows)


def json_words(hint: Any) -> str:
    """A type in the words of JSON."""
    plain = {int: "whole number", float: "number", str: "string", bool: "boolean", NoneType: "null", Any: "anything"}
    if hint in plain:
        return plain[hint]
    inner = get_args(hint)
    if get_origin(hint) is Literal:
        return " or ".join(f"`{json.dumps(value)}`" for value in inner)
    if is_document(hint):
        return hint.__name__
    if get_origin(hint) is dict and is_document(inner[1]):
        return f"object of {inner[1].__name__}"
    if get_origin(hint) is list:
        return f"list of {json_words(inner[0])}"
    if get_origin(hint) in (Union, UnionType):
        return " or ".join(json_words(part) for part in inner)
    return "object"


def algorithms(kind: str) -> str:
    """The algorithms that solve problems of one kind, each with a link to the page that has the table of its keys."""
    if kind not in KINDS:
        raise ValueError(f"kind = {kind!r}: choose one of {', '.join(KINDS)}")
    rows = ((linked(n), in_python(e), e.about, e.source) for n, e in ALGORITHMS.items() if e.kind == kind)
    return laid_out(("name in a config", "in Python", "what it does", "paper"), rows)


def what_secure_aggregation_hides() -> str:
    """The fields of every algorithm's replies, by whether the server sees sums or each site's values."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, entry in ALGORITHMS.items():
        if not entry.fixed.get("centralised", False):
            seen = reply_fields(entry.load())
            sums = ", ".join(f"`{field}`" for field, how in seen.items() if how is Visibility.AVERAGED)
            rest = ", ".join(
                f"`{field}` ({how.value})" for field, how in seen.items() if how is not Visibility.AVERAGED
            )
            named.setdefault((sums, rest or "none"), []).append(name)
    rows = ((", ".join(names), sums, rest) for (sums, rest), names in named.items())
    return laid_out(("algorithm", "sums only", "still visible"), rows)


def what_can_be_private() -> str:
    """The algorithms by what differential privacy can protect: rows and patients, or whole clients."""
    named: dict[tuple[str, str], list[str]] = {}
    for name, entry in ALGORITHMS.items():
        if not entry.fixed.get("centralised", False):
            kind = entry.load()
            reason = accountant.reason_against(kind)
            rows = "yes" if not reason else f"no: {reason.partition('; state it with')[0]}"
            secret = getattr(kind, "secret_cohorts", None)
            clients = "no" if secret is None else "yes" if secret else "yes, without a discount for sampled cohorts"
            named.setdefault((rows, clients), []).append(name)
    lines = ((", ".join(names), rows, clients) for (rows, clients), names in named.items())
    return laid_out(("algorithm", "row or patient", "client"), lines)


def linked(name: str) -> str:
    """The name, with a link, as seen from the folder of all pages, to the page that documents it."""
    marker = re.compile(rf"^<!-- table: algorithm (?:.*, )?{re.escape(name)}(?:,.*)? -->$", re.M)
    page = next((p.name for p in sorted(PAGES.glob("*.md")) if marker.search(p.read_text(encoding="utf-8"))), None)
    return f"`{name}`" if page is None else f"[`{name}`](algorithms/{page})"


def in_python(entry: Entry) -> str:
    """The call that the name stands for: `fs.Drfa(local_steps=1)`."""
    given = [f"{key}={python_value(value)}" for key, value in {**entry.fixed, **entry.defaults}.items()]
    given += [f"{key}=..." for key in entry.required]
    kind = entry.target.partition(":")[2]
    return f"`fs.{kind}({', '.join(given)})`" if given else f"`fs.{kind}`"


def python_value(value: Any) -> str:
    """A value of a config, as Python writes it."""
    if not isinstance(value, dict):
        return repr(value)
    named = next(t[value["name"]] for t in NAMED_KINDS.values() if value["name"] in t)
    rest = ", ".join(f"{k}={v!r}" for k, v in value.items() if k != "name")
    return f"fs.{named.target.partition(':')[2]}({rest})"


def algorithm(names: list[str]) -> str:
    """The keys of an algorithm; of several, what each name binds of a key is said."""
    made = {name: {key: (hint, default) for key, hint, default in arguments(ALGORITHMS[name].load())} for name in names}
    keys = dict.fromkeys(key for known in made.values() for key in known if key != "problem")
    rows: list[Row] = []
    for key in keys:
        having = [name for name in names if key in made[name]]
        kind, (hint, default) = ALGORITHMS[having[0]].load(), made[having[0]][key]
        meaning = prose(key, kind)
        if len(having) < len(names):
            meaning = f"{', '.join(having)} only" + (f": {meaning}" if meaning else "")
        rows.append((f"`{key}`", type_words(hint), key_default(key, default, having), meaning))
    return laid_out(("key", "type", "default", "meaning"), rows)


def key_default(key: str, default: Any, names: list[str]) -> str:
    """The default, and what each name binds instead."""
    said = [shown(default)]
    for name in names:
        entry = ALGORITHMS[name]
        if key in entry.fixed:
            said.append(f"{name}: always {shown(entry.fixed[key])}")
        if key in entry.defaults:
            said.append(f"{name}: {shown(entry.defaults[key])}")
        if key in entry.required:
            said.append(f"{name}: required")
    return "; ".join(said)


def options(entries: Mapping[str, Entry]) -> str:
    """The keys of everything in one table of the registry; shapes of models come from the data."""
    rows: list[Row] = []
    for name, entry in entries.items():
        make, cell = entry.load(), f"`{name}`"
        for key, hint, default in arguments(make):
            if not (entries is MODELS and key in SHAPES):
                rows.append((cell, f"`{key}`", type_words(hint), shown(default), prose(key, make)))
                cell = ""
    return laid_out(("name", "key", "type", "default", "meaning"), rows)


def section(name: str) -> str:
    """The keys of a section of a config."""
    kind = schema.Config.model_fields[name].annotation
    assert isinstance(kind, type)
    assert issubclass(kind, BaseModel)
    said = field_comments(kind)
    rows = (
        (f"`{key}`", type_words(field.annotation) + bounds(field.metadata), shown(field.default), said.get(key, ""))
        for key, field in kind.model_fields.items()
    )
    return laid_out(("key", "type", "default", "meaning"), rows)


def arguments(make: Any) -> list[tuple[str, Any, Any]]:
    """Name, type and default of each argument."""
    if dataclasses.is_dataclass(make):
        hints = get_type_hints(make)
        return [(f.name, hints[f.name], _default(f)) for f in dataclasses.fields(make) if f.init]
    hints = get_type_hints(vars(make)["__init__"] if isinstance(make, type) else make)
    return [(p.name, hints[p.name], p.default) for p in inspect.signature(make).parameters.values()]


def _default(field: dataclasses.Field[Any]) -> Any:
    return field.default if field.default_factory is dataclasses.MISSING else field.default_factory()


def prose(key: str, make: Any) -> str:
    """What the docstring's `Args:`, or else the comment beside the field, says."""
    args = argument_docs(make)
    if key in args:
        return args[key].removesuffix(".")
    return field_comments(make).get(key, "") if isinstance(make, type) else ""


def type_words(hint: Any) -> str:
    """A type in the words of a config: `float | None` is a number."""
    if get_origin(hint) in (Union, UnionType):
        words = [type_words(part) for part in get_args(hint) if part is not NoneType]
        return " or ".join(dict.fromkeys(words))
    if get_origin(hint) is Literal:
        return ", ".join(shown(value) for value in get_args(hint))
    if get_origin(hint) is not None:
        inner = [type_words(part) for part in get_args(hint) if part is not Ellipsis]
        return "table" if get_origin(hint) is dict else f"list of {inner[0].replace(' or ', 's or ')}s"
    if hint in NAMED_KINDS or hint is ScorePrivacy:
        return "schedule" if NAMED_KINDS.get(hint) is SCHEDULES else "table"
    return WORDS.get(hint, getattr(hint, "__name__", str(hint)))


def bounds(metadata: list[Any]) -> str:
    """`in [0, 1)`, from pydantic's limits."""
    found = {k: getattr(limit, k) for limit in metadata for k in ("ge", "gt", "le", "lt") if hasattr(limit, k)}
    low = f"[{found['ge']:g}" if "ge" in found else f"({found['gt']:g}" if "gt" in found else ""
    high = f"{found['le']:g}]" if "le" in found else f"{found['lt']:g})" if "lt" in found else ""
    if low and high and found.get("lt") != 2**64:
        return f" in {low}, {high}"
    return f" {'of at least' if 'ge' in found else 'above'} {low[1:]}" if low else ""


def shown(value: Any) -> str:
    """A default as a config writes it."""
    if any(value is one for one in MISSING):
        return "required"
    if value is None:
        return "none"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    if isinstance(value, float):
        short = f"{value:.4g}"
        return f"`{short}`" if "." in short or "e" in short else f"`{short}.0`"
    if isinstance(value, int):
        return f"`{value}`"
    if isinstance(value, dict):
        return "`{ " + ", ".join(f"{k} = {shown(v).strip('`')}" for k, v in value.items()) + " }`"
    if isinstance(value, list | tuple):
        return "`[" + ", ".join(shown(part).strip("`") for part in value) + "]`" if value else "none"
    for entries in NAMED_KINDS.values():
        for name, entry in entries.items():
            if entry.load() is type(value):
                return shown({"name": name} | {f.name: getattr(value, f.name) for f in _changed(value)})
    return f"`{value!r}`"


def _changed(value: Any) -> list[dataclasses.Field[Any]]:
    """The fields of a dataclass that do not have their defaults."""
    return [f for f in dataclasses.fields(value) if getattr(value, f.name) != f.default]
