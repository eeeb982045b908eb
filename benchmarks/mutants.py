"""Mutation testing: which small errors in the code would no test notice?

    python benchmarks/mutants.py trace --store /tmp/mutants          # once: which tests execute which lines
    nice python benchmarks/mutants.py run --store /tmp/mutants --seed 1 --per-package 50
    nice python benchmarks/mutants.py retry --store /tmp/mutants     # the survivors again, after tests were added
    python benchmarks/mutants.py table --store /tmp/mutants

A mutant is one small edit: another operator, a constant off by one, a dropped term, swapped arguments, a removed
statement, another default. It is made in a temporary copy of the package; the files of the repository stay as they are.
Each runs in a fork of one process that has already imported torch, numpy, pandas and pytest, and is judged by the fast
tests that execute its line, the cheapest first. It is killed by the first test that fails, or by an import that fails;
one that ends at the time limit counts as alive until `retry` gives it four times as long. Docstrings, annotations,
error texts, logging and files that need NVFlare or Flower are left alone.

Mutants that change nothing observable are listed with the reason in mutants_equivalent.toml and not counted.
Needs pytest-cov, which the `dev` extra installs.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "fedsaddle"
PACKAGES = ("algorithms", "problems", "metrics", "privacy", "secure", "deployment")
TESTS = (
    *("oracles", "identities", "problems", "metrics", "secure", "privacy", "algorithms", "numerics", "federation"),
    *("robust", "contracts", "deployment"),
)
PRELOADED = (
    *("torch", "torch.func", "torch.utils.data", "numpy", "numpy.testing", "pandas", "scipy.optimize", "scipy.special"),
    *("scipy.stats", "sklearn.metrics", "sklearn.linear_model", "pydantic", "typer.testing", "rich.console", "jinja2"),
    *("matplotlib.pyplot", "safetensors.torch", "hypothesis.strategies", "PIL.Image", "pytest"),
    *("cryptography.hazmat.primitives.ciphers", "dp_accounting.pld.privacy_loss_distribution"),
)
NEAR = {  # folders of tests that say most about a package
    "algorithms": ("oracles", "identities", "algorithms"),
    "problems": ("problems", "oracles", "metrics"),
    "metrics": ("metrics",),
    "privacy": ("privacy",),
    "secure": ("secure", "deployment"),
    "deployment": ("deployment",),
}
MOST_TESTS = 300  # that are kept for a line


# --- mutants ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One edit of one file: whole lines before and after."""

    path: str  # within the package
    line: int
    where: str  # qualified name of the function or class
    kind: str
    before: str
    after: str

    def key(self) -> str:
        """Identifies the edit, wherever in its function it stands."""
        text = "\0".join((self.path, self.where, self.before.strip(), self.after.strip()))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    def apply(self, source: str) -> str | None:
        """The mutated source; None if the lines are not there any more."""
        lines, old = source.splitlines(keepends=True), self.before.splitlines(keepends=True)
        at = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if not at:
            return None
        i = min(at, key=lambda k: abs(k - (self.line - 1)))
        return "".join([*lines[:i], self.after, *lines[i + len(old) :]])

    def shown(self) -> str:
        """The changed lines as a diff."""
        changed = difflib.ndiff(self.before.splitlines(), self.after.splitlines())
        return "\n".join(f"    {line[0]} {line[2:].strip()}" for line in changed if line[0] in "+-")


ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Add,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.Gt),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
SWAPS = (
    *("min max", "amin amax", "argmin argmax", "any all", "maximum minimum", "clamp_min clamp_max", "sum mean"),
    *("rint floor", "round floor", "ceil floor", "exp expm1", "log log1p", "zeros_like ones_like", "logsumexp amax"),
)
NAMES = {a: b for pair in SWAPS for a, b in (pair.split(), reversed(pair.split()))}
COMMUTATIVE = {"min", "max", "addcmul_", "maximum", "minimum", "logaddexp", "add", "equal", "allclose", "gcd", "is_"}
SHOWN = {"repr", "compare", "strict"}  # without effect on results
LOGGING = {"warn", "debug", "info", "warning", "error", "exception", "log_event"}


def is_text(node: ast.AST) -> bool:
    """Whether an expression is plainly a string."""
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    f = node.func
    return f.attr if isinstance(f, ast.Attribute) else f.id if isinstance(f, ast.Name) else ""


def is_error(node: ast.AST) -> bool:
    """Whether a call builds an exception or a log entry, of which the words are not tested."""
    if not isinstance(node, ast.Call):
        return False
    name = called(node)
    return name.endswith(("Error", "Input", "Answered", "Refused", "Exception")) or name in LOGGING


class Finder(ast.NodeVisitor):
    """Collects the edits of one file."""

    def __init__(self, path: str, source: str) -> None:
        self.path, self.source, self.lines = path, source, source.splitlines(keepends=True)
        self.names: list[str] = []
        self.found: list[Mutant] = []
        self.visit(ast.parse(source))

    # What is left alone.

    def visit_Raise(self, node: ast.Raise) -> None:
        """Error text."""

    def visit_Assert(self, node: ast.Assert) -> None:
        """For mypy."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Words."""

    def visit_Import(self, node: ast.Import) -> None:
        """No edit."""

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        """No edit."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """The value, not the annotation."""
        if node.value is not None:
            self.visit(node.value)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        """The body, not the decorators."""
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
            return
        self.names.append(node.name)
        self.block(node.body)
        self.names.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Defaults and body."""
        if node.name in ("__repr__", "__str__"):
            return
        self.names.append(node.name)
        for default in [*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None)]:
            self.visit(default)
        self.block(node.body)
        self.names.pop()

    def block(self, body: list[ast.stmt]) -> None:
        """Statements, without the docstring; each is also removed where that leaves valid code."""
        for i, statement in enumerate(body):
            if i == 0 and isinstance(statement, ast.Expr) and is_text(statement.value):
                continue
            self.visit(statement)

    def generic_visit(self, node: ast.AST) -> None:
        """Blocks of `if`, `for` and `with` like those of functions."""
        for _, value in ast.iter_fields(node):
            if isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                self.block(value)
            elif isinstance(value, list):
                for part in value:
                    if isinstance(part, ast.AST):
                        self.visit(part)
            elif isinstance(value, ast.AST):
                self.visit(value)

    # Edits.

    def visit_If(self, node: ast.If) -> None:
        """A guard that raises or returns is removed; a condition is negated."""
        if "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if len(node.body) == 1 and isinstance(node.body[0], ast.Raise | ast.Return) and not node.orelse:
            self.add(node.test, ast.Constant(False), "removed statement")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        """A call for its effect is removed."""
        if is_error(node.value) or isinstance(node.value, ast.Constant):
            return
        if isinstance(node.value, ast.Call):
            self.add(node, ast.Pass(), "removed statement")
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Another operator, or no statement."""
        self.add(node, ast.Pass(), "removed statement")
        if type(node.op) in ARITHMETIC and not is_text(node.value):
            self.add(node, self.changed(node, op=ARITHMETIC[type(node.op)]()), "arithmetic")
        self.visit(node.value)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        """Another operator, or one of the two sides alone."""
        types = isinstance(node.op, ast.BitOr) and all(
            isinstance(side, ast.Constant | ast.Attribute | ast.BinOp)
            or (isinstance(side, ast.Name) and side.id[:1].isupper() and len(side.id) > 2)
            for side in (node.left, node.right)
        )
        if types or is_text(node.left) or is_text(node.right):
            return
        if type(node.op) in ARITHMETIC:
            self.add(node, self.changed(node, op=ARITHMETIC[type(node.op)]()), "arithmetic")
            self.add(node, node.left, "dropped term")
            if isinstance(node.op, ast.Add | ast.Mult | ast.BitAnd | ast.BitOr):
                self.add(node, node.right, "dropped term")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        """Without its sign or its `not`."""
        if isinstance(node.op, ast.USub | ast.Not | ast.Invert):
            self.add(node, node.operand, "unary")
        if not isinstance(node.operand, ast.Constant):
            self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        """Another comparison."""
        for k, op in enumerate(node.ops):
            for other in COMPARISONS[type(op)]:
                self.add(node, self.changed(node, ops=[*node.ops[:k], other(), *node.ops[k + 1 :]]), "comparison")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        """`and` for `or`, or without one of the conditions."""
        self.add(node, self.changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And()), "boolean")
        for k in range(len(node.values)):
            rest = [*node.values[:k], *node.values[k + 1 :]]
            self.add(node, rest[0] if len(rest) == 1 else self.changed(node, values=rest), "dropped term")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        """The other branch."""
        self.add(node, self.changed(node, body=node.orelse, orelse=node.body), "boolean")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        """A number off by one, or doubled; the other truth value."""
        if isinstance(node.value, bool):
            self.add(node, ast.Constant(not node.value), "constant")
        elif isinstance(node.value, int):
            self.add(node, ast.Constant(node.value + 1), "constant")
            if node.value:
                self.add(node, ast.Constant(node.value - 1), "constant")
        elif isinstance(node.value, float):
            self.add(node, ast.Constant(node.value * 2 if node.value else 1.0), "constant")
            self.add(node, ast.Constant(node.value + 1), "constant")

    def visit_Call(self, node: ast.Call) -> None:
        """Swapped arguments, a keyword less, or a similar function."""
        if is_error(node) or called(node) in ("cast", "TypeVar", "getLogger", "isinstance"):
            return
        if called(node) == "field":
            node.keywords = [keyword for keyword in node.keywords if keyword.arg not in SHOWN]
        a = node.args
        plain = len(a) >= 2 and not any(isinstance(v, ast.Starred) or is_text(v) for v in a[:2])
        plain = plain and called(node) not in COMMUTATIVE
        if plain and ast.dump(a[0]) != ast.dump(a[1]):
            self.add(node, self.changed(node, args=[a[1], a[0], *a[2:]]), "swapped arguments")
        for k, keyword in enumerate(node.keywords):
            if keyword.arg is not None and not is_text(keyword.value):
                rest = [*node.keywords[:k], *node.keywords[k + 1 :]]
                self.add(node, self.changed(node, keywords=rest), "dropped keyword")
        if (name := called(node)) in NAMES:
            f = copy.deepcopy(node.func)
            if isinstance(f, ast.Attribute):
                f.attr = NAMES[name]
            elif isinstance(f, ast.Name):
                f.id = NAMES[name]
            self.add(node, self.changed(node, func=f), "similar function")
        self.generic_visit(node)

    def changed(self, node: ast.AST, **fields: object) -> ast.AST:
        """A shallow copy with other fields."""
        other = copy.copy(node)
        for name, value in fields.items():
            setattr(other, name, value)
        return other

    def add(self, old: ast.AST, new: ast.AST, kind: str) -> None:
        """An edit of the text of one node; lines above and below stay."""
        first, last = old.lineno, old.end_lineno  # type: ignore[attr-defined]
        text = ast.unparse(ast.fix_missing_locations(copy.deepcopy(new)))
        if isinstance(new, ast.BinOp | ast.BoolOp | ast.Compare | ast.UnaryOp | ast.IfExp | ast.Lambda):
            text = f"({text})"
        head = self.lines[first - 1].encode()[: old.col_offset].decode()  # type: ignore[attr-defined]
        rest = self.lines[last - 1].encode()[old.end_col_offset :].decode()  # type: ignore[attr-defined]
        before = "".join(self.lines[first - 1 : last])
        self.found.append(Mutant(self.path, first, ".".join(self.names), kind, before, head + text + rest))


def left_out() -> set[str]:
    """Files that cannot be imported without NVFlare or Flower, as the coverage settings list them."""
    with (ROOT / "pyproject.toml").open("rb") as f:
        return {name.partition("fedsaddle/")[2] for name in tomllib.load(f)["tool"]["coverage"]["run"]["omit"]}


def candidates(package: str) -> list[Mutant]:
    """All edits of a package."""
    found: list[Mutant] = []
    for path in sorted((PACKAGE / package).rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name not in left_out():
            found += Finder(name, path.read_text()).found
    return found


def compiles(mutant: Mutant) -> bool:
    """Whether the edit is valid Python."""
    try:
        ast.parse(mutant.apply((PACKAGE / mutant.path).read_text()) or "")
    except SyntaxError:
        return False
    return True


def sample(package: str, count: int, seed: int) -> list[Mutant]:
    """Edits of a package in random order, at most one for each line."""
    every = candidates(package)
    random.Random(f"{package} {seed}").shuffle(every)
    chosen: dict[tuple[str, int], Mutant] = {}
    for mutant in every:
        if len(chosen) < count and (mutant.path, mutant.line) not in chosen and compiles(mutant):
            chosen[mutant.path, mutant.line] = mutant
    return list(chosen.values())


# --- which tests execute which lines ----------------------------------------------------------------------------------


@dataclass
class Trace:
    """For each function its tests, by line relative to its first one."""

    seconds: dict[str, float] = field(default_factory=dict)
    lines: dict[str, dict[str, list[str]]] = field(default_factory=dict)  # "path:name" -> line -> tests

    @classmethod
    def load(cls, store: Path) -> Trace:
        """As `trace` stored it."""
        return cls(**json.loads((store / "trace.json").read_text()))

    def tests_of(self, mutant: Mutant, starts: dict[str, int], budget: float, files: int) -> list[str]:
        """Fast tests of the mutant's line, else of its function, class or module, within so many seconds and files."""
        function = self.lines.get(f"{mutant.path}:{mutant.where}", {})
        at = mutant.line - starts.get(mutant.where, 0)
        size = len(mutant.before.splitlines())
        found = [t for k in range(at, at + size) for t in function.get(str(k), [])]
        if not found:
            found = [t for tests in function.values() for t in tests]
        owner = mutant.where
        while not found:
            prefix = f"{mutant.path}:{owner}"
            found = [t for name, of in self.lines.items() if name.startswith(prefix) for v in of.values() for t in v]
            if not owner:
                break
            owner = owner.rpartition(".")[0]
        chosen: list[str] = []
        opened: set[str] = set()
        total = 0.0
        for test in self.ordered(found, NEAR[mutant.path.partition("/")[0]]):
            file = test.partition("::")[0]
            if file in opened or len(opened) < files:
                opened.add(file)
                total += self.seconds[test]
                if chosen and total > budget:
                    break
                chosen.append(test)
        return chosen

    def ordered(self, tests: Iterable[str], near: tuple[str, ...] = ()) -> list[str]:
        """One case of each test function first, of them those in folders that are near, of them the cheapest."""
        seen: Counter[str] = Counter()
        ranked = []
        for test in sorted({t for t in tests if t in self.seconds}, key=lambda t: (self.seconds[t], t)):
            name, far = test.partition("[")[0], test.split("/")[1] not in near
            ranked.append((seen[name], far, self.seconds[test], test))
            seen[name] += 1
        return [test for *_, test in sorted(ranked)]


def functions(source: str) -> dict[str, tuple[int, int]]:
    """First and last line of each function and class, by qualified name."""
    found: dict[str, tuple[int, int]] = {}

    def walk(node: ast.AST, names: list[str]) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = [*names, child.name]
                found[".".join(inner)] = (child.lineno, child.end_lineno or child.lineno)
                walk(child, inner)
            else:
                walk(child, names)

    walk(ast.parse(source), [])
    return found


def starts_of(source: str) -> dict[str, int]:
    """The first line of each function and class."""
    return {name: first for name, (first, _) in functions(source).items()}


def trace(store: Path, tests: list[str]) -> None:
    """Run the fast tests once with coverage by test."""
    store.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--cov=fedsaddle", "--cov-context=test"]
    command += ["--cov-report=", f"--junitxml={store / 'junit.xml'}", "-o", "junit_family=xunit1", *tests]
    environment = {**os.environ, "COVERAGE_FILE": str(store / "data"), "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(SOURCE)
    subprocess.run(command, cwd=ROOT, env=environment, check=False)
    read_trace(store)


def read_trace(store: Path) -> None:
    """`trace.json` from the files of coverage and of pytest."""
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT / "benchmarks"]  # which has a coverage.py
    from coverage import CoverageData

    found = Trace()
    for case in ElementTree.parse(store / "junit.xml").iter("testcase"):
        if list(case.iter("failure")) or list(case.iter("error")) or list(case.iter("skipped")):
            continue  # a test that fails anyway judges nothing
        found.seconds[f"{case.attrib['file']}::{case.attrib['name']}"] = float(case.attrib["time"])
    data = CoverageData(str(store / "data"))
    data.read()
    for file in data.measured_files():
        path = Path(file)
        if PACKAGE not in path.parents or path.relative_to(PACKAGE).parts[0] not in PACKAGES:
            continue
        name = path.relative_to(PACKAGE).as_posix()
        spans = sorted(functions(path.read_text()).items(), key=lambda item: item[1][1] - item[1][0])
        for line, contexts in data.contexts_by_lineno(file).items():
            owner, first = next(((f, a) for f, (a, b) in spans if a <= line <= b), ("", 0))
            tests = {context.rpartition("|")[0] for context in contexts if context}
            if tests:
                kept = found.ordered(tests)[:MOST_TESTS]
                found.lines.setdefault(f"{name}:{owner}", {})[str(line - first)] = kept
    (store / "trace.json").write_text(json.dumps(asdict(found)))
    print(f"{len(found.seconds)} tests, {sum(found.seconds.values()):.0f} s; {len(found.lines)} functions are executed")


# --- judging ----------------------------------------------------------------------------------------------------------


class Referee:
    """Runs inside pytest: chooses the tests, and ends the process at the first failure."""

    def __init__(self, tests: list[str], verdict: Path) -> None:
        self.rank, self.verdict = {test: k for k, test in enumerate(tests)}, verdict

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Those that were chosen, in that order; one that is gone since the trace is no error."""
        rank = {i: self.rank.get(i.nodeid, self.rank.get(i.nodeid.partition("::")[0])) for i in items}
        items[:] = sorted((i for i in items if rank[i] is not None), key=lambda i: rank[i])

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A test that fails has killed the mutant."""
        if report.failed:
            self.verdict.write_text(report.nodeid)
            os._exit(1)


class Arena:
    """A temporary copy of the package, in which one file at a time is mutated."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self.folder = Path(tempfile.mkdtemp(prefix="mutants-"))
        shutil.copytree(PACKAGE, self.folder / "src" / "fedsaddle")
        for name in PRELOADED:
            with contextlib.suppress(ImportError):
                __import__(name)

    def close(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def judge(self, mutant: Mutant, tests: list[str]) -> tuple[str, str, float]:
        """Killed, survived, untested or gone; by which test; seconds."""
        source = (PACKAGE / mutant.path).read_text()
        mutated = mutant.apply(source)
        if mutated is None:
            return "gone", "", 0.0
        if not tests:
            return "survived", "no test executes it", 0.0
        place = self.folder / "src" / "fedsaddle" / mutant.path
        place.write_text(mutated)
        try:
            return self._fork(tests)
        finally:
            shutil.copy2(PACKAGE / mutant.path, place)

    def _fork(self, tests: list[str]) -> tuple[str, str, float]:
        verdict, log = self.folder / "verdict", self.folder / "log"
        verdict.unlink(missing_ok=True)
        began = time.monotonic()
        child = os.fork()
        if child == 0:
            self._play(tests, verdict, log)
        status = None
        while status is None and time.monotonic() - began < self.limit:
            done, code = os.waitpid(child, os.WNOHANG)
            if done:
                status = code
            else:
                time.sleep(0.05)
        seconds = time.monotonic() - began
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # whatever the tests started, too
        if status is None:
            os.waitpid(child, 0)
            return "time limit", "", seconds
        if os.WIFSIGNALED(status):
            return "killed", f"signal {os.WTERMSIG(status)}", seconds
        code = os.WEXITSTATUS(status)
        if code == 0:
            return "survived", "", seconds
        if verdict.exists():
            return "killed", verdict.read_text(), seconds
        if code not in (1, 2):  # 2: an import failed
            return "untested", f"exit {code}: {log.read_text()[-300:].strip()}", seconds
        return "killed", log.read_text()[-300:].strip(), seconds

    def _play(self, tests: list[str], verdict: Path, log: Path) -> None:
        """In the child: pytest on the mutated copy."""
        try:
            os.setsid()
            out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(out, 1)
            os.dup2(out, 2)
            os.chdir(ROOT)
            src = str(self.folder / "src")
            sys.path[:] = [src, *(p for p in sys.path if Path(p or ".").resolve() not in (SOURCE, ROOT / "benchmarks"))]
            sys.dont_write_bytecode = True
            temporary = {"PYTHONPATH": src, "PYTHONDONTWRITEBYTECODE": "1"}
            os.environ.update(temporary, HYPOTHESIS_STORAGE_DIRECTORY=str(self.folder / "hypothesis"))
            import pytest

            options = [
                "-x",
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "-p",
                "no:cov",
                "--no-header",
                "--assert=plain",
            ]
            options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            options += [f"--basetemp={self.folder / 'tmp'}", *(f for f in files if Path(f).exists())]
            os._exit(int(pytest.main(options, plugins=[Referee(tests, verdict)])))
        except BaseException as error:
            print(repr(error), flush=True)
            os._exit(99)


# --- results ----------------------------------------------------------------------------------------------------------


@dataclass
class Result:
    """A mutant and what became of it."""

    mutant: Mutant
    outcome: str
    by: str
    seed: int


def read_results(store: Path) -> dict[str, Result]:
    """The last verdict on each mutant."""
    found: dict[str, Result] = {}
    place = store / "results.jsonl"
    for line in place.read_text().splitlines() if place.exists() else []:
        stored = json.loads(line)
        result = Result(Mutant(**stored.pop("mutant")), **stored)
        found[result.mutant.key()] = result
    return found


def equivalent() -> dict[str, str]:
    """Mutants that change nothing observable, with the reason."""
    with (ROOT / "benchmarks" / "mutants_equivalent.toml").open("rb") as f:
        return {entry["key"]: entry["reason"] for entry in tomllib.load(f).get("mutant", [])}


def judge_all(
    store: Path,
    mutants: Iterable[tuple[Mutant, int]],
    limit: float,
    budget: float,
    files: int,
    also: Iterable[str] = (),
) -> None:
    """One after the other, each verdict stored at once."""
    known, arena = Trace.load(store), Arena(limit)
    try:
        for k, (mutant, seed) in enumerate(mutants):
            starts = starts_of((PACKAGE / mutant.path).read_text())
            near = NEAR[mutant.path.partition("/")[0]]
            tests = [*(t for t in also if t.split("/")[1] in near), *known.tests_of(mutant, starts, budget, files)]
            if k % 25 == 0 and tests:  # a control: without the edit these tests must pass
                same, by, _ = arena.judge(replace(mutant, after=mutant.before), tests)
                if same != "survived":
                    raise SystemExit(f"the tests fail without any mutant: {same}, {by}")
            outcome, by, seconds = arena.judge(mutant, tests)
            with (store / "results.jsonl").open("a") as f:
                f.write(json.dumps(asdict(Result(mutant, outcome, by, seed))) + "\n")
            place = f"{mutant.path}:{mutant.line} {mutant.where} [{mutant.kind}] {mutant.key()}"
            print(f"{outcome:9} {seconds:5.1f} s  {place}\n{mutant.shown()}\n      {by}", flush=True)
    finally:
        arena.close()


def rounds(chosen: dict[str, list[Mutant]]) -> Iterator[Mutant]:
    """One of each package in turn."""
    for k in range(max(map(len, chosen.values()))):
        yield from (mutants[k] for mutants in chosen.values() if k < len(mutants))


def table(store: Path, seeds: list[int]) -> None:
    """Counts by package, and the survivors."""
    judged, same = read_results(store), equivalent()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for key, result in judged.items():
        if (not seeds or result.seed in seeds) and result.outcome != "gone":
            outcome = "equivalent" if key in same and result.outcome != "killed" else result.outcome
            counts[result.mutant.path.partition("/")[0]][outcome] += 1
            if outcome not in ("killed", "equivalent"):
                place = f"{result.mutant.path}:{result.mutant.line} {result.mutant.where} [{result.mutant.kind}]"
                print(f"{outcome} {place} {key} (seed {result.seed})\n{result.mutant.shown()}  {result.by}")
    total = sum(counts.values(), Counter())
    print(f"\n{'package':12} {'killed':>7} {'survived':>9} {'equivalent':>11} {'killed of the rest':>19}")
    for name, of in [*sorted(counts.items()), ("all", total)]:
        alive = of["survived"] + of["untested"] + of["time limit"]
        share = of["killed"] / max(1, of["killed"] + alive)
        print(f"{name:12} {of['killed']:7} {alive:9} {of['equivalent']:11} {share:18.1%}")


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["trace", "read-trace", "run", "retry", "table"])
    parser.add_argument("--store", type=Path, default=Path(tempfile.gettempdir()) / "mutants")
    parser.add_argument("--seed", type=int, nargs="*", default=[])
    parser.add_argument("--per-package", type=int, default=50)
    parser.add_argument("--packages", nargs="*", default=list(PACKAGES))
    parser.add_argument("--tests", nargs="*", default=[f"tests/{name}" for name in TESTS], help="for trace")
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for each mutant")
    parser.add_argument("--budget", type=float, default=25.0, help="seconds of tests for each mutant, as traced")
    parser.add_argument("--files", type=int, default=6, help="test files for each mutant; retry takes all")
    parser.add_argument("--also", nargs="*", default=[], help="files of tests that retry runs first, such as new ones")
    given = parser.parse_args()
    if given.command == "trace":
        trace(given.store, given.tests)
    elif given.command == "read-trace":
        read_trace(given.store)
    elif given.command == "run":
        done = read_results(given.store)
        for seed in given.seed or [0]:
            chosen = {name: sample(name, given.per_package, seed) for name in given.packages}
            new = [(m, seed) for m in rounds(chosen) if m.key() not in done]
            judge_all(given.store, new, given.limit, given.budget, given.files)
        table(given.store, given.seed)
    elif given.command == "retry":
        again = [r for k, r in read_results(given.store).items() if r.outcome != "killed" and k not in equivalent()]
        judge_all(given.store, [(r.mutant, r.seed) for r in again], 4 * given.limit, 2 * given.budget, 1000, given.also)
        table(given.store, given.seed)
    else:
        table(given.store, given.seed)


if __name__ == "__main__":
    main()
