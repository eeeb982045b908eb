"""From a page to one HTML file without links to elsewhere."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedsaddle.metrics.calibration import FEW_ALARMS
from fedsaddle.report.page.parts import Block, Figure, Page, PageTable, Section, ThresholdSlider, clean

STYLES = ("style.css", "charts.css", "print.css")
KINDS = ("Text", "Bullets", "Code", "PageTable", "Chart", "ThresholdSlider")  # the blocks of templates/blocks.html
SCRIPTS = ("values.js", "pointer.js", "slider.js")
_SIGNED = r"[<>≈~≤≥]?\s?[-+−]?\d[\d.,\s]*(e[-+]?\d+)?\s?(%|s|ms|MB|KB|GB|min|h)?"
_NUMBER = re.compile(rf"{_SIGNED}(\s?\({_SIGNED}.*\)|\s?(to|of|in|±)\s{_SIGNED})?", re.IGNORECASE)
_LONG = 24  # characters of a cell that want a wide column
_NOTHING = frozenset({"", "-", "–", "—"})


def render(page: Page) -> str:
    """The page as HTML, with style, script and drawings inside.

    Args:
        page: The page.
    """
    script = "\n".join(stored(name) for name in SCRIPTS)
    style = "\n".join(stored(name) for name in STYLES)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        environment()
        .get_template("page.html")
        .render(
            page=page,
            sections=_anchored(page.sections),
            style=Markup(style),
            script=Markup(script),
            script_hash=f"'sha256-{digest}'",
        )
    )


@dataclass(frozen=True)
class _Anchored:
    """A section with an anchor that no other has."""

    anchor: str
    title: str
    blocks: Sequence[Block]


def _anchored(sections: Sequence[Section]) -> list[_Anchored]:
    found: list[_Anchored] = []
    for section in sections:
        stem = re.sub(r"[^a-z0-9]+", "-", section.key.lower()).strip("-")[:40] or "section"
        taken = {"page", "summary", "contents", *(other.anchor for other in found)}
        anchor = next(name for n in range(1, 10**6) if (name := stem if n == 1 else f"{stem}-{n}") not in taken)
        found.append(_Anchored(anchor, section.title, section.blocks))
    return found


@cache
def stored(name: str) -> str:
    """The content of a template file, such as a script.

    Args:
        name: Of the file.
    """
    text = files(__package__).joinpath("templates", name).read_text(encoding="utf-8")
    return text.replace("\r\n", "\n")  # a browser hashes what it reads, and it reads no "\r"


@cache
def environment() -> Environment:
    """The templates; everything that is put into them is escaped."""
    made = Environment(
        loader=PackageLoader(__package__ or "", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=clean,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(kind=_kind, columns=column_kinds, slider=_slider_data, nearest=_nearest)
    return made


def _kind(block: Block) -> str:
    """The name of a block's class: the templates choose by it."""
    name = type(block).__name__
    if name not in KINDS:
        raise TypeError(f"the templates do not know a block of kind {name}")
    return name


def column_kinds(table: PageTable) -> list[str]:
    """The classes of columns: "n" of numbers, which are aligned to the right, "long" of sentences, or "".

    Args:
        table: Of the page.
    """
    width = max([len(table.heads), *(len(row) for row in table.rows)], default=0)
    columns = [[row[i] for row in table.rows if i < len(row)] for i in range(width)]
    return ["n" if i > 0 and _is_numeric(cells) else _length_kind(cells) for i, cells in enumerate(columns)]


def _length_kind(cells: Sequence[str]) -> str:
    return "long" if max(map(len, cells), default=0) > _LONG else ""


def _is_numeric(cells: Sequence[str]) -> bool:
    said = [cell.strip() for cell in cells if cell.strip() not in _NOTHING]
    numbers = sum(_NUMBER.fullmatch(cell) is not None for cell in said)
    return 2 * numbers > len(said)


def _slider_data(slider: ThresholdSlider) -> str:
    """What the script computes the figures from."""
    return json.dumps(
        {
            "at": [float(f"{t:.6g}") for t in slider.thresholds],
            "tp": [int(n) for n in slider.true_positives],
            "fp": [int(n) for n in slider.false_positives],
            "positives": int(slider.positives),
            "negatives": int(slider.negatives),
            "few": FEW_ALARMS,
        },
        separators=(",", ":"),
    )


def _nearest(slider: ThresholdSlider) -> int:
    """The place of the chosen threshold."""
    return min(range(len(slider.thresholds)), key=lambda i: abs(slider.thresholds[i] - slider.chosen), default=0)


LIVE_STYLES = ("style.css", "charts.css", "print.css", "live.css")
LIVE_SCRIPTS = ("values.js", "pointer.js", "live.js")


@dataclass(frozen=True)
class Head:
    """The head of a run on the live page.

    Args:
        key: Of the run on the page.
        name: Of the run.
        about: The algorithm and the data.
        state: One word, such as "running".
        words: A sentence about the state.
        done: Number of rounds that are done.
        rounds: Number of rounds in all; None: not known.
        figures: The main figures.
    """

    key: str
    name: str
    about: str
    state: str
    words: str
    done: int
    rounds: int | None
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class RunRow:
    """A run in the list of all runs.

    Args:
        key: Of the run on the page.
        name: Of the run.
        state: One word.
        progress: The rounds that are done.
        figure: The main figure.
        left: The time left.
        shown: Whether the run is selected.
    """

    key: str
    name: str
    state: str
    progress: str
    figure: str
    left: str
    shown: bool


@dataclass(frozen=True)
class LivePage:
    """The frame of the live page.

    Args:
        title: Of the page.
        parts: Keys and contents of the parts above the runs.
        runs: Key, name and parts of each run.
        events: The address of the updates.
    """

    title: str
    parts: Sequence[tuple[str, str]]
    runs: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]
    events: str


def render_live(page: LivePage) -> tuple[str, str]:
    """The page as HTML, and the policy that allows its own script and nothing else.

    Args:
        page: The page.
    """
    script = "\n".join(stored(name) for name in LIVE_SCRIPTS)
    style = "\n".join(stored(name) for name in LIVE_STYLES)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; connect-src 'self'; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )
    template = environment().get_template("live.html")
    safe = {
        "parts": [(key, Markup(content)) for key, content in page.parts],
        "runs": [(key, name, [(k, Markup(c)) for k, c in parts]) for key, name, parts in page.runs],
    }
    return template.render(page=page, style=Markup(style), script=Markup(script), **safe), policy


def render_blocks(blocks: Sequence[Block], key: str, title: str = "") -> str:
    """Blocks of a part, below a heading.

    Args:
        blocks: From top to bottom.
        key: Of the part.
        title: The heading.
    """
    return environment().get_template("live_blocks.html").render(blocks=blocks, key=key, title=title)


def render_head(head: Head) -> str:
    """The head of a run.

    Args:
        head: Of the run.
    """
    return environment().get_template("live_head.html").render(head=head)


def render_runs(rows: Sequence[RunRow], more: str) -> str:
    """The list of runs, from which the reader selects those to show.

    Args:
        rows: The runs.
        more: Which runs are not listed.
    """
    return environment().get_template("live_runs.html").render(rows=rows, more=more)
