"""Write results into the pages that show them: `python docs/refresh.py`, after results were published.

They stand in the pages themselves, so that they can be read without building. What is between these lines is written:

    <!-- verdicts: DRFA -->
    <!-- end -->

- `verdicts: all`, `verdicts: DRFA`: the verdicts on all papers' sentences in numbers, and those of one paper in full;
- `figure: drfa-fig1`: the picture of a figure, when and where it was run, tuned values, secondary comparisons;
- `cost: all`: what the figures cost that were run in full;
- `benchmark: games`: the results of a suite of `fedsaddle benchmark`, by each measure it was run for.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))  # the modules beside this one
sys.path.insert(0, str(DOCS.parent / "src"))
sys.path.insert(0, str(DOCS.parent / "papers" / "src"))

from verdicts import cost, figure, verdicts  # noqa: E402

from fedsaddle_papers.suites.publish import published  # noqa: E402

FILLS = {
    "verdicts": verdicts,
    "figure": figure,
    "cost": cost,
    "benchmark": lambda name: published(name, DOCS / "benchmarks"),
}
BLOCK = re.compile(rf"^<!-- (?P<kind>{'|'.join(FILLS)}): (?P<what>[^\n]*?) -->\n.*?^<!-- end -->$", re.M | re.S)


def refreshed(page: str) -> str:
    """The page with its results as they are now."""

    def fill(found: re.Match[str]) -> str:
        begin = found[0].partition("\n")[0]
        return f"{begin}\n\n{FILLS[found['kind']](found['what']).strip()}\n\n<!-- end -->"

    return BLOCK.sub(fill, page)


def main() -> None:
    """Write all pages whose results have changed, and print their names."""
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        if after != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(DOCS))


if __name__ == "__main__":
    main()
