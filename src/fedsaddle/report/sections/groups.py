"""How the model does for groups, such as women and men."""

from __future__ import annotations

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW
from fedsaddle.metrics.subgroups import GroupFigures, Subgroups
from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Bullets, Chart, Section, Table, Text
from fedsaddle.report.sections.two_classes import TwoClasses, two_classes
from fedsaddle.report.sections.worst import gap_in_words, groups_of
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import brief, brief_percent, decimal, many, of_100, percent, with_interval
from fedsaddle.shown import visible

NAMES = {
    "sensitivity": "found among those with the outcome (sensitivity)",
    "specificity": "no alarm among those without (specificity)",
    "positive_predictive_value": "right among the alarms (PPV)",
    "alarms": "alarms",
    "observed_minus_predicted": "share with the outcome minus mean probability, in points",
}


def groups(run: StoredRun) -> Section | None:
    """A forest plot, a table and the gaps for each column that was asked for."""
    found = two_classes(run)
    columns = {} if found is None else groups_of(found)
    if found is None or not columns:
        return None
    blocks: list[Block] = [Text(_about(found, columns))]
    for place, (column, own) in enumerate(columns.items()):
        blocks += _blocks(found, visible(column), own, f"groups-{place}")
    return Section("groups", "Group by group", blocks)


def _about(found: TwoClasses, columns: dict[str, Subgroups]) -> str:
    at = "" if found.threshold is None else f" at the run's threshold of {percent(found.threshold, 1)}"
    text = (
        f"Figures of the groups by {' and by '.join(map(visible, columns))}{at}. A figure that fewer than {FEW} rows "
        f"of a group would decide is left out, and groups with fewer than {FEW} rows of a class are not compared. A "
        "gap is the largest figure minus the smallest; its interval allows for having picked these two after looking "
        "at all. Where the rows are too few to be sure, a gap may be there or not. Alarms differ between "
        "groups also where the outcome does, which is no fault of the model."
    )
    ranked = sum(group.auroc is not None for own in columns.values() for group in own.groups)
    if len(columns) > 1 and ranked > 5:
        text += (
            f" With {ranked} groups in {len(columns)} columns, a gap in one of them is to be expected by chance alone."
        )
    return text


def _blocks(found: TwoClasses, column: str, own: Subgroups, key: str) -> list[Block]:
    blocks: list[Block] = [_chart(found, column, own, key), _table(found, column, own)]
    lines = []
    if own.worst is not None:
        worst = own.worst
        lines.append(
            f"The lowest AUROC is that of {column} {worst.name}, {with_interval(worst.auroc, 3)}; that of all others "
            f"together is {decimal(worst.others.value, 3)}. {gap_in_words(worst, 'group')}"
        )
    lines += [_gap(NAMES[name], gap, own, name) for name, gap in own.gaps.items() if name in NAMES]
    few = [group.name for group in own.groups if group.few]
    if few:
        some = ", ".join(few[:10]) + (f" and {len(few) - 10} more" if len(few) > 10 else "")
        lines.append(f"Not ranked, with fewer than {FEW} rows of a class: {some}.")
    return [*blocks, Bullets(lines)] if lines else blocks


def _gap(what: str, gap: Interval, own: Subgroups, name: str) -> str:
    compared = [group for group in own.groups if not group.few]
    known = [(figure.value, group.name) for group in compared if (figure := getattr(group, name)) is not None]
    ends = [
        (of_100(value) if name == "observed_minus_predicted" else percent(value), at) for value, at in sorted(known)
    ]
    low, high = ends[0], ends[-1]
    start = (
        f"{what[0].upper()}{what[1:]}: {low[0]} ({low[1]}) against {high[0]} ({high[1]}), a gap of "
        f"{of_100(gap.value)} points (95 % interval {of_100(gap.low)} to {of_100(gap.high)})"
    )
    if gap.low > 0:
        return f"{start}: more than chance explains."
    return f"{start}: {'no gap here' if gap.value == 0 else 'too few rows to be sure'}."


def _chart(found: TwoClasses, column: str, own: Subgroups, key: str) -> Chart:
    rows = [_row(group) for group in own.groups]
    pooled = found.choice.pooled
    if pooled.auroc is not None:
        counts = (f"{pooled.positives + pooled.negatives:,}", f"{pooled.positives:,}")
        total = pooled.auroc
        rows.append(ForestRow("all rows", counts, total.value, total.low, total.high, kind="total"))
    lows = [row.low for row in rows if row.low is not None]
    svg = forest(
        rows,
        Axis("AUROC", max(0.0, min([0.5, *lows]) // 0.1 * 0.1), 1.0),
        heads=(column, "rows", f"with {found.outcome}"),
        reference=None if pooled.auroc is None else pooled.auroc.value,
        key=key,
    )
    ranked = [g for g in own.groups if g.auroc is not None]
    figures = "; ".join(f"{g.name} {brief(g.auroc, 3)}" for g in ranked[:8])
    return Chart(
        f"AUROC by {column}",
        svg,
        f"AUROC of {many(len(ranked), 'group')} by {column}, with 95 % intervals: {figures or 'none has a figure'}.",
        None,
        "Each line is a group with its 95 % interval. The AUROC compares rows of the same group only; alarms and "
        "probabilities, which compare groups, are in the table below.",
    )


def _row(group: GroupFigures) -> ForestRow:
    counts = (f"{group.positives + group.negatives:,}", f"{group.positives:,}")
    if group.auroc is None:
        return ForestRow(group.name, counts, None, why_not="too few rows")
    own = group.auroc
    return ForestRow(group.name, counts, own.value, own.low, own.high)


def _table(found: TwoClasses, column: str, own: Subgroups) -> Table:
    heads = [column, "rows", f"with {found.outcome}", "AUROC"]
    shares = [name for name in NAMES if any(getattr(group, name) is not None for group in own.groups)]
    short = {
        "sensitivity": "found, %", "specificity": "no alarm without, %", "positive_predictive_value": "right alarms, %",
        "alarms": "alarms in 100", "observed_minus_predicted": "observed − predicted",
    }  # fmt: skip
    rows = []
    for group in own.groups:
        cells = [group.name, f"{group.positives + group.negatives:,}", f"{group.positives:,}", brief(group.auroc)]
        for name in shares:
            figure = getattr(group, name)
            if name == "observed_minus_predicted" and figure is not None:
                figure = Interval(100 * figure.value, 100 * figure.low, 100 * figure.high)
                cells.append(brief(figure, 1, sign=True))
            else:
                cells.append(brief_percent(figure))
        rows.append(cells)
    return Table([*heads, *(short[name] for name in shares)], rows, f"Figures by {column}, with 95 % intervals")
