"""The learning curves of a figure's runs: columns of numbers for each line and seed, and statistics of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.studies.pool import torch_threads

COSTS = ("round", "exchanges", "local_steps", "seconds")
STATISTICS = ("worst", "mean", "std", "global")
WINDOW = 10  # rounds of a running mean
LAST = 50  # rounds at the end of a run whose mean is its final level


def recorder(history: list[dict[str, Any]]) -> LambdaCallback:
    """A callback that appends each evaluation to the history, and shows no warnings."""
    return LambdaCallback(
        on_round=lambda done, record: None if record is None else history.append(record),
        on_warning=lambda text: None,
    )


@dataclass(frozen=True)
class RunCurves:
    """One run of a line with one seed: every column has a value for each evaluation."""

    label: str
    seed: int
    columns: dict[str, list[float]]
    diverged: int | None = None  # the round in which the run diverged
    selected: dict[str, float] = field(default_factory=dict)  # test measures of the round that validation rows chose
    processor: float = 0.0  # seconds of one core

    @classmethod
    def from_history(cls, label: str, seed: int, history: Sequence[Mapping[str, Any]]) -> RunCurves:
        """The columns of a run's history: costs, "test worst" (accuracy), "test loss worst" ..., pooled metrics.

        Where the data have validation rows, the pooled metrics are theirs.
        """
        columns = {key: [float(r[key]) for r in history] for key in COSTS}
        columns["bytes"] = [float(r["bytes_down"] + r["bytes_up"]) for r in history]
        for part in ("test", "train"):
            for measure in history[-1].get(part, {}):
                head = part if measure == "accuracy" else f"{part} {measure}"
                for statistic in STATISTICS:
                    columns[f"{head} {statistic}"] = [round(float(r[part][measure][statistic]), 6) for r in history]
        pooled = "pooled" if "pooled" in history[-1] else "pooled_validation"
        for measure in history[-1].get(pooled, {}):
            columns[measure] = [float(f"{r[pooled][measure]:.6g}") for r in history]
        return cls(label, seed, columns)

    def carried_forward(self, rounds: int, every: int, diverged: int) -> RunCurves:
        """A diverged run extended to its planned length: costs grow in proportion, metrics keep their last value."""
        missing = [min(r, rounds) for r in range(every, rounds + every, every)][len(self.columns["round"]) :]
        last = self.columns["round"][-1]
        columns = {
            name: values + [values[-1] * r / last if name in (*COSTS, "bytes") else values[-1] for r in missing]
            for name, values in self.columns.items()
        }
        return replace(self, columns=columns, diverged=diverged)

    def column(self, name: str) -> Floats:
        """A column as an array."""
        return np.asarray(self.columns[name], dtype=np.float64)

    def evaluations_in(self, rounds: int) -> int:
        """The number of evaluations in a window of `rounds` rounds; at least one, at most all."""
        spacing = self.columns["round"][1] - self.columns["round"][0] if len(self.columns["round"]) > 1 else 1
        return max(1, min(len(self.columns["round"]), int(rounds // spacing)))

    def running_mean(self, name: str, rounds: int) -> Floats:
        """The mean of a column over the preceding `rounds` rounds, at every evaluation."""
        return running_mean(self.column(name), self.evaluations_in(rounds))

    def final_level(self, name: str, rounds: int = LAST) -> float:
        """The mean of a column over the last `rounds` rounds."""
        return float(self.column(name)[-self.evaluations_in(rounds) :].mean())

    def value_at(self, name: str, place: float, *, window: int = WINDOW, unit: str = "round") -> float:
        """The running mean of a column at the last evaluation up to `place`, in rounds or another cost."""
        until = np.flatnonzero(self.column(unit) <= place)
        return float(self.running_mean(name, window)[until[-1] if len(until) else 0])

    def first_reached(
        self, name: str, target: float, *, window: int = 1, unit: str = "round", falling: bool = False
    ) -> float | None:
        """The cost at which the running mean first reaches `target`; None if it never does.

        Only full windows count. With `falling`, the target is reached from above.
        """
        full = self.evaluations_in(window) - 1
        at = first_crossing(self.running_mean(name, window)[full:], target, falling=falling)
        return None if at is None else float(self.column(unit)[full + at])


def timed(run: Callable[[], RunCurves]) -> RunCurves:
    """The curves of a run on one core, with the seconds that it took."""
    began = time.process_time()
    with torch_threads(1), np.errstate(over="ignore", invalid="ignore"):  # of a run that is about to diverge
        curves = run()
    return replace(curves, processor=round(time.process_time() - began, 2))


@dataclass(frozen=True)
class Runs:
    """All runs of a figure by label; the seeds of every label have the same order, so that runs are paired."""

    by_label: dict[str, tuple[RunCurves, ...]]

    @classmethod
    def of(cls, runs: Sequence[RunCurves]) -> Runs:
        """Group runs by label and sort each group by seed."""
        labels = dict.fromkeys(r.label for r in runs)
        return cls({k: tuple(sorted((r for r in runs if r.label == k), key=lambda r: r.seed)) for k in labels})

    def divergence_notes(self) -> list[str]:
        """One sentence for each run that diverged."""
        diverged = [r for seeds in self.by_label.values() for r in seeds if r.diverged is not None]
        return [f"{r.label}, seed {r.seed}: diverged in round {r.diverged}; its last metrics stand" for r in diverged]

    @property
    def seeds(self) -> int:
        """The number of seeds."""
        return len(next(iter(self.by_label.values()), ()))

    def __getitem__(self, label: str) -> tuple[RunCurves, ...]:
        return self.by_label[label]


def running_mean(values: Floats, window: int) -> Floats:
    """The mean of the last `window` values, or of all so far where there are fewer.

    Examples:
        >>> running_mean(np.array([1.0, 2.0, 3.0]), 2).tolist()
        [1.0, 1.5, 2.5]
    """
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def first_crossing(values: Floats, target: float, *, falling: bool = False) -> int | None:
    """The first index at which the values reach `target` up to rounding (1e-9); None if there is none.

    Examples:
        >>> first_crossing(np.array([0.1, 0.6, 0.4]), 0.5)
        1
    """
    beyond = values <= target + 1e-9 if falling else values >= target - 1e-9
    return int(np.argmax(beyond)) if beyond.any() else None
