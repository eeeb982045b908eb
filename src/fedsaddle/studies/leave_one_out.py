"""`--leave-one-site-out`: each site is scored by a model that was trained without it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.array_types import Floats
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput
from fedsaddle.files import Record, write_atomically
from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.ranking import Ranking, difference, rank
from fedsaddle.studies.candidates import AVERAGED, FEDAVG
from fedsaddle.studies.pool import Interrupted, torch_threads
from fedsaddle.studies.search import Choice
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.studies.trial import INTERRUPTED, Trial, ranked, run_trial
from fedsaddle.text import safe_cell

FILE = "leave-one-site-out.csv"


@dataclass(frozen=True)
class LeaveOneSiteOut:
    """Scores of all rows by models that have not seen their sites."""

    rankings: dict[str, Ranking]  # of the choice and of FedAvg
    rows: NDArray[np.int64]  # in the file, from 0
    sites: tuple[str, ...]  # of each row
    labels: NDArray[np.int64]
    scores: Floats
    probabilities: Floats

    def summary(self) -> Record:
        """For the summary."""
        found: Record = {}
        for name, ranking in self.rankings.items():
            plain = ranking.to_dict()
            found[name] = {**plain["pooled"], **{key: plain[key] for key in ("within_site_auroc", "clients")}}
        if len(self.rankings) > 1:
            gap = difference(*list(self.rankings.values())[:2]).to_dict()
            found["difference"] = {k: v for k, v in gap.items() if k not in ("name", "clients")}
        return found

    def write(self, out: Path) -> None:
        """Write every row's score and probability."""
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(["row", "site", "label", "score", "probability"])
        for row, site, label, s, p in zip(
            self.rows, self.sites, self.labels, self.scores, self.probabilities, strict=True
        ):
            lines.writerow([row, safe_cell(site), label, f"{s:.8g}", f"{p:.8g}"])
        write_atomically(out / FILE, text.getvalue().encode())


def leave_one_site_out(
    table: TableConfig,
    dataset: Dataset,
    choice: Choice,
    say: Callable[[str, int, int], None],
    stop: Callable[[], bool],
) -> LeaveOneSiteOut:
    """Train what was chosen and FedAvg without each site in turn, with the steps that were chosen.

    That is the whole way to the delivered model: the model that a second stage starts from, and both models of an
    average.
    """
    names = np.unique(dataset.train.columns[table.site]).tolist()
    recipes = {choice.name: _recipe(choice)} | ({} if choice.name == FEDAVG else {FEDAVG: (choice.fedavg.trial,)})
    parts: list[dict[str, tuple[Floats, Floats]]] = []
    datas: list[FederatedData] = []
    first = choice.default.trial
    with torch_threads(first.threads):
        for done, site in enumerate(names):
            say(f"without {site}", done, len(names))
            data = replace(table, test_sites=(site,)).federated(dataset)
            datas.append(data)
            parts.append({name: _without(data, recipe, first, stop) for name, recipe in recipes.items()})
    labels = np.concatenate([_test(d)[0] for d in datas])
    sizes = [len(_test(d)[0]) for d in datas]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    units = None
    if all(d.test_units is not None for d in datas):
        units = np.concatenate([np.asarray(d.test_units)[-n:].astype(str) for d, n in zip(datas, sizes, strict=True)])
    rankings = {}
    for name in recipes:
        scores = np.concatenate([part[name][0] for part in parts])
        rankings[name] = rank(scores, labels, offsets, names, units=units)
    return LeaveOneSiteOut(
        rankings,
        np.concatenate([_test(d)[1] for d in datas]),
        tuple(site for site, n in zip(names, sizes, strict=True) for _ in range(n)),
        labels,
        rankings[choice.name].scores,
        np.concatenate([part[choice.name][1] for part in parts]),
    )


def _recipe(choice: Choice) -> tuple[Trial, ...]:
    """The trials whose models are averaged to the chosen one: one, or the default and the one with hinges."""
    own = choice.chosen.trial
    return (choice.default.trial, own) if choice.name == AVERAGED else (own,)


def _test(data: FederatedData) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels and row numbers of the site that is left out, the last one of the test rows."""
    assert data.test is not None
    assert data.test_rows is not None
    first = int(data.test.offsets[-2])
    return data.test.y.numpy()[first:], data.test_rows[first:]


def _without(
    data: FederatedData, recipe: Sequence[Trial], first: Trial, stop: Callable[[], bool]
) -> tuple[Floats, Floats]:
    """Scores and probabilities of the site that is left out; a second stage starts from the model of `first`."""
    assert data.validation is not None
    held, scores = [], []
    with TemporaryDirectory() as folder:
        for trial in recipe:
            place = Path(folder)
            if trial.start is not None:
                _trained(replace(first, folder=place), data, stop)
                trial = replace(trial, start=place / first.name)
            model, problem, own = _trained(replace(trial, folder=place), data, stop)
            assert own.validation is not None
            assert own.test is not None
            held.append(ranked(problem, model, own.validation.x))
            scores.append(ranked(problem, model, own.test.x[int(own.test.offsets[-2]) :]))
    log_odds = recipe[0].candidate.log_odds
    platt = Platt.fit(np.mean(held, axis=0), data.validation.y.numpy(), log_odds=log_odds)
    mean = np.mean(scores, axis=0)
    return mean, platt.probability(mean)


def _trained(trial: Trial, data: FederatedData, stop: Callable[[], bool]) -> tuple[Tensor, object, FederatedData]:
    """The model of a trial on these rows, its problem and its features."""
    outcome = run_trial(replace(trial, rounds=trial.candidate.rounds), lambda progress: None, stop, data=data)
    if outcome.failure == INTERRUPTED:
        raise Interrupted("interrupted; the search is kept. Continue with --resume")
    if outcome.model is None:
        raise BadInput("--leave-one-site-out", trial.candidate.name, f"{outcome.failure} without one of the sites")
    setup = trial.setup(data)
    return outcome.model, setup.algorithm.problem, setup.data
