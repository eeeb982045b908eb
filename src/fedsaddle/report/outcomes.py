"""The page of a study of several classes, a number, a count or a time to an event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedsaddle.documents.summary import OutcomeSummary, PredictedBin, SiteOutcome, StoredCurve, StoredFigure
from fedsaddle.report.front import Front
from fedsaddle.report.page.charts import ChartAxis, ForestRow, Line, axis_for, forest, line_chart
from fedsaddle.report.page.parts import Block, Chart, Figure, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.text import visible

NAMES = {
    "macro_auroc": "macro AUROC",
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "r2": "R²",
    "rmse": "root mean squared error",
    "mae": "mean absolute error",
    "deviance": "mean Poisson deviance",
    "explained": "share of the deviance explained",
    "observed_over_expected": "counted over expected",
    "concordance": "concordance, pooled",
    "concordance_within_sites": "concordance, within sites",
}
MEANINGS = {
    "classes": "The macro AUROC is the mean over the classes of how often a row of the class gets a higher probability "
    "of it than a row of another class; 0.5 is guessing. The log loss is smaller for better probabilities.",
    "number": "R² is the share of the variance that the predictions explain: 1 is perfect, 0 is as good as the mean. "
    "The errors are in the unit of the outcome.",
    "count": "The deviance is smaller for better rates; the share explained is 0 for one rate for all rows. Counted "
    "over expected is 1 where predicted rates are right on average.",
    "survival": "The concordance is how often, of two rows whose order is known, the one with the earlier event had "
    "the higher risk; 0.5 is guessing. Within sites only rows of the same site are compared.",
}
WORDS = {
    "classes": "which class a row has",
    "number": "how large it is",
    "count": "how many there are",
    "survival": "how long it takes until the event",
}
MAIN = {"classes": "macro_auroc", "number": "r2", "count": "explained", "survival": "concordance"}
OF_SITES = {"classes": "accuracy", "number": "rmse", "count": "deviance", "survival": "concordance"}
HIGHER = ("accuracy", "concordance")  # of those of sites, where more is better
STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
MOST_CURVES = 8
SMALL = "Sites, groups and risk groups with fewer than 10 rows, or of times with fewer than 5 events, are not shown"


def figure_name(key: str) -> str:
    """A figure in words.

    Args:
        key: As in summary.json.
    """
    return NAMES.get(key, visible(key.replace("auroc of", "AUROC of")))


def figure_text(figure: StoredFigure | None, sign: str = "") -> str:
    """A figure with its interval, "0.681 [0.614, 0.741]".

    Args:
        figure: None: an empty text.
        sign: "+" for differences.
    """
    if figure is None:
        return ""
    value = f"{figure.value:{sign}.4g}"
    return value if figure.interval is None else f"{value} [{', '.join(f'{v:{sign}.3g}' for v in figure.interval)}]"


def outcome_title(run: StoredRun, summary: OutcomeSummary) -> str:
    """The heading of the page.

    Args:
        run: The run.
        summary: Its summary.
    """
    event = f" until {visible(summary.event)}" if summary.event else ""
    return f"{visible(summary.label)}{event}{f', from {visible(Path(run.search.table).name)}' if run.search else ''}"


def front_of_outcome(summary: OutcomeSummary) -> Front:
    """Answers, figures and cautions.

    Args:
        summary: Of the study.
    """
    ours, gap = summary.figures["choice"], summary.figures["difference"].get(MAIN[summary.outcome])
    key, rows = MAIN[summary.outcome], summary.rows
    total = sum(rows.values())
    answers = [
        Text(f"The question was {WORDS[summary.outcome]}, learnt from {total:,} rows.", head="What was asked"),
        Text(f"{visible(summary.choice)}: {visible(summary.reason)}.", head="What was chosen, and why"),
    ]
    if key in ours:
        said = f"On {rows.get('test', 0):,} test rows, held out and looked at once, the {figure_name(key)} is "
        answers.append(Text(f"{said}{figure_text(ours[key])}. {MEANINGS[summary.outcome]}", head="How good it is"))
    if gap is not None and summary.choice != "FedAvg":
        known = gap.interval is not None and (gap.interval[0] > 0 or gap.interval[1] < 0)
        words = "more than chance explains" if known else "the test rows do not decide which is better"
        text = f"Against FedAvg, tuned alike, the difference is {figure_text(gap, '+')}: {words}."
        answers.append(Text(text, head="Better than plain averaging?"))
    if worst := _worst(summary):
        measure = OF_SITES[summary.outcome]
        text = f"{visible(worst.name)}, with {figure_name(measure)} {figure_text(worst.figures[measure])}."
        answers.append(Text(text, head="At which site it is worst"))
    cautions = [visible(line) for line in summary.cautions]
    if summary.hidden:
        cautions.append(f"{SMALL}: {', '.join(map(visible, summary.hidden[:20]))}.")
    cautions += [visible(line) for line in summary.notes[:10]]
    listed = [Figure(figure_name(name), f"{one.value:.3g}", _detail(one)) for name, one in list(ours.items())[:4]]
    return Front(answers, listed, cautions)


def _detail(figure: StoredFigure) -> str:
    if figure.interval is None:
        return ""
    return "95 % interval " + " to ".join(f"{v:.3g}" for v in figure.interval)


def _worst(summary: OutcomeSummary) -> SiteOutcome | None:
    key = OF_SITES[summary.outcome]
    there = [site for site in summary.site_figures if key in site.figures]
    sign = -1 if key in HIGHER else 1
    return max(there, key=lambda site: sign * site.figures[key].value) if len(there) > 1 else None


def outcome_figures(run: StoredRun) -> Section | None:
    """Every figure of the choice, FedAvg and their difference.

    Args:
        run: The run.
    """
    summary = run.outcome_summary
    if summary is None:
        return None
    ours, theirs, gaps = (summary.figures.get(name, {}) for name in ("choice", "FedAvg", "difference"))
    rows = [
        (figure_name(key), figure_text(ours[key]), figure_text(theirs.get(key)), figure_text(gaps.get(key), "+"))
        for key in ours
    ]
    heads = ("figure", visible(summary.choice), "FedAvg, tuned alike", "difference")
    blocks: list[Block] = [PageTable(heads, rows, caption="Test rows, with 95 % intervals")]
    blocks.append(Text(MEANINGS[summary.outcome], kind="note"))
    if summary.calibration:
        blocks.append(_calibration(summary, summary.calibration))
    return Section("figures", "How good the predictions are", blocks)


def _calibration(summary: OutcomeSummary, bins: Sequence[PredictedBin]) -> Chart:
    """Predicted and observed, tenth by tenth of the predictions."""
    what = {"number": "mean", "count": "rate"}.get(summary.outcome, "share without an event")
    if summary.horizon is not None:
        what += f" by {summary.horizon:g}"
    ends = [v for one in bins for v in (one.predicted, one.observed, *(one.interval or ()))]
    low, high = min(ends), max(ends)
    x, y = [one.predicted for one in bins], [one.observed for one in bins]
    limits = [one.interval or (one.observed, one.observed) for one in bins]
    line = Line("observed", x, y, markers=True, joined=False, low=[v for v, _ in limits], high=[v for _, v in limits])
    same = Line("as predicted", [low, high], [low, high], "second")
    rows = [
        (f"{one.predicted:.4g}", figure_text(StoredFigure(value=one.observed, interval=one.interval)), f"{one.rows:,}")
        for one in bins
    ]
    return Chart(
        title=f"Predicted and observed {what}",
        svg=line_chart(
            [line, same],
            ChartAxis(f"predicted {what}", low, high),
            axis_for(f"observed {what}", ends),
            square=True,
            key="outcome-calibration",
        ),
        description=f"{len(bins)} groups of test rows with similar predictions, beside the line on which both agree.",
        table=PageTable(("predicted", "observed", "rows"), rows),
        note="Each point is a tenth of the test rows, in the order of their predictions. Points on the line are right.",
    )


def outcome_sites(run: StoredRun) -> Section | None:
    """The figures of each site and of each group of rows.

    Args:
        run: The run.
    """
    summary = run.outcome_summary
    if summary is None:
        return None
    parts = {"site": summary.site_figures, **summary.groups}
    blocks = [_forest(summary, column, own) for column, own in parts.items() if own]
    if not blocks:
        return None
    note = f"{SMALL}{': ' + ', '.join(map(visible, summary.hidden[:40])) if summary.hidden else ''}."
    return Section("sites", "Sites and groups", [*blocks, Text(note, kind="note")])


def _forest(summary: OutcomeSummary, column: str, parts: Sequence[SiteOutcome]) -> Chart:
    key = OF_SITES[summary.outcome]
    drawn = []
    for part in parts:
        figure = part.figures.get(key)
        low, high = (None, None) if figure is None or figure.interval is None else figure.interval
        value = None if figure is None else figure.value
        drawn.append(ForestRow(visible(part.name), [f"{part.rows:,}"], value, low, high))
    values = [v for row in drawn for v in (row.value, row.low, row.high)]
    names = list(dict.fromkeys(name for part in parts for name in part.figures))
    rows = [
        (visible(part.name), f"{part.rows:,}", *(figure_text(part.figures.get(name)) for name in names))
        for part in parts
    ]
    axis = axis_for(figure_name(key), values, share=key in HIGHER)
    return Chart(
        title=f"{figure_name(key).capitalize()} by {visible(column)}",
        svg=forest(drawn, axis, heads=[visible(column), "rows"], key=f"outcome-{visible(column)}"),
        description=f"{figure_name(key)} of {len(parts)} parts of the test rows, with 95 % intervals.",
        table=PageTable((visible(column), "rows", *(figure_name(name) for name in names)), rows),
    )


def survival_curves(run: StoredRun) -> Section | None:
    """Kaplan-Meier curves by thirds of the risk and by site.

    Args:
        run: The run.
    """
    summary = run.outcome_summary
    if summary is None or not summary.curves:
        return None
    blocks: list[Block] = []
    for kind, title in (("risk group", "by thirds of the predicted risk"), ("site", "by site")):
        own = [curve for curve in summary.curves if curve.kind == kind and curve.time]
        if own:
            blocks.append(_curves(own[:MOST_CURVES], len(own), title, kind))
    note = (
        "Kaplan-Meier estimates of the test rows with 95 % limits. A curve ends where fewer than 5 rows are at risk. "
        "The thirds are those of the training rows; well separated curves mean that the risk tells rows apart."
    )
    return Section("curves", "Survival", [*blocks, Text(note, kind="note")])


def _curves(curves: Sequence[StoredCurve], count: int, title: str, kind: str) -> Chart:
    lines = []
    for k, curve in enumerate(curves):
        x = [v for t in curve.time for v in (t, t)]
        low, middle, high = (_steps(part) for part in (curve.low, curve.survival, curve.high))
        line = Line(visible(curve.name), [0.0, *x], middle, STYLES[k])
        lines.append(replace(line, low=low, high=high) if kind == "risk group" else line)
    longest = max(curve.time[-1] for curve in curves)
    rows = [
        (
            visible(curve.name),
            f"{curve.rows:,}",
            f"{curve.events:,}",
            f"{curve.survival[-1]:.3f} at {curve.time[-1]:.4g}",
        )
        for curve in curves
    ]
    more = f" The first {MOST_CURVES} of {count} are drawn." if count > MOST_CURVES else ""
    return Chart(
        title=f"Share without an event, {title}",
        svg=line_chart(
            lines,
            ChartAxis("time", 0, longest),
            ChartAxis("share without an event", 0, 1, percent=True),
            key=f"curves-{kind.replace(' ', '-')}",
        ),
        description=f"{len(curves)} survival curves.{more}",
        table=PageTable((kind, "rows", "events", "share at the end of the curve"), rows),
        note=more.strip(),
    )


def _steps(values: Sequence[float]) -> list[float]:
    """Levels of a step function that begins at 1: before and after each time."""
    before = [1.0, *values[:-1]]
    return [1.0, *(v for pair in zip(before, values, strict=True) for v in pair)]
