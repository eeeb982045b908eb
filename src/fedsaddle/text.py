"""Text from files and other people, made safe to print and to write: one line, no terminal escapes, no formulas."""

from __future__ import annotations


def visible(text: object) -> str:
    r"""The text with every character that cannot be printed as its escape, as in `repr`.

    Control characters could move the cursor or change the screen, line breaks fake another line, and bidirectional
    controls change the order in which a line is read.

    Examples:
        >>> print(visible("Hospital\x1b[2J\nsite"))
        Hospital\x1b[2J\nsite
    """
    plain = str(text)
    if plain.isprintable():
        return plain
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in plain)


def shortened(text: str, most: int) -> str:
    """The text, without its middle where it is longer than `most` characters.

    Examples:
        >>> shortened("a" * 5 + "b" * 5, 4)
        'aa ... bb'
    """
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"


FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # how a cell begins that a spreadsheet would compute


def safe_cell(text: str) -> str:
    """The text, with a single quote before what a spreadsheet would take for a formula; numbers stay as they are.

    Examples:
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

    Examples:
        >>> plain_cell("'=1+1"), plain_cell("'s Hertogenbosch")
        ('=1+1', "'s Hertogenbosch")
    """
    rest = cell[1:]
    return rest if cell.startswith("'") and safe_cell(rest) == cell else cell
