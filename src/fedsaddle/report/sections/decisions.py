"""Decisions by the probabilities: thresholds, the decision curve and calibration."""

from __future__ import annotations

import numpy as np

from fedsaddle.array_types import Floats
from fedsaddle.metrics.calibration import (
    ROUND,
    AtThreshold,
    DecisionCurve,
    Reliability,
    at_threshold,
    decision_curve,
    thresholds_to_show,
)
from fedsaddle.metrics.intervals import Interval, Intervals
from fedsaddle.report.page.charts import ChartAxis, Line, line_chart
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text, ThresholdSlider
from fedsaddle.report.predictions import CHOICE, FEDAVG
from fedsaddle.report.sections.ranking import TwoClasses, two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import LEVEL, brief, brief_percent, decimal, many, of_100, percent, with_interval

MOST_THRESHOLDS = 200  # of the slider
SHOWN = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)  # in the table of the decision curve


def decision(run: StoredRun) -> Section | None:
    """The net benefit of the model, of FedAvg, of alarms for everybody and for nobody.

    Args:
        run: The run.
    """
    found = two_classes(run)
    p = None if found is None else found.probabilities()
    if found is None or p is None or not 0 < found.labels.sum() < len(found.labels):
        return None
    ts = thresholds_to_show(p, found.labels, found.threshold)
    curve = decision_curve(p, found.labels, ts, found.units, found.probabilities(FEDAVG))
    blocks: list[Block] = [Text(_meaning())]
    if found.threshold is not None and found.threshold < 1:
        chosen = decision_curve(p, found.labels, [found.threshold], found.units, found.probabilities(FEDAVG))
        blocks.append(Text(_at_chosen(found, chosen)))
    blocks += [Text(_where(curve)), _decision_chart(found, curve)]
    return Section("decision-curve", "Is deciding by the model worth it?", blocks)


def _meaning() -> str:
    return (
        "A threshold sets the weight of a false alarm: acting at probabilities of 10 % and more means accepting up to "
        "nine false alarms for one true positive. The net benefit is the number of true positives minus the false "
        "alarms at that weight. A model is useful at a threshold if its net benefit is above that of alarms for "
        "everybody, and above 0, that of no alarms."
    )


def _at_chosen(found: TwoClasses, curve: DecisionCurve) -> str:
    t = float(curve.thresholds[0])
    ours, over = curve.model.of(0), curve.over_all.of(0)
    assert ours is not None
    assert over is not None
    worth = f": as good as {decimal(100 * ours.value, 1)} rows with {found.outcome} found without a false alarm"
    worth = worth if ours.value > 0 else ""
    text = (
        f"At the run's threshold of {percent(t, 1)} the net benefit for 100 rows is {_per_100(ours)}{worth}. "
        f"{_against(ours, 'no alarm')} Compared with alarms for everybody it is {_per_100(over, sign=True)}. "
        f"{_against(over, 'alarms for everybody')}"
    )
    other = None if curve.over_other is None else curve.over_other.of(0)
    if other is not None and found.other is not None:
        text += f" Compared with {found.other.name} at the same threshold it is {_per_100(other, sign=True)}."
        text += f" {_against(other, found.other.name)}"
    return text


def _per_100(figure: Interval, *, sign: bool = False) -> str:
    value, low, high = (decimal(100 * v, 1, sign=sign) for v in (figure.value, figure.low, figure.high))
    return f"{value} ({LEVEL} {low} to {high})"


def _against(gap: Interval, what: str) -> str:
    if gap.low > 0:
        return f"That is significantly better than {what}."
    if gap.high < 0:
        return f"That is significantly worse than {what}."
    return f"There are too few rows to decide whether that is better than {what}."


def _where(curve: DecisionCurve) -> str:
    """The thresholds at which the model is better than both default strategies, point by point."""
    better, ts = curve.over_both, curve.thresholds
    if not better.any():
        return (
            "At no threshold is the whole interval of the net benefit above both default strategies, alarms for "
            "everybody and for nobody: there are too few rows to show that the model is useful, or it is not."
        )
    ends = np.flatnonzero(np.diff(np.concatenate([[False], better, [False]]).astype(int)))
    runs = [(float(ts[a]), float(ts[b - 1])) for a, b in zip(ends[::2], ends[1::2], strict=True)]
    runs = sorted(sorted(runs, key=lambda r: r[0] - r[1])[:3])
    *first, last = (percent(a, 1) if a == b else f"{percent(a, 1)} to {percent(b, 1)}" for a, b in runs)
    said = f"{', '.join(first)} and {last}" if first else last
    return (
        f"The whole interval is above both default strategies, alarms for everybody and for nobody, at thresholds of "
        f"{said}. The intervals are pointwise: they hold at each threshold, not simultaneously at all."
    )


def _decision_chart(found: TwoClasses, curve: DecisionCurve) -> Chart:
    x = curve.thresholds.tolist()
    low, high = 100 * curve.model.low, 100 * curve.model.high
    top = max(float(100 * curve.model.values.max()), float(100 * curve.everybody.max()), 0.1)
    bottom = -0.25 * top
    shown = curve.everybody * 100 >= bottom
    lines = [Line("alarms for nobody", [x[0], x[-1]], [0, 0], "guide")]
    lines.append(
        Line("alarms for everybody", curve.thresholds[shown].tolist(), _cut(curve.everybody[shown], bottom), "third")
    )
    if curve.other is not None and found.other is not None:
        lines.append(Line(found.other.name, x, _cut(curve.other, bottom), "second"))
    above = min(float(high.max()), 1.6 * top)
    bounds = (np.clip(side, bottom, above).tolist() for side in (low, high))
    lines.append(Line(found.choice.name, x, _cut(curve.model.values, bottom), "first", *bounds))
    svg = line_chart(
        lines,
        ChartAxis("threshold", 0, x[-1], percent=True),
        ChartAxis("net benefit for 100 rows", bottom, above),
        key="decision-curve",
    )
    at = [int(np.argmin(np.abs(curve.thresholds - t))) for t in SHOWN if t <= x[-1] + 1e-9]
    heads = ["threshold", found.choice.name, "alarms for everybody", f"{found.choice.name} minus alarms for everybody"]
    if curve.other is not None and found.other is not None:
        heads += [found.other.name, f"{found.choice.name} minus {found.other.name}"]
    rows = [_row(curve, k, found.other is not None) for k in at]
    best = int(np.argmax(curve.model.values - np.maximum(curve.everybody, 0)))
    return Chart(
        "Decision curve",
        svg,
        f"Net benefit for 100 rows at thresholds of {percent(x[0], 1)} to {percent(x[-1], 0)}. The model gains "
        f"most over the better of the two default strategies at {percent(x[best], 1)}: "
        f"{decimal(100 * curve.model.values[best], 1)} "
        f"against {decimal(100 * max(float(curve.everybody[best]), 0), 1)}.",
        PageTable(heads, rows, "Net benefit for 100 rows, with 95 % intervals"),
        "Find the threshold of your decision on the horizontal axis: the strategy with the highest line there is the "
        "best. The band is the pointwise 95 % interval of the model.",
    )


def _cut(values: Floats, bottom: float) -> list[float]:
    """For 100 rows; what lies far below 0 is cut off."""
    return [float(value) for value in np.maximum(100 * values, bottom)]


def _row(curve: DecisionCurve, k: int, other: bool) -> list[str]:
    def figure(bounds: Intervals, *, sign: bool = False) -> str:
        found = bounds.of(k)
        times = None if found is None else Interval(100 * found.value, 100 * found.low, 100 * found.high)
        return brief(times, 1, sign=sign)

    cells = [
        percent(float(curve.thresholds[k])), figure(curve.model), decimal(100 * float(curve.everybody[k]), 1),
        figure(curve.over_all, sign=True),
    ]  # fmt: skip
    if other and curve.other is not None and curve.over_other is not None:
        cells += [decimal(100 * float(curve.other[k]), 1), figure(curve.over_other, sign=True)]
    return cells


def thresholds(run: StoredRun) -> Section | None:
    """A slider over thresholds, and a table of some with intervals.

    Args:
        run: The run.
    """
    found = two_classes(run)
    p = None if found is None else found.probabilities()
    if found is None or p is None or found.threshold is None:
        return None
    chosen = found.at_threshold
    assert chosen is not None
    blocks: list[Block] = [Text(_chosen_in_words(found, chosen)), _slider(found, p, chosen)]
    return Section("thresholds", "From when on to raise an alarm", blocks)


def _chosen_in_words(found: TwoClasses, at: AtThreshold) -> str:
    why = f", which {found.threshold_reason}" if found.threshold_reason.startswith(("has ", "finds ")) else ""
    parts = [f"The run's threshold is a probability of {percent(at.threshold, 1)}{why}. On the test rows:"]
    if at.alarms is not None:
        parts.append(f"of 100 rows, {_of_100(at.alarms)} raise an alarm;")
    if at.sensitivity is not None:
        parts.append(f"of 100 with {found.outcome}, {_of_100(at.sensitivity)} are found;")
    if at.specificity is not None:
        parts.append(f"of 100 without, {_of_100(at.specificity)} raise no alarm;")
    if at.positive_predictive_value is not None:
        parts.append(f"of 100 alarms, {_of_100(at.positive_predictive_value)} are right;")
    elif at.raised:
        parts.append(f"{few_alarms(at)[0].lower()}{few_alarms(at)[1:]};")
    else:
        parts.append("there are no alarms;")
    if at.negative_predictive_value is not None:
        parts.append(f"of 100 rows without an alarm, {_of_100(at.negative_predictive_value)} are rightly so;")
    text = " ".join(parts).removesuffix(";") + "."
    if "has the best F1" in why:
        text += (
            " F1 is the harmonic mean of sensitivity and PPV. It does not take into account what a missed case and a "
            "false alarm cost you: you may need another threshold."
        )
    return text


def few_alarms(at: AtThreshold) -> str:
    """Why there is no predictive value.

    Args:
        at: The figures of a threshold.
    """
    start = "There is only 1 alarm" if at.raised == 1 else f"There are only {at.raised} alarms"
    return f"{start} on the test rows, too few to estimate how many alarms are right"


def _of_100(figure: Interval) -> str:
    return f"{of_100(figure.value)} ({LEVEL} {of_100(figure.low)} to {of_100(figure.high)})"


def _slider(found: TwoClasses, p: Floats, chosen: AtThreshold) -> ThresholdSlider:
    ts = slider_thresholds(p, chosen.threshold)
    positive = found.labels > 0
    called = [np.sort(side) for side in (p[positive], p[~positive])]
    true, false = (len(side) - np.searchsorted(side, ts, side="left") for side in called)
    highest = float(p.max())
    marks = sorted({t for t in ROUND if t <= highest} | {chosen.threshold})
    figures = [chosen if t == chosen.threshold else at_threshold(p, found.labels, t, found.units) for t in marks]
    heads = ["threshold", "found, % (sensitivity)", "no alarm without, % (specificity)", "right alarms, % (PPV)",
             "right without alarm, % (NPV)", "alarms in 100 rows"]  # fmt: skip
    rows = []
    for at in figures:
        name = f"{percent(at.threshold, 1)}, of the run" if at is chosen else percent(at.threshold)
        own = (at.sensitivity, at.specificity, at.positive_predictive_value, at.negative_predictive_value, at.alarms)
        rows.append([name, *map(brief_percent, own)])
    caption = f"Figures of some thresholds on {many(len(p), 'test row')}, with 95 % intervals"
    return ThresholdSlider(
        thresholds=ts.tolist(),
        true_positives=true.tolist(),
        false_positives=false.tolist(),
        positives=int(positive.sum()),
        negatives=int((~positive).sum()),
        chosen=chosen.threshold,
        table=PageTable(heads, rows, caption),
    )


def slider_thresholds(p: Floats, chosen: float) -> Floats:
    """At most `MOST_THRESHOLDS` round thresholds up to the highest probability, and the chosen one.

    Args:
        p: Probabilities of the rows.
        chosen: The threshold of the run.
    """
    end = max(float(p.max()), chosen, 1e-6)
    wanted = end / (MOST_THRESHOLDS - 5)
    power = 10.0 ** np.floor(np.log10(wanted))
    step = next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= wanted * (1 - 1e-9))
    grid = np.round(np.arange(0, np.ceil(end / step - 1e-9) + 1) * step, 9)
    return np.unique(np.append(grid[grid <= 1], chosen))


def calibration(run: StoredRun) -> Section | None:
    """The calibration curve, expected and observed positives, slope, intercept and Brier score.

    Args:
        run: The run.
    """
    found = two_classes(run)
    if found is None or found.probabilities() is None:
        return None
    models = found.reliabilities
    blocks: list[Block] = [Text(_in_words(found, models[CHOICE]))]
    if models[CHOICE].bins:
        blocks.append(_calibration_chart(found, models))
    else:
        blocks.append(Text("There are too few rows for a calibration curve, which needs at least 20.", "note"))
    blocks.append(_table(found, models))
    return Section("calibration", "Are the probabilities right?", blocks)


def _in_words(found: TwoClasses, ours: Reliability) -> str:
    parts = [
        f"Among the {many(ours.rows, 'test row')} the model predicts {decimal(ours.expected, 1)} with {found.outcome}; "
        f"{ours.positives:,} are observed."
    ]
    if ours.intercept is not None:
        said = _said(ours.intercept, 0, "are too high on average", "are too low on average", "too high or too low")
        parts.append(f"{said} (intercept {with_interval(ours.intercept, 2, sign=True)}; 0 is ideal).")
    if ours.slope is not None:
        said = _said(
            ours.slope, 1, "are too extreme: high ones too high, low ones too low",
            "are not extreme enough, too close to the average", "too extreme or not extreme enough",
        )  # fmt: skip
        parts.append(f"{said} (slope {with_interval(ours.slope, 2)}; 1 is ideal).")
    if ours.brier is not None and ours.scaled is not None:
        parts.append(
            f"The Brier score, the mean squared error of the probabilities, is {with_interval(ours.brier, 3)}: "
            f"{_better(ours.scaled)}."
        )
    parts.append("The calibration was fitted to the scores of validation rows, which are not among these.")
    return " ".join(parts)


def _said(figure: Interval, right: float, below: str, above: str, neither: str) -> str:
    if figure.high < right:
        return f"The probabilities {below}"
    if figure.low > right:
        return f"The probabilities {above}"
    return f"There are too few rows to decide whether the probabilities are {neither}"


def _better(scaled: Interval) -> str:
    text = f"{percent(abs(scaled.value), 0)} {'better' if scaled.value >= 0 else 'worse'}"
    interval = f"95 % interval {percent(scaled.low, 0)} to {percent(scaled.high, 0)}"
    return f"{text} than predicting the base rate for every row ({interval})"


def _calibration_chart(found: TwoClasses, models: dict[str, Reliability]) -> Chart:
    lines, highest = [], 0.0
    for model, style in ((FEDAVG, "second"), (CHOICE, "first")):
        if model in models and models[model].bins:
            bins = models[model].bins
            x, y = [b.predicted for b in bins], [b.observed.value for b in bins]
            highest = max(highest, *x, *(b.observed.high if model == CHOICE else b.observed.value for b in bins))
            low = [b.observed.low for b in bins] if model == CHOICE else None
            high = [b.observed.high for b in bins] if model == CHOICE else None
            lines.append(Line(found.models[model].name, x, y, style, low, high, markers=True))
    end = min(1.0, float(np.ceil(10 * highest) / 10))
    lines.insert(0, Line("perfect calibration", [0, end], [0, end], "guide"))
    ours = models[CHOICE].bins
    svg = line_chart(
        lines,
        ChartAxis("predicted probability", 0, end, percent=True),
        ChartAxis(f"observed share with {found.outcome}", 0, end, percent=True),
        square=True,
        key="calibration",
    )
    first, last = ours[0], ours[-1]
    rows = [
        [f"{k + 1}", f"{b.rows:,}", f"{b.positives:,}", percent(b.predicted), brief_percent(b.observed)]
        for k, b in enumerate(ours)
    ]
    return Chart(
        "Calibration curve",
        svg,
        f"Calibration curve of {many(len(ours), 'bin')} of about {first.rows} rows. In the lowest the model predicts "
        f"{percent(first.predicted)} and {percent(first.observed.value)} have {found.outcome}; in the highest it "
        f"predicts {percent(last.predicted)} and {percent(last.observed.value)} have.",
        PageTable(
            ["bin", "rows", f"with {found.outcome}", "mean probability", "observed, %"], rows, "The bins of the curve"
        ),
        "Each dot is a group of rows with similar probabilities. On the dashed line, of 100 rows with a probability of "
        "20 %, 20 have the outcome; below it the probabilities are too high, above it too low. The band is the 95 % "
        "interval of each dot.",
    )


def _table(found: TwoClasses, models: dict[str, Reliability]) -> PageTable:
    heads = ["model", "predicted", "observed", "intercept (0 is ideal)", "slope (1 is ideal)", "Brier score", "scaled"]
    rows = [
        [
            found.models[model].name, decimal(r.expected, 1), f"{r.positives:,}", brief(r.intercept, 2, sign=True),
            brief(r.slope), brief(r.brier, 3), brief(r.scaled),
        ]
        for model, r in models.items()
    ]  # fmt: skip
    return PageTable(heads, rows, "Calibration of the test rows, with 95 % intervals")
