"""Elements of HTML and SVG: everything in them is escaped that is not markup already."""

from __future__ import annotations

import re

from markupsafe import Markup, escape

# Not allowed in HTML, or able to change the order in which a line is read; tabs and line breaks stay.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_EMPTY = frozenset({"br", "col", "hr", "input", "meta"})

Content = str | float | None
Attribute = str | float | bool | None


def clean(text: object) -> str:
    r"""The text with characters that a page cannot or must not hold as their escapes; markup stays as it is.

    Examples:
        >>> print(clean("Ward\x1b[2J"))
        Ward\x1b[2J
    """
    if isinstance(text, Markup):
        return text
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode("ascii"), str(text))


def tag(name: str, *children: Content, **attributes: Attribute) -> Markup:
    """An element with its children and attributes.

    A last underscore of an attribute's name is dropped and others become hyphens: `class_`, `data_x`. Attributes that
    are None or False are left out, as are children that are None.

    Examples:
        >>> print(tag("b", "a < b", class_="wide"))
        <b class="wide">a &lt; b</b>
    """
    said = [Markup("<"), Markup(name)]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        said += [Markup(" "), Markup(key.rstrip("_").replace("_", "-"))]
        if value is not True:
            said += [Markup('="'), escaped(value), Markup('"')]
    said.append(Markup(">"))
    if name not in _EMPTY:
        said += [*(escaped(child) for child in children if child is not None), Markup("</"), Markup(name), Markup(">")]
    return Markup("").join(said)


def escaped(value: str | float) -> Markup:
    """The text or number as markup; numbers have at most two decimals."""
    return escape(clean(value)) if isinstance(value, str) else Markup(compact(value))


def compact(number: float) -> str:
    """A number with at most two decimals and no zeros at its end.

    Examples:
        >>> compact(2.50), compact(-0.001)
        ('2.5', '0')
    """
    said = f"{number:.2f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
    return "0" if said == "-0" else said
