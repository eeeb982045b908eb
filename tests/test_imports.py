"""Who may import whom, what files may be called, and what `import fedsaddle` costs."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import fedsaddle

ROOT = Path(fedsaddle.__file__).parent
LEAVES = {
    "arguments",
    "array_types",
    "errors",
    "files",
    "own_code",
    "processes",
    "text",
    "__version__",
}  # modules that anybody may import
MAY_IMPORT = {
    "numerics": set(),
    "federation": set(),
    "data": set(),
    "documents": set(),
    "problems": {"documents", "numerics", "federation"},
    "algorithms": {"federation", "numerics", "problems"},
    "metrics": {"data", "federation", "numerics", "problems"},
    "engines": {"data", "federation", "numerics", "problems"},
    "report": {"documents", "data", "metrics", "problems"},
    "robust": {"data", "federation", "numerics"},
    "secure": {"federation"},
    "privacy": {"algorithms", "federation", "numerics", "problems"},
    "tracking": {"documents", "runs"},
    "runs": {
        *("algorithms", "data", "documents", "engines", "federation", "metrics", "problems", "report", "robust"),
        *("privacy", "secure"),
    },
    "config": {
        *("algorithms", "data", "metrics", "numerics", "privacy", "problems", "robust", "runs", "tracking"),
    },
    "watching": {"documents", "metrics", "report", "runs"},
    "deployment": {
        *("algorithms", "config", "data", "documents", "engines", "federation", "metrics", "privacy", "problems"),
        *("report", "runs", "secure", "studies"),
    },
    "studies": {
        *("algorithms", "config", "data", "documents", "engines", "metrics", "numerics", "problems", "report", "runs"),
    },
    "estimators": {"config", "data", "metrics", "numerics", "privacy", "runs", "studies"},
}
FILES = sorted(ROOT.rglob("*.py"))


def imported(source: str, package: tuple[str, ...]) -> set[str]:
    """The parts of fedsaddle that a file imports: `{"numerics", "errors"}`. `package` is where the file lives."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                stem = package[: len(package) - node.level + 1]
                module = ".".join((*stem, node.module) if node.module else stem)
            else:
                module = node.module or ""
            names |= {f"{module}.{alias.name}" for alias in node.names} if module == "fedsaddle" else {module}
    return {name.split(".")[1] for name in names if name.startswith("fedsaddle.")}


@cache
def imports_of(path: Path) -> set[str]:
    return imported(path.read_text(encoding="utf-8"), ("fedsaddle", *path.relative_to(ROOT).parts[:-1]))


def test_the_reader_of_imports():
    source = "import fedsaddle.cli\nfrom fedsaddle import models\nfrom ..data.store import Stacked\nfrom . import flat"
    assert imported(source, ("fedsaddle", "numerics")) == {"cli", "models", "data", "numerics"}
    assert imported("import numpy\nfrom torch import nn", ("fedsaddle",)) == set()


def test_imports_point_one_way():
    for path in FILES:
        package = path.relative_to(ROOT).parts[0]
        if package in MAY_IMPORT:
            assert imports_of(path) <= MAY_IMPORT[package] | LEAVES | {package}, path


def test_the_arrows_have_no_cycle():
    seen: set[str] = set()
    while ready := {p for p, needs in MAY_IMPORT.items() if p not in seen and needs <= seen}:
        seen |= ready
    assert seen == set(MAY_IMPORT)


def modules_of(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules of the package that a file imports anywhere in it, but not for type checking alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    typing_only = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and id(node) not in typing_only:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else str(node.module))
    return found & set(known)


def test_no_module_imports_itself_by_a_detour():
    """Imports inside of functions count too."""
    known = {
        ".".join(("fedsaddle", *p.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__"): p for p in FILES
    }
    left = {name: modules_of(path, known) - {name} for name, path in known.items()}
    while free := {name for name, needs in left.items() if not needs}:
        left = {name: needs - free for name, needs in left.items() if name not in free}
    assert left == {}


def test_nothing_imports_the_command_line():
    for path in FILES:
        top = path.relative_to(ROOT).parts[0]
        if top not in {"cli", "cli.py", "__main__.py"}:
            assert "cli" not in imports_of(path), path
        if top not in {"cli.py", "__main__.py", "commands"}:
            assert "commands" not in imports_of(path), path


def test_the_papers_stay_apart():
    """`fedsaddle_papers` imports the package, never the other way round."""
    for path in FILES:
        assert "import fedsaddle_papers" not in (text := path.read_text(encoding="utf-8")), path
        assert "from fedsaddle_papers" not in text, path


def test_every_guarded_package_is_there():
    assert set(MAY_IMPORT) <= {p.name for p in ROOT.iterdir() if p.is_dir()}


def test_files_are_named_for_what_they_hold():
    vague = {"util", "utils", "common", "base", "helper", "helpers", "manager", "managers", "misc"}
    for path in FILES:
        words = {word for part in path.relative_to(ROOT).with_suffix("").parts for word in re.split(r"_", part)}
        assert not words & vague, path


def test_importing_the_package_is_cheap():
    code = (
        "import json, sys, time; t = time.perf_counter(); import fedsaddle; s = time.perf_counter() - t; "
        "print(json.dumps([s, [m for m in ('torch', 'numpy', 'scipy') if m in sys.modules]]))"
    )
    times = []
    for _ in range(3):
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
        seconds, heavy = json.loads(out)
        assert heavy == []
        times.append(seconds)
    assert min(times) < 0.5
