"""`--leave-one-site-out`: each site is scored by a model that was trained without it."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table

from fedsaddle.atomic import write_atomically
from fedsaddle.commands.table_config import TableConfig
from fedsaddle.config.build import build_algorithm
from fedsaddle.csv_cells import safe_cell
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Dataset
from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.ranking import Ranking, difference, rank
from fedsaddle.report import roc
from fedsaddle.runs.run import run
from fedsaddle.trials.candidates import FEDAVG
from fedsaddle.trials.search import Choice, Interrupted, Model
from fedsaddle.trials.trial import features_of, ranked

Floats = NDArray[np.float64]
FILE = "leave-one-site-out.csv"


@dataclass(frozen=True)
class LeftOut:
    """Scores of all rows by models that have not seen their sites."""

    rankings: dict[str, Ranking]  # of the default and of FedAvg
    rows: NDArray[np.int64]  # in the file, from 0
    sites: tuple[str, ...]  # of each row
    labels: NDArray[np.int64]
    scores: Floats
    probabilities: Floats

    def table(self) -> Table:
        """For the terminal."""
        shown = roc.table(self.rankings, "left-out sites'")
        shown.title = "AUROC at sites that were not trained on, with 95 % intervals"
        return shown

    def summary(self) -> dict[str, Any]:
        """For the summary."""
        found = {name: ranking.to_dict()["pooled"] for name, ranking in self.rankings.items()}
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
) -> LeftOut:
    """Train the choice's first stage and FedAvg without each site in turn, with the steps that were chosen."""
    names = np.unique(dataset.train.columns[table.site]).tolist()
    ours = choice.chosen if choice.chosen.trial.candidate.start is None else choice.default
    first = ours.trial.candidate.name
    models = {first: ours} | ({} if first == FEDAVG else {FEDAVG: choice.fedavg})
    parts: list[dict[str, tuple[Floats, Floats]]] = []
    datas: list[FederatedData] = []
    for done, site in enumerate(names):
        say(f"without {site}", done, len(names))
        if stop():
            raise Interrupted("interrupted; the search is kept. Continue with --resume")
        data = replace(table, test_sites=(site,)).federated(dataset)
        datas.append(data)
        parts.append({name: _without(data, model) for name, model in models.items()})
    labels = np.concatenate([_test(d)[0] for d in datas])
    sizes = [len(_test(d)[0]) for d in datas]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    units = None
    if all(d.test_units is not None for d in datas):
        units = np.concatenate([np.asarray(d.test_units)[-n:].astype(str) for d, n in zip(datas, sizes, strict=True)])
    rankings = {}
    for name in models:
        scores = np.concatenate([part[name][0] for part in parts])
        rankings[name] = rank(scores, labels, offsets, names, units=units)
    return LeftOut(
        rankings,
        np.concatenate([_test(d)[1] for d in datas]),
        tuple(site for site, n in zip(names, sizes, strict=True) for _ in range(n)),
        labels,
        rankings[first].scores,
        np.concatenate([part[first][1] for part in parts]),
    )


def _test(data: FederatedData) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels and row numbers of the site that is left out, the last one of the test rows."""
    assert data.test is not None
    assert data.test_rows is not None
    first = int(data.test.offsets[-2])
    return data.test.y.numpy()[first:], data.test_rows[first:]


def _without(data: FederatedData, model: Model) -> tuple[Floats, Floats]:
    """Scores and probabilities of the site that is left out."""
    candidate, trial = model.trial.candidate, model.trial
    own = features_of(data, candidate)
    config = candidate.config(trial.step, trial.seed)
    algorithm = build_algorithm(config, own)[0]
    result = run(
        algorithm,
        own.without_test(),
        candidate.rounds,
        seed=trial.seed,
        evaluate_every=candidate.rounds,
        warn=lambda text: None,
    )
    assert own.validation is not None
    assert own.test is not None
    platt = Platt.fit(ranked(algorithm.problem, result.model, own.validation.x), own.validation.y.numpy())
    scores = ranked(algorithm.problem, result.model, own.test.x[int(own.test.offsets[-2]) :])
    return scores, platt.probability(scores)
