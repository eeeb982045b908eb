"""The description of a figure that is reproduced: data and a model, lines, panels, and the claims to test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from fedsaddle_papers.reproductions.claims import Claim
from fedsaddle_papers.reproductions.curves import Runs

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
    tuned: str = ""  # the label of the line whose tuned options it takes, most often its own; empty: not tuned
    model: str | None = None  # overrides the setting's model
    model_options: Options = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """The data, the model and the problem that all lines share.

    `data` has the keywords of `fedsaddle.load`, and four more: `noise` is a table; `sources = n` trains on the first n
    clients only; `rows = n` on the first n rows of every client; `validation = true` drops the official test rows and
    tests on held-out training rows.
    """

    data: Options
    model: str  # a name of `fedsaddle list models`
    model_options: Options = field(default_factory=dict)
    problem: str = "supervised"  # a name of `fedsaddle list problems`
    problem_options: Options = field(default_factory=dict)
    evaluate_every: int = 1
    evaluate_train: bool = False
    select: str = ""  # the measure of validation rows that chooses the round; empty: the last round


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
class Tuning:
    """How the lines of a figure that name a `tuned` line are tuned: the same grid and budget for each.

    Every combination of the grid runs with seeds that are not used otherwise and is measured on held-out training rows.
    A value replaces the first value of a step that has a schedule, whose shape stays. Keys that a line does not have,
    such as the dual step of FedAvg, are left out of its grid.
    """

    column: str  # what is measured: the mean of this column over the last half of the rounds
    grid: Mapping[str, tuple[Any, ...]]  # options of the algorithm; "problem.KEY": of the problem
    falling: bool = False  # whether smaller is better
    share: float = 0.5  # of the rounds
    seeds: tuple[int, ...] = (1000, 1001)
    tolerance: float = 0.002  # relative to the best: of those within it the smallest steps are chosen
    only: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # key -> labels whose grid has it; absent: all


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
    looks: tuple[int, ...] = ()  # numbers of seeds at which verdicts are taken; empty: `seeds` alone
    tuning: Tuning | None = None
    tuned_by: str = ""  # another figure whose tuned values it takes
    minutes: float = 0.0  # of one core for one seed of all lines, from a short measured piece; 0: not measured

    @property
    def all_looks(self) -> tuple[int, ...]:
        """The looks; the first is at `seeds`."""
        return self.looks or (self.seeds,)

    def quick(self) -> Figure:
        """A shorter version for `--quick`: fewer seeds, and where rounds are expensive fewer rounds and clients."""
        lines = tuple(shortened(line, self.quick_share) for line in self.lines)
        setting = self.quick_setting or self.setting
        return replace(self, lines=lines, seeds=self.quick_seeds, setting=setting, looks=self.all_looks)


def shortened(line: Line, share: float) -> Line:
    """A line with a share of its rounds; the stages of its steps shrink alike."""
    if share == 1:
        return line

    def less(count: float) -> int:
        return max(1, round(count * share))

    options = dict(line.options)
    for key, value in line.options.items():
        if key in ("stage_rounds", "stage_steps") and isinstance(value, int):
            options[key] = less(value)
        elif isinstance(value, Mapping) and value.get("name") == "staged":
            options[key] = {**value, "stages": [[less(rounds), step] for rounds, step in value["stages"]]}
    every = line.evaluate_every and max(1, min(line.evaluate_every, less(line.rounds)))
    return replace(line, rounds=less(line.rounds), options=options, evaluate_every=every)


def with_first(step: object, value: object) -> object:
    """A step whose first value is `value`; the shape of a schedule stays.

    Examples:
        >>> with_first({"name": "staged", "stages": [[5, 0.5], [5, 0.25]]}, 1.0)
        {'name': 'staged', 'stages': [[5, 1.0], [5, 0.5]]}
    """
    if not isinstance(step, Mapping) or not isinstance(value, int | float):
        return value
    if step["name"] == "staged":
        first = step["stages"][0][1]
        return {**step, "stages": [[rounds, value * at / first] for rounds, at in step["stages"]]}
    return {**step, "c" if step["name"] == "power" else "first": value}
