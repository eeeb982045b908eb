"""From runs to a table: means with intervals, ranks, and who cannot be told from the best.

- **Final level**: the mean of a measure over the last fifth of the evaluations of a run.
- **Interval** of a mean: 95 %, Student's, over seeds. Measures that fall over orders of magnitude have geometric means.
- **Marks**: in each task, every method is compared with the one of the best mean by paired differences over seeds,
  one-sided, with Holm's procedure over the methods; those that are not significantly worse are marked with it.
- **Gain**: the paired difference to the suite's first method over seeds, with its own interval of 95 %, not corrected
  for the number of methods; a ratio for measures that fall over orders of magnitude.
- **Mean rank**: the mean of the ranks within every task and seed, 1 is best, ties share theirs. Its interval is a
  bootstrap of the seeds within each task: it covers the luck of splits, models and batches on these tasks, not the
  choice of the tasks. The critical difference of Nemenyi's test takes the tasks as the sample.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import stats

from fedsaddle.array_types import Floats
from fedsaddle.metrics.intervals import t_interval
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.verdicts import holm
from fedsaddle_papers.suites.run import Results
from fedsaddle_papers.suites.suite import falls

LAST = 0.2  # share of the evaluations whose mean is the final level
ALPHA = 0.05
DRAWS = 2000  # of the bootstrap
SMALLEST = 1e-300  # of which a logarithm is taken
FEWEST = 3  # seeds with which methods are marked and have intervals: those of two are wider than all figures
COSTS = ("exchanges", "bytes", "local_steps")


@dataclass(frozen=True)
class Cell:
    """A method on a task."""

    values: tuple[float, ...]  # the final level of the first measure for each seed; NaN: no figure
    mean: float
    low: float
    high: float
    best: bool  # the best, or not distinguishable from it
    gain: tuple[float, float, float]  # over the first method, with its interval; NaN: fewer than three pairs
    others: Mapping[str, float]  # means of the other measures
    costs: Mapping[str, float]  # means of one run: exchanges, bytes, local steps, processor seconds
    diverged: int


@dataclass(frozen=True)
class Rank:
    """A method over all tasks."""

    mean: float
    low: float
    high: float
    best_on: int  # tasks on which it is marked
    costs: Mapping[str, float]  # means over tasks


@dataclass(frozen=True)
class Ranking:
    """All that the table shows; the ranks are ordered, the best first."""

    cells: Mapping[tuple[str, str], Cell]
    ranks: Mapping[str, Rank]
    critical_difference: float  # of mean ranks over tasks (Nemenyi, 5 %); NaN for a single task
    friedman: float  # p-value; NaN for fewer than two tasks or three methods


def final_level(curves: RunCurves, column: str) -> float:
    """The mean over the last fifth of the evaluations; NaN where there is no finite one."""
    if column not in curves.columns:
        return float("nan")
    values = curves.column(column)
    last = values[-max(1, round(len(values) * LAST)) :]
    return float(last.mean()) if np.isfinite(last).all() else float("nan")


def ranked(results: Results) -> Ranking:
    """The ranking of a suite that has been run."""
    suite = results.suite
    labels = [method.label for method in suite.methods]
    cells: dict[tuple[str, str], Cell] = {}
    scores = []  # of each task: (methods, seeds), larger is better
    for task in suite.tasks:
        column, sign = task.measures[0], -1.0 if falls(task.measures[0]) else 1.0
        found = {m: results.curves.get((task.name, m), ()) for m in labels}
        table = np.array([_levels(found[m], column, suite.seeds) for m in labels])
        marks = near_best(sign * _compared(column, table))
        for label, values, mark in zip(labels, table, marks, strict=True):
            cell = _cell(values, mark, found[label], task.measures[1:], column)
            cells[task.name, label] = replace(cell, gain=gain(values, table[0], by_ratio(column)))
        scores.append(np.nan_to_num(sign * table, nan=-np.inf))
    ranks = [ranks_of(own) for own in scores]
    means, low, high = bootstrap(ranks)
    order = np.argsort(means, kind="stable")
    by_task = np.array([own.mean(1) for own in ranks])
    made = {
        labels[i]: Rank(
            float(means[i]),
            float(low[i]),
            float(high[i]),
            sum(cells[task.name, labels[i]].best for task in suite.tasks),
            _mean_costs([cells[task.name, labels[i]] for task in suite.tasks]),
        )
        for i in order
    }
    return Ranking(cells, made, critical_difference(len(labels), len(ranks)), friedman(by_task))


def _levels(runs: Sequence[RunCurves], column: str, seeds: int) -> list[float]:
    by_seed = {curves.seed: final_level(curves, column) for curves in runs}
    return [by_seed.get(seed, float("nan")) for seed in range(seeds)]


def gain(values: Floats, baseline: Floats, ratio: bool) -> tuple[float, float, float]:
    """The mean of the paired differences, or the geometric mean of the ratios, and the ends of its interval.

    Examples:
        >>> gain(np.array([0.5, 1.0, 0.5]), np.array([0.25, 0.75, 0.25]), False)
        (0.25, 0.25, 0.25)
    """
    own, other = (np.log(np.maximum(v, SMALLEST)) if ratio else v for v in (values, baseline))
    apart = own - other
    there = apart[np.isfinite(apart)]
    if len(there) < FEWEST:
        return (float("nan"),) * 3
    mean, low, high = (float(np.exp(v) if ratio else v) for v in t_interval(there))
    return mean, low, high


def by_ratio(column: str) -> bool:
    """Whether a measure falls over orders of magnitude, such as a squared gradient: its ratios are compared."""
    return falls(column) and "loss" not in column


def _compared(column: str, table: Floats) -> Floats:
    return np.log(np.maximum(table, SMALLEST)) if by_ratio(column) else table


def _cell(values: Floats, mark: bool, runs: Sequence[RunCurves], others: Sequence[str], column: str) -> Cell:
    there, ratio = values[np.isfinite(values)], by_ratio(column)
    if ratio:  # the geometric mean
        there = np.log(np.maximum(there, SMALLEST))
    found = t_interval(there, share=not falls(column)) if len(there) else (np.nan,) * 3
    mean, low, high = (float(np.exp(v) if ratio else v) for v in found)
    if len(there) < FEWEST:
        low = high = float("nan")
    more = {name: float(np.mean([final_level(c, name) for c in runs])) for name in others} if runs else {}
    costs = {}
    if runs:
        costs = {k: float(np.mean([c.columns[k][-1] for c in runs if k in c.columns] or [np.nan])) for k in COSTS}
        costs["seconds"] = float(np.mean([c.processor for c in runs]))
    diverged = sum(c.diverged is not None for c in runs)
    return Cell(tuple(values.tolist()), mean, low, high, mark, (np.nan,) * 3, more, costs, diverged)


def _mean_costs(cells: Sequence[Cell]) -> dict[str, float]:
    return {
        key: float(np.mean([cell.costs[key] for cell in cells if key in cell.costs] or [np.nan]))
        for key in (*COSTS, "seconds")
    }


def near_best(scores: Floats) -> list[bool]:
    """Which methods are the best, or not significantly worse: scores (methods, seeds), larger is better.

    None are marked with fewer than 3 seeds, which tell nothing.

    Examples:
        >>> near_best(np.array([[3.0, 3.1, 2.9], [1.0, 1.2, 0.9], [2.8, 3.3, 2.7]]))
        [True, False, True]
    """
    means = np.array([own.mean() if np.isfinite(own).all() else -np.inf for own in scores])
    if not np.isfinite(means).any() or scores.shape[1] < FEWEST:
        return [False] * len(scores)
    top = int(np.argmax(means))
    others = [i for i in range(len(scores)) if i != top]
    worse = holm([_p_worse(scores[top], scores[i]) for i in others], ALPHA)
    rejected = {i for i, one in zip(others, worse, strict=True) if one}
    return [bool(np.isfinite(means[i])) and i not in rejected for i in range(len(scores))]


def _p_worse(best: Floats, other: Floats) -> float:
    """One-sided p-value of "not worse than the best", paired by seed."""
    if not np.isfinite(other).all():
        return 0.0
    apart = best - other
    error = apart.std(ddof=1) / len(apart) ** 0.5
    if error == 0:
        return 0.0 if apart.mean() > 0 else 1.0
    return float(stats.t.sf(apart.mean() / error, len(apart) - 1))


def ranks_of(scores: Floats) -> Floats:
    """Ranks of the methods within each seed, 1 for the largest score; ties share the mean of theirs.

    Examples:
        >>> ranks_of(np.array([[0.9], [0.7], [0.9]])).ravel().tolist()
        [1.5, 3.0, 1.5]
    """
    return np.asarray(stats.rankdata(-scores, axis=0))


def bootstrap(ranks: Sequence[Floats], draws: int = DRAWS) -> tuple[Floats, Floats, Floats]:
    """Mean ranks over tasks and seeds, and the ends of their 95 % bootstrap intervals.

    In each draw, every task draws its seeds anew with replacement, the same ones for all methods; tasks stay.
    """
    rng = np.random.default_rng(0)
    means = np.mean([own.mean(1) for own in ranks], axis=0)
    if ranks[0].shape[1] < FEWEST:
        return means, means * np.nan, means * np.nan
    drawn = np.zeros((draws, len(means)))
    for own in ranks:
        at = rng.integers(0, own.shape[1], (draws, own.shape[1]))
        drawn += own[:, at].mean(2).T / len(ranks)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0)
    return means, low, high


def critical_difference(methods: int, tasks: int) -> float:
    """Nemenyi's: two methods whose mean ranks over the tasks are closer cannot be told apart at 5 %.

    `q_{0.05} sqrt(k (k + 1) / (6 N))` with the studentised range of k methods.

    Examples:
        >>> round(critical_difference(4, 10), 2)
        1.48
    """
    if tasks < 2 or methods < 2:
        return float("nan")
    q = float(stats.studentized_range.ppf(1 - ALPHA, methods, np.inf)) / 2**0.5
    return float(q * (methods * (methods + 1) / (6 * tasks)) ** 0.5)


def friedman(by_task: Floats) -> float:
    """The p-value of "all methods are alike", over tasks (tasks, methods)."""
    if by_task.shape[0] < 2 or by_task.shape[1] < 3 or (by_task == by_task[:, :1]).all():
        return float("nan")
    return float(stats.friedmanchisquare(*by_task.T).pvalue)


def plain(ranking: Ranking, results: Results) -> dict[str, Any]:
    """The ranking as JSON."""
    tasks = [
        {
            "task": task.name,
            "measure": task.measures[0],
            "falling": falls(task.measures[0]),
            "methods": {
                label: {
                    "mean": cell.mean,
                    "low": cell.low,
                    "high": cell.high,
                    "near_best": cell.best,
                    "gain": list(cell.gain),
                    "values": list(cell.values),
                    "diverged": cell.diverged,
                    "other": dict(cell.others),
                    **dict(cell.costs),
                }
                for label in ranking.ranks
                for cell in [ranking.cells[task.name, label]]
            },
        }
        for task in results.suite.tasks
    ]
    ranks = {
        label: {"rank": r.mean, "low": r.low, "high": r.high, "near_best_on": r.best_on, **r.costs}
        for label, r in ranking.ranks.items()
    }
    return {
        "baseline": results.suite.baseline,
        "ranks": ranks,
        "tasks": tasks,
        "critical_difference": ranking.critical_difference,
        "friedman_p": ranking.friedman,
    }
