"""How well the model tells the classes apart: ROC and precision-recall curves."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.curves import GRID, client_band, pooled_band
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.precision_recall import PrecisionRecall, precision_recall
from fedsaddle.metrics.ranking import Ranking
from fedsaddle.report.page.charts import Axis, Line, line_chart
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.sections.two_classes import ModelFigures, TwoClasses, two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import brief, brief_percent, decimal, many, of_100, percent, with_interval
from fedsaddle.shown import visible

Floats = NDArray[np.float64]

MOST_LINES = 40  # sites with a line each; more are a band
MOST_POINTS = 60  # of a site's line
MANY_ROWS = 20_000
RATES = (0.05, 0.1, 0.2, 0.3, 0.5)
RECALLS = (0.1, 0.25, 0.5, 0.75, 0.9)


def discrimination(run: StoredRun) -> Section | None:
    """The curves and areas of all rows, and the difference to FedAvg in words."""
    found = two_classes(run)
    if found is None or found.choice.pooled.auroc is None:
        return None
    blocks: list[Block] = [Text(_in_words(found)), *_compared(found), _roc(found)]
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
            f" The rows are those of {many(len(np.unique(found.units)), 'patient')}; the intervals take patients, not "
            "rows, as drawn independently."
        )
    return text


def _compared(found: TwoClasses) -> list[Block]:
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
    """A difference with its interval, and whether the rows decide."""
    start = f"The difference in {figure} is {with_interval(gap, 3, sign=True)}"
    if gap.low > 0:
        return f"{start}: {ours} ranks better than {theirs}, by more than chance."
    if gap.high < 0:
        return f"{start}: {ours} ranks worse than {theirs}, by more than chance."
    return f"{start}: too few rows to tell which of the two ranks better."


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
        Axis(f"false alarms among rows without {found.outcome}", 0, 1, percent=True),
        Axis(f"found among rows with {found.outcome}", 0, 1, percent=True),
        square=True,
        key="roc",
    )
    areas = "; ".join(f"{m.name} {with_interval(m.pooled.auroc, 3)}" for m in found.models.values())
    return Chart(
        "ROC curve",
        svg,
        f"ROC curves of the {found.part} rows. AUROC: {areas}. At a false alarm rate of 10 %, {rows[1][1]} % are "
        "found.",
        Table(heads, rows, "Share that is found, by the share of false alarms"),
        "Each point is a threshold: going right costs more false alarms, going up finds more. The higher the curve, "
        "the better; the dashed line is guessing. The band is the 95 % interval of the curve's height at each "
        "single point." + _sites_note(choice),
    )


def _draws(ranking: Ranking) -> int:
    """Draws for a band: fewer where there are many rows, whose bands are narrow anyway."""
    return 200 if len(ranking.labels) <= MANY_ROWS else 60


def _starting(values: Floats, first: float | None) -> Floats:
    return np.concatenate([[values[0] if first is None else first], values])


def _height(model: ModelFigures, rate: float, band: tuple[Floats, Floats] | None) -> str:
    if model.curve is None:
        return ""
    value = float(np.interp(rate, *model.curve))
    if band is None:
        return of_100(value)
    return brief_percent(Interval(value, *(float(np.interp(rate, GRID, side)) for side in band)))


def _plain_curve(model: ModelFigures, style: str) -> Line:
    assert model.curve is not None
    x, y = thinned(*model.curve, most=200)
    return Line(model.name, x.tolist(), y.tolist(), style)


def thinned(x: Floats, y: Floats, most: int) -> tuple[Floats, Floats]:
    """Some points of a curve, with both ends."""
    at = np.unique(np.linspace(0, len(x) - 1, min(most, len(x))).round().astype(int))
    return x[at], y[at]


def _ranked(model: ModelFigures) -> list[int]:
    return [k for k, site in enumerate(model.sites) if site.auroc is not None]


def _sites_note(model: ModelFigures) -> str:
    ranked = _ranked(model)
    if model.ranking is None or not ranked:
        return ""
    if len(ranked) > MOST_LINES:
        return f" The wider band holds the middle 80 % of the {len(ranked)} sites that have a curve."
    return f" Faint lines are the {many(len(ranked), 'site')} with at least five rows of each class."


def _site_curves(model: ModelFigures) -> list[Line]:
    ranking, ranked = model.ranking, _ranked(model)
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
        Axis(f"found among rows with {found.outcome}", 0, 1, percent=True),
        Axis("right among the alarms", 0, 1, percent=True),
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
        Table(["found", *(f"right alarms of {name}, %" for name in curves)], rows, "Right alarms, by the share found"),
        f"Each point is a threshold: to find more, one has to accept more false alarms. Without a model "
        f"{percent(base)} of the alarms would be right (dashed). At the left, where alarms are few, the band is wide.",
    )


def _site_precisions(model: ModelFigures, ranking: Ranking) -> list[Line]:
    ranked = _ranked(model)
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
