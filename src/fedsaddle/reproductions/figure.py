"""What a reproduced figure is made of: data and a model, lines, panels, and the claims that are judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedsaddle.reproductions.claims import Claim
from fedsaddle.reproductions.tracks import Tracks

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """One line of a figure: an algorithm with its settings."""

    label: str
    algorithm: str  # a name of `fedsaddle list algorithms`
    options: Options  # as in a config's [algorithm]: schedules and estimators are tables with a name
    rounds: int
    colour: int = 0  # of fedsaddle.report.plots.COLOURS
    style: str = "-"
    chunk: int | None = None  # clients a step; by default the engine's rule
    data: Options = field(default_factory=dict)  # where it differs from the setting's
    evaluate_every: int | None = None  # rounds; by default the setting's
    legend: str = ""  # in the picture, once for all lines that share it; by default the label
    problem: str | None = None  # where it is not the setting's
    problem_options: Options = field(default_factory=dict)  # of that problem


@dataclass(frozen=True)
class Setting:
    """The data, the model and the problem that all lines share."""

    # Keywords of fedsaddle.load; noise is a table; sources = n trains on the first n clients alone; validation = true
    # leaves the official test rows out of sight, and tests on rows held out of the training rows.
    data: Options
    model: str  # a name of `fedsaddle list models`
    model_options: Options = field(default_factory=dict)
    problem: str = "supervised"  # a name of `fedsaddle list problems`
    problem_options: Options = field(default_factory=dict)
    evaluate_every: int = 1
    evaluate_train: bool = False


@dataclass(frozen=True)
class Panel:
    """One of the small plots: a column of the tracks over another."""

    x: str  # "round", "exchanges", "bytes", "local_steps" or "seconds"
    y: str  # "test worst", "train global", "test loss mean", or a pooled measure such as "auroc"
    title: str
    window: int = 1  # rounds of the running mean that is drawn
    target: float | None = None  # a level to mark
    log: bool = False  # a logarithmic scale for y
    lines: tuple[str, ...] = ()  # their labels; none stands for all


@dataclass(frozen=True)
class Ends:
    """A small plot of where lines end: the last value of a column over a number that tells the lines apart.

    With a `base`, what is drawn is the difference to that line, seed by seed.
    """

    x: str  # what the number is
    y: str
    title: str
    series: Mapping[str, tuple[tuple[float, str], ...]]  # name -> numbers and labels of its lines
    base: str = ""  # a label
    log: bool = False  # a logarithmic scale for x


@dataclass(frozen=True)
class Figure:
    """A figure of a paper, ready to be run anew."""

    title: str
    source: str
    setting: Setting
    lines: tuple[Line, ...]
    panels: tuple[Panel | Ends, ...]
    claims: Callable[[Tracks], list[Claim]]
    seeds: int = 5
    quick_seeds: int = 3
    quick_share: float = 1.0  # of the rounds
    rows: int = 1  # of panels
    quick_setting: Setting | None = None  # smaller data, where even a few rounds take long

    def quick(self) -> Figure:
        """The same in about a minute: fewer seeds and, where rounds are dear, fewer of them and fewer clients."""
        lines = tuple(replace(line, rounds=max(1, round(line.rounds * self.quick_share))) for line in self.lines)
        return replace(self, lines=lines, seeds=self.quick_seeds, setting=self.quick_setting or self.setting)
