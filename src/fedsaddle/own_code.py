"""Code of others that a config names: found and digested without importing it, imported where a policy allows it."""

from __future__ import annotations

import hashlib
import importlib
import inspect
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from importlib.machinery import ModuleSpec, all_suffixes
from importlib.util import find_spec
from keyword import iskeyword
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from fedsaddle.errors import BadInput, FedSaddleError, Refused
from fedsaddle.text import shortened, visible

if TYPE_CHECKING:
    from importlib.metadata import Distribution

LONGEST = 200  # characters of a name
OURS = "fedsaddle"
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_ATTRIBUTE = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_FOLDERS: list[Path] = []  # of configs, in the order in which they were read


@dataclass(frozen=True)
class CodeName:
    """A module and a name in it."""

    module: str
    attribute: str

    @property
    def package(self) -> str:
        """What an import of the module begins with: the package that holds it, or the module itself."""
        return self.module.partition(".")[0]


def is_code(name: object) -> bool:
    """Whether a name is one of code, not of a table: it has a colon."""
    return isinstance(name, str) and ":" in name


def parse(key: str, name: str) -> CodeName:
    """Read `module:attribute`; raise `BadInput` for anything else, and for modules that nobody's own code is in."""
    module, _, attribute = name.partition(":")
    if len(name) > LONGEST or not is_module(module) or not _ATTRIBUTE.fullmatch(attribute) or iskeyword(attribute):
        raise BadInput(key, name, "write module:name, such as my_package.fedprox:FedProx; a plain name has no colon")
    parsed = CodeName(module, attribute)
    if parsed.package == OURS:
        raise BadInput(key, name, "is code of the library itself; use a plain name of `fedsaddle list`")
    if parsed.package in sys.stdlib_module_names or parsed.package == "__main__":
        raise BadInput(key, name, f"{parsed.package} is a module of Python itself; if it is yours, rename it")
    return parsed


def is_module(name: str) -> bool:
    """Whether this can be the dotted name of a module."""
    return bool(_MODULE.fullmatch(name)) and not any(iskeyword(part) for part in name.split("."))


def search_in(folder: Path) -> None:
    """Look for modules in the folder of this config, too, from the first name with a colon on."""
    place = Path(os.path.abspath(folder))
    if place not in _FOLDERS:
        _FOLDERS.append(place)


def folders() -> list[Path]:
    """Where modules are looked for after the installed packages: folders of configs, then the current one."""
    try:
        here = [Path.cwd()]
    except OSError:  # the folder was removed
        here = []
    return [*_FOLDERS, *(place for place in here if place not in _FOLDERS)]


def open_folders() -> None:
    """Let Python look there, too; after all else, so that nothing that is installed is hidden."""
    for place in map(str, folders()):
        if place not in sys.path:
            sys.path.append(place)


DIGEST_PREFIX = "sha256:"
MOST_FILES, MOST_BYTES = 5_000, 100_000_000  # of a package


def digest_of(module: str, key: str = "module") -> str:
    """`sha256:...` of a module: of its file or, if it is or lies in a package, of all code of that package.

    The code of a package is every file in it that Python can import (`.py`, compiled extensions; not `__pycache__`).
    The digest is that of lines `SHA-256 of the file, two spaces, path in the package`, sorted by path, as `sha256sum`
    prints them. What the code imports from elsewhere is not in it.

    Raises:
        BadInput: if there is no such module, or it is too large to be somebody's own.
    """
    files: list[tuple[str, Path]] = []
    total = 0
    for path, file in _files(module, key):
        files.append((path, file))
        total += file.stat().st_size
        if total > MOST_BYTES or len(files) > MOST_FILES:
            most = f"{MOST_FILES} files or {MOST_BYTES // 1_000_000} MB"
            raise BadInput(key, module, f"has more than {most} of code; put yours into a module apart")
    if not files:
        raise BadInput(key, module, "has no files that can be read, so it has no digest; install it unpacked")
    text = "".join(f"{file_digest(file)}  {path}\n" for path, file in sorted(files))
    return DIGEST_PREFIX + hashlib.sha256(text.encode()).hexdigest()


def file_digest(path: Path) -> str:
    """The SHA-256 of a file, 64 hex digits."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def places_of(module: str, key: str = "module") -> list[Path]:
    """The file of a module that stands alone, or the folders of the package that it lies in; nothing is imported."""
    package = module.partition(".")[0]
    spec = _spec(package) if is_module(module) else None
    if spec is None:
        raise BadInput(key, module, "there is no such module here; install the package that holds it")
    if spec.submodule_search_locations is not None:
        return [Path(place) for place in spec.submodule_search_locations]
    if spec.origin is None or not spec.has_location:
        raise BadInput(key, module, "is not a file, so it has no digest")
    return [Path(spec.origin)]


def _spec(package: str) -> ModuleSpec | None:
    """Where a module of the top level is; that of a dotted name would import what is above it."""
    try:
        return find_spec(package)
    except (ImportError, ValueError, AttributeError):  # ValueError: loaded, without a place
        return None


def _files(module: str, key: str) -> Iterator[tuple[str, Path]]:
    package = module.partition(".")[0]
    for place in places_of(module, key):
        if place.is_file():
            yield place.name, place
            continue
        for folder, inner, names in os.walk(place):
            here = Path(folder)
            inner[:] = [name for name in inner if name != "__pycache__"]
            for name in inner:
                if (here / name).is_symlink():
                    raise BadInput(key, module, f"has a symbolic link to a folder in it ({here / name}); remove it")
            for name in names:
                if name.endswith(tuple(all_suffixes())):
                    yield "/".join((package, *(here / name).relative_to(place).parts)), here / name


def holds(place: Path, file: str | None) -> bool:
    """Whether a loaded module's file is that file, or lies in that folder."""
    if file is None:
        return False
    real, whole = Path(file).resolve(), place.resolve()
    return real == whole or whole in real.parents


def loaded_files(package: str) -> dict[str, Path]:
    """The files of all modules of a package that are imported, by the names of the modules."""
    files = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if name.partition(".")[0] == package and isinstance(file, str) and Path(file).is_file():
            files[name] = Path(file)
    return files


# Module or package -> digest: the only code that may be imported by name; None: any. And whose rule that is.
_PERMITTED: ContextVar[Mapping[str, str] | None] = ContextVar("permitted", default=None)
_WHOSE: ContextVar[str] = ContextVar("whose", default="")
_NAMED: set[str] = set()  # packages that a name has loaded


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
        digest = digest_of(name.module)
    except BadInput as reason:
        digest = f"no digest ({reason.remedy})"
    if rule is None:
        raise Refused(f"{_WHOSE.get()} does not list {name.module!r} under [modules]; here it has {digest}")
    if permitted[rule] != digest:
        raise Refused(f"{_WHOSE.get()} lists {rule!r} under [modules] with another digest; here it has {digest}")


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
        _refuse_shadowed_module(key, name, code, module)
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
        raise BadInput(key, name, f"{code.module} cannot be imported: {_described(reason)}") from reason


@contextmanager
def _from_source() -> Iterator[None]:
    """Import the files that have the digest, never what `__pycache__` holds for them."""
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


def _refuse_shadowed_module(key: str, name: str, code: CodeName, module: ModuleType) -> None:
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
def user_code_errors(key: str, name: object, own: str) -> Iterator[None]:
    """Turn whatever code of `own` (empty: ours) raises into `BadInput`, with the line where it happened."""
    try:
        yield
    except FedSaddleError:
        raise
    except Exception as reason:
        if not own:
            raise
        raise BadInput(key, name, f"raised {_described(reason)}") from reason


def first_line(thing: object) -> str:
    """The first line of its docstring."""
    return (inspect.getdoc(thing) or "").partition("\n")[0]


def _described(reason: BaseException) -> str:
    message = " ".join(str(reason).split())
    text = f"{type(reason).__name__}: {message}" if message else type(reason).__name__
    return visible(shortened(text, 300)) + _where(reason)


def _where(reason: BaseException) -> str:
    """The file and the line of the user's code: the last one outside of Python, installed libraries and ours."""
    if isinstance(reason, SyntaxError):
        return f" ({visible(reason.filename)}, line {reason.lineno})"
    ours = str(Path(__file__).parents[1])
    frames = [f for f in traceback.extract_tb(reason.__traceback__) if not f.filename.startswith(("<frozen", ours))]
    frames = [f for f in frames if Path(f.filename).parent.name != "importlib"]
    users = [f for f in frames if "site-packages" not in Path(f.filename).parts] or frames
    return f" ({visible(users[-1].filename)}, line {users[-1].lineno})" if users else ""


ENTRY_POINT_PREFIX = "fedsaddle."


@dataclass(frozen=True)
class Plugin:
    """A name that an installed package provides."""

    name: str
    target: str  # "module:attribute"
    package: str  # and its version


def plugins_of(group: str) -> tuple[Plugin, ...]:
    """The names of a group, such as "algorithms", sorted."""
    return _read(tuple(sys.path)).get(group, ())


@lru_cache(maxsize=4)
def _read(path: tuple[str, ...]) -> dict[str, tuple[Plugin, ...]]:
    """All entry points of our groups; read once, and again when Python looks elsewhere."""
    from importlib import metadata  # takes a while to import, and most runs need none of it

    plugins: dict[str, list[Plugin]] = {}
    seen: set[str] = set()
    for package in metadata.distributions():
        for group, one in _of_package(package, seen):
            plugins.setdefault(group, []).append(one)
    return {group: tuple(sorted(names, key=lambda n: (n.name.lower(), n.package))) for group, names in plugins.items()}


def _of_package(package: Distribution, seen: set[str]) -> list[tuple[str, Plugin]]:
    """Groups and names of one installed package; none of one whose files are damaged, or that comes a second time."""
    try:
        points = [point for point in package.entry_points if point.group.startswith(ENTRY_POINT_PREFIX)]
        name, version = (str(package.metadata[key]) for key in ("Name", "Version")) if points else ("", "")
    except Exception:  # whatever is wrong with it, others must not suffer
        return []
    if not points or name.lower().replace("_", "-") in seen:
        return []
    seen.add(name.lower().replace("_", "-"))
    return [
        (point.group.removeprefix(ENTRY_POINT_PREFIX), Plugin(point.name, point.value.strip(), f"{name} {version}"))
        for point in points
        if not is_code(point.name)
    ]


def forget() -> None:
    """Read the installed packages again at the next look."""
    _read.cache_clear()


def find_plugin(group: str, key: str, name: str) -> Plugin | None:
    """The entry point of that name; None if there is none; `BadInput` if two packages bring it."""
    plugins = [one for one in plugins_of(group) if one.name == name]
    if len({one.target for one in plugins}) > 1:
        who = " and ".join(f"{one.package} ({one.target})" for one in plugins)
        raise BadInput(key, name, f"is the name of two things: {who}; write the one that you mean as module:name")
    return plugins[0] if plugins else None


def clashes(group: str, ours: Mapping[str, object]) -> list[str]:
    """A line for each name of a package that is one of ours already, or of another package."""
    lines: list[str] = []
    seen: dict[str, Plugin] = {}
    for one in plugins_of(group):
        if one.name in ours:
            sentence = (
                f"{one.package} brings {group} {one.name!r}, as fedsaddle does: ours counts; theirs is {one.target!r}"
            )
            lines.append(visible(sentence))
        elif one.name in seen and seen[one.name].target != one.target:
            other = seen[one.name]
            both = f"{other.package} and {one.package} both bring {group} {one.name!r}"
            sentence = f"{both}: write {other.target!r} or {one.target!r}"
            lines.append(visible(sentence))
        seen.setdefault(one.name, one)
    return lines
