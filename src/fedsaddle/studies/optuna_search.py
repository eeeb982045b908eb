"""A sweep by Optuna: cells are proposed one after the other by TPE, from what those before them have reached.

The study is a journal of JSON lines in the sweep's folder. Each proposal depends on the seed and the cells before it
alone, so that a search that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedsaddle.errors import MissingData, install
from fedsaddle.studies.bodies import CellBody
from fedsaddle.studies.figures import Aim, cell_bodies
from fedsaddle.studies.grid import Axis, Range
from fedsaddle.studies.sweep_job import ENDED, Job, status_of
from fedsaddle.studies.sweep_pool import Ended, JobPool

JOURNAL, NAME = "optuna.jsonl", "sweep"


def require_optuna() -> Any:
    """Optuna, or a plain error without it."""
    try:
        import optuna
    except ImportError:
        raise MissingData(f"a search (trials) needs Optuna; {install('optuna')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def first_values(axes: Sequence[Axis]) -> dict[str, Any]:
    """One cell, to check the keys with: the lower ends and the first values."""
    found = {}
    for axis in axes:
        if isinstance(axis.values, Range):
            found[axis.key] = int(axis.values.low) if axis.values.whole else axis.values.low
        else:
            found[axis.key] = axis.values[0]
    return found


@dataclass(frozen=True)
class Study:
    """A study of Optuna in a sweep's folder."""

    optuna: Any
    storage: Any
    study: Any

    @classmethod
    def open(cls, folder: Path, aim: Aim) -> Study:
        """The study of the folder; made if there is none."""
        optuna = require_optuna()
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = str(folder / JOURNAL)
        storage = JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
        direction = "minimize" if aim.lower_is_better else "maximize"
        made = optuna.create_study(storage=storage, study_name=NAME, load_if_exists=True, direction=direction)
        return cls(optuna, storage, made)

    def trial(self, number: int, seed: int) -> tuple[Any, bool]:
        """A trial by its number, new, unfinished or finished; and whether it is finished."""
        self.study.sampler = self.optuna.samplers.TPESampler(seed=seed + number)
        known = self.study.get_trials(deepcopy=False)
        if number >= len(known):
            return self.study.ask(), False
        if known[number].state.is_finished():
            return known[number], True
        owner = self.storage.get_study_id_from_name(NAME)  # it was interrupted: what it has suggested stays
        found = self.storage.get_trial_id_from_study_id_trial_number(owner, number)
        return self.optuna.trial.Trial(self.study, found), False

    def tell(self, number: int, cell: CellBody) -> None:
        """The mean over seeds; a cell in which a run diverged, failed or missed the target counts as failed."""
        if all(run["figure"] is not None for run in cell["runs"]):
            self.study.tell(number, cell["mean"])
        else:
            self.study.tell(number, state=self.optuna.trial.TrialState.FAIL)


def search(
    trials: int,
    axes: Sequence[Axis],
    seeds: Sequence[int],
    folder: Path,
    job: Callable[[dict[str, Any], int], Job],
    aim: Aim,
    pool: JobPool,
    ended: Ended,
) -> list[Job]:
    """Run so many trials, each with all seeds; return the jobs of all."""
    study, jobs = Study.open(folder, aim), list[Job]()
    for number in range(trials):
        if pool.stop():
            break
        trial, finished = study.trial(number, seeds[0])
        values = {axis.key: _chosen(trial.params, axis) if finished else _suggested(trial, axis) for axis in axes}
        own = [job(values, seed) for seed in seeds]
        jobs += own
        pool.run([one for one in own if status_of(one.folder)[0] not in ENDED], ended)
        if not pool.stop() and not finished:
            study.tell(number, cell_bodies(own, folder, aim)[0])
    return jobs


def _suggested(trial: Any, axis: Axis) -> Any:
    values = axis.values
    if isinstance(values, Range):
        if values.whole:
            return trial.suggest_int(axis.key, int(values.low), int(values.high), log=values.log)
        return trial.suggest_float(axis.key, values.low, values.high, log=values.log)
    return values[trial.suggest_categorical(axis.key, list(range(len(values))))]


def _chosen(stored: Mapping[str, Any], axis: Axis) -> Any:
    """A value of an earlier trial; of listed values the journal has the place."""
    return stored[axis.key] if isinstance(axis.values, Range) else axis.values[int(stored[axis.key])]
