"""The steps and λ of FedX's reproductions: for each method the smallest step near the best on held-out training rows.

`python -m fedsaddle.reproductions.fedx_tuning` prints, as JSON lines, the measure of every step and λ with every method
on every task; the chosen ones stand in fedx_tuned.py. The seed is none of those that the reproductions use, and the
official test rows are not looked at.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context

from fedsaddle.errors import Diverged
from fedsaddle.reproductions.fedx_lines import ROUNDS, TASKS, line, methods, setting, tempered
from fedsaddle.reproductions.fedx_tuned import Tuned
from fedsaddle.reproductions.jobs import Job, run_job

NEAR = 0.005  # half a point
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
TEMPERATURES = (1.0, 5.0)  # the ends of the paper's range
SEED = 100


def grid(task: str, method: str) -> list[Tuned]:
    """The same steps for every method, and the same λ for every method that has one."""
    return [Tuned(η, λ) for λ in (TEMPERATURES if tempered(task, method) else (1.0,)) for η in STEPS]


def job(task: str, method: str, how: Tuned, rounds: int) -> Job:
    """A method as it may be tuned, tested on rows held out of the training rows."""
    one = line(task, method, how, rounds)
    return Job(setting(), replace(one, data={**one.data, "validation": True}, evaluate_every=rounds), SEED)


def measured(job: Job, measure: str) -> float:
    """The measure at the end; 0 for a run that diverges."""
    try:
        track = run_job(job)
    except Diverged:
        return 0.0
    return track.columns[measure][-1] if track.diverged is None else 0.0


def chosen(tried: Sequence[Tuned], found: Sequence[float]) -> Tuned:
    """The smallest step whose measure is near the best: the best one itself may diverge with the next seed."""
    near = [(how.step, -value, how) for how, value in zip(tried, found, strict=True) if value >= max(found) - NEAR]
    return min(near)[2]


def main(given: Sequence[str] | None = None) -> None:
    """Tune every method on the tasks that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="such as 'CIFAR-10, flipped'; by default all")
    parser.add_argument("--rounds", type=int, default=ROUNDS // 2, help="of every run (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    asked = parser.parse_args(given)
    unknown = [task for task in asked.tasks if task not in TASKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no task; choose among {', '.join(map(repr, TASKS))}")
    with ProcessPoolExecutor(asked.workers, get_context("spawn")) as pool:
        for task in asked.tasks:
            measure = TASKS[task].measure
            for method in methods(TASKS[task].risk):
                tried = grid(task, method)
                jobs = [job(task, method, how, asked.rounds) for how in tried]
                found = list(pool.map(measured, jobs, [measure] * len(jobs)))
                best = chosen(tried, found)
                shown = {f"{how.step:g}, λ = {how.temperature:g}": v for how, v in zip(tried, found, strict=True)}
                print(json.dumps({"task": task, "method": method, measure: shown, "chosen": best}, ensure_ascii=False))


if __name__ == "__main__":
    main()
