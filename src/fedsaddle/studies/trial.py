"""One trial of a search: a candidate with a step, run for some rounds in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from fedsaddle.algorithms.protocols import dual_of
from fedsaddle.array_types import Floats
from fedsaddle.config.build import Setup, build_on
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import Experiment, NamedSection
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import BadCheckpoint, Diverged
from fedsaddle.files import Record, make_folder, read_object, write_atomically, write_json
from fedsaddle.problems.protocols import Ranks
from fedsaddle.problems.regression import Cox
from fedsaddle.problems.scored import in_blocks
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.checkpoints import fingerprint, to_safetensors
from fedsaddle.runs.engines import Vectorised
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.result import Result
from fedsaddle.studies.aims import Rows, known_aim
from fedsaddle.studies.candidates import Candidate
from fedsaddle.text import visible

ROUND_CHANCE = 2.0  # standard errors by which the best round has to be ahead of the last
INTERRUPTED = "interrupted"
FIELDS = ("rounds", "selected_round", "seconds", "failure")  # of an outcome, in its file


class Progress(NamedTuple):
    """How far a trial is."""

    rounds: int
    best: float | None  # the best validation AUROC so far


@dataclass(frozen=True)
class Trial:
    """A candidate with a step, and how many rounds to run by now."""

    candidate: Candidate
    step: float
    rounds: int
    seed: int
    aim: str
    folder: Path
    start: Path | None = None  # the folder of the trial whose model it starts from
    threads: int | None = 1  # of the engine; None: as the engine finds best

    @property
    def name(self) -> str:
        """Of the folder: the candidate and the step."""
        return f"{re.sub(r'[^a-z0-9]+', '-', self.candidate.name.lower()).strip('-')}-{self.step:g}"

    def experiment(self) -> Experiment:
        """The sections of a config that describe it."""
        found = self.candidate.experiment(self.step, self.seed, known_aim(self.aim).select)
        run = found.run.model_copy(update={"rounds": self.rounds})
        model = found.model
        if self.start is not None:
            model = NamedSection(**{**model.model_dump(), "start_from": str(self.start)})
        return found.model_copy(update={"run": run, "model": model})

    def setup(self, data: FederatedData) -> Setup:
        """Its algorithm and problem, and the features that it uses of these rows."""
        return build_on(self.experiment(), features_of(data, self.candidate))


@dataclass(frozen=True)
class TrialOutcome:
    """The result of a trial: the chosen model and its scores of the validation rows, or why there is none."""

    trial: Trial
    model: Tensor | None = None
    scores: Floats | None = None  # of the validation rows
    rounds: int = 0
    selected_round: int | None = None
    seconds: float = 0.0
    failure: str = ""
    mixture: Tensor | None = None  # of groups

    @property
    def vector(self) -> Tensor:
        """The model of a trial that did not fail."""
        assert self.model is not None
        return self.model


def features_of(data: FederatedData, candidate: Candidate) -> FederatedData:
    """The data with the features that a candidate uses."""
    if not data.encoding or data.train.x.ndim > 2:
        return data
    return data.with_features([feature.kind not in candidate.without for feature in data.encoding])


@dataclass(frozen=True)
class TrialStore:
    """The outcomes of trials on some rows, in the folders of the trials.

    A trial runs to a few rounds first and later to all of them, in one folder: the outcome after the few rounds is kept
    beside the run, since the run itself has moved on.
    """

    setup: Setup  # of the trials
    _digests: dict[int, str] = field(default_factory=dict)  # by seed: rows are hashed once

    def fingerprint(self, trial: Trial) -> str:
        """Of the algorithm, the rows, the seed and the aim."""
        if trial.seed not in self._digests:
            data = self.setup.data
            assert data.validation is not None
            both = [fingerprint(self.setup.algorithm, rows, trial.seed) for rows in (data.train, data.validation)]
            self._digests[trial.seed] = "-".join(both)
        return f"{self._digests[trial.seed]}-{trial.aim}"

    def find(self, trial: Trial) -> TrialOutcome | None:
        """The outcome of a trial, None if there is none yet.

        Raises:
            BadCheckpoint: if it is of another search, or damaged.
        """
        folder, path = trial.folder / trial.name, self.path(trial)
        if not path.exists():
            return None
        try:
            about = read_object(path)
        except ValueError as reason:
            raise _damaged(path, reason) from reason
        if about.get("of") != self.fingerprint(trial):
            raise BadCheckpoint(
                f"{visible(folder)} is of a search with other rows, options or seed; choose another --out"
            )
        fields: Record = {key: about.get(key) for key in FIELDS}
        found = TrialOutcome(trial, **fields)
        if found.failure:
            return found
        tensors = path.with_suffix(".safetensors")
        try:
            stored = load_file(tensors)
            own = (stored["model"], stored["scores"].numpy(), stored.get("mixture"))
            return replace(found, model=own[0], scores=own[1], mixture=own[2])
        except (OSError, SafetensorError, KeyError) as reason:
            raise _damaged(tensors, reason) from reason

    def keep(self, trial: Trial, outcome: TrialOutcome) -> None:
        """Store an outcome."""
        path = self.path(trial)
        make_folder("out", path.parent)
        if outcome.model is not None and outcome.scores is not None:
            tensors = {"model": outcome.model.contiguous(), "scores": torch.from_numpy(outcome.scores)}
            tensors |= {} if outcome.mixture is None else {"mixture": outcome.mixture.contiguous()}
            write_atomically(path.with_suffix(".safetensors"), to_safetensors(tensors))
        own: Record = {key: getattr(outcome, key) for key in FIELDS}
        write_json(path, {"of": self.fingerprint(trial), **own})

    @staticmethod
    def path(trial: Trial) -> Path:
        """Of the figures; model and scores are beside it."""
        return trial.folder / trial.name / f"after-{trial.rounds}.json"


def _damaged(path: Path, reason: Exception) -> BadCheckpoint:
    return BadCheckpoint(f"{visible(path)} cannot be read ({reason}); remove {visible(path.parent)} and resume")


def run_trial(
    trial: Trial, tell: Callable[[Progress], None], stop: Callable[[], bool], *, data: FederatedData
) -> TrialOutcome:
    """Run a trial to its rounds, from where it stopped before; a run that diverges is an outcome too."""
    setup = trial.setup(data)
    store = TrialStore(setup)
    if (before := store.find(trial)) is not None:
        return before
    outcome = _run_trial(trial, setup, tell, stop)
    if outcome.failure != INTERRUPTED:
        store.keep(trial, outcome)
    return outcome


def _run_trial(trial: Trial, setup: Setup, tell: Callable[[Progress], None], stop: Callable[[], bool]) -> TrialOutcome:
    folder = RunFolder(trial.folder / trial.name)
    best: list[float] = []

    def after_round(done: int, record: Record | None) -> bool:
        if record is not None and "pooled_validation" in record:
            best.append(float(record["pooled_validation"].get("auroc", float("nan"))))
        tell(Progress(done, max(best) if best else None))
        return stop()

    try:
        result = run_config(
            trial.experiment(),
            replace(setup, data=replace(setup.data, test=None)),
            name=trial.candidate.name,
            engine=Vectorised(workers=trial.threads),
            out=folder.path,
            resume=folder.holds_run,
            callbacks=[LambdaCallback(on_round=after_round, on_warning=lambda text: None)],
        )
    except Diverged as reason:
        return TrialOutcome(trial, failure=f"diverged: {reason}")
    if result.document.stopped == "interrupted":
        return TrialOutcome(trial, failure=INTERRUPTED)
    model, selected = _round_to_keep(trial, setup, result)
    scores = scores_of(setup, model)
    mixture = dual_of(setup.algorithm, result.server) if setup.data.group_names else None
    done = result.document
    return TrialOutcome(trial, model, scores, done.rounds, selected, done.seconds, mixture=mixture)


def _round_to_keep(trial: Trial, setup: Setup, result: Result) -> tuple[Tensor, int | None]:
    """The model of the best round on validation rows where it is ahead of the last by more than chance, else the last.

    The best of many rounds is partly luck; a run whose steps have decayed is a mean over many batches.
    """
    last, best, data = setup.algorithm.model(result.server), result.model, setup.data
    selected, rounds = result.document.selected_round, result.document.rounds
    if trial.candidate.exact or selected in (None, rounds):
        return last, rounds
    if trial.candidate.grows:
        return best, selected
    assert data.validation is not None
    own = data.validation
    rows = Rows.of(own.y.numpy(), own.offsets, data.validation_units, data.validation_groups)
    both = [scores_of(setup, model) for model in (best, last)]
    gap, error = known_aim(trial.aim).gain(both[0], both[1], rows, trial.seed)
    return (best, selected) if gap > ROUND_CHANCE * error else (last, rounds)


def scores_of(setup: Setup, model: Tensor) -> Floats:
    """The scores of the validation rows."""
    assert setup.data.validation is not None
    return ranked(setup.algorithm.problem, model, setup.data.validation.x)


def ranked(problem: object, model: Tensor, x: Tensor) -> Floats:
    """The scores of some rows: one each, or one for each of several classes."""
    scores = problem.ranking(model, x) if isinstance(problem, Ranks) else None
    if scores is None:
        assert isinstance(problem, Supervised | Cox)
        flat = problem.flat
        scores = in_blocks(lambda part: flat.scores(model[None], part[None])[0], x)
        scores = scores[:, 0] if scores.shape[1] == 1 else scores
    return np.asarray(scores.double().numpy())
