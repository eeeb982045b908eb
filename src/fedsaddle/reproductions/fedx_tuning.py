"""A grid search for the steps and λ of FedX's reproductions, on held-out training rows.

`python -m fedsaddle.reproductions.fedx_tuning` prints, as JSON lines, the metric of every step and λ for every method
on every task; the chosen values are `TUNED` in fedx_tasks.py. The seed differs from those of the reproductions, and the
official test rows are not used.
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
from fedsaddle.reproductions.fedx_tasks import ROUNDS, TASKS, Tuned, has_temperature, line, methods, setting
from fedsaddle.reproductions.pool import Job, run_job

TOLERANCE = 0.005  # below the best metric; half a percentage point
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
TEMPERATURES = (1.0, 5.0)  # λ: the ends of the paper's range
SEED = 100


def grid(task: str, method: str) -> list[Tuned]:
    """The candidates: the same steps for every method, and the same λ for every method that has one."""
    return [Tuned(η, λ) for λ in (TEMPERATURES if has_temperature(task, method) else (1.0,)) for η in STEPS]


def tuning_job(task: str, method: str, candidate: Tuned, rounds: int) -> Job:
    """A run of a candidate, tested on rows held out of the training rows."""
    one = line(task, method, candidate, rounds)
    return Job(setting(), replace(one, data={**one.data, "validation": True}, evaluate_every=rounds), SEED)


def final_metric(job: Job, metric: str) -> float:
    """The metric after the last round; 0 for a run that diverges."""
    try:
        curves = run_job(job)
    except Diverged:
        return 0.0
    return curves.columns[metric][-1] if curves.diverged is None else 0.0


def choose(candidates: Sequence[Tuned], values: Sequence[float]) -> Tuned:
    """The smallest step within the tolerance of the best: the best one itself may diverge with another seed."""
    near = [(c.step, -v, c) for c, v in zip(candidates, values, strict=True) if v >= max(values) - TOLERANCE]
    return min(near)[2]


def main(argv: Sequence[str] | None = None) -> None:
    """Tune every method on the given tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="such as 'CIFAR-10, flipped'; by default all")
    parser.add_argument("--rounds", type=int, default=ROUNDS // 2, help="of every run (%(default)s)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes (%(default)s)")
    arguments = parser.parse_args(argv)
    unknown = [task for task in arguments.tasks if task not in TASKS]
    if unknown:
        parser.error(f"{unknown[0]!r} is no task; choose among {', '.join(map(repr, TASKS))}")
    with ProcessPoolExecutor(arguments.workers, get_context("spawn")) as pool:
        for task in arguments.tasks:
            metric = TASKS[task].metric
            for method in methods(TASKS[task].risk):
                candidates = grid(task, method)
                jobs = [tuning_job(task, method, c, arguments.rounds) for c in candidates]
                values = list(pool.map(final_metric, jobs, [metric] * len(jobs)))
                best = choose(candidates, values)
                shown = {f"{c.step:g}, λ = {c.temperature:g}": v for c, v in zip(candidates, values, strict=True)}
                print(json.dumps({"task": task, "method": method, metric: shown, "chosen": best}, ensure_ascii=False))


if __name__ == "__main__":
    main()
