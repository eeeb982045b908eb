"""`fs.sweep`: run a config with every combination of values and several seeds, and compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from fedsaddle.arguments import flag, function, instance, optional, text, whole
from fedsaddle.arguments import path as file_path
from fedsaddle.config.schema import Config
from fedsaddle.config.toml_files import read_toml
from fedsaddle.documents.sweep import SweepCell, SweepSummary
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData, NotGiven, install
from fedsaddle.files import Json, JsonObject, make_folder, read_object, require_folder, write_json
from fedsaddle.metrics.selection import Target
from fedsaddle.processes import cores
from fedsaddle.runs.folder import only_writer
from fedsaddle.studies.grid import MOST_CELLS, Axis, Range, cells_of, config_of, make_axis, require_once, with_values
from fedsaddle.studies.pool import MOST_WORKERS, Interrupted, Pool
from fedsaddle.studies.sweep_output import plot, write_csv
from fedsaddle.studies.sweep_runs import (
    CAUTIONS,
    ENDED,
    GOOD,
    Criterion,
    Job,
    Status,
    compared_cells,
    criterion_of,
    folder_name,
    run_job,
    status_of,
)
from fedsaddle.text import visible

if TYPE_CHECKING:
    from optuna import Study as OptunaTrials
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

MANIFEST, RESULT, RUNS = "manifest.json", "sweep.json", "runs"
MOST_SEEDS = 1000
JOURNAL, NAME = "optuna.jsonl", "sweep"  # of a search with Optuna

SweepPool = Pool[Job, int, Status]  # news: the rounds so far
Ended = Callable[[Job, Status], None]
Tell = Callable[[Job, int], None]  # a job and its rounds so far


def sweep_pool(
    workers: int | None = None, tell: Tell = lambda job, done: None, stop: Callable[[], bool] = lambda: False
) -> SweepPool:
    """A pool of runs of one thread each; by default one process a core."""
    return Pool(run_job, min(cores() if workers is None else workers, MOST_WORKERS), 1, tell, stop)


@dataclass(frozen=True)
class Sweep:
    """The result of a sweep.

    Args:
        folder: with the runs, sweep.json, sweep.csv and sweep.png; None: it was a temporary one.
        document: all figures, as in sweep.json.
    """

    folder: Path | None
    document: SweepSummary

    @property
    def cells(self) -> list[SweepCell]:
        """The cells: values, mean and interval over seeds, and the runs."""
        return self.document.cells

    @property
    def best(self) -> JsonObject | None:
        """The values of the best cell; None if no run has a figure."""
        return next((cell.values for cell in self.cells if cell.best), None)

    def plot(self, path: str | Path) -> Path:
        """Draw the means over the values: lines, a heat map, or points for names."""
        return plot(self.document, file_path("path", path))

    def __str__(self) -> str:
        lines = [f"{len(self.cells)} cells, {len(self.document.seeds)} seeds, by {self.document.by}"]
        for cell in self.cells:
            mark = "  best" if cell.best else ""
            figure = "no figure" if cell.mean is None else f"{cell.mean:.4f}"
            lines.append(f"{', '.join(f'{k}={v}' for k, v in cell.values.items())}: {figure}{mark}")
        return "\n".join(map(visible, lines))


@dataclass(frozen=True)
class SweepPlan:
    """A sweep before it runs, with all keys checked."""

    content: JsonObject  # of the config
    axes: tuple[Axis, ...]
    seeds: tuple[int, ...]
    folder: Path
    trials: int | None = None  # of a search; None: all combinations
    cells: list[dict[str, Json]] = field(default_factory=list)  # empty for a search

    @classmethod
    def of(
        cls, content: JsonObject, axes: Sequence[Axis], seeds: int, folder: Path, trials: int | None = None
    ) -> SweepPlan:
        """Check every cell; nothing is written. A key with one value beside others is a part of the config."""
        if not axes:
            raise NotGiven("--set", "name at least one key and its values: algorithm.primal_step=0.01,0.1")
        require_once([axis.key for axis in axes])
        many = [axis for axis in axes if isinstance(axis.values, Range) or len(axis.values) > 1]
        if many:
            fixed = {axis.key: axis.listed[0] for axis in axes if axis not in many}
            content, axes = with_values(content, fixed), many
        whole("seeds", seeds, most=MOST_SEEDS)
        run = content.get("run")
        first = run.get("seed", 0) if isinstance(run, dict) else 0
        plan = cls(content, tuple(axes), tuple(range(first, first + seeds)), folder, trials)
        if trials is not None:
            whole("trials", trials, most=MOST_CELLS)
            require_optuna()
            plan.job(first_values(plan.axes), plan.seeds[0])
            return plan
        plan.cells.extend(cells_of(plan.axes))
        for values in plan.cells:
            plan.job(values, plan.seeds[0])
        return plan

    def job(self, values: Mapping[str, Json], seed: int) -> Job:
        """One run."""
        config = config_of(self.content, values, seed).model_dump(mode="json")
        return Job(config, self.folder / RUNS / folder_name(values, seed), values, seed)

    def jobs(self) -> list[Job]:
        """All runs of the grid; those of one seed together, so that an interrupted sweep has whole rows early."""
        return [self.job(values, seed) for seed in self.seeds for values in self.cells]

    def first(self) -> Config:
        """The config of the first cell."""
        values = self.cells[0] if self.cells else first_values(self.axes)
        return config_of(self.content, values, self.seeds[0])


def left(jobs: Sequence[Job]) -> list[Job]:
    """The jobs that have not ended; those that failed are tried again."""
    return [job for job in jobs if status_of(job.folder).name not in ENDED]


def prepare(plan: SweepPlan, by: str | None, resume: bool) -> None:
    """Refuse a folder that holds something else; write the manifest."""
    path = plan.folder / MANIFEST
    require_folder("out", plan.folder)
    stored = _manifest(path)
    if stored is not None and not resume:
        raise BadInput("out", str(plan.folder), "holds a sweep already; resume it, or choose another folder")
    if stored is None and resume:
        raise BadInput("--resume", True, f"there is no sweep in {visible(plan.folder)}; leave it out to start one")
    axes = {axis.key: axis.listed for axis in plan.axes}
    manifest = {"config": plan.content, "axes": axes, "seeds": list(plan.seeds), "by": by, "search": plan.trials}
    if stored is not None:
        same = ["config", *(["axes", "seeds", "by"] if plan.trials is not None else [])]
        if (stored.get("search") is None) != (plan.trials is None):
            raise BadCheckpoint(f"{visible(plan.folder)} holds a sweep of another kind; choose another --out")
        for key in same:
            if stored.get(key) != manifest[key]:
                raise BadCheckpoint(
                    f"{visible(plan.folder)} holds a sweep with another {key}; resume with the same, or choose "
                    "another --out"
                )
    make_folder("out", plan.folder)
    write_json(path, manifest)


def _manifest(path: Path) -> JsonObject | None:
    if not path.exists():
        return None
    try:
        return read_object(path)
    except ValueError as reason:
        raise BadCheckpoint(f"{visible(path)} cannot be read ({reason}); choose another --out") from None


def require_optuna() -> None:
    """Raise `MissingData` without Optuna; quieten it."""
    try:
        import optuna
    except ImportError:
        raise MissingData(f"a search (trials) needs Optuna; {install('optuna')}") from None
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def first_values(axes: Sequence[Axis]) -> dict[str, Json]:
    """One cell, to check the keys with: the lower ends and the first values."""
    found = dict[str, Json]()
    for axis in axes:
        if isinstance(axis.values, Range):
            found[axis.key] = int(axis.values.low) if axis.values.whole else axis.values.low
        else:
            found[axis.key] = axis.values[0]
    return found


@dataclass(frozen=True)
class OptunaStudy:
    """A study of Optuna in a sweep's folder: cells are proposed one after the other by TPE.

    The study is a journal of JSON lines. Each proposal depends on the seed and the cells before it alone, so that a
    search that was interrupted continues as if it had not been.
    """

    storage: BaseStorage
    study: OptunaTrials

    @classmethod
    def open(cls, folder: Path, criterion: Criterion) -> OptunaStudy:
        """The study of the folder; made if there is none."""
        require_optuna()
        from optuna import create_study
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

        path = str(folder / JOURNAL)
        storage = JournalStorage(JournalFileBackend(path, lock_obj=JournalFileOpenLock(path)))
        direction = "minimize" if criterion.lower_is_better else "maximize"
        made = create_study(storage=storage, study_name=NAME, load_if_exists=True, direction=direction)
        return cls(storage, made)

    def trial(self, number: int, seed: int) -> tuple[Trial | FrozenTrial, bool]:
        """A trial by its number, new, unfinished or finished; and whether it is finished."""
        from optuna.samplers import TPESampler
        from optuna.trial import Trial

        self.study.sampler = TPESampler(seed=seed + number)
        known = self.study.get_trials(deepcopy=False)
        if number >= len(known):
            return self.study.ask(), False
        if known[number].state.is_finished():
            return known[number], True
        owner = self.storage.get_study_id_from_name(NAME)  # it was interrupted: what it has suggested stays
        found = self.storage.get_trial_id_from_study_id_trial_number(owner, number)
        return Trial(self.study, found), False

    def tell(self, number: int, cell: SweepCell) -> None:
        """The mean over seeds; a cell in which a run diverged, failed or missed the target counts as failed."""
        from optuna.trial import TrialState

        if all(run.figure is not None for run in cell.runs):
            self.study.tell(number, cell.mean)
        else:
            self.study.tell(number, state=TrialState.FAIL)


def _search(
    trials: int,
    axes: Sequence[Axis],
    seeds: Sequence[int],
    folder: Path,
    job: Callable[[Mapping[str, Json], int], Job],
    criterion: Criterion,
    pool: SweepPool,
    ended: Ended,
) -> list[Job]:
    """Run a number of trials, each with all seeds; return the jobs of all."""
    study, jobs = OptunaStudy.open(folder, criterion), list[Job]()
    for number in range(trials):
        if pool.stop():
            break
        trial, finished = study.trial(number, seeds[0])
        values = {axis.key: _chosen(trial.params, axis) if finished else _suggested(trial, axis) for axis in axes}
        own = [job(values, seed) for seed in seeds]
        jobs += own
        pool.run([one for one in own if status_of(one.folder).name not in ENDED], ended)
        if not pool.stop() and not finished:
            study.tell(number, compared_cells(own, folder, criterion)[0])
    return jobs


def _suggested(trial: Trial | FrozenTrial, axis: Axis) -> Json:
    values = axis.values
    if isinstance(values, Range):
        if values.whole:
            return int(trial.suggest_int(axis.key, int(values.low), int(values.high), log=values.log))
        return float(trial.suggest_float(axis.key, values.low, values.high, log=values.log))
    return values[int(trial.suggest_categorical(axis.key, list(range(len(values)))))]


def _chosen(stored: Mapping[str, float], axis: Axis) -> Json:
    """A value of an earlier trial; of listed values the journal has the place."""
    return stored[axis.key] if isinstance(axis.values, Range) else axis.values[int(stored[axis.key])]


def run_sweep(plan: SweepPlan, pool: SweepPool, ended: Ended, criterion: Criterion) -> SweepSummary:
    """Run what is left, and write sweep.json, sweep.csv and sweep.png; the folder is prepared.

    If it is stopped, the files have the runs so far.
    """
    if plan.trials is not None:
        jobs = _search(plan.trials, plan.axes, plan.seeds, plan.folder, plan.job, criterion, pool, ended)
    else:
        jobs = plan.jobs()
        pool.run(left(jobs), ended)
    document = summary_of_sweep(plan, jobs, criterion)
    write_json(plan.folder / RESULT, document.to_dict())
    write_csv(plan.folder / "sweep.csv", document)
    if any(cell.mean is not None for cell in document.cells):
        plot(document, plan.folder / "sweep.png")
    return document


def summary_of_sweep(plan: SweepPlan, jobs: Sequence[Job], criterion: Criterion) -> SweepSummary:
    """All that is known of the runs."""
    cells = compared_cells(jobs, plan.folder, criterion)
    return SweepSummary(
        config=plan.content,
        axes={axis.key: axis.listed for axis in plan.axes},
        seeds=list(plan.seeds),
        by=str(criterion),
        part=criterion.part,
        caution=CAUTIONS[criterion.part],
        cells=cells,
        unfinished=sum(run.status not in GOOD for cell in cells for run in cell.runs),
    )


def sweep(
    config: str | Path | Mapping[str, Json],
    values: Mapping[str, Json],
    *,
    seeds: int = 5,
    out: str | Path | None = None,
    workers: int | None = None,
    by: str | None = None,
    target: str | None = None,
    trials: int | None = None,
    resume: bool = False,
    tell: Tell | None = None,
    stop: Callable[[], bool] | None = None,
) -> Sweep:
    """Run a config with every combination of values, each with several seeds, and compare the cells.

    A run that diverges or fails is an outcome of its cell and does not end the sweep.

    Args:
        config: a TOML file, or the content of one as a dictionary.
        values: by key of the config the values to try, such as `{"algorithm.primal_step": [0.01, 0.1]}`; in a search
            also ranges, such as "0.001..1:log".
        seeds: runs of each cell, with `run.seed` and the seeds after it.
        out: folder for the runs, sweep.json, sweep.csv and sweep.png. None: a temporary one.
        workers: processes of one thread each; by default one a core. In a script with more than one, call it under
            `if __name__ == "__main__":`.
        by: the figure to compare by, such as "worst accuracy" or "auroc"; by default `run.select`, else the AUROC, the
            worst client's accuracy or its loss. Of validation rows if there are any.
        target: stop each run at this, such as "worst accuracy >= 0.5", and compare the rounds to it.
        trials: number of cells of a search with Optuna (TPE); None: all combinations.
        resume: go on in `out`; runs that have ended are not run again. Values and seeds may be added.
        tell: called with a job and its rounds so far.
        stop: polled; True saves the running cells and ends the sweep.

    Raises:
        BadInput: if a key or value is wrong; before anything is run.
        Interrupted: if `stop` ended the sweep.

    Examples:
        >>> import fedsaddle as fs
        >>> config = {"data": {"name": "iris"}, "split": {"name": "iid", "clients": 3}, "model": {"name": "logistic"},
        ...           "algorithm": {"name": "FedAvg"}, "run": {"rounds": 2}}
        >>> found = fs.sweep(config, {"algorithm.primal_step": [0.01, 0.1]}, seeds=2, workers=1)
        >>> len(found.cells), found.document.by
        (2, 'worst accuracy')
    """
    instance("values", values, dict, 'must be a dictionary, such as {"algorithm.primal_step": [0.01, 0.1]}')
    for key, given in (("by", by), ("target", target)):
        optional(text, key, given)
    for key, called, takes in (("tell", tell, 2), ("stop", stop, 0)):
        if called is not None:
            function(key, called, takes)
    optional(whole, "workers", workers)
    folder = optional(file_path, "out", out)

    def stopped() -> bool:
        return stop is not None and flag("stop()", stop())

    if flag("resume", resume) and folder is None:
        raise BadInput("resume", True, "name the folder to resume with `out`")
    axes = [make_axis(key, given) for key, given in values.items()]
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory())) if folder is None else folder
        plan = SweepPlan.of(content_of(config, target), axes, seeds, place, trials)
        criterion = criterion_of(plan.first(), by)
        prepare(plan, by, resume)
        stack.enter_context(only_writer(place))
        pool = stack.enter_context(sweep_pool(workers, tell or (lambda job, done: None), stopped))
        document = run_sweep(plan, pool, lambda job, status: None, criterion)
        if stopped():
            raise Interrupted("interrupted; what is done is kept. Go on with resume=True")
        return Sweep(folder, document)


def content_of(config: object, target: str | None = None) -> JsonObject:
    """The content of a config as a dictionary, with the target."""
    if isinstance(config, Mapping):
        content = dict(config)
    else:
        path = file_path("config", config)
        try:
            content = read_toml("config", path)
        except FileNotFoundError:
            raise MissingData(f"config = {str(path)!r}: the file does not exist; `fedsaddle init` writes one") from None
    if target is None:
        return content
    Target.parse(target)
    return with_values(content, {"run.target": target})
