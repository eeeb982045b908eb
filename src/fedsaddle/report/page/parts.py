"""What a page is made of: sections of text, tables, charts and a threshold slider, and elements of HTML and SVG.

Every text of a page is plain text. It becomes markup in `render` alone, escaped, so that a name such as `<b>` is shown
as it is written. `tag` makes the elements of drawings, and escapes everything that is not markup already.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape


@dataclass(frozen=True)
class Text:
    """A paragraph; `kind` is "text", "note" (how to read what stands above it) or "caution"."""

    words: str
    kind: str = "text"
    head: str = ""  # of an answer: the question


@dataclass(frozen=True)
class Bullets:
    """Short lines."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Lines to copy, such as the commands to repeat a run."""

    text: str


@dataclass(frozen=True)
class PageTable:
    """A table: the first cell of each row names the row. Cells that are numbers are aligned to the right."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    totals: int = 0  # how many rows at the end sum up the others
    folded: bool = False  # folded away below its caption


@dataclass(frozen=True)
class Chart:
    """A drawing, what it says in words for those who cannot see it, and the values behind it."""

    title: str
    svg: Markup  # from `page.charts`
    description: str  # what the drawing shows, with its main figures
    table: PageTable | None  # the values, folded away below the drawing
    note: str = ""  # how to read it
    scrolls: bool = False  # a tall drawing, shown in a box of limited height on a screen and whole on paper


@dataclass(frozen=True)
class ThresholdSlider:
    """A slider over thresholds, and the figures of each: sensitivity, specificity, PPV, NPV, alarms per 100.

    Counts are those of all rows; the page computes the rest from them.
    """

    thresholds: Sequence[float]  # ascending probabilities
    true_positives: Sequence[int]  # rows with at least that probability
    false_positives: Sequence[int]
    positives: int
    negatives: int
    chosen: float  # the threshold of the run
    table: PageTable  # some thresholds with all figures, for print and for readers without scripts


Block = Text | Bullets | Code | PageTable | Chart | ThresholdSlider


@dataclass(frozen=True)
class Section:
    """A heading and what stands below it; `key` is the anchor."""

    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Figure:
    """A figure at the top of the page: "AUROC", "0.82", "95 % interval 0.64 to 0.92"."""

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    answers: Sequence[Text]  # what was asked, chosen, found: for readers who stop here; warnings first
    figures: Sequence[Figure] = ()
    cautions: Sequence[str] = ()
    sections: Sequence[Section] = field(default_factory=tuple)
    footer: str = ""


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
