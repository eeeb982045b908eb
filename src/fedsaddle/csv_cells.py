"""Cells of CSV files that a spreadsheet shows as text and does not run."""

from __future__ import annotations


def safe_cell(text: str) -> str:
    """A name for a CSV file: with a quote before it where a spreadsheet would take it for a formula.

    Example:
        >>> safe_cell("=1+1"), safe_cell("North")
        ("'=1+1", 'North')
    """
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else text
