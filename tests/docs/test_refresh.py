"""Results stand in the pages, and are those that were published."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from fedsaddle_papers.reproductions import stored
from fedsaddle_papers.reproductions.hypotheses_of_papers import papers

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def refresh() -> ModuleType:
    before = list(sys.path)
    sys.path.insert(0, str(DOCS))
    try:
        import refresh
    finally:
        sys.path[:] = before
    return refresh


def shown(refresh: ModuleType, marker: str) -> str:
    page = refresh.refreshed(f"before\n{marker}\nold\n<!-- end -->\nafter\n")
    begin, _, rest = page.partition(f"{marker}\n\n")
    block, _, end = rest.partition("\n\n<!-- end -->")
    assert (begin, end) == ("before\n", "\nafter\n")
    return str(block)


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.name)
def test_pages_have_the_published_results(refresh: ModuleType, page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert refresh.refreshed(text) == text, "run python docs/refresh.py"


def test_every_figure_and_suite_has_its_place(refresh: ModuleType) -> None:
    from fedsaddle_papers.reproductions.names import FIGURES
    from fedsaddle_papers.suites.names import SUITES

    text = "".join(page.read_text(encoding="utf-8") for page in DOCS.rglob("*.md"))
    for marker in (*(f"figure: {name}" for name in FIGURES), *(f"benchmark: {name}" for name in SUITES)):
        assert text.count(f"\n<!-- {marker} -->\n") == 1, marker


def test_verdicts_show_what_is_stored(refresh: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "PACKAGED", tmp_path)
    first = papers()["DRFA"][0]
    summary = {
        "sentences": [{"key": first.key, "verdict": "refuted", "measured": "0.97 times | as many", "seeds": 5}],
        "claims": [{"claim": "another", "paper": "", "measured": "+1", "verdict": "undecided"}],
        "title": "A figure",
        "date": "2026-11-17",
        "machine": {"cores": 2, "system": "Linux"},
        "versions": {"torch": "2"},
        "seeds": 5,
        "processor_minutes": 1.5,
        "notes": ["one diverged"],
    }
    (tmp_path / f"{first.figure}.json").write_text(json.dumps(summary))
    page = shown(refresh, "<!-- verdicts: DRFA -->")
    assert "| 0.97 times \\| as many, 5 seeds | **refuted** |" in page
    assert page.count("**not run**") == len(papers()["DRFA"]) - 1
    front = shown(refresh, "<!-- verdicts: all -->")
    assert front.startswith("**0 hold, 1 refuted, 0 undecided, 0 no data, of 43 sentences")
    assert "| [Local SGDA](local-sgda.md) | 4 | 0 | 0 | 0 | 0 | 4 |" in front
    drawn = shown(refresh, f"<!-- figure: {first.figure} -->")
    assert "2026-11-17, 2 cores, Linux, torch 2; 5 seeds, 1.5 minutes of one core." in drawn
    assert "- one diverged" in drawn
    assert "| another | +1 | undecided |" in drawn
    assert "was not run" in shown(refresh, "<!-- figure: drfa-fig2 -->")
    assert "took 2 minutes of one core, 0.0 hours on two; not run in full: " in shown(refresh, "<!-- cost: all -->")
