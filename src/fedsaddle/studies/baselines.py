"""Baselines of a simulation: a model trained on all rows in one place, and each site's model of its own rows alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.config.run_config import run_config
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.metrics.ranking import Ranking, RankingDifference, difference, rank
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.engines import Vectorised
from fedsaddle.studies.pool import Interrupted, torch_threads
from fedsaddle.studies.trial import Trial, ranked


@dataclass(frozen=True)
class Baseline:
    """A baseline on test rows, and how much better the federated model ranks the same rows.

    Args:
        ranking: Of the baseline.
        gain: The federated model's figures minus the baseline's, with paired intervals.
    """

    ranking: Ranking
    gain: RankingDifference


@dataclass(frozen=True)
class Baselines:
    """What federation is compared with.

    Args:
        pooled: One model, trained on all rows in one place.
        alone: Each site's rows, scored by the model that the site trained on its own rows; the figures of the clients
            and within sites count, as scores of two sites are not on one scale.
        without: Sites whose own training diverged; their rows are left out of `alone`.
    """

    pooled: Baseline
    alone: Baseline
    without: tuple[str, ...] = ()


def baselines(trial: Trial, data: FederatedData, scores: Floats, stop: Callable[[], bool] = lambda: False) -> Baselines:
    """Train both with the candidate, step and rounds of a trial, and keep the last round.

    Args:
        trial: Of the candidate.
        data: With test rows.
        scores: Of the test rows, by the federated model.
        stop: Whether to stop.

    Raises:
        BadInput: without test rows, or if the pooled training diverges.
        Interrupted: if it is to stop.
    """
    if data.test is None:
        raise BadInput("test", None, "the baselines are compared on test rows; hold some out")
    with torch_threads(trial.threads):
        try:
            pooled = _scores(trial, one_client(data, range(data.count), "all"), stop)
        except Diverged as reason:
            raise BadInput("step", trial.step, f"diverges where all rows are in one place: {reason}") from None
        own, without = np.full(len(data.test.x), np.nan), []
        for client, name in enumerate(data.names):
            rows = slice(int(data.test.offsets[client]), int(data.test.offsets[client + 1]))
            try:
                own[rows] = _scores(trial, one_client(data, [client], name), stop)[rows]
            except Diverged:
                without.append(name)
    every = np.ones(len(own), dtype=bool)
    return Baselines(
        _baseline(data, scores, pooled, every), _baseline(data, scores, own, ~np.isnan(own)), tuple(without)
    )


def one_client(data: FederatedData, clients: Sequence[int], name: str) -> FederatedData:
    """The training rows of some clients as those of one, and all test rows.

    Args:
        data: Of all clients.
        clients: Their numbers.
        name: Of the one client.
    """
    train = data.train
    rows = np.concatenate([np.arange(train.offsets[i], train.offsets[i + 1]) for i in clients])
    units = None if train.units is None else train.units[rows]
    ends = np.array([0, len(rows)], dtype=np.int64)
    own = Stacked(train.x[rows], train.y[rows], ends, positives=train.positives, units=units)
    return replace(
        data, train=own, names=(name,), test_names=data.test_names, validation=None, validation_rows=None,
        validation_units=None, validation_groups={}, train_rows=None,
    )  # fmt: skip


def _scores(trial: Trial, data: FederatedData, stop: Callable[[], bool]) -> Floats:
    """The scores of all test rows by the model of the last round."""
    setup, experiment = trial.setup(data), trial.experiment()
    settings = {"select": None, "rounds": trial.candidate.rounds, "patience": None}
    assert setup.data.test is not None
    result = run_config(
        experiment.model_copy(update={"run": experiment.run.model_copy(update=settings)}),
        replace(setup, data=replace(setup.data, test=None)),
        name=trial.candidate.name,
        engine=Vectorised(workers=trial.threads),
        callbacks=[LambdaCallback(on_round=lambda done, record: stop(), on_warning=lambda text: None)],
    )
    if result.document.stopped == "interrupted":
        raise Interrupted("interrupted; the search is kept. Continue with --resume")
    return ranked(setup.algorithm.problem, result.model, setup.data.test.x)


def _baseline(
    data: FederatedData, scores: Floats, theirs: Floats, rows: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]
) -> Baseline:
    """Both on some rows."""
    assert data.test is not None
    client = np.repeat(np.arange(data.test.count), data.test.sizes)[rows]
    ends: Ints = np.concatenate([[0], np.cumsum(np.bincount(client, minlength=data.test.count))]).astype(np.int64)
    labels, units = data.test.y.numpy()[rows], None if data.test_units is None else data.test_units[rows]
    ours, other = (rank(one[rows], labels, ends, data.test_names, units=units) for one in (scores, theirs))
    return Baseline(other, difference(ours, other))
