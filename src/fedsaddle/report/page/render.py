"""From a page to one HTML file without links to elsewhere."""

from __future__ import annotations

from fedsaddle.report.page.parts import Page


def render(page: Page) -> str:
    """The page as HTML: style, script and drawings inside."""
    raise NotImplementedError
