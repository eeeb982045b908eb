"""What a study asks of its sites. The study never sees a row: it asks, and the answers are typed.

`Sites` is the interface; `SimulatedSites` answers from rows at hand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.array_types import Floats
from fedsaddle.data.federated import FederatedData
from fedsaddle.studies.aims import Aim, Rows
from fedsaddle.studies.candidates import Facts
from fedsaddle.studies.pool import Pool
from fedsaddle.studies.trial import Progress, Trial, TrialOutcome, ranked

LARGE = 30_000_000  # numbers in the training rows, above which several processes may not fit into memory

TrialPool = Pool[Trial, Progress, TrialOutcome]


@dataclass(frozen=True)
class Model:
    """A trained candidate: its vector, problem and features."""

    name: str
    vector: Tensor
    algorithm: AnyAlgorithm
    data: FederatedData  # with its features only; at deployed sites a placeholder row of each class
    trial: Trial
    scores: Floats | None = None  # of the validation rows; None if these are elsewhere
    selected_round: int | None = None  # whose model was kept
    mixture: Tensor | None = None  # of the groups that it was trained for

    def rank(self, x: Tensor) -> Floats:
        """The scores of some rows."""
        return ranked(self.algorithm.problem, self.vector, x)

    @property
    def validation_scores(self) -> Floats:
        """The scores of validation rows at hand."""
        assert self.scores is not None
        return self.scores


class Trained(Protocol):
    """What is asked about: the outcome of a trial, or a model made of several."""

    @property
    def trial(self) -> Trial:
        """The trial."""

    @property
    def vector(self) -> Tensor:
        """The model."""

    @property
    def scores(self) -> Floats | None:
        """Of the validation rows, where these are at hand."""


class Gain(NamedTuple):
    """A paired difference on validation rows, and its standard error."""

    value: float
    error: float


class Sites(Protocol):
    """Those who have the rows. Each method is one question."""

    def facts(self) -> Facts:
        """What the candidates depend on: counts of rows, classes and features."""

    def train(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool]) -> list[TrialOutcome]:
        """Run trials to their rounds; those that began, in order. A trial goes on from where it stopped before.

        Args:
            trials: candidates with steps and rounds.
            may_begin: asked of each trial before it begins; those that may not are left out.
        """

    def value(self, trained: Trained) -> float:
        """The figure that the study aims for, on validation rows; higher is better."""

    def gain(self, ours: Trained, theirs: Trained) -> Gain:
        """The figure of one model minus that of another, on the same validation rows."""

    def model(self, trained: TrialOutcome) -> Model:
        """The outcome of a trial with its problem and features."""


@dataclass
class SimulatedSites:
    """Sites whose rows are at hand: every answer is exact.

    Args:
        data: rows of all sites, with validation rows.
        aim: the figure that counts.
        seed: keys the draws of the standard errors.
        pool: runs the trials.
    """

    data: FederatedData
    aim: Aim
    seed: int
    pool: TrialPool

    def __post_init__(self) -> None:
        assert self.data.validation is not None
        rows = self.data.validation
        self.rows = Rows.of(rows.y.numpy(), rows.offsets, self.data.validation_units, self.data.validation_groups)

    def facts(self) -> Facts:
        """Of the training rows."""
        return Facts.of(self.data)

    def train(self, trials: Sequence[Trial], may_begin: Callable[[Trial], bool]) -> list[TrialOutcome]:
        """In the processes of the pool."""
        if self.data.train.x.numel() > LARGE:
            trials = [replace(trial, threads=None) for trial in trials]
        return [replace(outcome, trial=trial) for trial, outcome in self.pool.run(trials, may_begin=may_begin)]

    def value(self, trained: Trained) -> float:
        """On the validation rows themselves."""
        assert trained.scores is not None
        value = self.aim.value(trained.scores, self.rows)
        return value if np.isfinite(value) else -np.inf

    def gain(self, ours: Trained, theirs: Trained) -> Gain:
        """With a standard error over draws of patients, or of rows."""
        assert ours.scores is not None
        assert theirs.scores is not None
        return Gain(*self.aim.gain(ours.scores, theirs.scores, self.rows, self.seed))

    def model(self, trained: TrialOutcome) -> Model:
        """With the rows of its features."""
        setup, trial = trained.trial.setup(self.data), trained.trial
        return Model(
            trial.candidate.name, trained.vector, setup.algorithm, setup.data, trial, trained.scores,
            trained.selected_round, trained.mixture,
        )  # fmt: skip
