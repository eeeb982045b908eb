"""The examples of the documentation: everything that claims to run is run, and every other block says what it is.

A comment before a fenced block says what is done with it:

- `<!-- run -->`: python that is executed, or commands of `fedsaddle`, one a line; the blocks of a page share one
  namespace and one folder, which holds `patients.csv` of tests/data.
- `<!-- prints -->`: text that the block before has printed; the words must be the same, and numbers close: machines
  may round differently.
- `<!-- config -->`: TOML that is built into data, model and algorithm, over BASE where sections are missing.
- `<!-- excerpt: src/... -->`: lines of that file.
- `<!-- needs: MODULE -->` anywhere in a page: its examples are skipped where that module is not installed.

A python or toml block without such a comment fails, unless it only includes a file. Code of other libraries is `py`
instead of `python`: it is shown and not run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

import fedsaddle as fs
from fedsaddle.cli import main
from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config

ROOT = Path(__file__).parents[2]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md", ROOT / "README.md"]
BASE: dict[str, Any] = {
    "data": {"name": "digits"},
    "split": {"name": "by-class", "clients": 10},
    "model": {"name": "logistic"},
    "algorithm": {"name": "DRFA"},
}
_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?(?P<indent> *)```(?P<kind>\w*)[^\n]*\n(?P<body>.*?)^(?P=indent)```$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One fenced block and the comment before it."""

    mark: str
    kind: str
    body: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m["mark"] or "", m["kind"], m["body"], text.count("\n", 0, m.start("body")))
        for m in _BLOCK.finditer(text)
    ]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


_NUMBER = re.compile(r"[-+]?\d(?:[\d.,]*\d)?(?:e[-+]?\d+)?")


def shape(text: str) -> list[str]:
    """The words, with every number as 0."""
    return _NUMBER.sub("0", text).split()


def far_apart(printed: str, shown: str) -> list[tuple[str, str]]:
    """Numbers of two texts of one shape that differ by more than rounding on other machines explains."""

    def value(text: str) -> float:
        return float(text.replace(",", "")) if text.replace(",", "").count(".") < 2 else 0.0  # 2.13.0 is a version

    pairs = zip(_NUMBER.findall(printed), _NUMBER.findall(shown), strict=True)
    return [(a, b) for a, b in pairs if abs(value(a) - value(b)) > 0.06 + 0.15 * abs(value(b))]


def command(line: str) -> None:
    """One line of the shell, which must be our own command and must end well."""
    words = shlex.split(line)
    assert words[0] == "fedsaddle", f"only our own command can be run here: {line}"
    code = None
    with mock.patch.object(sys, "argv", words):
        try:
            main()
        except SystemExit as end:
            code = end.code
    assert code in (None, 0), f"{line}: exit code {code}"


CUT = "-- 8< --"
WITH_EXAMPLES = [page for page in PAGES if any(b.mark in ("run", "config") for b in blocks(page))]


@pytest.mark.parametrize("page", WITH_EXAMPLES, ids=named)
def test_the_examples_run(page, tmp_path, monkeypatch, capsys):
    for module_name in re.findall(r"^<!-- needs: ([\w.]+) -->$", page.read_text(encoding="utf-8"), re.M):
        pytest.importorskip(module_name)
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "tests" / "data" / "patients.csv", tmp_path)
    module = ModuleType("page")  # dataclasses look their annotations up in their module
    monkeypatch.setitem(sys.modules, "page", module)
    printed = before = ""
    for block in blocks(page):
        if block.mark == "run" and block.kind == "sh":
            for line in block.body.splitlines():
                command(line)
            printed = capsys.readouterr().out
        elif block.mark == "run" and re.search(
            r'engine="processes"|fs\.Processes\(', block.body
        ):  # a fork, of a process that tests nothing else
            done = subprocess.run(
                [sys.executable, "-c", f"{before}\nprint('{CUT}')\n{block.body}"],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stderr
            printed = done.stdout.partition(f"{CUT}\n")[2]
        elif block.mark == "run":
            before += block.body
            exec(compile("\n" * block.line + block.body, named(page), "exec"), module.__dict__)
            printed = capsys.readouterr().out
        elif block.mark == "prints":
            assert shape(printed) == shape(block.body), f"line {block.line}: it printed\n{printed}"
            assert not far_apart(printed, block.body), f"line {block.line}: it printed\n{printed}"
        elif block.mark == "config":
            build(validate_config({**BASE, **tomllib.loads(block.body)}))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_every_block_says_what_it_is(page):
    for block in blocks(page):
        where = f"{named(page)}, line {block.line}"
        if block.mark.startswith("excerpt: "):
            source = (ROOT / block.mark.removeprefix("excerpt: ")).read_text(encoding="utf-8")
            there = {line.strip() for line in source.splitlines()}
            gone = [line for line in block.body.splitlines() if line.strip() not in there | {"", "..."}]
            assert not gone, f"{where}: no longer in the source: {gone[0]}"
        elif block.kind in ("python", "toml"):
            includes = block.body.strip().startswith("--8<--") and len(block.body.split("\n")) == 2
            assert includes or block.mark in ("run", "config"), f"{where}: mark the block, or take it out"
        else:
            allowed = ("", "prints", "run") if block.kind == "sh" else ("", "prints")
            assert block.mark in allowed, f"{where}: {block.mark!r} is for python and toml"


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_files_and_names_that_a_page_mentions_are_there(page):
    text = page.read_text(encoding="utf-8")
    paths = set(re.findall(r"`((?:src|tests|docs|benchmarks|papers)/[\w./-]+)`", text))
    gone = [path for path in paths if not (ROOT / path).exists() and "NAME" not in path]
    assert not gone, f"{named(page)}: there is no {gone}"
    mentioned = set(re.findall(r"\bfs\.([A-Za-z]\w*)", text)) - {"Name", "ClassName"}
    missing = [name for name in mentioned if getattr(fs, name, None) is None]
    assert not missing, f"{named(page)}: fs has no {missing}"


def test_there_are_examples():
    assert len(WITH_EXAMPLES) > 5


def test_the_first_script_is_short() -> None:
    first = next(b for b in blocks(ROOT / "README.md") if b.kind == "python")
    assert len(first.body.strip().splitlines()) < 15
