"""Every page of an algorithm has its box as numbered lines beside the code that carries the same numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(p for p in (ROOT / "docs/algorithms").glob("*.md") if p.name != "index.md")
SOURCES = {path.name: path for path in (ROOT / "src/fedsaddle/algorithms").rglob("*.py")}
_TABLE = re.compile(
    r"^\| line \| (?P<box>.*) \| `(?P<file>\w+\.py)` \|\n\| --- \| --- \| --- \|\n(?P<rows>(?:\|.*\n)+)", re.M
)


@dataclass(frozen=True)
class Line:
    """A line of a box, and the code that the page shows beside it."""

    page: str
    file: str
    numbers: str
    code: str

    @property
    def anchors(self) -> set[str]:
        return set(re.findall(r"\d+", self.numbers))


def lines_of(page: Path) -> list[Line]:
    found: list[Line] = []
    for table in _TABLE.finditer(page.read_text(encoding="utf-8")):
        number = ""
        for row in table["rows"].splitlines():
            said, _, code = re.split(r"(?<!\\)\|", row.strip()[1:-1])
            number = said.strip() or number  # a row without a number goes on with the one above
            found.append(Line(page.name, table["file"], number, code.strip(" `")))
    return found


OF_THE_PAPERS = {
    *("codasca.md", "drfa-ga.md", "drfa.md", "fedavg.md", "fedsgda.md", "fedx.md", "local-sgda.md", "qfedavg.md"),
}
LINES = [line for page in PAGES for line in lines_of(page) if line.code != "fs.run"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_every_page_has_its_box(page):
    assert len(lines_of(page)) >= (8 if page.name in OF_THE_PAPERS else 4)


@pytest.mark.parametrize("line", LINES, ids=lambda line: f"{line.page}: {line.numbers}: {line.code[:40]}")
def test_the_code_is_there_and_carries_the_number(line):
    source = SOURCES[line.file].read_text(encoding="utf-8").splitlines()
    at = [i for i, text in enumerate(source) if line.code in text]
    assert at, f"{line.file} has no {line.code!r}"
    said = [set(re.findall(r"\d+", f"{source[i].partition('#')[2]} {source[i - 1]}")) for i in at]
    assert any(anchors >= line.anchors for anchors in said), f"{line.file}: {line.code!r} does not say {line.numbers}"
