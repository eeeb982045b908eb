"""Cells of the CSV files that are written here."""

from __future__ import annotations

FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def safe_cell(text: str) -> str:
    """The text, with a single quote before what a spreadsheet would take for a formula; numbers stay as they are.

    Example:
        >>> safe_cell("=1+1"), safe_cell("-0.5"), safe_cell("Berlin")
        ("'=1+1", '-0.5', 'Berlin')
    """
    if not text.startswith(FORMULAS):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text if text == text.strip() else f"'{text}"


def plain_cell(cell: str) -> str:
    """The text of which `safe_cell` made this cell.

    Example:
        >>> plain_cell("'=1+1"), plain_cell("'s Hertogenbosch")
        ('=1+1', "'s Hertogenbosch")
    """
    rest = cell[1:]
    return rest if cell.startswith("'") and safe_cell(rest) == cell else cell
