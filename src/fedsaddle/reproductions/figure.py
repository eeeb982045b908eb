"""The description of a figure that is reproduced: data and a model, lines, panels, and the claims to test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedsaddle.reproductions.claims import Claim
from fedsaddle.reproductions.curves import Runs

Options = Mapping[str, Any]  # a table of a config: any TOML value
Claims = Callable[[Runs], list[Claim]]


@dataclass(frozen=True)
class Line:
    """One line of a figure: an algorithm with its options."""

    label: str
    algorithm: str  # a name of `fedsaddle list algorithms`
    options: Options  # as in a config's [algorithm]: schedules and estimators are tables with a name
    rounds: int
    colour: int = 0  # index into fedsaddle.report.plots.COLOURS
    style: str = "-"
    chunk: int | None = None  # clients in one vectorised step; None: the engine chooses
    data: Options = field(default_factory=dict)  # overrides the setting's data
    evaluate_every: int | None = None  # rounds; None: as in the setting
    legend: str = ""  # entry in the legend, one for all lines that share it; empty: the label
    problem: str | None = None  # overrides the setting's problem
    problem_options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """The data, the model and the problem that all lines share.

    `data` has the keywords of `fedsaddle.load`, and three more: `noise` is a table; `sources = n` trains on the first n
    clients only; `validation = true` drops the official test rows and tests on held-out training rows.
    """

    data: Options
    model: str  # a name of `fedsaddle list models`
    model_options: Options = field(default_factory=dict)
    problem: str = "supervised"  # a name of `fedsaddle list problems`
    problem_options: Options = field(default_factory=dict)
    evaluate_every: int = 1
    evaluate_train: bool = False


@dataclass(frozen=True)
class Panel:
    """A plot of curves: a metric over a cost."""

    x: str  # "round", "exchanges", "bytes", "local_steps" or "seconds"
    y: str  # "test worst", "train global", "test loss mean", or a pooled metric such as "auroc"
    title: str
    window: int = 1  # rounds of the running mean
    target: float | None = None  # a horizontal mark
    log: bool = False  # logarithmic y axis
    lines: tuple[str, ...] = ()  # labels; empty: all lines


@dataclass(frozen=True)
class FinalValues:
    """A plot of final values: the last value of a metric over a parameter of the lines.

    With a `base`, the differences to that line, seed by seed.
    """

    x: str  # the parameter's name
    y: str
    title: str
    series: Mapping[str, tuple[tuple[float, str], ...]]  # name -> pairs of the parameter's value and a line's label
    base: str = ""  # a line's label
    log: bool = False  # logarithmic x axis


@dataclass(frozen=True)
class Figure:
    """A figure or table of a paper: everything that `fedsaddle reproduce` needs to run it."""

    title: str
    source: str
    setting: Setting
    lines: tuple[Line, ...]
    panels: tuple[Panel | FinalValues, ...]
    claims: Claims
    seeds: int = 5
    quick_seeds: int = 3
    quick_share: float = 1.0  # share of the rounds with --quick
    rows: int = 1  # of panels
    quick_setting: Setting | None = None  # smaller data with --quick; None: the same

    def quick(self) -> Figure:
        """A shorter version for `--quick`: fewer seeds, and where rounds are expensive fewer rounds and clients."""
        lines = tuple(replace(line, rounds=max(1, round(line.rounds * self.quick_share))) for line in self.lines)
        return replace(self, lines=lines, seeds=self.quick_seeds, setting=self.quick_setting or self.setting)
