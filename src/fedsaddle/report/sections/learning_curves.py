"""The learning curves of a run, with those of FedAvg where it was trained too."""

from __future__ import annotations

from collections.abc import Sequence

from fedsaddle.documents.stored import Round
from fedsaddle.documents.summary import PartName
from fedsaddle.metrics.selection import is_side
from fedsaddle.report.page.charts import MOST_LINES, MOST_POINTS, ChartAxis, Line, axis_for, line_chart, picked, thinned
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import PARTS, cased, is_share, many, short, titled

BASELINE = "FedAvg"
RANKING = ("auroc", "average_precision")  # drawn; the other figures of the ranking are in the table
NOT_DRAWN = ("partial_auroc_30", "partial_auroc_50", "two_way_partial_auroc", "best_site_auroc", "std_site_auroc")
FALLING = ("gradient", "gap", "distance")  # measures that go to 0: on a logarithmic axis


def learning_curves(run: StoredRun) -> Section | None:
    """The measures of each evaluation; None for runs with fewer than two.

    Args:
        run: The run.
    """
    if len(run.history) < 2:
        return None
    blocks: list[Block] = [Text(_about(run))]
    blocks += [chart for measure in _pooled_measures(run.history) if (chart := _pooled(run, measure)) is not None]
    part = run.history[-1].main_part
    measures = sorted(run.history[-1].main_measures, key=lambda name: name == "loss")
    for measure in () if run.is_search else measures:
        if not (measure == "loss" and _ranks_only(run.history[-1])):
            blocks.append(_over_clients(run, part, measure))
    inexact = sorted({name for record in run.history for name in record.not_reached})
    if inexact:
        rounds = sum(bool(record.not_reached) for record in run.history)
        names = ", ".join(map(cased, inexact))
        words = (
            f"Inexact: in {rounds:,} of {len(run.history):,} evaluations the inner solve of {names} did not reach its "
            "tolerance; raise most_steps or tolerance for exact figures."
        )
        blocks.append(Text(words, "caution"))
    return None if len(blocks) < 2 else Section("learning-curves", "How training went", blocks)


def _about(run: StoredRun) -> str:
    first, last = run.history[0].round, run.history[-1].round
    words = [f"{many(len(run.history), 'evaluation')} from round {first:,} to round {last:,}."]
    kept = run.finished.selected_round if run.finished else None
    reasons = {
        "interrupted": "The run was interrupted before its end.",
        "target": f"It stopped because its target was reached ({run.finished.target if run.finished else ''}).",
        "patience": "It stopped early, as evaluations no longer improved.",
        "diverged": "It diverged: its loss became infinite, and there is no model. Try a smaller step.",
    }
    if run.summary is not None and run.summary.stopped in reasons:
        words.append(reasons[run.summary.stopped])
    if kept is not None:
        words.append(f"The model of round {kept:,} was selected{'; a grey line marks it' if kept != last else ''}.")
    if run.baseline and run.name != BASELINE:
        words.append("FedAvg, trained on the same rows, is shown for comparison.")
    return " ".join(words)


def _pooled_measures(history: Sequence[Round]) -> list[str]:
    """The measures over all rows together that get a chart of their own."""
    there = _pooled_figures(history[-1])
    return [name for name in there if not is_side(name) and name not in NOT_DRAWN]


def _pooled_figures(record: Round) -> dict[str, float]:
    return record.pooled_validation or record.pooled or {}


def _pooled(run: StoredRun, measure: str) -> Chart | None:
    """One measure of all rows together, with the bounds of its histogram where it has any."""
    ours = _points(run.history, measure)
    if len(ours[0]) < 2:
        return None
    lines = [_line(run.name, ours, "first", _errors(run.history, measure))]
    theirs = _points(run.baseline, measure) if run.name != BASELINE else ([], [])
    if len(theirs[0]) > 1:
        lines.append(_line(BASELINE, theirs, "second"))
    values = [v for line in lines for v in line.y]
    log = min(values) > 0 and (any(w in measure for w in FALLING) or max(values) > 100 * min(values))
    where = "validation rows" if run.history[-1].pooled_validation else "test rows or training rows"
    if measure in RANKING and run.history[-1].test is not None:
        where = "test rows"
    y = axis_for(cased(measure), values, share=is_share(measure), log=log)
    kept = _kept(run, y)
    x = ChartAxis("round", 0, max(max(line.x) for line in lines))
    words = f"{titled(cased(measure))} goes from {short(ours[1][0])} to {short(ours[1][-1])}" + _extreme(ours, measure)
    if len(theirs[0]) > 1:
        words += f" FedAvg ends at {short(theirs[1][-1])}."
    return Chart(
        _title(measure),
        line_chart([*lines, *kept], x, y, key=f"curve-{measure}"),
        words,
        _table(run.name, ours, theirs, cased(measure)),
        note=f"Measured on {where}. The axis covers only the observed range, so that small differences look large."
        if measure in RANKING
        else "",
    )


def _title(measure: str) -> str:
    if measure == "worst_site_auroc":
        return "AUROC of the worst site"
    return f"{titled(cased(measure))} of all rows together" if measure in RANKING else titled(cased(measure))


def _extreme(points: tuple[list[int], list[float]], measure: str) -> str:
    best = max if is_share(measure) else min
    value = best(points[1])
    return f"; its best is {short(value)} in round {points[0][points[1].index(value)]:,}."


def _points(history: Sequence[Round], measure: str) -> tuple[list[int], list[float]]:
    there = [(r.round, v) for r in history if (v := _pooled_figures(r).get(measure)) is not None]
    return [r for r, _ in there], [v for _, v in there]


def _errors(history: Sequence[Round], measure: str) -> list[float] | None:
    found = [_pooled_figures(r).get(f"{measure}_error") for r in history if measure in _pooled_figures(r)]
    return None if any(e is None for e in found) else [e for e in found if e is not None]


def _line(name: str, points: tuple[list[int], list[float]], style: str, errors: Sequence[float] | None = None) -> Line:
    at = picked(len(points[0]), MOST_POINTS)
    x, y = thinned(points[0], at), thinned(points[1], at)
    if errors is None:
        return Line(name, x, y, style)
    off = thinned(errors, at)
    both = zip(y, off, strict=True)
    low, high = zip(*((v - e, v + e) for v, e in both), strict=True)
    return Line(name, x, y, style, low=low, high=high)


def _kept(run: StoredRun, y: ChartAxis) -> list[Line]:
    """A mark at the round whose model was selected, unless it is the last."""
    kept = run.finished.selected_round if run.finished else None
    if kept is None or kept == run.history[-1].round:
        return []
    return [Line(f"selected: round {kept:,}", [kept, kept], [y.low, y.high], "guide")]


def _over_clients(run: StoredRun, part: PartName, measure: str) -> Chart:
    """Mean, worst and best client over the rounds."""
    three = {s: _statistics(run.history, part, measure, s) for s in ("mean", "worst", "best")}
    rounds, figures = three["mean"][0], {s: values for s, (_, values) in three.items()}
    at = picked(len(rounds), MOST_POINTS)
    low, high = (figures[s] for s in (("worst", "best") if is_share(measure) else ("best", "worst")))
    x = thinned(rounds, at)
    lines = [
        Line("mean over clients", x, thinned(figures["mean"], at), "first", thinned(low, at), thinned(high, at)),
        Line("worst client", x, thinned(figures["worst"], at), "third"),
    ]
    for statistic, style in (("mean", "second"), ("worst", "fourth")):
        theirs = _statistics(run.baseline if run.name != BASELINE else (), part, measure, statistic)
        if len(theirs[0]) > 1:
            name = f"{BASELINE}, {'mean over clients' if statistic == 'mean' else 'worst client'}"
            lines.append(_line(name, theirs, style))
    values = [*low, *high, *(v for line in lines for v in line.y)]
    y = axis_for(f"{measure}, {PARTS[part]}", values, share=is_share(measure))
    last = {s: short(v[-1]) for s, v in figures.items()}
    return Chart(
        f"{titled(cased(measure))} of the clients",
        line_chart(
            [*lines, *_kept(run, y)],
            ChartAxis("round", 0, max(max(line.x) for line in lines)),
            y,
            key=f"clients-{measure}",
        ),
        f"In the last evaluation the mean over clients is {last['mean']}, the worst client has {last['worst']} and the "
        f"best {last['best']}.",
        _statistics_table(rounds, figures, measure),
        note=f"The band reaches from the worst to the best client, on {PARTS[part]}.",
    )


def _statistics(
    history: Sequence[Round], part: PartName, measure: str, statistic: str
) -> tuple[list[int], list[float]]:
    """One statistic over the clients, by round."""
    there = [(r.round, own[measure]) for r in history if measure in (own := r.measures(part) or {})]
    return [r for r, _ in there], [spread[statistic] for _, spread in there]


def _ranks_only(record: Round) -> bool:
    """Whether the loss is the objective of a run that optimises a ranking: it is not meaningful to a reader."""
    return "auroc" in _pooled_figures(record) and set(record.main_measures) == {"loss"}


def _table(
    name: str, ours: tuple[list[int], list[float]], theirs: tuple[Sequence[int], Sequence[float]], head: str
) -> PageTable:
    at = picked(len(ours[0]), MOST_LINES)
    other = dict(zip(*theirs, strict=True))
    heads = ["round", f"{head}, {name}", *([f"{head}, {BASELINE}"] if other else [])]
    rows = [
        [f"{ours[0][k]:,}", short(ours[1][k], 4), *([short(other.get(ours[0][k]), 4)] if other else [])] for k in at
    ]
    return PageTable(heads, rows, caption=_some(len(at), len(ours[0])))


def _statistics_table(rounds: Sequence[int], figures: dict[str, list[float]], measure: str) -> PageTable:
    at = picked(len(rounds), MOST_LINES)
    rows = [[f"{rounds[k]:,}", *(short(figures[s][k], 4) for s in figures)] for k in at]
    return PageTable(["round", *(f"{s} {measure}" for s in figures)], rows, caption=_some(len(at), len(rounds)))


def _some(shown: int, there: int) -> str:
    return f"{shown} of {there:,} evaluations" if shown < there else ""
