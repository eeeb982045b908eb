"""Learning curves of several runs in one chart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fedsaddle.metrics.target import is_side, main_part_name
from fedsaddle.report.page.charts import Axis, Line, line_chart
from fedsaddle.report.page.parts import Block, Chart, Section, Table
from fedsaddle.report.paired import same_loss
from fedsaddle.report.sections.numbers import MOST_POINTS, axis, is_share, picked, thinned
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import cased, short, titled
from fedsaddle.stored import Record

STYLES = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth")
Figure = Callable[[Record], float | None]


def curves_together(runs: Mapping[str, StoredRun]) -> Section | None:
    """Measures that all runs have: of all rows together, and of the worst and the mean client."""
    histories = {name: run.history for name, run in runs.items() if len(run.history) > 1}
    if len(histories) < 2:
        return None
    found = [*_pooled(histories), *_of_clients(histories, same_loss(runs))]
    blocks: list[Block] = [chart for chart in found if chart is not None]
    return Section("curves", "How training went", blocks) if blocks else None


def together(
    title: str, label: str, histories: Mapping[str, Sequence[Record]], figure: Figure, key: str
) -> Chart | None:
    """A line for each run; None where fewer than two have the figure."""
    lines = []
    styles = [*STYLES[: len(histories)], *["faint"] * max(0, len(histories) - len(STYLES))]
    for (name, history), style in zip(histories.items(), styles, strict=True):
        points = [(int(r["round"]), float(v)) for r in history if (v := figure(r)) is not None]
        if len(points) > 1:
            at = picked(len(points), MOST_POINTS)
            lines.append(Line(name, thinned([p[0] for p in points], at), thinned([p[1] for p in points], at), style))
    if len(lines) < 2:
        return None
    values = [v for line in lines for v in line.y]
    log = not is_share(label) and min(values) > 0 and max(values) > 100 * min(values)
    y = axis(label, values, share=is_share(label.lower()), log=log)
    ends = ", ".join(f"{line.name} {short(line.y[-1])}" for line in lines)
    return Chart(
        title,
        line_chart(lines, Axis("round", 0, max(line.x[-1] for line in lines)), y, key=key),
        f"In the last evaluation: {ends}.",
        Table(
            ["run", "first evaluation", "best", "last evaluation"],
            [[line.name, *map(short, (line.y[0], _best(line.y, label), line.y[-1]))] for line in lines],
        ),
    )


def _best(values: Sequence[float], label: str) -> float:
    return max(values) if is_share(label.lower()) else min(values)


def _pooled(histories: Mapping[str, Sequence[Record]]) -> list[Chart | None]:
    key = "pooled_validation" if all("pooled_validation" in h[-1] for h in histories.values()) else "pooled"
    shared = [m for m in next(iter(histories.values()))[-1].get(key, {}) if not is_side(m)]
    skipped = ("partial_auroc_30", "partial_auroc_50", "two_way_partial_auroc", "best_site_auroc", "std_site_auroc")

    def of(measure: str) -> Figure:
        return lambda record: record.get(key, {}).get(measure)

    where = " of the validation rows" if key == "pooled_validation" else ""
    return [
        together(f"{titled(cased(m))}{where}", cased(m), histories, of(m), f"pooled-{m}")
        for m in shared
        if m not in skipped
    ]


def _of_clients(histories: Mapping[str, Sequence[Record]], losses: bool) -> list[Chart | None]:
    """Accuracies or, where all runs have the same one, losses."""
    parts = {main_part_name(h[-1]) for h in histories.values()}
    if len(parts) > 1:
        return []
    (part,) = parts
    measures = [
        m
        for m in ("accuracy", *(["loss"] if losses else []))
        if all(m in h[-1].get(part, {}) for h in histories.values())
    ]

    def of(measure: str, statistic: str) -> Figure:
        return lambda record: record.get(part, {}).get(measure, {}).get(statistic)

    names = {"worst": "worst client", "mean": "mean over clients"}
    rows = {"test": "test rows", "validation": "validation rows", "train": "training rows"}[part]
    return [
        together(f"{titled(m)}, {name}, on {rows}", f"{m}, {name}", histories, of(m, s), f"{m}-{s}")
        for m in measures[:1]
        for s, name in names.items()
    ]
