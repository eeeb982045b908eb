"""What a page is made of: sections of text, tables, charts and a threshold slider.

Every text here is plain text. It becomes markup in `render` alone, escaped, so that a name such as `<b>` is shown as it
is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup


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
