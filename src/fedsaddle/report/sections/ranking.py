"""How well the model separates two classes, and what the sections on two classes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.documents.stored import ModelDifference, RankedModel
from fedsaddle.documents.summary import RankedClient, StoredFigure
from fedsaddle.metrics.calibration import AtThreshold, Reliability, Threshold, at_threshold, reliability
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import (
    GRID,
    PrecisionRecall,
    Ranking,
    RankingDifference,
    RankingFigures,
    client_band,
    difference,
    pooled_band,
    precision_recall,
    rank,
)
from fedsaddle.metrics.subgroups import RowsInGroups, Subgroups, Worst, subgroups, worst
from fedsaddle.report.page.charts import ChartAxis, Line, line_chart
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text
from fedsaddle.report.predictions import CHOICE, FEDAVG
from fedsaddle.report.stored_run import HeldOut, StoredRun
from fedsaddle.report.words import brief, brief_percent, decimal, many, of_100, percent, with_interval
from fedsaddle.text import visible


@dataclass(frozen=True, eq=False)
class ModelRanking:
    """How a model ranks, from its scores or from roc.json.

    Args:
        name: Of the model.
        pooled: Figures of all rows together.
        within: AUROC within sites.
        sites: Figures of each site.
        curve: False and true positive rates.
        ranking: None where the scores are not known.
    """

    name: str
    pooled: RankingFigures
    within: Interval | None
    sites: tuple[RankingFigures, ...]
    curve: tuple[Floats, Floats] | None
    ranking: Ranking | None = None


@dataclass(frozen=True, eq=False)
class TwoClasses:
    """A run with two classes: its figures, by model, and how to speak of it.

    Args:
        models: "choice" and, where it is another model, "FedAvg".
        difference: Of the choice and FedAvg.
        outcome: Such as "died = yes".
        part: "test", or "training" where no rows were held out.
        test: The test rows; None if their scores are not known.
        threshold: From which probability on rows are called positive.
        threshold_reason: Why.
        compared: How FedAvg was trained.
    """

    models: Mapping[str, ModelRanking]
    difference: RankingDifference | None
    outcome: str
    part: str
    test: HeldOut | None = None
    threshold: float | None = None
    threshold_reason: str = ""
    compared: str = "tuned alike"

    @property
    def choice(self) -> ModelRanking:
        """The model that the run made."""
        return self.models[CHOICE]

    @property
    def other(self) -> ModelRanking | None:
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

    @cached_property
    def at_threshold(self) -> AtThreshold | None:
        """The figures of the run's threshold."""
        p = self.probabilities()
        if p is None or self.threshold is None:
            return None
        return at_threshold(p, self.labels, self.threshold, self.units)

    @cached_property
    def reliabilities(self) -> dict[str, Reliability]:
        """Of each model that has probabilities."""
        known = {model: self.probabilities(model) for model in (CHOICE, FEDAVG)}
        return {model: reliability(p, self.labels, self.units) for model, p in known.items() if p is not None}

    @cached_property
    def worst_site(self) -> Worst | None:
        """The site with the lowest AUROC, against pairs of rows within the other sites."""
        rows = self.rows_by_site()
        return None if rows is None else worst(rows, within=True)

    @cached_property
    def groups(self) -> dict[str, Subgroups]:
        """The figures of the groups of each column."""
        made = {column: self.rows_by_group(column) for column in (self.test.groups if self.test else ())}
        return {column: subgroups(rows) for column, rows in made.items() if rows is not None}

    def probabilities(self, model: str = CHOICE) -> Floats | None:
        """The probabilities of the test rows, if they were written and the model is shown.

        Args:
            model: "choice" or "FedAvg".
        """
        return None if self.test is None or model not in self.models else self.test.probabilities.get(model)

    def rows_by_site(self) -> RowsInGroups | None:
        """The test rows in sites."""
        return None if self.test is None else self._rows(self.test.sites, self.test.names)

    def rows_by_group(self, column: str) -> RowsInGroups | None:
        """The test rows in the groups of a column.

        Args:
            column: Its name.
        """
        if self.test is None or column not in self.test.groups:
            return None
        names, codes = np.unique(self.test.groups[column], return_inverse=True)
        order = sorted(range(len(names)), key=lambda k: _place(str(names[k])))
        places = np.empty(len(names), dtype=np.int64)
        places[order] = np.arange(len(names))
        return self._rows(places[codes], [visible(names[k]) or "(missing)" for k in order])

    def _rows(self, group: Ints, names: Sequence[str]) -> RowsInGroups:
        assert self.test is not None
        return RowsInGroups(
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
    """The figures of a run with two classes, from its predictions or else from roc.json; None for other runs.

    Args:
        run: The run.
    """
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
    models: dict[str, ModelRanking] = {}
    for model, scores in test.scores.items():
        if model == FEDAVG and np.array_equal(scores, test.scores[CHOICE]):
            continue
        ranking = _in_memory(run, model, test)
        if ranking is None:
            ranking = rank(scores, test.labels, test.offsets, test.names, units=test.units)
        own = (ranking.pooled, ranking.within_site_auroc, ranking.clients, ranking.curve(), ranking)
        models[model] = ModelRanking(names[model], *own)
    rankings = [m.ranking for m in models.values() if m.ranking is not None]
    gap = difference(*rankings) if len(rankings) == 2 else None
    threshold, reason = _threshold(run)
    return TwoClasses(models, gap, outcome_of(run), "test", test, threshold, reason, _compared(run))


def _in_memory(run: StoredRun, model: str, test: HeldOut) -> Ranking | None:
    """The ranking of exactly these rows that the run had in memory; None without one."""
    ranking = run.rankings.get(model)
    same = ranking is not None and (
        np.array_equal(ranking.offsets, test.offsets)
        and np.array_equal(ranking.labels > 0, test.labels > 0)
        and (ranking.units is None) == (test.units is None)
    )
    return ranking if same else None


def _with_all_sites(test: HeldOut, names: list[str]) -> HeldOut:
    """The rows with all sites in the order of roc.json, also those without a row."""
    if len(set(names)) < len(names) or not set(test.names) <= set(names):
        return test
    place = {name: k for k, name in enumerate(names)}
    return test.reordered(np.array([place[name] for name in test.names], dtype=np.int64)[test.sites], names)


def _stored(run: StoredRun) -> TwoClasses | None:
    """The figures as roc.json has them."""
    if run.roc is None:
        return None
    stored, names = run.roc.models, _names(run)
    other = FEDAVG if FEDAVG in stored and len(stored) > 1 else None
    first = next(name for name in stored if name != other)
    models = {CHOICE: _model(names[CHOICE], stored[first])}
    if other is not None:
        models[FEDAVG] = _model(FEDAVG, stored[other])
    gap = None if run.roc.difference is None else _difference(run.roc.difference)
    return TwoClasses(models, gap, outcome_of(run), run.roc.part, compared=_compared(run))


def _model(name: str, stored: RankedModel) -> ModelRanking:
    points = None
    if stored.curve is not None:
        points = (np.array(stored.curve.false_positive_rate), np.array(stored.curve.true_positive_rate))
    sites = tuple(map(_ranked, stored.clients))
    return ModelRanking(name, _ranked(stored.pooled), interval_of(stored.within_site_auroc), sites, points)


def _ranked(stored: RankedClient) -> RankingFigures:
    own = map(interval_of, (stored.auroc, stored.average_precision, stored.partial_auroc))
    return RankingFigures(stored.name, stored.positives, stored.negatives, *own)


def _difference(stored: ModelDifference) -> RankingDifference:
    auroc, precision, partial, within = (
        interval_of(own)
        for own in (stored.auroc, stored.average_precision, stored.partial_auroc, stored.within_site_auroc)
    )
    return RankingDifference("pooled", auroc, precision, partial, within)


def interval_of(figure: StoredFigure | None) -> Interval | None:
    """A figure of a document with its interval; None without one.

    Args:
        figure: Of the document.
    """
    return None if figure is None or figure.interval is None else Interval(figure.value, *figure.interval)


def _compared(run: StoredRun) -> str:
    return "tuned alike" if run.is_search else "not tuned, with the same model, rounds and batches"


def _names(run: StoredRun) -> dict[str, str]:
    name = visible(run.search_summary.choice if run.search_summary else run.name)
    return {CHOICE: name, FEDAVG: FEDAVG if name != FEDAVG else "FedAvg, to compare"}


def _threshold(run: StoredRun) -> tuple[float | None, str]:
    """The run's threshold, rounded as predictions.csv is, or the default on its validation rows."""
    chosen = run.finished.threshold if run.finished else None
    if chosen is not None:
        return float(f"{chosen.probability:.8g}"), visible(chosen.reason)
    held = run.validation
    if held is None or CHOICE not in held.probabilities or not 0 < held.labels.sum() < len(held.labels):
        return None, ""
    default = Threshold.default(held.probabilities[CHOICE], held.labels, held.units)
    return default.probability, default.reason


def outcome_of(run: StoredRun) -> str:
    """The outcome that is predicted, such as "died = yes".

    Args:
        run: The run.
    """
    label = run.search.label if run.search else run.setting("data", "target")
    positive = run.search_summary.positive if run.search_summary else run.setting("data", "positive")
    if label and positive:
        return f"{visible(label)} = {visible(positive)}"
    return visible(positive) if positive else "a positive label"


def _place(name: str) -> tuple[int, float, str]:
    """The sort key of a group: numbers first, then words, then missing values."""
    if name in ("", "(missing)", "(other)"):
        return 2, float(name != "(other)"), name
    first = name.removeprefix("up to ").split(" ", 1)[0]
    try:
        return 0, float(first) - name.startswith("up to ") * 1e-9, name
    except ValueError:
        return (0 if name.startswith("up to ") else 1), 0.0, name


MOST_LINES = 40  # sites with a line each; more are a band
MOST_POINTS = 60  # of a site's line
MANY_ROWS = 20_000
RATES = (0.05, 0.1, 0.2, 0.3, 0.5)
RECALLS = (0.1, 0.25, 0.5, 0.75, 0.9)


def discrimination(run: StoredRun) -> Section | None:
    """The curves and areas of all rows, and the difference from FedAvg.

    Args:
        run: The run.
    """
    found = two_classes(run)
    if found is None or found.choice.pooled.auroc is None:
        return None
    blocks: list[Block] = [Text(_in_words(found)), *_compared_models(found), _roc(found)]
    curve = _precision_recall(found)
    return Section("discrimination", "Telling the classes apart", [*blocks, *([curve] if curve else [])])


def _in_words(found: TwoClasses) -> str:
    pooled = found.choice.pooled
    assert pooled.auroc is not None
    area = pooled.auroc
    text = (
        f"Take one {found.part} row with {found.outcome} and one without, at random: of 100 such pairs, the model "
        f"gives the higher score to the right one in {of_100(area.value)} (95 % interval {of_100(area.low)} to "
        f"{of_100(area.high)}; guessing gives 50). This is the AUROC, {with_interval(area, 3)}, of "
        f"{many(pooled.positives, 'row')} with {found.outcome} and {pooled.negatives:,} without."
    )
    if pooled.average_precision is not None:
        base = pooled.positives / max(pooled.positives + pooled.negatives, 1)
        precision = with_interval(pooled.average_precision, 3)
        text += f" The average precision is {precision}; guessing gives {decimal(base, 3)}."
    if found.units is not None and len(found.units):
        text += (
            f" The rows are from {many(len(np.unique(found.units)), 'patient')}; the intervals treat patients, not "
            "rows, as independent."
        )
    return text


def _compared_models(found: TwoClasses) -> list[Block]:
    gap, other = found.difference, found.other
    if gap is None or other is None or gap.auroc is None:
        return []
    lines = [
        f"{other.name}, {found.compared}, has an AUROC of {with_interval(other.pooled.auroc, 3)}. "
        + verdict(gap.auroc, found.choice.name, other.name, "the pooled AUROC")
    ]
    if gap.average_precision is not None:
        lines.append(verdict(gap.average_precision, found.choice.name, other.name, "the pooled average precision"))
    return [Text(" ".join(lines))]


def verdict(gap: Interval, ours: str, theirs: str, figure: str) -> str:
    """A difference with its interval, and whether it is significant.

    Args:
        gap: Ours minus theirs.
        ours: The first model.
        theirs: The other model.
        figure: Such as "the pooled AUROC".
    """
    start = f"The difference in {figure} is {with_interval(gap, 3, sign=True)}"
    if gap.low > 0:
        return f"{start}: {ours} ranks significantly better than {theirs}."
    if gap.high < 0:
        return f"{start}: {ours} ranks significantly worse than {theirs}."
    return f"{start}: too few rows to decide which of the two ranks better."


def _roc(found: TwoClasses) -> Chart:
    lines, choice = [Line("guessing", [0, 1], [0, 1], "guide")], found.choice
    lines += _site_curves(choice)
    if found.other is not None and found.other.curve is not None:
        lines.append(_plain_curve(found.other, "second"))
    band = None if choice.ranking is None else pooled_band(choice.ranking, draws=_draws(choice.ranking))
    if choice.curve is not None and band is not None:
        heights = np.interp(GRID, *choice.curve)
        x, y, low, high = (_starting(a, b) for a, b in ((GRID, 0), (heights, 0), (band.low, 0), (band.high, None)))
        lines.append(Line(choice.name, x.tolist(), y.tolist(), "first", low.tolist(), high.tolist()))
    elif choice.curve is not None:
        lines.append(_plain_curve(choice, "first"))
    rows = []
    for rate in RATES:
        cells = [percent(rate)]
        for model in found.models.values():
            bounds = band if model is choice else None
            cells.append(_height(model, rate, None if bounds is None else (bounds.low, bounds.high)))
        rows.append(cells)
    heads = ["false alarms among rows without", *(f"found by {m.name}, %" for m in found.models.values())]
    svg = line_chart(
        lines,
        ChartAxis(f"false alarms among rows without {found.outcome}", 0, 1, percent=True),
        ChartAxis(f"found among rows with {found.outcome}", 0, 1, percent=True),
        square=True,
        key="roc",
    )
    areas = "; ".join(f"{m.name} {with_interval(m.pooled.auroc, 3)}" for m in found.models.values())
    return Chart(
        "ROC curve",
        svg,
        f"ROC curves of the {found.part} rows. AUROC: {areas}. At a false alarm rate of 10 %, {rows[1][1]} % are "
        "found.",
        PageTable(heads, rows, "Share that is found, by the share of false alarms"),
        "Each point is a threshold: to the right there are more false alarms, upwards more true positives. The higher "
        "the curve, the better; the dashed line is guessing. The band is the pointwise 95 % interval of the curve."
        + _sites_note(choice),
    )


def _draws(ranking: Ranking) -> int:
    """Number of bootstrap draws for a band: fewer for many rows, whose bands are narrow."""
    return 200 if len(ranking.labels) <= MANY_ROWS else 60


def _starting(values: Floats, first: float | None) -> Floats:
    return np.concatenate([[values[0] if first is None else first], values])


def _height(model: ModelRanking, rate: float, band: tuple[Floats, Floats] | None) -> str:
    if model.curve is None:
        return ""
    value = float(np.interp(rate, *model.curve))
    if band is None:
        return of_100(value)
    return brief_percent(Interval(value, *(float(np.interp(rate, GRID, side)) for side in band)))


def _plain_curve(model: ModelRanking, style: str) -> Line:
    assert model.curve is not None
    x, y = thinned(*model.curve, most=200)
    return Line(model.name, x.tolist(), y.tolist(), style)


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """Some points of a curve, with both ends.

    Args:
        x: Of the points.
        y: Of the points.
        most: Number of points at most.
    """
    at = np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))
    return x[at], y[at]


def _ranked_sites(model: ModelRanking) -> list[int]:
    return [k for k, site in enumerate(model.sites) if site.auroc is not None]


def _sites_note(model: ModelRanking) -> str:
    ranked = _ranked_sites(model)
    if model.ranking is None or not ranked:
        return ""
    if len(ranked) > MOST_LINES:
        return f" The wider band contains the middle 80 % of the {len(ranked)} sites that have a curve."
    return f" Faint lines are the {many(len(ranked), 'site')} with at least five rows of each class."


def _site_curves(model: ModelRanking) -> list[Line]:
    ranking, ranked = model.ranking, _ranked_sites(model)
    if ranking is None or not ranked:
        return []
    if len(ranked) > MOST_LINES:
        band, middle = client_band(ranking), client_band(ranking, 0.0)
        assert band is not None
        assert middle is not None
        x, y, low, high = (side.tolist() for side in (GRID, middle.low, band.low, band.high))
        return [Line(f"middle 80 % of {len(ranked)} sites", x, y, "third", low, high)]
    lines = []
    for k in ranked:
        curve = ranking.curve(k)
        if curve is not None:
            x, y = thinned(*curve, most=MOST_POINTS)
            lines.append(Line(visible(model.sites[k].name), x.tolist(), y.tolist(), "faint"))
    return lines


def _precision_recall(found: TwoClasses) -> Chart | None:
    ranking = found.choice.ranking
    ours = None if ranking is None else precision_recall(ranking, draws=_draws(ranking))
    if ranking is None or ours is None:
        return None
    base = ours.base_rate
    lines = [Line("guessing", [0, 1], [base, base], "guide"), *_site_precisions(found.choice, ranking)]
    curves = {found.choice.name: ours}
    if found.other is not None and found.other.ranking is not None:
        theirs = precision_recall(found.other.ranking, draws=0)
        if theirs is not None:
            curves[found.other.name] = theirs
            lines.append(Line(found.other.name, theirs.recall.tolist(), theirs.precision.tolist(), "second"))
    sides = (ours.recall, ours.precision, ours.low, ours.high)
    x, y, low, high = (side.tolist() for side in sides)
    lines.append(Line(found.choice.name, x, y, "first", low, high))
    svg = line_chart(
        lines,
        ChartAxis(f"found among rows with {found.outcome}", 0, 1, percent=True),
        ChartAxis("right among the alarms", 0, 1, percent=True),
        square=True,
        key="precision-recall",
    )
    rows = [[percent(r), *(_precision(c, r, c is ours) for c in curves.values())] for r in RECALLS]
    figures = "; ".join(f"{m.name} {brief(m.pooled.average_precision, 3)}" for m in found.models.values())
    return Chart(
        "Precision-recall curve",
        svg,
        f"Precision-recall curves of the {found.part} rows. Average precision: {figures}. Where half of the rows with "
        f"{found.outcome} are found, {rows[2][1]} % of the alarms are right.",
        PageTable(
            ["found", *(f"right alarms of {name}, %" for name in curves)], rows, "Right alarms, by the share found"
        ),
        f"Each point is a threshold: a higher recall costs precision. By guessing, {percent(base)} of the alarms would "
        "be right (dashed). At the left, where there are few alarms, the band is wide.",
    )


def _site_precisions(model: ModelRanking, ranking: Ranking) -> list[Line]:
    ranked = _ranked_sites(model)
    curves = {k: precision_recall(ranking, k, draws=0) for k in ranked}
    there = {k: curve for k, curve in curves.items() if curve is not None}
    if not there:
        return []
    if len(there) > MOST_LINES:
        heights = np.stack([curve.precision for curve in there.values()])
        low, middle, high = np.quantile(heights, [0.1, 0.5, 0.9], axis=0)
        x = next(iter(there.values())).recall.tolist()
        name = f"middle 80 % of {len(there)} sites"
        return [Line(name, x, middle.tolist(), "third", low.tolist(), high.tolist())]
    lines = []
    for k, curve in there.items():
        x, y = thinned(curve.recall, curve.precision, MOST_POINTS)
        lines.append(Line(visible(model.sites[k].name), x.tolist(), y.tolist(), "faint"))
    return lines


def _precision(curve: PrecisionRecall, recall: float, banded: bool) -> str:
    at = int(np.argmin(np.abs(curve.recall - recall)))
    value = float(curve.precision[at])
    return brief_percent(Interval(value, float(curve.low[at]), float(curve.high[at]))) if banded else of_100(value)
