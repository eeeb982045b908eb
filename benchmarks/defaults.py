"""Which defaults serve best: candidates for the defaults of an algorithm on the tasks of `fedsaddle benchmark`.

FEDSADDLE_DATA=... python benchmarks/defaults.py [case ...] [--seeds 3]

Nothing is tuned: every candidate runs as it is on every task, as it would for a user who changes nothing. Measured are
training rows that are held out, with seeds that no other figure of the documentation has. The first candidate is the
comparison: what is printed is its figure and the paired difference of each other one, in points, with a 95 % t interval
over seeds, and in the last column the mean over tasks. A run that diverges keeps its last finite figure; one that has
none counts as chance.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsaddle.metrics.intervals import t_interval
from fedsaddle.processes import cores
from fedsaddle.studies.pool import Pool
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.suites.jobs import VALIDATION, Job, config_of, run_job
from fedsaddle_papers.suites.ranking import final_level
from fedsaddle_papers.suites.rare_positives import TASKS as RARE
from fedsaddle_papers.suites.suite import Method, Task
from fedsaddle_papers.suites.worst_client import TASKS as WORST

FIRST_SEED = 2000


def drfa(weighting: str, dual: float, primal: float = 0.1) -> dict[str, Any]:
    """A candidate for DRFA."""
    return {"name": "DRFA", "weighting": weighting, "dual_step": dual, "primal_step": primal}


def codasca(sigmoid: bool, step: float) -> Method:
    """A candidate for CODASCA."""
    first = {"name": "geometric", "first": step, "factor": 1 / 3}
    options = {"name": "CODASCA", "primal_step": first}
    label = f"{'sigmoid' if sigmoid else 'plain'} scores, step {step:g}"
    return Method(label, options, ({},), {"name": "auc", "sigmoid": sigmoid})


CASES: dict[str, tuple[tuple[Task, ...], list[Method]]] = {
    "drfa": (
        WORST,
        [
            Method(f"{how}, γ = {dual:g}, η = {primal:g}", drfa(how, dual, primal), ({},), exchanges=2)
            for how, dual, primal in (
                ("sample", 8e-3, 0.1), ("weight", 8e-3, 0.1), ("weight", 2e-3, 0.1), ("weight", 5e-4, 0.1),
                ("weight", 2e-3, 0.03), ("weight", 5e-4, 0.03),
            )
        ],
    ),
    "codasca": (RARE, [codasca(s, t) for s, t in ((False, 0.1), (False, 0.03), (True, 0.1), (True, 0.3), (True, 1.0))]),
    "fedx1": (
        RARE,
        [
            Method(f"step {s:g}", {"name": "FedX1", "primal_step": s}, ({},), {"name": "pairwise", "risk": "auc"})
            for s in (0.03, 0.1, 0.3)
        ],
    ),
}  # fmt: skip


def job(task: Task, method: Method, seed: int) -> Job:
    """A run that is measured on held-out training rows."""
    config = config_of(task, method, {}, task.exchanges, seed)
    config["data"]["validation_share"] = VALIDATION
    return Job(f"{task.name}|{method.label}|{seed}", config, task.seconds)


def level(task: Task, curves: RunCurves) -> float:
    """The first measure at the end, in points."""
    found = 100 * final_level(curves, task.measures[0])
    return found if np.isfinite(found) else (50.0 if "auroc" in task.measures[0] else 0.0)


def table(tasks: tuple[Task, ...], methods: list[Method], found: Mapping[str, RunCurves], seeds: range) -> None:
    """Print a case as Markdown."""
    print("| candidate |", " | ".join(task.name for task in tasks), "| mean |")
    print("| --- |" + " ---: |" * (len(tasks) + 1))
    levels = {
        (t.name, m.label): np.array([level(t, found[f"{t.name}|{m.label}|{seed}"]) for seed in seeds])
        for t in tasks
        for m in methods
    }
    first = methods[0].label
    own = [levels[t.name, first].mean() for t in tasks]
    print(f"| {first} |", " | ".join(f"{v:.1f}" for v in own), f"| {np.mean(own):.1f} |")
    for method in methods[1:]:
        apart = [levels[t.name, method.label] - levels[t.name, first] for t in tasks]
        cells = ["{:+.1f} [{:+.1f}, {:+.1f}]".format(*t_interval(one)) for one in apart]
        print(f"| {method.label} |", " | ".join(cells), f"| {np.mean([one.mean() for one in apart]):+.1f} |")


def main() -> None:
    """Run the cases, and print a table for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("case", nargs="*", help=", ".join(CASES))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    seeds = range(FIRST_SEED, FIRST_SEED + arguments.seeds)
    for name in arguments.case or CASES:
        tasks, methods = CASES[name]
        jobs = [job(task, method, seed) for task in tasks for seed in seeds for method in methods]
        with Pool(run_job, cores()) as pool:
            found = {one.label: curves for one, curves in pool.run(jobs)}
        print(f"\n{name}\n")
        table(tasks, methods, found, seeds)


if __name__ == "__main__":
    main()
