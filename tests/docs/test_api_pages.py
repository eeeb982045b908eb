"""The pages of the API as they are built: examples are rendered as code, not as quotations."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
pytest.importorskip("mkdocstrings_handlers", reason="comes with mkdocstrings, of the extra dev")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The HTML of each page of `docs/api`, built apart from the others."""
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("docs")
    shutil.copytree(ROOT / "docs" / "api", folder / "docs" / "api")
    names = sorted(path.name for path in (ROOT / "docs" / "api").glob("*.md"))
    config = load_config(
        str(ROOT / "mkdocs.yml"),
        docs_dir=str(folder / "docs"),
        site_dir=str(folder / "site"),
        nav=[{"Reference": [f"api/{name}" for name in names]}],
    )
    build(config)
    return {str(path.parent.name): path.read_text(encoding="utf-8") for path in (folder / "site").rglob("index.html")}


def test_no_nested_quotations(pages: dict[str, str]) -> None:
    for name, text in pages.items():
        assert "<blockquote" not in text, name
