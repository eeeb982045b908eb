"""One tuner for the methods of all figures: the same grid and budget for each, on held-out rows and held-out seeds.

`fedsaddle reproduce NAME --tune` runs it and keeps its log as JSON; `fedsaddle reproduce NAME` takes the chosen values
from there, or from the log that comes with the package.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedsaddle.errors import BadInput
from fedsaddle.files import make_folder, write_atomically
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.figure import Figure, Line, Options, Tuning, shortened, with_first
from fedsaddle_papers.reproductions.jobs import Job, run_jobs
from fedsaddle_papers.reproductions.store import Store

PACKAGED = Path(__file__).parent / "tuning_logs"
PROBLEM = "problem."

Candidate = dict[str, Any]  # a value for each tuned key
Log = dict[str, Any]


def keys_of(line: Line, tuning: Tuning) -> list[str]:
    """The keys of the grid that this line has."""

    def has(key: str) -> bool:
        if key in tuning.only:
            return line.label in tuning.only[key]
        if key.startswith(PROBLEM):
            return key.removeprefix(PROBLEM) in line.problem_options
        return key in line.options

    return [key for key in tuning.grid if has(key)]


def refined(values: tuple[float, ...], count: int) -> tuple[float, ...]:
    """A finer grid of `count` values with equal ratios, which begins and ends one step outside of `values`.

    Examples:
        >>> refined((0.1, 1.0), 4)
        (0.01, 0.1, 1.0, 10.0)
    """
    low, high = values[0] ** 2 / values[1], values[-1] ** 2 / values[-2]
    return tuple(float(f"{v:.3g}") for v in np.geomspace(low, high, count))


def budget_of(figure: Figure, tuning: Tuning) -> int:
    """The number of candidates of every line: what the line with the most keys of the grid has."""
    sizes = (math.prod(len(tuning.grid[k]) for k in keys_of(line, tuning)) for line in tuned_lines(figure))
    return max(sizes, default=0)


def candidates(line: Line, tuning: Tuning, budget: int) -> list[Candidate]:
    """Every combination of the grid that concerns the line, the smallest first.

    A line without some of the keys has a finer and wider grid of the first key, so that all lines have `budget`.
    """
    keys = keys_of(line, tuning)
    grid = {k: tuning.grid[k] for k in keys}
    times = budget // math.prod(map(len, grid.values())) if keys else 1
    if times > 1:
        grid[keys[0]] = refined(grid[keys[0]], times * len(grid[keys[0]]))
    return [dict(zip(keys, values, strict=True)) for values in itertools.product(*grid.values())]


def with_values(line: Line, chosen: Candidate) -> Line:
    """The line with these values."""
    own: Options = {
        key: with_first(line.options.get(key), value) for key, value in chosen.items() if not key.startswith(PROBLEM)
    }
    problem = {key.removeprefix(PROBLEM): value for key, value in chosen.items() if key.startswith(PROBLEM)}
    return replace(line, options={**line.options, **own}, problem_options={**line.problem_options, **problem})


def tuned_lines(figure: Figure) -> list[Line]:
    """The lines that are tuned themselves; others may take their values."""
    wanted = dict.fromkeys(line.tuned for line in figure.lines if line.tuned)
    by_label = {line.label: line for line in figure.lines}
    return [by_label[label] for label in wanted]


def tuning_jobs(figure: Figure, line: Line, tuning: Tuning) -> list[Job]:
    """The runs of one line: every candidate with every seed, tested on held-out training rows."""
    short = shortened(replace(line, data={**line.data, "validation": True}), tuning.share)
    return [
        Job(figure.setting, replace(with_values(short, c), label=f"{line.label} {i}"), seed)
        for i, c in enumerate(candidates(line, tuning, budget_of(figure, tuning)))
        for seed in tuning.seeds
    ]


def score(curves: RunCurves, tuning: Tuning) -> float:
    """The mean of the column over the last half of the rounds, larger is better; -inf for a run that diverged."""
    if curves.diverged is not None:
        return float("-inf")
    values = curves.column(tuning.column)
    mean = float(values[len(values) // 2 :].mean())
    if not np.isfinite(mean):
        return float("-inf")
    return -mean if tuning.falling else mean


def choose(found: list[Candidate], scores: list[float], tolerance: float) -> Candidate:
    """Of the candidates within the tolerance of the best, the first: the best itself may diverge with another seed.

    Raises:
        BadInput: if every candidate diverged.
    """
    best = max(scores)
    if not np.isfinite(best):
        raise BadInput("tuning", "grid", "every candidate diverged; let the grid begin with smaller steps")
    near = [c for c, s in zip(found, scores, strict=True) if s >= best - tolerance * abs(best)]
    return near[0]


def tune(name: str, figure: Figure, workers: int, store: Store | None, on_finish: Callable[[bool], None]) -> Log:
    """Tune every line of a figure that asks for it; returns the log, with every candidate and its scores."""
    tuning = figure.tuning
    if tuning is None:
        raise BadInput("tune", name, "this figure has nothing to tune; run it without --tune")
    lines = tuned_lines(figure)
    jobs = {line.label: tuning_jobs(figure, line, tuning) for line in lines}
    everything = [job for own in jobs.values() for job in own]
    everything.sort(key=lambda job: job.seed)
    curves = {(c.label, c.seed): c for c in run_jobs(everything, workers, on_finish, store)}
    log: Log = {"figure": name, "column": tuning.column, "falling": tuning.falling, "seeds": list(tuning.seeds)}
    log |= {"share": tuning.share, "tolerance": tuning.tolerance, "grid": {k: list(v) for k, v in tuning.grid.items()}}
    budget = budget_of(figure, tuning)
    log |= {"budget": budget, "lines": {line.label: _outcome(line, tuning, budget, curves) for line in lines}}
    return log


def _outcome(line: Line, tuning: Tuning, budget: int, curves: Mapping[tuple[str, int], RunCurves]) -> Log:
    found = candidates(line, tuning, budget)
    scores = [[score(curves[f"{line.label} {i}", seed], tuning) for seed in tuning.seeds] for i in range(len(found))]
    chosen = choose(found, [float(np.mean(own)) for own in scores], tuning.tolerance)
    return {
        "chosen": chosen,
        "candidates": [
            {"values": c, "scores": [round(s, 6) if np.isfinite(s) else None for s in own]}
            for c, own in zip(found, scores, strict=True)
        ],
    }


def at_the_ends(log: Log) -> dict[str, list[str]]:
    """The keys of each line whose chosen value is the smallest or the largest of at least three.

    Examples:
        >>> candidates = [{"values": {"primal_step": step}} for step in (0.1, 0.3, 1.0)]
        >>> at_the_ends({"lines": {"DRFA": {"chosen": {"primal_step": 1.0}, "candidates": candidates}}})
        {'DRFA': ['primal_step']}
    """
    found = {}
    for label, line in log["lines"].items():
        values = {key: sorted({c["values"][key] for c in line["candidates"]}) for key in line["chosen"]}
        ends = [k for k, v in line["chosen"].items() if len(values[k]) > 2 and v in (values[k][0], values[k][-1])]
        if ends:
            found[label] = ends
    return found


def job_count(figure: Figure) -> int:
    """How many runs the tuning of a figure takes."""
    tuning = figure.tuning
    if tuning is None:
        return 0
    budget = budget_of(figure, tuning)
    return sum(len(candidates(line, tuning, budget)) * len(tuning.seeds) for line in tuned_lines(figure))


def write_log(log: Log, folder: Path) -> Path:
    """Keep a log as JSON."""
    make_folder("out", folder)
    file = folder / f"{log['figure']}.json"
    write_atomically(file, json.dumps(log, ensure_ascii=False, indent=1).encode())
    return file


def find_log(name: str, folder: Path) -> Log | None:
    """The log of a figure from a folder, else from the package; None if there is none."""
    for place in (folder, PACKAGED):
        file = place / f"{name}.json"
        if file.is_file():
            try:
                log: Log = json.loads(file.read_text(encoding="utf-8"))
                return {**log, "lines": {k: {**v, "chosen": dict(v["chosen"])} for k, v in log["lines"].items()}}
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise BadInput("tuning", str(file), "cannot be read; remove it and tune again with --tune") from error
    return None


def with_tuned(figure: Figure, log: Log | None) -> tuple[Figure, list[str]]:
    """The figure with the chosen values, and a note for each line that has not been tuned yet."""
    lines, notes = [], []
    for line in figure.lines:
        own = None if log is None else log["lines"].get(line.tuned)
        if line.tuned and own is None:
            notes.append(f"{line.label}: not tuned yet, it has the values that the figure starts from")
        lines.append(line if own is None else with_values(line, own["chosen"]))
    return replace(figure, lines=tuple(lines)), notes
