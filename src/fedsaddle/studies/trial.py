"""One trial of a search: a candidate with a step, run for some rounds in a folder of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.array_types import Floats
from fedsaddle.config.build import build_algorithm
from fedsaddle.config.schema import Config, NamedSection
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import Diverged
from fedsaddle.problems.protocols import Ranks
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.engines import Vectorised
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.result import Result
from fedsaddle.runs.run import run
from fedsaddle.runs.settings import RunOptions
from fedsaddle.studies.aims import Rows, aim_of
from fedsaddle.studies.candidates import Candidate
from fedsaddle.studies.store import Kept

Tell = Callable[[int, float | None], None]
ROUND_CHANCE = 2.0  # standard errors by which the best round has to be ahead of the last
INTERRUPTED = "interrupted"


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

    def config(self) -> Config:
        """The config of the run."""
        config = self.candidate.config(self.step, self.seed)
        if self.start is None:
            return config
        model = NamedSection(**{**config.model.model_dump(), "start_from": str(self.start)})
        return config.model_copy(update={"model": model})


@dataclass(frozen=True)
class Outcome:
    """What came of a trial: the chosen model and its scores of the validation rows, or why there is none."""

    trial: Trial
    model: Tensor | None = None
    scores: Floats | None = None  # of the validation rows
    rounds: int = 0
    selected_round: int | None = None
    seconds: float = 0.0
    failure: str = ""


def features_of(data: FederatedData, candidate: Candidate) -> FederatedData:
    """The data with the features that a candidate uses."""
    if not data.encoding or data.train.x.ndim > 2:
        return data
    return data.with_features([feature.kind not in candidate.without for feature in data.encoding])


def run_trial(trial: Trial, data: FederatedData, tell: Tell, stop: Callable[[], bool]) -> Outcome:
    """Run a trial to its rounds, from where it stopped before; a run that diverges is an outcome too."""
    if trial.threads is not None:
        torch.set_num_threads(trial.threads)
    own = features_of(data, trial.candidate)
    algorithm = build_algorithm(trial.config(), own)[0]
    kept = Kept.at(trial.folder / trial.name, trial.rounds, algorithm, own, trial.aim, trial.seed)
    if (before := kept.read()) is not None:
        return Outcome(trial, **before)
    outcome = _run_trial(trial, own, algorithm, tell, stop)
    if outcome.failure != INTERRUPTED:
        kept.write(outcome)
    return outcome


def _run_trial(
    trial: Trial, own: FederatedData, algorithm: Algorithm[Any], tell: Tell, stop: Callable[[], bool]
) -> Outcome:
    folder = RunFolder(trial.folder / trial.name)
    best: list[float] = []

    def after_round(done: int, record: dict[str, Any] | None) -> bool:
        if record is not None and "pooled_validation" in record:
            best.append(float(record["pooled_validation"].get("auroc", float("nan"))))
        tell(done, max(best) if best else None)
        return stop()

    try:
        result = run(
            algorithm,
            replace(own, test=None),
            trial.rounds,
            seed=trial.seed,
            engine=Vectorised(workers=trial.threads),
            evaluate_every=max(1, trial.candidate.rounds // trial.candidate.evaluations),
            select=aim_of(trial.aim).select,
            patience=trial.candidate.patience,
            out=folder.path,
            resume=folder.holds_run,
            callbacks=[LambdaCallback(on_round=after_round, on_warning=lambda text: None)],
            options=RunOptions(
                name=trial.candidate.name, checkpoint_every=max(1, trial.candidate.rounds // 4), report=False
            ),
        )
    except Diverged as reason:
        return Outcome(trial, failure=f"diverged: {reason}")
    if result.document.stopped == "interrupted":
        return Outcome(trial, failure=INTERRUPTED)
    kept, selected = _round_to_keep(trial, algorithm, result, own)
    scores = scores_of(algorithm, kept, own)
    return Outcome(trial, kept, scores, result.document.rounds, selected, result.document.seconds)


def _round_to_keep(
    trial: Trial, algorithm: Algorithm[Any], result: Result, data: FederatedData
) -> tuple[Tensor, int | None]:
    """The model of the best round on validation rows where it is ahead of the last by more than chance, else the last.

    The best of many rounds is partly luck; a run whose steps have decayed is a mean over many batches.
    """
    last, best = algorithm.model(result.server), result.model
    selected = result.document.selected_round
    if selected == result.document.rounds:
        return last, selected
    assert data.validation is not None
    rows = Rows.of(data.validation.y.numpy(), data.validation.offsets, data.validation_units)
    both = [scores_of(algorithm, model, data) for model in (best, last)]
    gap, error = aim_of(trial.aim).gain(both[0], both[1], rows, trial.seed)
    return (best, selected) if gap > ROUND_CHANCE * error else (last, result.document.rounds)


def scores_of(algorithm: Algorithm[Any], model: Tensor, data: FederatedData) -> Floats:
    """The scores of the validation rows."""
    assert data.validation is not None
    return ranked(algorithm.problem, model, data.validation.x)


def ranked(problem: object, model: Tensor, x: Tensor) -> Floats:
    """The scores of some rows."""
    assert isinstance(problem, Ranks)
    scores = problem.ranking(model, x)
    assert scores is not None
    return np.asarray(scores.double().numpy())
