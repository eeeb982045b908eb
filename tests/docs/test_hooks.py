"""What the documentation takes from the source: tables of names and keys, excerpts, the reference."""

from __future__ import annotations

import re
import sys
from dataclasses import fields
from pathlib import Path

import pytest

import fedsaddle as fs
from fedsaddle.config.registry import ALGORITHMS, LISTED
from fedsaddle.config.schema import Config

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
pytest.importorskip("griffe", reason="comes with mkdocstrings, of the extra dev")


@pytest.fixture(scope="module")
def hooks():
    before = list(sys.path)
    sys.path.insert(0, str(ROOT / "docs"))
    try:
        import hooks
    finally:
        sys.path[:] = before
    return hooks


@pytest.fixture(scope="module")
def pages(hooks):
    return {page.name if page.parent.name == "docs" else f"{page.parent.name}/{page.name}": page for page in PAGES}


@pytest.fixture(scope="module")
def built(hooks, pages):
    return {name: hooks.filled(page.read_text(encoding="utf-8"), name) for name, page in pages.items()}


def rows(text: str) -> list[list[str]]:
    """The cells of the tables' lines."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in text.splitlines() if line[:1] == "|"
    ]


def test_no_marker_is_left(built):
    for name, text in built.items():
        assert not re.search(r"<!-- (table|code|api):", text), name


def test_every_table_is_whole(built):
    for name, text in built.items():
        width = 0
        for line in text.splitlines():
            cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("| ") else 0
            assert not cells or not width or cells == width, f"{name}: {line}"
            width = cells


@pytest.mark.parametrize("page", ["algorithms/index.md", "configuration.md"])
def test_every_algorithm_is_listed(built, page):
    firsts = {cell for row in rows(built[page]) for cell in row[:1]}
    names = {
        name for name in ALGORITHMS for first in firsts if re.fullmatch(rf"\[?`{re.escape(name)}`(\]\(.*\))?", first)
    }
    assert names == set(ALGORITHMS)


def test_every_algorithm_has_a_page_with_its_keys(hooks, built):
    for name, entry in ALGORITHMS.items():
        page = re.search(r"\((.*?)\)", hooks.table("algorithms " + entry.kind).split(f"`{name}`]")[1])
        assert page, name
        shown = {row[0].strip("`") for row in rows(built[page[1]])}
        assert {f.name for f in fields(entry.load())} - {"problem"} <= shown


def test_every_key_of_an_algorithm_is_explained(hooks):
    for name in ALGORITHMS:
        for row in rows(hooks.table(f"algorithm {name}"))[2:]:
            assert row[3], f"{name}: {row[0]}"


@pytest.mark.parametrize("section", ["data", "noise", "run", "engine"])
def test_every_key_of_a_section_is_explained(hooks, section):
    kind = Config.model_fields[section].annotation
    found = {row[0].strip("`"): row for row in rows(hooks.table(f"config.{section}"))[2:]}
    assert set(found) == set(kind.model_fields)
    assert all(row[3] for row in found.values())


@pytest.mark.parametrize("kind", ["datasets", "splits", "models"])
def test_every_option_is_explained(hooks, kind):
    for row in rows(hooks.table(f"options {kind}"))[2:]:
        assert row[4], row


def test_the_tables_follow_the_code(hooks):
    assert "`10`; AFL: always `1`" in hooks.table("algorithm DRFA, AFL")
    assert "none; DRFA-Prox: required" in hooks.table("algorithm DRFA, DRFA-Prox")
    assert "| `dual_batch` | whole number | none |" in hooks.table("algorithm CODA+, CODA")
    assert '| `name` | `"vectorised"`, `"processes"`, `"ray"`, `"serial"`, `"nvflare"` |' in hooks.table(
        "config.engine"
    )
    assert "| `test_share` | number in [0, 1) | `0.2` |" in hooks.table("config.data")
    assert set(LISTED["splits"]) == {row[0].strip("`") for row in rows(hooks.table("names splits"))[2:]}


def test_the_reference_has_every_public_name(built):
    reference = "".join(text for name, text in built.items() if name.startswith("api/"))
    headings = re.findall(r"heading: fs\.(\w+)", reference)
    assert set(headings) == set(fs.__all__)
    assert len(headings) == len(set(headings)), "each name once"


def test_a_page_that_the_navigation_lacks_is_added(hooks):
    nav = [{"Home": "index.md"}, {"Algorithms": ["algorithms/index.md", {"FedAvg": "algorithms/fedavg.md"}]}]
    found = hooks.with_all_algorithms(nav, ["fedavg.md", "index.md", "new.md"])
    assert found[1]["Algorithms"] == ["algorithms/index.md", {"FedAvg": "algorithms/fedavg.md"}, "algorithms/new.md"]


def test_unknown_markers_are_errors(hooks):
    for marker in (
        "<!-- table: nonsense -->",
        "<!-- code: fedsaddle.algorithms.drfa:Drfa.nothing -->",
        "<!-- api: nowhere -->",
    ):
        with pytest.raises((ValueError, AttributeError)):
            hooks.filled(marker)


def test_links_of_tables_are_as_seen_from_the_page(built):
    assert "[`AFL`](./drfa.md)" in built["algorithms/index.md"]
    assert "[`AFL`](algorithms/drfa.md)" in built["configuration.md"]
