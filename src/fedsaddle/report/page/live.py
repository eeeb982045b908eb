"""The page of `fedsaddle watch`: the same parts as those of a report, which are sent anew when they change."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from fedsaddle.report.page.parts import Block, Figure
from fedsaddle.report.page.render import environment, stored

STYLES = ("style.css", "charts.css", "print.css", "live.css")
SCRIPTS = ("values.js", "pointer.js", "live.js")


@dataclass(frozen=True)
class Head:
    """What stands above the curves of a run."""

    key: str
    name: str
    about: str  # the algorithm and the data
    state: str  # one word, such as "running"
    words: str  # a sentence about the state
    done: int
    rounds: int | None
    figures: Sequence[Figure] = ()


@dataclass(frozen=True)
class RunRow:
    """A run in the list of all."""

    key: str
    name: str
    state: str
    progress: str
    figure: str
    left: str
    shown: bool


@dataclass(frozen=True)
class LivePage:
    """The frame: the keys of the parts and of the runs that have some, and where their news come from."""

    title: str
    parts: Sequence[tuple[str, str]]  # keys and contents, of the parts before the runs
    runs: Sequence[tuple[str, str, Sequence[tuple[str, str]]]]  # key, name and parts of each run
    events: str  # the address of the news


def render_live(page: LivePage) -> tuple[str, str]:
    """The page as HTML, and the policy that allows its own script and nothing else."""
    script = "\n".join(stored(name) for name in SCRIPTS)
    style = "\n".join(stored(name) for name in STYLES)
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
    """Blocks of a part, below a heading."""
    return environment().get_template("live_blocks.html").render(blocks=blocks, key=key, title=title)


def render_head(head: Head) -> str:
    """The head of a run."""
    return environment().get_template("live_head.html").render(head=head)


def render_runs(rows: Sequence[RunRow], more: str) -> str:
    """The list of runs, from which one chooses those to show; `more` says which are not listed."""
    return environment().get_template("live_runs.html").render(rows=rows, more=more)
