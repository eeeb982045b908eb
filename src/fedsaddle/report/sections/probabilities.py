"""Whether the probabilities are right: the calibration curve and its figures."""

from __future__ import annotations

import numpy as np

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.reliability import Reliability, reliability
from fedsaddle.report.page.charts import Axis, Line, line_chart
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.predictions import CHOICE, FEDAVG
from fedsaddle.report.sections.two_classes import TwoClasses, two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import brief, brief_percent, decimal, many, percent, with_interval


def calibration(run: StoredRun) -> Section | None:
    """The curve, expected and observed positives, slope and intercept, and the Brier score."""
    found = two_classes(run)
    if found is None or found.probabilities() is None:
        return None
    models = reliabilities(found)
    blocks: list[Block] = [Text(_in_words(found, models[CHOICE]))]
    if models[CHOICE].bins:
        blocks.append(_chart(found, models))
    else:
        blocks.append(Text("There are too few rows for a calibration curve; it wants at least 20.", "note"))
    blocks.append(_table(found, models))
    return Section("calibration", "Are the probabilities right?", blocks)


def reliabilities(found: TwoClasses) -> dict[str, Reliability]:
    """The figures of each model that has probabilities, worked out once."""
    if "reliability" not in found.kept:
        made = {}
        for model in (CHOICE, FEDAVG):
            p = found.probabilities(model)
            if p is not None:
                made[model] = reliability(p, found.labels, found.units)
        found.kept["reliability"] = made
    kept: dict[str, Reliability] = found.kept["reliability"]
    return kept


def _in_words(found: TwoClasses, ours: Reliability) -> str:
    parts = [
        f"Among the {many(ours.rows, 'test row')} the model expects {decimal(ours.expected, 1)} with {found.outcome}; "
        f"there are {ours.positives:,}."
    ]
    if ours.intercept is not None:
        said = _said(ours.intercept, 0, "are too high on the whole", "are too low on the whole", "too high or too low")
        parts.append(f"{said} (intercept {with_interval(ours.intercept, 2, sign=True)}; 0 is right).")
    if ours.slope is not None:
        said = _said(
            ours.slope, 1, "are too extreme, high ones too high and low ones too low",
            "are too timid, too close to the average", "too extreme or too timid",
        )  # fmt: skip
        parts.append(f"{said} (slope {with_interval(ours.slope, 2)}; 1 is right).")
    if ours.brier is not None and ours.scaled is not None:
        parts.append(
            f"The Brier score, the mean squared error of the probabilities, is {with_interval(ours.brier, 3)}: "
            f"{_better(ours.scaled)}."
        )
    parts.append("The probabilities were fitted to the scores of validation rows, which are not among these.")
    return " ".join(parts)


def _said(figure: Interval, right: float, below: str, above: str, neither: str) -> str:
    if figure.high < right:
        return f"The probabilities {below}"
    if figure.low > right:
        return f"The probabilities {above}"
    return f"The rows are too few to tell whether the probabilities are {neither}"


def _better(scaled: Interval) -> str:
    text = f"{percent(abs(scaled.value), 0)} {'better' if scaled.value >= 0 else 'worse'}"
    interval = f"95 % interval {percent(scaled.low, 0)} to {percent(scaled.high, 0)}"
    return f"{text} than telling everybody the base rate ({interval})"


def _chart(found: TwoClasses, models: dict[str, Reliability]) -> Chart:
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
    lines.insert(0, Line("right", [0, end], [0, end], "guide"))
    ours = models[CHOICE].bins
    svg = line_chart(
        lines,
        Axis("probability that the model gives", 0, end, percent=True),
        Axis(f"share with {found.outcome}", 0, end, percent=True),
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
        f"Calibration curve of {many(len(ours), 'bin')} of about {first.rows} rows. In the lowest the model says "
        f"{percent(first.predicted)} and {percent(first.observed.value)} have {found.outcome}; in the highest it says "
        f"{percent(last.predicted)} and {percent(last.observed.value)} have.",
        Table(
            ["bin", "rows", f"with {found.outcome}", "mean probability", "observed, %"], rows, "The bins of the curve"
        ),
        "Each dot is a group of rows with similar probabilities. On the dashed line, of 100 rows with a probability of "
        "20 %, 20 have the outcome; below it the probabilities are too high, above it too low. The band is the 95 % "
        "interval of each dot.",
    )


def _table(found: TwoClasses, models: dict[str, Reliability]) -> Table:
    heads = ["model", "expected", "observed", "intercept (0 is right)", "slope (1 is right)", "Brier score", "scaled"]
    rows = [
        [
            found.models[model].name, decimal(r.expected, 1), f"{r.positives:,}", brief(r.intercept, 2, sign=True),
            brief(r.slope), brief(r.brier, 3), brief(r.scaled),
        ]
        for model, r in models.items()
    ]  # fmt: skip
    return Table(heads, rows, "Calibration of the test rows, with 95 % intervals")
