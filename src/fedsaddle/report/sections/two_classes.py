"""What the sections on two classes have in common: rankings, the threshold and names, worked out once for a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.calibration import Threshold
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import Difference, Ranking, RankingFigures, difference, rank
from fedsaddle.metrics.subgroups import Rows
from fedsaddle.report.predictions import CHOICE, FEDAVG
from fedsaddle.report.sections.numbers import DAMAGED
from fedsaddle.report.stored_run import HeldOut, StoredRun
from fedsaddle.shown import visible

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ModelFigures:
    """How a model ranks: all rows together, within sites, and by site. From its scores, or as roc.json has it."""

    name: str
    pooled: RankingFigures
    within: Interval | None
    sites: tuple[RankingFigures, ...]
    curve: tuple[Floats, Floats] | None  # false and true positive rates
    ranking: Ranking | None = None  # None where the scores are not known


@dataclass(frozen=True, eq=False)
class TwoClasses:
    """A run with two classes: its figures, by model, and how to speak of it."""

    models: Mapping[str, ModelFigures]  # "choice" and, where it is another model, "FedAvg"
    difference: Difference | None  # of the choice and FedAvg
    outcome: str  # such as "died = yes"
    part: str  # "test", or "training" where no rows were held out
    test: HeldOut | None = None
    threshold: float | None = None
    threshold_reason: str = ""
    compared: str = "tuned alike"  # how FedAvg was trained
    kept: dict[str, Any] = field(default_factory=dict)  # what several sections need, by name

    @property
    def choice(self) -> ModelFigures:
        """The model that the run made."""
        return self.models[CHOICE]

    @property
    def other(self) -> ModelFigures | None:
        """FedAvg, where it was compared and is another model."""
        return self.models.get(FEDAVG)

    @property
    def labels(self) -> Ints:
        """1 for each positive row."""
        return np.zeros(0, dtype=np.int64) if self.test is None else self.test.labels

    @property
    def units(self) -> Ints | None:
        """The patient of each row."""
        return None if self.test is None else self.test.units

    def probabilities(self, model: str = CHOICE) -> Floats | None:
        """The probabilities of the test rows, if they were written and the model is shown."""
        return None if self.test is None or model not in self.models else self.test.probabilities.get(model)

    def rows_by_site(self) -> Rows | None:
        """The test rows in sites."""
        return None if self.test is None else self._rows(self.test.sites, self.test.names)

    def rows_by_group(self, column: str) -> Rows | None:
        """The test rows in the groups of a column."""
        if self.test is None or column not in self.test.groups:
            return None
        names, codes = np.unique(self.test.groups[column], return_inverse=True)
        order = sorted(range(len(names)), key=lambda k: _place(str(names[k])))
        places = np.empty(len(names), dtype=np.int64)
        places[order] = np.arange(len(names))
        return self._rows(places[codes], [visible(names[k]) or "(missing)" for k in order])

    def _rows(self, group: Ints, names: Any) -> Rows:
        assert self.test is not None
        return Rows(
            scores=self.test.scores[CHOICE],
            positive=self.test.labels > 0,
            group=group,
            names=[visible(name) for name in names],
            probabilities=self.probabilities(),
            threshold=self.threshold,
            units=self.test.units,
        )


_KNOWN: WeakKeyDictionary[StoredRun, TwoClasses | None] = WeakKeyDictionary()


def two_classes(run: StoredRun) -> TwoClasses | None:
    """The figures of a run with two classes, from its predictions or else from roc.json; None without any."""
    if run not in _KNOWN:
        _KNOWN[run] = _from_predictions(run) or _stored(run)
    return _KNOWN[run]


def _from_predictions(run: StoredRun) -> TwoClasses | None:
    test = run.test
    if test is None or CHOICE not in test.scores:
        return None
    stored, names = _stored(run), _names(run)
    if stored is not None:
        test = _with_all_sites(test, [site.name for site in stored.choice.sites])
    models: dict[str, ModelFigures] = {}
    for model, scores in test.scores.items():
        if model == FEDAVG and np.array_equal(scores, test.scores[CHOICE]):
            continue
        ranking = rank(scores, test.labels, test.offsets, test.names, units=test.units)
        own = (ranking.pooled, ranking.within_site_auroc, ranking.clients, ranking.curve(), ranking)
        models[model] = ModelFigures(names[model], *own)
    if stored is not None and test.units is None and run.search.get("patient"):  # patients are known to roc.json alone
        for model in models.keys() & stored.models.keys():
            models[model] = replace(stored.models[model], ranking=models[model].ranking, curve=models[model].curve)
    gap = None
    if FEDAVG in models:
        gap = difference(*(m.ranking for m in models.values() if m.ranking is not None))
    elif FEDAVG not in test.scores and stored is not None and FEDAVG in stored.models:  # of an older version
        fits = [s.name for s in stored.models[FEDAVG].sites] == [s.name for s in models[CHOICE].sites]
        if fits:
            models[FEDAVG], gap = stored.models[FEDAVG], stored.difference
    threshold, reason = _threshold(run)
    return TwoClasses(models, gap, outcome_of(run), "test", test, threshold, reason, _compared(run))


def _with_all_sites(test: HeldOut, names: list[str]) -> HeldOut:
    """The rows with all sites in the order of roc.json, also those without a row."""
    if len(set(names)) < len(names) or not set(test.names) <= set(names):
        return test
    place = {name: k for k, name in enumerate(names)}
    return test.reordered(np.array([place[name] for name in test.names], dtype=np.int64)[test.sites], names)


def _stored(run: StoredRun) -> TwoClasses | None:
    """The figures as roc.json has them."""
    try:
        found, names = run.roc["models"], _names(run)
        other = FEDAVG if FEDAVG in found and len(found) > 1 else None
        first = next(name for name in found if name != other)
        models = {CHOICE: _model(names[CHOICE], found[first])}
        if other is not None:
            models[FEDAVG] = _model(FEDAVG, found[other])
        gap = run.roc.get("difference")
        gap, part = None if gap is None else _difference(gap), str(run.roc.get("part", "test"))
        return TwoClasses(models, gap, outcome_of(run), part, compared=_compared(run))
    except (*DAMAGED, StopIteration):
        return None


def _model(name: str, found: dict[str, Any]) -> ModelFigures:
    curve = found.get("curve")
    points = None
    if curve is not None:
        points = (np.array(curve["false_positive_rate"], float), np.array(curve["true_positive_rate"], float))
        if points[0].shape != points[1].shape or not np.isfinite(np.stack(points)).all():
            raise ValueError("no curve")
    sites = tuple(_ranked(site) for site in found["clients"])
    return ModelFigures(name, _ranked(found["pooled"]), _interval(found["within_site_auroc"]), sites, points)


def _ranked(found: dict[str, Any]) -> RankingFigures:
    own = (_interval(found.get(key)) for key in ("auroc", "average_precision", "partial_auroc"))
    return RankingFigures(str(found["name"]), int(found["positives"]), int(found["negatives"]), *own)


def _difference(found: dict[str, Any]) -> Difference:
    keys = ("auroc", "average_precision", "partial_auroc", "within_site_auroc")
    return Difference("pooled", **{key: _interval(found.get(key)) for key in keys})  # type: ignore[arg-type]


def _interval(found: Any) -> Interval | None:
    if found is None:
        return None
    low, high = found["interval"]
    figure = Interval(float(found["value"]), float(low), float(high))
    if not np.isfinite([figure.value, figure.low, figure.high]).all():
        raise ValueError("no figure")
    return figure


def _compared(run: StoredRun) -> str:
    return "tuned alike" if run.is_search else "not tuned, with the same model, rounds and batches"


def _names(run: StoredRun) -> dict[str, str]:
    name = visible(run.summary.get("choice") or run.name)
    return {CHOICE: name, FEDAVG: FEDAVG if name != FEDAVG else "FedAvg, to compare"}


def _threshold(run: StoredRun) -> tuple[float | None, str]:
    """The run's threshold, rounded as predictions.csv is, or the default on its validation rows."""
    try:
        found = run.summary["threshold"]
        threshold, reason = float(found["probability"]), str(found.get("reason", ""))
        if 0 <= threshold <= 1:
            return float(f"{threshold:.8g}"), visible(reason)
    except DAMAGED:
        pass
    held = run.validation
    if held is None or CHOICE not in held.probabilities or not 0 < held.labels.sum() < len(held.labels):
        return None, ""
    chosen = Threshold.default(held.probabilities[CHOICE], held.labels, held.units)
    return chosen.probability, chosen.reason


def outcome_of(run: StoredRun) -> str:
    """What is predicted, such as "died = yes"."""
    data = run.config.get("data")
    own = data if isinstance(data, dict) else {}
    label, positive = run.search.get("label") or own.get("target"), run.summary.get("positive", own.get("positive"))
    if label and positive is not None:
        return f"{visible(label)} = {visible(positive)}"
    return f"{visible(positive)}" if positive is not None else "a positive label"


def _place(name: str) -> tuple[int, float, str]:
    """Where a group stands: numbers in their order, then words, then those without a value."""
    if name in ("", "(missing)", "(other)"):
        return 2, float(name != "(other)"), name
    first = name.removeprefix("up to ").split(" ", 1)[0]
    try:
        return 0, float(first) - name.startswith("up to ") * 1e-9, name
    except ValueError:
        return (0 if name.startswith("up to ") else 1), 0.0, name
