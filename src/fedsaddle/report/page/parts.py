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
    """A paragraph.

    Args:
        words: Its text.
        kind: "text", "note" (how to read the block above) or "caution".
        head: The question that it answers.
    """

    words: str
    kind: str = "text"
    head: str = ""


@dataclass(frozen=True)
class Bullets:
    """A list of short lines.

    Args:
        lines: Plain text.
    """

    lines: Sequence[str]


@dataclass(frozen=True)
class Code:
    """Lines to copy, such as the commands to repeat a run.

    Args:
        text: Plain text.
    """

    text: str


@dataclass(frozen=True)
class PageTable:
    """A table; cells with numbers are aligned to the right.

    Args:
        heads: Of the columns.
        rows: Cells; the first one names the row.
        caption: Of the table.
        totals: Number of rows at the end that sum up the others.
        folded: Whether the table is collapsed below its caption.
    """

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    totals: int = 0
    folded: bool = False


@dataclass(frozen=True)
class Chart:
    """A drawing, its description for readers who cannot see it, and its values.

    Args:
        title: Of the chart.
        svg: From `page.charts`.
        description: What the drawing shows, with its main figures.
        table: The values, collapsed below the drawing.
        note: How to read it.
        scrolls: Whether it has limited height on a screen; on paper it is shown in full.
    """

    title: str
    svg: Markup
    description: str
    table: PageTable | None
    note: str = ""
    scrolls: bool = False


@dataclass(frozen=True)
class ThresholdSlider:
    """A slider over thresholds, with sensitivity, specificity, PPV, NPV and alarms per 100 of each.

    Args:
        thresholds: Ascending probabilities.
        true_positives: Number of positives with at least that probability.
        false_positives: Number of negatives with at least that probability.
        positives: Number of positives.
        negatives: Number of negatives.
        chosen: The threshold of the run.
        table: Some thresholds with all figures, for print and for readers without scripts.
    """

    thresholds: Sequence[float]
    true_positives: Sequence[int]
    false_positives: Sequence[int]
    positives: int
    negatives: int
    chosen: float
    table: PageTable


Block = Text | Bullets | Code | PageTable | Chart | ThresholdSlider


@dataclass(frozen=True)
class Section:
    """A heading and the blocks below it.

    Args:
        key: The anchor.
        title: The heading.
        blocks: From top to bottom.
    """

    key: str
    title: str
    blocks: Sequence[Block]


@dataclass(frozen=True)
class Figure:
    """A figure at the top of the page, such as "AUROC", "0.82", "95 % interval 0.64 to 0.92".

    Args:
        name: Of the figure.
        value: As text.
        detail: Such as its interval.
    """

    name: str
    value: str
    detail: str = ""


@dataclass(frozen=True)
class Page:
    """A whole page.

    Args:
        title: Of the page.
        subtitle: Below the title.
        answers: To the questions of a reader who stops here; warnings first.
        figures: The main figures.
        cautions: What to know before the figures are used.
        sections: From top to bottom.
        footer: The last line.
    """

    title: str
    subtitle: str
    answers: Sequence[Text]
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
    r"""The text with characters that a page must not contain as their escapes; markup is unchanged.

    Args:
        text: Plain text or markup.

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

    Args:
        name: Of the element.
        children: Text, numbers or markup; None is left out.
        attributes: By name.

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
    """The text or number as markup; numbers have at most two decimals.

    Args:
        value: Text or a number.
    """
    return escape(clean(value)) if isinstance(value, str) else Markup(compact(value))


def compact(number: float) -> str:
    """A number with at most two decimals and no zeros at its end.

    Args:
        number: Any number.

    Examples:
        >>> compact(2.50), compact(-0.001)
        ('2.5', '0')
    """
    said = f"{number:.2f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
    return "0" if said == "-0" else said
