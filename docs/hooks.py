"""What MkDocs does with these pages: tables and code from the source, and algorithms' pages found by themselves.

A marker on a line of its own is replaced when the pages are built:

- `<!-- table: algorithms minimisation -->`: the algorithms that solve such problems, from the registry;
- `<!-- table: algorithm DRFA, AFL -->`: the keys of an algorithm, from its dataclass;
- `<!-- table: names datasets -->`: what `fedsaddle list datasets` shows;
- `<!-- table: options splits -->`: the keys of everything that `fedsaddle list splits` names;
- `<!-- table: config.run -->`: the keys of a section of a config, from its schema;
- `<!-- table: secure -->`: what secure aggregation hides of each algorithm, from the types of its replies;
- `<!-- table: private -->`: which algorithms can have differential privacy, of rows or of clients;
- `<!-- table: json -->`: the documents that `--json` prints, from their types;
- `<!-- api: problems. metrics. -->`: the reference of the public names whose modules begin so, from their docstrings;
- `<!-- code: fedsaddle.algorithms.drfa:Drfa.round -->`: the source of that function or class.

Results stand in the pages already: `refresh.py` writes them. Pages of `algorithms/` that the navigation of mkdocs.yml
does not list are added to it.
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))  # the modules beside this one
sys.path.insert(0, str(DOCS.parent / "src"))
sys.path.insert(0, str(DOCS.parent / "papers" / "src"))

from from_source import excerpt, reference  # noqa: E402
from tables import table  # noqa: E402

FILLS = {"table": table, "api": reference, "code": excerpt}
MARKER = re.compile(r"^<!-- (?P<kind>table|api|code): (?P<what>[^\n]*?) -->$", re.M)


def on_config(config: Any) -> Any:
    """Add the algorithms' pages that the navigation does not list."""
    config.nav = with_all_algorithms(config.nav, sorted(path.name for path in (DOCS / "algorithms").glob("*.md")))
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put tables and code in the place of their markers."""
    return filled(markdown, page.file.src_uri)


def filled(markdown: str, page: str = "index.md") -> str:
    """The page with every marker replaced, and links of tables as seen from it."""
    way = posixpath.relpath("algorithms", posixpath.dirname(page) or ".")

    def fill(found: re.Match[str]) -> str:
        return FILLS[found["kind"]](found["what"]).replace("](algorithms/", f"]({way}/")

    return MARKER.sub(fill, markdown)


def with_all_algorithms(nav: list[Any], pages: list[str]) -> list[Any]:
    """The navigation, with every page of `algorithms/` in the section that holds their index."""
    named = str(nav)
    missing = [f"algorithms/{page}" for page in pages if f"algorithms/{page}" not in named]
    for item in nav:
        for entries in item.values() if isinstance(item, dict) else ():
            if isinstance(entries, list) and "algorithms/index.md" in entries:
                entries.extend(missing)
    return nav
