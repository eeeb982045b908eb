"""What a study asks about trained models: score counts and their spread, as tasks that any carrier of tasks passes on.

The fields of the answers say who may see them, so that secure aggregation masks them as it masks an algorithm's.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from torch import Tensor

from fedsaddle.array_types import Floats
from fedsaddle.errors import BadMessage
from fedsaddle.federation.clients import Site
from fedsaddle.federation.tasks import task
from fedsaddle.metrics.score_sums import BinCounts, SpreadQuestion, SquareSums
from fedsaddle.studies.candidates import Candidate

NO_NOISE = "counts of rows have no private form"


class Scorer(Protocol):
    """Scores rows with the models of a trial."""

    def scores(self, w: Tensor, x: Tensor) -> Floats:
        """The scores of rows with all features of the study, by this model."""


def shift_of(candidate: Candidate, counts: Sequence[int]) -> float:
    """What is subtracted from scores before they are counted, so that those of a rare outcome do not share few bins.

    It is the log odds of a positive among all training rows, for candidates whose scores are log odds; 0 for others.

    Args:
        candidate: whose scores they are.
        counts: training rows of both classes, over all sites.
    """
    if not candidate.log_odds or len(counts) != 2 or min(counts) < 1:
        return 0.0
    return math.log(counts[1] / counts[0])


@dataclass(frozen=True)
class ScoredModel:
    """Server to sites: count the scores of this model.

    Args:
        w: the model.
        trial: whose problem and features it has, by number in the plan.
    """

    w: Tensor
    trial: int


@dataclass(frozen=True)
class ComparedModels:
    """Server to sites: how far the rows of each patient move the figures of two models.

    Args:
        w: the first model.
        other: the second.
        trial: of the first, by number in the plan.
        other_trial: of the second.
        positives: (2, bins), those of all sites, by each model.
        negatives: (2, bins).
        cuts: (2, thresholds), the first bin of those called positive.
    """

    w: Tensor
    other: Tensor
    trial: int
    other_trial: int
    positives: Tensor
    negatives: Tensor
    cuts: Tensor


@dataclass(frozen=True)
class StudyQuestions:
    """The questions, over all rows of the part that a site gives.

    Args:
        scorers: of the trials, by number.
    """

    scorers: Mapping[int, Scorer]

    @task(reason=NO_NOISE)
    def count_scores(self, own: None, sent: ScoredModel, site: Site) -> tuple[None, BinCounts]:
        """The rows of each class in each bin of the score."""
        batch = site.everything()
        scores = self._scorer(sent.trial).scores(sent.w, batch.x[0])
        return None, BinCounts.of(scores, batch.y[0].numpy())

    @task(reason=NO_NOISE)
    def spread(self, own: None, sent: ComparedModels, site: Site) -> tuple[None, SquareSums]:
        """Sums of squared influences over patients."""
        batch = site.everything()
        units = None if batch.units is None else batch.units()
        scores = [
            self._scorer(trial).scores(w, batch.x[0])
            for trial, w in ((sent.trial, sent.w), (sent.other_trial, sent.other))
        ]
        asked = SpreadQuestion(sent.positives.numpy(), sent.negatives.numpy(), sent.cuts.numpy())
        return None, SquareSums.of(asked, scores, batch.y[0].numpy(), None if units is None else units[0].numpy())

    def _scorer(self, trial: int) -> Scorer:
        try:
            return self.scorers[trial]
        except KeyError:
            raise BadMessage(f"this study has no trial number {trial}") from None


@dataclass(frozen=True)
class Placeholder:
    """Scores placeholder rows, so that the server knows the form of answers; the values mean nothing."""

    def scores(self, w: Tensor, x: Tensor) -> Floats:
        """Zero for every row."""
        return np.zeros(len(x))
