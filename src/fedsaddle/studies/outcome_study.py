"""A study of several classes, a number, a count or a time to an event: chosen on validation rows, tested once."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from fedsaddle.array_types import Bools, Floats, Ints
from fedsaddle.config.build import build_on
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Dataset
from fedsaddle.data.tables.later_rows import Encoder
from fedsaddle.documents.summary import Coefficients, Ends, OutcomeSummary, PredictedBin, SiteOutcome, StoredCurve
from fedsaddle.documents.summary import StoredFigure as Stored
from fedsaddle.errors import BadInput
from fedsaddle.files import JsonObject, write_atomically
from fedsaddle.metrics.outcomes import Figures, Influenced, mean_of
from fedsaddle.metrics.survival import kaplan_meier
from fedsaddle.problems.protocols import HasModel
from fedsaddle.report.predictions import CHOICE
from fedsaddle.runs.checkpoints import measured_loss
from fedsaddle.runs.folder import RunFolder
from fedsaddle.studies.candidates import FEDAVG
from fedsaddle.studies.coefficients import coefficients
from fedsaddle.studies.model_loader import write_loader
from fedsaddle.studies.outcomes import MAIN, Outcome
from fedsaddle.studies.search import Choice, write_trials
from fedsaddle.studies.site_questions import Model
from fedsaddle.studies.table_config import TableConfig
from fedsaddle.studies.table_study import StudyOptions, settings_of
from fedsaddle.text import safe_cell

if TYPE_CHECKING:
    import pandas as pd


LEAST_ROWS = 10  # of a site or a group whose figures are shown
LEAST_EVENTS = 5
LEAST_AT_RISK = 5  # up to where a curve is drawn
RISK_GROUPS = 3
BINS = 10


@dataclass(frozen=True, eq=False)
class FinishedOutcome:
    """A search that is done: the test rows are looked at here, once."""

    table: TableConfig
    options: StudyOptions
    folder: RunFolder
    dataset: Dataset
    data: FederatedData  # with labels as they were trained on
    outcome: Outcome
    choice: Choice
    about: JsonObject  # missing cells, notes and cautions

    @property
    def _models(self) -> dict[str, Model]:
        return {CHOICE: self.choice.chosen, FEDAVG: self.choice.fedavg}

    @cached_property
    def judged(self) -> Outcome:
        """The outcome, of times to an event with the baseline hazard of the training rows."""
        if self.outcome.kind != "survival":
            return self.outcome
        chosen = self.choice.chosen
        return self.outcome.with_baseline(chosen.rank(chosen.data.train.x), self.data.train.y)

    @cached_property
    def scores(self) -> dict[str, Floats]:
        """Of the test rows."""
        found = {}
        for name, model in self._models.items():
            assert model.data.test is not None
            found[name] = model.rank(model.data.test.x)
        return found

    @cached_property
    def units(self) -> Ints | None:
        """Patients of the test rows, by number."""
        units = self.data.test_units
        return None if units is None else np.unique(units, return_inverse=True)[1].astype(np.int64)

    @cached_property
    def site(self) -> Ints:
        """Of each test row."""
        assert self.data.test is not None
        offsets = self.data.test.offsets
        return np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))

    def write(self) -> OutcomeSummary:
        """Evaluate and write the files."""
        content = self._summary()
        write_trials(self.choice.trials, self.folder.trials_table)
        self._write_model()
        self._write_predictions()
        trial = self.choice.chosen.trial
        history = RunFolder(trial.folder / trial.name).history()
        self.folder.begin(history)
        settings = {**settings_of(self.table, self.options), "trial": trial.experiment().model_dump(mode="json")}
        self.folder.write_config(settings, describe(self.data).to_dict())
        summary = OutcomeSummary.model_validate(content)
        self.folder.write_summary(summary)
        return summary

    def _summary(self) -> JsonObject:
        chosen, test, outcome = self.choice.chosen, self.data.test, self.judged
        assert test is not None
        run = RunFolder(chosen.trial.folder / chosen.trial.name).read_run()
        each = {name: outcome.figures(scores, test.y, self.site) for name, scores in self.scores.items()}
        gaps: Figures = {}
        if self.choice.name != FEDAVG:
            gaps = {key: own.minus(each[FEDAVG][key]) for key, own in each[CHOICE].items() if key in each[FEDAVG]}
        effects = coefficients(self.choice.default, outcome.measure, outcome.scale if outcome.kind == "number" else 1.0)
        cautions = [*self.about["cautions"], *([effects] if isinstance(effects, str) else [])]
        sites, few = self._by_part(self.site, self.data.test_names)
        groups, fewer = self._by_group()
        curves, fewest = self._curves()
        parts = (("train", self.data.train), ("validation", self.data.validation), ("test", test))
        baseline = outcome.baseline
        found: JsonObject = {
            "outcome": outcome.kind,
            "algorithm": self.choice.name,
            "problem": measured_loss(chosen.algorithm.problem),
            "choice": self.choice.name,
            "aim": self.choice.aim,
            "reason": self.choice.reason,
            "step": chosen.trial.step,
            "label": self.table.label,
            "event": self.table.event,
            "class_names": list(outcome.classes),
            "horizon": outcome.horizon,
            "baseline": None if baseline is None else {"times": list(baseline.times), "rates": list(baseline.rates)},
            "figures": {CHOICE: self._stored(each[CHOICE]), FEDAVG: self._stored(each[FEDAVG])}
            | {"difference": self._stored(gaps)},
            "site_figures": sites,
            "groups": groups,
            "calibration": self._calibration(),
            "curves": curves,
            "hidden": [*few, *fewer, *fewest],
            "rows": {part: len(rows.y) for part, rows in parts if rows is not None},
            "stopped": "finished",
            "rounds": run.rounds,
            "selected_round": chosen.selected_round,
            **{key: value for key, value in self.about.items() if key != "cautions"},
            "cautions": cautions,
            "trials": len(self.choice.trials),
            "cut": list(self.choice.cut),
            "budget": self.options.budget,
            "seconds": round(self.choice.seconds, 3),
            "ledger": run.ledger,
            "engine": run.engine,
            "fingerprint": run.fingerprint,
        }
        return found | ({"coefficients": effects} if isinstance(effects, Coefficients) else {})

    def _stored(self, figures: Figures, rows: Bools | None = None) -> dict[str, Stored]:
        units = self.units if self.units is None or rows is None else self.units[rows]
        return {name: _figure(figure, units) for name, figure in figures.items()}

    def _by_part(self, part: Ints, names: Sequence[str]) -> tuple[list[SiteOutcome], list[str]]:
        """The figures of each site or group, and the names of those with too few rows or events."""
        test, outcome = self.data.test, self.judged
        assert test is not None
        found, few = [], []
        for k, name in enumerate(names):
            rows = part == k
            events = int(test.y[rows][:, 1].sum()) if outcome.kind == "survival" else None
            if rows.sum() < LEAST_ROWS or (events is not None and events < LEAST_EVENTS):
                few.append(name)
                continue
            scores = self.scores[CHOICE][rows]
            figures = self._of_part(outcome.figures(scores, test.y[rows], self.site[rows]))
            own = self._stored(figures, rows)
            found.append(SiteOutcome(name=name, rows=int(rows.sum()), events=events, figures=own))
        return found, few

    def _of_part(self, figures: Figures) -> Figures:
        """Those that mean something for one site or group."""
        if self.outcome.kind == "classes":
            return {key: figures[key] for key in ("accuracy", "log_loss")}
        return {key: figure for key, figure in figures.items() if key != "concordance_within_sites"}

    def _by_group(self) -> tuple[dict[str, list[SiteOutcome]], list[str]]:
        found, few = {}, []
        for column, cells in self.data.test_groups.items():
            names, codes = np.unique(np.asarray(cells).astype(str), return_inverse=True)
            shown = [name or "missing" for name in names]
            found[column], own = self._by_part(codes.astype(np.int64), shown)
            few += [f"{column} = {name}" for name in own]
        return found, few

    def _calibration(self) -> list[PredictedBin]:
        """Predicted and observed in tenths of the predictions; of survival at the horizon, of classes of the last."""
        test, outcome, scores = self.data.test, self.judged, self.scores[CHOICE]
        assert test is not None
        if outcome.kind == "classes":
            return []
        predicted, true = outcome.predictions(scores), outcome.truth(test.y)
        if outcome.kind == "survival":
            assert outcome.baseline is not None
            assert outcome.horizon is not None
            predicted = outcome.baseline.survival(scores, outcome.horizon)
        bins = min(BINS, len(scores) // LEAST_ROWS)
        if bins < 2:
            return []
        edges = np.quantile(predicted, np.arange(1, bins) / bins)
        place, found = np.searchsorted(edges, predicted, side="right"), []
        for k in range(bins):
            rows = place == k
            if rows.sum() < LEAST_ROWS:
                continue
            observed, ends = self._observed(rows, true, outcome)
            mean = float(np.average(predicted[rows], weights=true[rows, 1] if outcome.kind == "count" else None))
            found.append(PredictedBin(rows=int(rows.sum()), predicted=mean, observed=observed, interval=ends))
        return found

    def _observed(self, rows: Bools, true: Floats, outcome: Outcome) -> tuple[float, Ends | None]:
        """What came in some rows: a mean, a rate, or the share without an event by the horizon."""
        if outcome.kind == "survival":
            assert outcome.horizon is not None
            curve = kaplan_meier(true[rows, 0], true[rows, 1])
            k = int(np.searchsorted(curve.time, outcome.horizon, side="right")) - 1
            return (1.0, None) if k < 0 else (float(curve.survival[k]), (float(curve.low[k]), float(curve.high[k])))
        units = None if self.units is None else self.units[rows]
        if outcome.kind == "number":
            figure = mean_of(true[rows])
        else:
            count, exposure = true[rows].T
            rate = float(count.sum() / exposure.sum())
            figure = Influenced(rate, (count - rate * exposure) / exposure.sum(), "positive")
        own = figure.interval(units)
        return figure.value, None if own is None else (own.low, own.high)

    def _curves(self) -> tuple[list[StoredCurve], list[str]]:
        """Kaplan-Meier by site and by thirds of the risk, as far as enough rows are at risk."""
        test = self.data.test
        assert test is not None
        if self.outcome.kind != "survival":
            return [], []
        time, event = self.outcome.truth(test.y).T
        train = self.choice.chosen.rank(self.choice.chosen.data.train.x)
        cuts = np.quantile(train, np.arange(1, RISK_GROUPS) / RISK_GROUPS)
        third = np.searchsorted(cuts, self.scores[CHOICE], side="right")
        words = ("low risk", "middle risk", "high risk")
        listed = [("risk group", word, third == k) for k, word in enumerate(words)]
        listed += [("site", name, self.site == k) for k, name in enumerate(self.data.test_names)]
        found, few = [], []
        for kind, name, rows in listed:
            events = int(event[rows].sum())
            if rows.sum() < LEAST_ROWS or events < LEAST_EVENTS:
                few += [name] if kind == "risk group" else []
                continue
            curve = kaplan_meier(time[rows], event[rows]).until(LEAST_AT_RISK)
            parts = {key: getattr(curve, key).tolist() for key in ("time", "survival", "low", "high")}
            about = {"name": name, "kind": kind, "rows": int(rows.sum()), "events": events}
            found.append(StoredCurve.model_validate({**about, **parts}))
        return found, few

    def _write_predictions(self) -> None:
        """predictions.csv: a line for each test row, with its label and what was predicted."""
        test, outcome = self.data.test, self.judged
        assert test is not None
        true, rows = outcome.truth(test.y), self.data.test_rows
        found: dict[str, Sequence[object]] = {} if rows is None else {"row": rows.tolist()}
        names = np.array([safe_cell(name) for name in self.data.test_names], dtype=object)
        found["site"] = names[self.site].tolist()
        if outcome.kind == "classes":
            found["label"] = [safe_cell(outcome.classes[int(k)]) for k in true]
        elif true.ndim == 1:
            found["label"] = [f"{v:.8g}" for v in true]
        else:
            pair = ("time", "event") if outcome.kind == "survival" else ("label", "exposure")
            found |= {key: [f"{v:.8g}" for v in true[:, k]] for k, key in enumerate(pair)}
        for model, front in ((CHOICE, ""), (FEDAVG, "fedavg_")):
            own = outcome.predictions(self.scores[model])
            if outcome.kind == "classes":
                for k, name in enumerate(outcome.classes):
                    found[safe_cell(f"{front}probability of {name}")] = [f"{p:.8g}" for p in own[:, k]]
            else:
                word = "log_hazard_ratio" if outcome.kind == "survival" else "prediction"
                found[f"{front}{word}"] = [f"{v:.8g}" for v in own]
        if self.units is not None:
            found["unit"] = self.units.tolist()
        text = io.StringIO()
        lines = csv.writer(text, lineterminator="\n")
        lines.writerow(found)
        lines.writerows(zip(*found.values(), strict=True))
        write_atomically(self.folder.predictions, text.getvalue().encode())

    def _write_model(self) -> None:
        chosen = self.choice.chosen
        problem = chosen.algorithm.problem
        assert isinstance(problem, HasModel)
        module = problem.module(chosen.vector)
        self.folder.write_model({k: v.contiguous() for k, v in module.state_dict().items()})
        setup = build_on(chosen.trial.experiment(), chosen.data)
        write_loader(setup.model, chosen.data, module, self.folder.path, prediction=prediction_source(self.judged))


def _figure(figure: Influenced, units: Ints | None) -> Stored:
    own = figure.interval(units)
    return Stored(value=figure.value, interval=None if own is None else (own.low, own.high))


def main_figure(summary: OutcomeSummary) -> tuple[str, Stored | None]:
    """The figure that a line of text names."""
    name = MAIN[summary.outcome]
    return name, summary.figures[CHOICE].get(name)


SOURCES: Mapping[str, str] = {
    "classes": '''
CLASSES = {classes!a}
OUTPUTS = tuple(f"probability of {{name}}" for name in CLASSES)


def prediction(scores: torch.Tensor) -> torch.Tensor:
    """The probability of each of CLASSES."""
    return scores.softmax(-1)
''',
    "number": '''
OUTPUTS = ("prediction",)


def prediction(scores: torch.Tensor) -> torch.Tensor:
    """The number for each score."""
    return {center!r} + {scale!r} * scores.flatten()
''',
    "count": '''
OUTPUTS = ("rate",)


def prediction(scores: torch.Tensor) -> torch.Tensor:
    """The rate for each score: the count for one unit of exposure."""
    return {scale!r} * scores.flatten().exp()
''',
    "survival": '''
TIMES = {times!r}  # at which survival is predicted
BASELINE = {hazards!r}  # the cumulative hazard of an average row at these times
OUTPUTS = tuple(f"no event by {{time:g}}" for time in TIMES)


def prediction(scores: torch.Tensor) -> torch.Tensor:
    """The probability of no event by each of TIMES."""
    return torch.exp(-torch.tensor(BASELINE) * scores.flatten().exp()[:, None])
''',
}


def prediction_source(outcome: Outcome) -> str:
    """The function of load_model.py that makes predictions of scores."""
    source = SOURCES[outcome.kind]
    if outcome.kind != "survival":
        return source.format(classes=outcome.classes, center=outcome.center, scale=outcome.scale)
    times = horizons(outcome)
    assert outcome.baseline is not None
    return source.format(times=times, hazards=outcome.baseline.cumulative(np.array(times)).tolist())


def horizons(outcome: Outcome) -> list[float]:
    """Half the horizon, the horizon and twice it."""
    assert outcome.horizon is not None
    return [outcome.horizon * factor for factor in (0.5, 1.0, 2.0)]


@dataclass(frozen=True, eq=False)
class OutcomeStudy:
    """What a study of several classes, a number, a count or a time to an event found; `summary` is summary.json."""

    choice: Choice
    outcome: Outcome
    summary: OutcomeSummary
    folder: Path | None
    report: Path | None
    encoder: Encoder | None = None  # of later rows
    site: str | None = None

    def predict(self, rows: pd.DataFrame | Mapping[str, object] | Sequence[Mapping[str, object]]) -> Floats:
        """For each of some rows the probability of each class, the number, the rate, or the relative hazard.

        Args:
            rows: a DataFrame with the columns of the table, a dictionary or a list of them.

        Raises:
            BadInput: for a missing column, and for cells that cannot be read.
        """
        found = self.outcome.predictions(self._scores(rows))
        return np.exp(found) if self.outcome.kind == "survival" else found

    def predict_survival(
        self, rows: pd.DataFrame | Mapping[str, object] | Sequence[Mapping[str, object]], times: Sequence[float]
    ) -> Floats:
        """The probability of no event by each of some times, `(rows, times)`.

        Args:
            rows: a DataFrame with the columns of the table, a dictionary or a list of them.
            times: in the unit of the table.

        Raises:
            BadInput: for another outcome, for a missing column, and for cells that cannot be read.
        """
        baseline = self.outcome.baseline
        if baseline is None:
            raise BadInput("outcome", self.outcome.kind, "has no survival; call predict")
        scores = self._scores(rows)
        return np.stack([baseline.survival(scores, time) for time in times], 1)

    def _scores(self, rows: object) -> Floats:
        assert self.encoder is not None
        return self.choice.chosen.rank(torch.from_numpy(self.encoder.encode_later(rows, self.site)))

    def __str__(self) -> str:
        name, figure = main_figure(self.summary)
        said = "" if figure is None else f": {name.replace('_', ' ')} {figure.value:.4f} on test rows"
        return f"{self.choice.name}{said}; {self.choice.reason}"
