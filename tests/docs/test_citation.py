"""CITATION.cff has what CFF 1.2.0 requires, and cites the papers whose algorithms are there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import fedsaddle as fs

yaml = pytest.importorskip("yaml")  # comes with mkdocs
ROOT = Path(__file__).parents[2]
KNOWN = """abstract authors cff-version commit contact date-released doi identifiers keywords license license-url
    message preferred-citation references repository repository-artifact repository-code title type url version"""


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    return yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))


def test_required_keys(citation):
    assert citation["cff-version"] == "1.2.0"
    assert {"authors", "message", "title"} <= set(citation) <= set(KNOWN.split())
    assert citation["authors"] == [{"name": "The FedSaddle authors"}]
    assert str(citation.get("version", fs.__version__)) == fs.__version__, "the version is that of the package"


def test_every_reference_has_authors_title_and_type(citation):
    assert len(citation["references"]) == 5
    for paper in citation["references"]:
        assert {"authors", "title", "type"} <= set(paper)
        assert all({"given-names", "family-names"} == set(author) for author in paper["authors"])


def test_the_papers_are_those_of_the_documentation(citation):
    pages = " ".join(
        " ".join(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs" / "algorithms").glob("*.md")
    )
    assert [paper["title"] for paper in citation["references"] if paper["title"] not in pages] == []
