"""Import what a name of code stands for: gated by a site's policy, and each failure in one line."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from fedsaddle.config.code_names import CodeName, folders, open_folders, parse
from fedsaddle.config.module_digest import digest_of, holds, places_of
from fedsaddle.errors import BadInput, FedSaddleError, Refused
from fedsaddle.shown import shortened, visible

# Module or package -> digest: the only code that may be imported by name; None: any. And whose rule that is.
_PERMITTED: ContextVar[Mapping[str, str] | None] = ContextVar("permitted", default=None)
_WHOSE: ContextVar[str] = ContextVar("whose", default="")
_NAMED: set[str] = set()  # packages that a name has brought in


def named_packages() -> frozenset[str]:
    """The packages that were imported because somebody named them."""
    return frozenset(_NAMED)


@contextmanager
def only_modules(permitted: Mapping[str, str], whose: str = "this site's policy") -> Iterator[None]:
    """Import by name nothing but these modules, each with its digest, as long as this lasts: what sites do."""
    rule, owner = _PERMITTED.set(dict(permitted)), _WHOSE.set(whose)
    try:
        yield
    finally:
        _PERMITTED.reset(rule)
        _WHOSE.reset(owner)


def require_permitted(name: CodeName) -> None:
    """Raise `Refused` unless the module may be imported; called before it is, and imports nothing."""
    permitted = _PERMITTED.get()
    if permitted is None:
        return
    parts = name.module.split(".")
    listed = [".".join(parts[:n]) for n in range(len(parts), 0, -1)]
    rule = next((module for module in listed if module in permitted), None)
    try:
        found = digest_of(name.module)
    except BadInput as reason:
        found = f"no digest ({reason.remedy})"
    if rule is None:
        raise Refused(f"{_WHOSE.get()} does not list {name.module!r} under [modules]; here it has {found}")
    if permitted[rule] != found:
        raise Refused(f"{_WHOSE.get()} lists {rule!r} under [modules] with another digest; here it has {found}")


def load_code(key: str, name: str) -> tuple[CodeName, object]:
    """Import the module and give its attribute; raise `BadInput` in one line, whatever goes wrong.

    Raises:
        Refused: if the policy of the site that this runs at does not list the module with its digest.
    """
    code = parse(key, name)
    require_permitted(code)
    gated = _PERMITTED.get() is not None
    if not gated:
        open_folders()
    module = _imported(key, name, code)
    _NAMED.add(code.package)
    if gated and not any(holds(place, getattr(module, "__file__", None)) for place in places_of(code.module)):
        raise Refused(f"the module {code.module!r} was loaded from another place than the one that has the digest")
    if not gated:
        _require_the_near_one(key, name, code, module)
    try:
        return code, getattr(module, code.attribute)
    except AttributeError:
        public = [each for each in vars(module) if not each.startswith("_")]
        near = get_close_matches(code.attribute, public, 1)
        hint = f"did you mean {code.module}:{near[0]}? " if near else ""
        where = visible(getattr(module, "__file__", None) or code.module)
        raise BadInput(key, name, f"{hint}there is no {code.attribute} in {where}") from None


def _imported(key: str, name: str, code: CodeName) -> ModuleType:
    importlib.invalidate_caches()  # files may be newer than what Python remembers of the folder
    try:
        with _from_source() if _PERMITTED.get() is not None else nullcontext():
            return importlib.import_module(code.module)
    except ModuleNotFoundError as reason:
        missing = reason.name or ""
        if not f"{code.module}.".startswith(f"{missing}."):
            remedy = f"{code.module} imports {missing}, which is not installed{_where(reason)}; install it"
            raise BadInput(key, name, remedy) from reason
        raise BadInput(key, name, _no_module(code, missing)) from reason
    except (Exception, SystemExit) as reason:
        raise BadInput(key, name, f"{code.module} cannot be imported: {_told(reason)}") from reason


@contextmanager
def _from_source() -> Iterator[None]:
    """Import the files that have the digest, never what `__pycache__` says that they are."""
    before = sys.pycache_prefix, sys.dont_write_bytecode
    sys.pycache_prefix, sys.dont_write_bytecode = os.devnull, True
    try:
        yield
    finally:
        sys.pycache_prefix, sys.dont_write_bytecode = before


def _no_module(code: CodeName, missing: str) -> str:
    beside = [file.stem for place in folders() for file in _python_files(place)]
    near = get_close_matches(code.module, beside, 1)
    hint = f"did you mean {near[0]}:{code.attribute}? " if near else ""
    searched = ", ".join(visible(place) for place in folders())
    return f"{hint}there is no module {missing!r} among the installed packages, nor in {searched}"


def _python_files(place: Path) -> list[Path]:
    try:
        return [file for file in place.iterdir() if file.suffix == ".py"]
    except OSError:
        return []


def _require_the_near_one(key: str, name: str, code: CodeName, module: ModuleType) -> None:
    """Refuse a module that hides one of the same name beside the config: whose file would be meant is not clear."""
    for folder in folders():
        for place in (folder / f"{code.package}.py", folder / code.package / "__init__.py"):
            if place.is_file():
                whole = place if place.name != "__init__.py" else place.parent
                if not holds(whole, getattr(module, "__file__", None)):
                    other = visible(getattr(module, "__file__", None))
                    remedy = f"{visible(place)} is hidden by another module of that name, {other}; rename one"
                    raise BadInput(key, name, remedy)
                return


@contextmanager
def told_in_one_line(key: str, name: object, own: str) -> Iterator[None]:
    """Turn whatever code of `own` (empty: ours) raises into `BadInput`, with the line where it happened."""
    try:
        yield
    except FedSaddleError:
        raise
    except Exception as reason:
        if not own:
            raise
        raise BadInput(key, name, f"raised {_told(reason)}") from reason


def first_line(thing: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _told(reason: BaseException) -> str:
    said = " ".join(str(reason).split())
    told = f"{type(reason).__name__}: {said}" if said else type(reason).__name__
    return visible(shortened(told, 300)) + _where(reason)


def _where(reason: BaseException) -> str:
    """The file and the line of the user's code: the last one outside of Python, installed libraries and ours."""
    if isinstance(reason, SyntaxError):
        return f" ({visible(reason.filename)}, line {reason.lineno})"
    ours = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_tb(reason.__traceback__) if not f.filename.startswith(("<frozen", ours))]
    frames = [f for f in frames if Path(f.filename).parent.name != "importlib"]
    users = [f for f in frames if "site-packages" not in Path(f.filename).parts] or frames
    return f" ({visible(users[-1].filename)}, line {users[-1].lineno})" if users else ""
