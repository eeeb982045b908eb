"""Run a benchmark: tune every method on every task, then run what was chosen with every seed; nothing runs twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from fedsaddle.errors import FedSaddleError, MissingData
from fedsaddle.studies.pool import MOST_WORKERS, Pool, Run, WorkFailed, stored_or_run
from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.reproductions.figure import Tuning
from fedsaddle_papers.reproductions.store import Store
from fedsaddle_papers.reproductions.tuning import score
from fedsaddle_papers.suites.jobs import Job, check_task, final_job, run_job, tuning_jobs
from fedsaddle_papers.suites.suite import DUAL, PRIMAL, SERVER, Candidate, Suite, Task, falls

HALF_A_POINT, CLEARLY_LESS = 0.005, 0.9  # what a longer or shorter step must gain to be worth a note

Finished = Callable[[Job, bool], None]  # the second: whether it was stored
Runner = Run[Job, RunCurves]


@dataclass(frozen=True)
class Tuned:
    """What the tuner found for a method on a task."""

    chosen: Candidate | None  # None: every candidate diverged
    scores: tuple[float, ...]  # of the candidates on held-out rows, larger is better; -inf: diverged
    edge: bool = False  # whether its step is at the end of the grid, and clearly ahead of the next one
    processor: float = 0.0  # seconds of one core, of all candidates


@dataclass(frozen=True)
class Results:
    """A suite that has been run."""

    suite: Suite  # with the tasks that could be run
    tuned: dict[tuple[str, str], Tuned]  # by task and method
    curves: dict[tuple[str, str], tuple[RunCurves, ...]]  # by task and method, one a seed
    left_out: dict[str, str]  # tasks without data, and the remedy
    seconds: float = 0.0  # of this call; runs that were stored take none

    @property
    def processor(self) -> float:
        """Seconds of one core of all runs, those that tuned and the final ones, whenever they ran."""
        tuned = sum(one.processor for one in self.tuned.values())
        return tuned + sum(curves.processor for own in self.curves.values() for curves in own)

    @property
    def notes(self) -> list[str]:
        """What a reader must know: tasks left out, runs that diverged, choices at the edge of the grid."""
        found = [f"{task}: left out; {why}" for task, why in self.left_out.items()]
        for (task, method), tuned in self.tuned.items():
            if tuned.chosen is None:
                found.append(f"{task}, {method}: every candidate diverged; it is ranked last")
        for (task, method), own in self.curves.items():
            diverged = [c for c in own if c.diverged is not None]
            none = sum(not c.columns for c in diverged)
            if diverged:
                without = f", {none} had none and rank last" if none else ""
                found.append(
                    f"{task}, {method}: diverged with {len(diverged)} of {len(own)} seeds; last figures stand{without}"
                )
        edges = [f"{method} on {task}" for (task, method), tuned in self.tuned.items() if tuned.edge]
        if edges and self.suite.budget > 2:
            found.append(f"chosen at the end of the grid and clearly ahead of the next step: {'; '.join(edges)}")
        return found


def available(suite: Suite) -> tuple[Suite, dict[str, str]]:
    """The suite with the tasks whose data are here, and why others are left out.

    Raises:
        MissingData: if no task can be run.
    """
    why = {task.name: check_task(suite, task) for task in suite.tasks}
    kept = tuple(task for task in suite.tasks if not why[task.name])
    if not kept:
        raise MissingData(f"no task of {suite.name} can be run: {next(iter(why.values()))}")
    return replace(suite, tasks=kept), {name: reason for name, reason in why.items() if reason}


def all_jobs(suite: Suite) -> list[Job]:
    """Every run, with the first candidate in the place of the chosen one: for estimates and totals."""
    found = []
    for task in suite.tasks:
        for method in suite.methods:
            found += [job for at in range(suite.budget) for job in tuning_jobs(suite, task, method, at)]
            found += [final_job(suite, task, method, method.candidates[0], seed) for seed in range(suite.seeds)]
    return found


def run_suite(
    suite: Suite, left_out: dict[str, str], store: Store, runner: Runner, finished: Finished = lambda job, stored: None
) -> Results:
    """Tune, then run; every run is stored as it ends, and taken from there the next time.

    Args:
        suite: with the tasks whose data are here.
        left_out: the other tasks, and why.
        store: of finished runs.
        runner: runs jobs, such as `on_cores(2)`.
        finished: told of each run that has ended, or was stored.
    """
    pairs = [(task, method) for task in suite.tasks for method in suite.methods]
    jobs = {(t.name, m.label): [tuning_jobs(suite, t, m, i) for i in range(suite.budget)] for t, m in pairs}
    every = [job for own in jobs.values() for candidate in own for job in candidate]
    every.sort(key=lambda job: (job.label.partition("|")[0], job.seed))  # so that consecutive ones share their rows
    found = _curves_of(every, store, runner, finished)
    tuned = {
        (t.name, m.label): choose(
            t, m.candidates, [[found[job.name] for job in candidate] for candidate in jobs[t.name, m.label]]
        )
        for t, m in pairs
    }
    finals: dict[tuple[str, str], list[Job]] = {}
    for seed in range(suite.seeds):  # whole seeds early
        for t, m in pairs:
            chosen = tuned[t.name, m.label].chosen
            if chosen is not None:
                finals.setdefault((t.name, m.label), []).append(final_job(suite, t, m, chosen, seed))
    order = sorted((job for own in finals.values() for job in own), key=lambda job: job.label.partition("|")[0])
    found = _curves_of(order, store, runner, finished)
    curves = {key: tuple(found[job.name] for job in own) for key, own in finals.items()}
    return Results(suite, tuned, curves, left_out)


def _curves_of(jobs: Sequence[Job], store: Store, runner: Runner, finished: Finished) -> dict[str, RunCurves]:
    """The curves of all jobs by name."""
    found = stored_or_run(jobs, store, runner, finished)
    return {job.name: curves for job, curves in zip(jobs, found, strict=True)}


def choose(task: Task, candidates: Sequence[Candidate], runs: Sequence[Sequence[RunCurves]]) -> Tuned:
    """The candidate with the best mean over the last half of its runs, by the task's first measure.

    Args:
        task: whose first measure counts.
        candidates: of one method.
        runs: of each candidate, one a seed; a candidate is as bad as its worst if that diverged.
    """
    how = Tuning(task.measures[0], {}, falling=falls(task.measures[0]))
    scores = tuple(float(np.mean([score(curves, how) for curves in own])) for own in runs)
    at, processor = int(np.argmax(scores)), sum(curves.processor for own in runs for curves in own)
    if not np.isfinite(scores[at]):
        return Tuned(None, scores, processor=processor)
    return Tuned(candidates[at], scores, at_the_edge(candidates, scores, at), processor)


def at_the_edge(candidates: Sequence[Candidate], scores: Sequence[float], at: int) -> bool:
    """Whether the step is at the end of its grid and clearly ahead of the next one, so that a wider grid might pay.

    The step of the clients; of the server, where the clients' is given. Only candidates that have the same other
    values count. Clearly: by half a point; by 10 % where small values are good.

    Examples:
        >>> from fedsaddle_papers.suites.suite import steps
        >>> grid = steps(0.1, 0.3, 1.0)
        >>> at_the_edge(grid, [0.7, 0.8, 0.9], 2), at_the_edge(grid, [0.7, 0.899, 0.9], 2)
        (True, False)
    """

    def rest(candidate: Candidate) -> dict[str, Any]:
        return {key: value for key, value in candidate.items() if key not in (PRIMAL, DUAL, SERVER)}

    chosen = candidates[at]
    alike = [i for i, candidate in enumerate(candidates) if rest(candidate) == rest(chosen)]
    for key in (PRIMAL, SERVER):
        grid = sorted({candidates[i][key] for i in alike if key in candidates[i]})
        if len(grid) > 1:
            if chosen[key] not in (grid[0], grid[-1]):
                return False
            beside = grid[1] if chosen[key] == grid[0] else grid[-2]
            near = max(scores[i] for i in alike if candidates[i][key] == beside)
            best = scores[at]
            return best - near > HALF_A_POINT if best > 0 else -best < CLEARLY_LESS * -near
    return False


def on_cores(workers: int) -> Runner:
    """A runner on so many processes of this machine."""

    def runner(jobs: Sequence[Job], ended: Callable[[Job, RunCurves], None]) -> list[tuple[Job, RunCurves]]:
        with Pool[Job, None, RunCurves](run_job, min(workers, MOST_WORKERS)) as pool:
            return pool.run(jobs, ended)

    return runner


def on_ray(address: str) -> Runner:
    """A runner on a Ray cluster: one task a run, which goes there and back as JSON.

    Every machine needs FedSaddle and the data.
    """

    def runner(jobs: Sequence[Job], ended: Callable[[Job, RunCurves], None]) -> list[tuple[Job, RunCurves]]:
        from fedsaddle.engines.ray_workers import connect

        ray: Any  # which has no types of its own
        ray, ours = connect(address, None)
        found = dict[int, RunCurves]()
        try:
            remote = ray.remote(num_cpus=1)(run_text)
            waiting = {remote.remote(json.dumps(asdict(job))): at for at, job in enumerate(jobs)}
            while waiting:
                for reference in ray.wait(list(waiting))[0]:
                    at = waiting.pop(reference)
                    found[at] = curves_of_text(ray.get(reference))
                    ended(jobs[at], found[at])
        finally:
            if ours:
                ray.shutdown()
        return [(job, found[at]) for at, job in enumerate(jobs)]

    return runner


def run_text(job: str) -> str:
    """Run a job that came as JSON; its curves, or its error, as JSON."""
    try:
        return json.dumps(asdict(run_job(Job(**json.loads(job)))))
    except FedSaddleError as error:
        return json.dumps({"error": str(error), "exit_code": error.exit_code})


def curves_of_text(text: str) -> RunCurves:
    """The curves that `run_text` gave.

    Raises:
        WorkFailed: if it gave an error.
    """
    found = json.loads(text)
    if "error" in found:
        raise WorkFailed(found["error"], found["exit_code"])
    return RunCurves(**found)
