"""report.html of a benchmark: ranks, figures of every task, curves, and what was run."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedsaddle.report.page.charts import ChartAxis, ForestRow, Line, axis_for, forest, line_chart
from fedsaddle.report.page.parts import Block, Bullets, Chart, Code, Figure, Page, PageTable, Section, Text
from fedsaddle.report.words import duration, many
from fedsaddle_papers.reproductions.page import STYLES
from fedsaddle_papers.suites.pictures import mean_and_band, on_exchanges
from fedsaddle_papers.suites.ranking import FEWEST, Ranking
from fedsaddle_papers.suites.run import Results
from fedsaddle_papers.suites.suite import Suite, Task, actual, falls
from fedsaddle_papers.suites.words import HEADS, cell_text, gain_rows, measure_in_words, number, rank_rows

METHOD = (
    "Every method has the same rows, model, starting point, local steps, batches and exchanges. Each has {n} "
    "candidates of its steps and parameters; each candidate runs with {tuning}, not used again, for {share} "
    "of the exchanges, and is measured on held-out training rows. The best then runs with {seeds} on test rows. "
    "A figure is the mean over the last fifth of the evaluations."
)
READING = (
    "Marked figures are the best of a task, or cannot be told from it: paired differences over seeds, one-sided, at "
    "5 % by Holm's procedure. Intervals of figures are Student's over seeds. Ranks are taken within each task and "
    "seed; their intervals draw the seeds of each task anew, so they cover the luck of splits and batches on these "
    "tasks, not the choice of tasks."
)


def benchmark_page(results: Results, ranking: Ranking, summary: Mapping[str, Any]) -> Page:
    """The page; `summary` is that of summary.json."""
    suite, best = results.suite, next(iter(ranking.ranks))
    machine = summary["machine"]
    where = f"{machine['cores']} cores, {machine['system']}, torch {summary['versions']['torch']}"
    tuned = METHOD.format(
        n=suite.budget,
        tuning=many(len(suite.tuning_seeds), "seed"),
        share=f"{suite.tuning_share:.0%}",
        seeds=many(suite.seeds, "seed"),
    )
    quick = ["A quick run: too few seeds, exchanges and candidates for any conclusion."] if suite.quick else []
    return Page(
        title=f"Benchmark {suite.name}: {suite.question}",
        subtitle=f"{many(len(suite.methods), 'method')}, {many(len(suite.tasks), 'task')}",
        answers=[
            Text(
                f"{best} has the best mean rank, {ranking.ranks[best].mean:.1f} of {len(suite.methods)}. "
                f"It is the best, or not distinguishable from it, on {ranking.ranks[best].best_on} of "
                f"{many(len(suite.tasks), 'task')}.",
                head="Which method?",
            ),
            Text(tuned, head="How was it compared?"),
            Text(
                f"On {summary['date']} on {where}: {duration(60 * summary['processor_minutes'])} of processor time.",
                head="What was run?",
            ),
        ],
        figures=[
            Figure("methods", str(len(suite.methods))),
            Figure("tasks", str(len(suite.tasks))),
            Figure("seeds", str(suite.seeds)),
        ],
        cautions=quick,
        sections=[
            _ranks(ranking, summary),
            *(_task(task, results, summary, number) for number, task in enumerate(suite.tasks)),
            _ran(results, summary),
        ],
        footer=f"Made by fedsaddle benchmark {suite.name}.",
    )


def _ranks(ranking: Ranking, summary: Mapping[str, Any]) -> Section:
    rows = [
        [label, rank, *(f"{text} *" if bold else text for text, bold in figures), *costs]
        for label, rank, figures, costs in rank_rows(summary)
    ]
    heads = [*HEADS[:2], *(task["task"] for task in summary["tasks"]), *HEADS[2:]]
    drawn = [
        ForestRow(label, [str(rank.best_on)], rank.mean, _or_none(rank.low), _or_none(rank.high))
        for label, rank in ranking.ranks.items()
    ]
    chart = Chart(
        "Mean ranks over tasks and seeds",
        forest(drawn, ChartAxis("mean rank", 1.0, float(len(drawn))), heads=["method", "best on"], key="ranks"),
        f"The best first: {', '.join(ranking.ranks)}.",
        None,
    )
    across = ranking.critical_difference
    notes = [Text(READING, "note")]
    if np.isfinite(across):
        p = f" (Friedman's test: p = {ranking.friedman:.2g})" if np.isfinite(ranking.friedman) else ""
        notes.append(
            Text(
                f"With the tasks as the sample, mean ranks that differ by less than {across:.1f} cannot be told apart "
                f"(Nemenyi's test, 5 %){p}.",
                "note",
            )
        )
    against = f"Against {summary['baseline']}, in pairs of seeds; a star where the interval leaves out no difference"
    gains = PageTable(["method", *heads[2 : 2 + len(summary["tasks"])]], list(gain_rows(summary)), caption=against)
    return Section("ranks", "All tasks", [chart, PageTable(heads, rows), gains, *notes])


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _task(task: Task, results: Results, summary: Mapping[str, Any], place: int) -> Section:
    column, share = task.measures[0], not falls(task.measures[0])
    own = summary["tasks"][place]["methods"]
    others = list(task.measures[1:])
    lines = []
    for at, label in enumerate(summary["ranks"]):
        found = on_exchanges(results.curves.get((task.name, label), ()), column)
        if found is None:
            continue
        x, (mean, low, high) = found[0].tolist(), mean_and_band(found[1], column)
        style = STYLES[at] if at < len(STYLES) else "faint"
        banded = len(found[1]) >= FEWEST and style != "faint"
        low = np.maximum(low, 0.0) if share else low
        ends = (low.tolist(), high.tolist()) if banded else (None, None)
        lines.append(Line(label, x, mean.tolist(), style, ends[0], ends[1]))
    values = [v for line in lines for v in line.y]
    words = measure_in_words(column)
    ends_said = [f"{name} {number(one['mean'], share)}" for name, one in own.items()]
    chart = Chart(
        f"{task.name}: {words} against exchanges",
        line_chart(
            lines,
            ChartAxis("exchanges", 0.0, max((line.x[-1] for line in lines), default=1.0)),
            axis_for(words, values, share=share, log=not share),
            key=f"task-{place}",
        ),
        f"At the end: {', '.join(ends_said)}.",
        None,
    )
    rows = [
        [name, cell_text(one, share) + (" *" if one["near_best"] else "")]
        + [number(one["other"].get(k), not falls(k)) for k in others]
        for name, one in own.items()
    ]
    blocks: list[Block] = [Text(f"{task.about}; {many(task.exchanges, 'exchange')}."), chart]
    blocks.append(PageTable(["method", words, *(measure_in_words(k) for k in others)], rows))
    return Section(f"task-{place}", task.name, blocks)


def _ran(results: Results, summary: Mapping[str, Any]) -> Section:
    suite = results.suite
    rows = []
    for method in suite.methods:
        for task in suite.tasks:
            chosen = results.tuned[task.name, method.label].chosen
            shown = "none" if chosen is None else ", ".join(f"{k} = {v}" for k, v in actual(task, chosen).items())
            rows.append([method.label, task.name, shown])
    blocks: list[Block] = [
        PageTable(["method", "task", "chosen"], rows, caption="What the tuner chose", folded=True),
        Code(_command(suite)),
    ]
    if summary["notes"]:
        blocks.append(Bullets(list(summary["notes"])))
    return Section("run", "What was run", blocks)


def _command(suite: Suite) -> str:
    """What runs it again, but for `--seeds` and `--out`."""
    words = ["fedsaddle", "benchmark", suite.name]
    if suite.part:
        words += ["--only", ";".join(m.label for m in suite.methods), "--tasks", ";".join(t.name for t in suite.tasks)]
    words += ["--measure", suite.asked] if suite.asked else []
    return shlex.join([*words, "--quick"] if suite.quick else words)
