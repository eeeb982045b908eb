"""What the runs of a figure leave: columns of numbers for each line and seed, and what is read off them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Floats = NDArray[np.float64]

COSTS = ("round", "exchanges", "local_steps", "seconds")
STATISTICS = ("worst", "mean", "std", "global")
WINDOW = 10  # rounds of a running mean
LAST = 50  # rounds at the end that make up a level


@dataclass(frozen=True)
class Track:
    """One run: a row of every column for each evaluation."""

    label: str
    seed: int
    columns: dict[str, list[float]]
    diverged: int | None = None  # in which round

    @classmethod
    def of(cls, label: str, seed: int, history: Sequence[Mapping[str, Any]]) -> Track:
        """Read a history: costs, "test worst" (of accuracy), "test loss worst" ..., and pooled measures by name."""
        columns = {key: [float(r[key]) for r in history] for key in COSTS}
        columns["bytes"] = [float(r["bytes_down"] + r["bytes_up"]) for r in history]
        for part in ("test", "train"):
            for measure in history[-1].get(part, {}):
                head = part if measure == "accuracy" else f"{part} {measure}"
                for statistic in STATISTICS:
                    columns[f"{head} {statistic}"] = [round(float(r[part][measure][statistic]), 6) for r in history]
        for measure in history[-1].get("pooled", {}):
            columns[measure] = [float(f"{r['pooled'][measure]:.6g}") for r in history]
        return cls(label, seed, columns)

    def held(self, rounds: int, every: int, diverged: int) -> Track:
        """To the end of a run that diverged: costs go on as they did, and the last finite measures stand."""
        missing = [min(r, rounds) for r in range(every, rounds + every, every)][len(self.columns["round"]) :]
        last = self.columns["round"][-1]
        columns = {
            name: values + [values[-1] * r / last if name in (*COSTS, "bytes") else values[-1] for r in missing]
            for name, values in self.columns.items()
        }
        return Track(self.label, self.seed, columns, diverged)

    def column(self, name: str) -> Floats:
        """A column as an array."""
        return np.asarray(self.columns[name], dtype=np.float64)

    def evaluations(self, rounds: int) -> int:
        """How many evaluations fall into so many rounds; at least one."""
        spacing = self.columns["round"][1] - self.columns["round"][0] if len(self.columns["round"]) > 1 else 1
        return max(1, min(len(self.columns["round"]), int(rounds // spacing)))

    def smooth(self, name: str, rounds: int) -> Floats:
        """The running mean of a column over the last `rounds` rounds."""
        return running_mean(self.column(name), self.evaluations(rounds))

    def level(self, name: str, rounds: int = LAST) -> float:
        """The mean of a column over the last rounds of the run."""
        return float(self.column(name)[-self.evaluations(rounds) :].mean())

    def at(self, name: str, place: float, *, window: int = WINDOW, unit: str = "round") -> float:
        """The running mean of a column at a round or a local step: at the last evaluation until then."""
        until = np.flatnonzero(self.column(unit) <= place)
        return float(self.smooth(name, window)[until[-1] if len(until) else 0])

    def reached(
        self, name: str, target: float, *, window: int = 1, unit: str = "round", falling: bool = False
    ) -> float | None:
        """Where the running mean first gets to `target`, in rounds or local steps; None if it never does."""
        full = self.evaluations(window) - 1  # windows that are not yet full do not count
        at = first_hit(self.smooth(name, window)[full:], target, falling=falling)
        return None if at is None else float(self.column(unit)[full + at])


@dataclass(frozen=True)
class Tracks:
    """All runs of a figure; the seeds of every label are in the same order, so that runs can be paired."""

    by_label: dict[str, tuple[Track, ...]]

    @classmethod
    def of(cls, tracks: Sequence[Track]) -> Tracks:
        """Sort them by label and seed."""
        labels = dict.fromkeys(t.label for t in tracks)
        return cls({k: tuple(sorted((t for t in tracks if t.label == k), key=lambda t: t.seed)) for k in labels})

    def diverged(self) -> list[str]:
        """In words, which runs diverged."""
        runs = [t for seeds in self.by_label.values() for t in seeds if t.diverged is not None]
        return [f"{t.label}, seed {t.seed}: diverged in round {t.diverged}; its last measure stands" for t in runs]

    def __getitem__(self, label: str) -> tuple[Track, ...]:
        return self.by_label[label]


def running_mean(values: Floats, window: int) -> Floats:
    """The mean of the last `window` values; of fewer at the start."""
    sums = np.cumsum(np.concatenate([[0.0], values]))
    ends = np.arange(1, len(values) + 1)
    begins = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[begins]) / (ends - begins))


def first_hit(values: Floats, target: float, *, falling: bool = False) -> int | None:
    """The first place where the values are at `target` or beyond, but for rounding; None if there is none."""
    beyond = values <= target + 1e-9 if falling else values >= target - 1e-9
    return int(np.argmax(beyond)) if beyond.any() else None


def interval(values: Floats) -> tuple[Floats, Floats, Floats]:
    """Mean, low and high end of the 95 % t-interval over the first axis; one value alone gives a band of NaN."""
    n = len(values)
    mean = values.mean(axis=0)
    if n < 2:
        return mean, mean * np.nan, mean * np.nan
    half = stdtrit(n - 1, 0.975) * values.std(axis=0, ddof=1) / np.sqrt(n)
    return mean, mean - half, mean + half
