"""Text from files and other people, made safe to print: one line, no terminal escapes, no hidden characters."""

from __future__ import annotations


def visible(text: object) -> str:
    r"""The text with every character that cannot be printed as its escape, as in `repr`.

    Control characters could move the cursor or change the screen, line breaks fake another line, and bidirectional
    controls change the order in which a line is read.

    Example:
        >>> print(visible("Hospital\x1b[2J\nsite"))
        Hospital\x1b[2J\nsite
    """
    said = str(text)
    if said.isprintable():
        return said
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in said)


def shortened(text: str, most: int) -> str:
    """The text, without its middle where it is longer than `most` characters.

    Example:
        >>> shortened("a" * 5 + "b" * 5, 4)
        'aa ... bb'
    """
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-(most // 2) :]}"
