"""Figures of each site and of subgroups such as women and men, and where the model ranks worst."""

from __future__ import annotations

from dataclasses import dataclass

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW, RankingFigures
from fedsaddle.metrics.subgroups import GroupFigures, Subgroups, Worst, gap, worst
from fedsaddle.report.page.charts import ChartAxis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Bullets, Chart, Figure, PageTable, Section, Text
from fedsaddle.report.sections.ranking import TwoClasses, two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import LEVEL, brief, brief_percent, decimal, many, of_100, percent, with_interval
from fedsaddle.text import visible


@dataclass(frozen=True)
class WorstGroup:
    """The group with the lowest AUROC, of all columns that were asked for.

    Args:
        column: Its column.
        found: The group.
    """

    column: str
    found: Worst

    @property
    def name(self) -> str:
        """The group, with its column."""
        return f"{self.column} {self.found.name}"


def worst_site(run: StoredRun) -> Worst | None:
    """The site with the lowest AUROC, against pairs of rows within the other sites; None with fewer than two ranked.

    Args:
        run: The run.
    """
    found = two_classes(run)
    return None if found is None else found.worst_site


def worst_group(run: StoredRun) -> WorstGroup | None:
    """The group with the lowest AUROC; its intervals account for the selection among the groups of all columns.

    Args:
        run: The run.
    """
    found = two_classes(run)
    if found is None:
        return None
    every = found.groups
    lowest = [(f.worst.auroc.value, column) for column, f in every.items() if f.worst is not None]
    looks = sum(group.auroc is not None for f in every.values() if f.worst is not None for group in f.groups)
    if not lowest:
        return None
    column = min(lowest)[1]
    rows = found.rows_by_group(column)
    again = None if rows is None else worst(rows, looks=looks)
    return None if again is None else WorstGroup(column, again)


def least_found(run: StoredRun) -> str:
    """The groups with the lowest and the highest sensitivity, of the column where they differ most; or nothing.

    Ranking alone does not show it: a threshold may miss most of one group.

    Args:
        run: The run.
    """
    found = two_classes(run)
    every = {} if found is None else found.groups
    apart = {column: own.gaps["sensitivity"].value for column, own in every.items() if "sensitivity" in own.gaps}
    if found is None or not apart:
        return ""
    column = max(apart, key=lambda name: apart[name])
    compared = [g for own in every.values() for g in own.groups if not g.few and g.sensitivity is not None]
    rows = found.rows_by_group(column)
    between = None if rows is None else gap(rows, "sensitivity", len(compared))
    if between is None or between.value == 0:
        return ""
    own = sorted((g.sensitivity.value, g.name) for g in every[column].groups if not g.few and g.sensitivity is not None)
    (low, fewest), (high, most) = own[0], own[-1]
    verdict = "significant" if between.low > 0 else "not significant, with so few rows"
    return (
        f"At the threshold, sensitivity is {percent(low)} in the group {visible(column)} {fewest}, "
        f"against {percent(high)} in {most} (a gap of {of_100(between.value)} points, {LEVEL} {of_100(between.low)} to "
        f"{of_100(between.high)}): {verdict}."
    )


def worst_site_in_words(found: Worst) -> str:
    """The worst site, and whether it differs significantly from the others.

    Args:
        found: The site.
    """
    return (
        f"The lowest AUROC is that of {found.name}: {with_interval(found.auroc, 3)}, from {found.positives:,} rows "
        f"with and {found.negatives:,} without the outcome. Within the other sites it is "
        f"{decimal(found.others.value, 3)}. {gap_in_words(found, 'site')}"
    )


def gap_in_words(found: Worst, what: str) -> str:
    """The gap of the worst of several, with an interval that accounts for the selection.

    Args:
        found: The worst one.
        what: "site" or "group".
    """
    interval = f"95 % interval {decimal(found.gap.low, 3, sign=True)} to {decimal(found.gap.high, 3, sign=True)}"
    start = (
        f"The difference is {decimal(found.gap.value, 3, sign=True)} ({interval}; both intervals account for its "
        f"selection as the worst of {found.looks} {what}s)"
    )
    if found.distinguishable:
        return f"{start}: the model ranks significantly worse there."
    return f"{start}: too few rows to decide whether the model ranks worse there than elsewhere."


def headline(run: StoredRun) -> tuple[Figure, ...]:
    """The main figures of a run with two classes, for the top of its page; empty for other runs.

    Args:
        run: The run.
    """
    found = two_classes(run)
    if found is None or found.choice.pooled.auroc is None:
        return ()
    figures = [Figure("AUROC", decimal(found.choice.pooled.auroc.value), _interval(found.choice.pooled.auroc))]
    ahead = None if found.difference is None else found.difference.auroc
    if ahead is not None and found.other is not None:
        text = _interval(ahead, digits=3, sign=True)
        decided = "" if ahead.low > 0 or ahead.high < 0 else "; not significant"
        figures.append(Figure(f"AUROC minus {found.other.name}'s", decimal(ahead.value, 3, sign=True), text + decided))
    at = found.at_threshold
    if at is not None:
        named = {
            f"Of 100 with {found.outcome}, found": at.sensitivity,
            "Of 100 alarms, right": at.positive_predictive_value,
            "Alarms in 100 rows": at.alarms,
        }
        for name, share in named.items():
            if share is not None:
                detail = (
                    f"{LEVEL} {of_100(share.low)} to {of_100(share.high)}, at a threshold of {percent(at.threshold, 1)}"
                )
                figures.append(Figure(name, of_100(share.value), detail))
    return tuple(figures)


def _interval(figure: Interval, digits: int = 2, *, sign: bool = False) -> str:
    return f"{LEVEL} {decimal(figure.low, digits, sign=sign)} to {decimal(figure.high, digits, sign=sign)}"


NAMES = {
    "sensitivity": "found among those with the outcome (sensitivity)",
    "specificity": "no alarm among those without (specificity)",
    "positive_predictive_value": "right among the alarms (PPV)",
    "alarms": "alarms",
    "observed_minus_predicted": "share with the outcome minus mean probability, in points",
}


def groups(run: StoredRun) -> Section | None:
    """A forest plot, a table and the gaps for each subgroup column.

    Args:
        run: The run.
    """
    found = two_classes(run)
    columns = {} if found is None else found.groups
    if found is None or not columns:
        return None
    blocks: list[Block] = [Text(_about(found, columns))]
    for place, (column, own) in enumerate(columns.items()):
        blocks += _blocks(found, visible(column), own, f"groups-{place}")
    return Section("groups", "Group by group", blocks)


def _about(found: TwoClasses, columns: dict[str, Subgroups]) -> str:
    at = "" if found.threshold is None else f" at the run's threshold of {percent(found.threshold, 1)}"
    text = (
        f"Figures of the groups by {' and by '.join(map(visible, columns))}{at}. Figures that are computed from fewer "
        f"than {FEW} rows are left out, and groups with fewer than {FEW} rows of a class are not compared. A gap is "
        "the largest figure minus the smallest; its interval accounts for the selection of these two groups. A gap "
        "that is not significant may still exist. Alarms also differ between groups because the prevalence of the "
        "outcome does."
    )
    ranked = sum(group.auroc is not None for own in columns.values() for group in own.groups)
    if len(columns) > 1 and ranked > 5:
        text += f" With {ranked} groups in {len(columns)} columns, one gap is to be expected by chance."
    return text


def _blocks(found: TwoClasses, column: str, own: Subgroups, key: str) -> list[Block]:
    blocks: list[Block] = [_group_chart(found, column, own, key), _group_table(found, column, own)]
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
        return f"{start}: significant."
    return f"{start}: {'no gap' if gap.value == 0 else 'not significant'}."


def _group_chart(found: TwoClasses, column: str, own: Subgroups, key: str) -> Chart:
    rows = [_group_row(group) for group in own.groups]
    pooled = found.choice.pooled
    if pooled.auroc is not None:
        counts = (f"{pooled.positives + pooled.negatives:,}", f"{pooled.positives:,}")
        total = pooled.auroc
        rows.append(ForestRow("all rows", counts, total.value, total.low, total.high, kind="total"))
    lows = [row.low for row in rows if row.low is not None]
    svg = forest(
        rows,
        ChartAxis("AUROC", max(0.0, min([0.5, *lows]) // 0.1 * 0.1), 1.0),
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
        "Each line is a group with its 95 % interval. The AUROC compares rows of the same group only; the table below "
        "has alarms and probabilities, which differ between groups.",
    )


def _group_row(group: GroupFigures) -> ForestRow:
    counts = (f"{group.positives + group.negatives:,}", f"{group.positives:,}")
    if group.auroc is None:
        return ForestRow(group.name, counts, None, why_not="too few rows")
    own = group.auroc
    return ForestRow(group.name, counts, own.value, own.low, own.high)


def _group_table(found: TwoClasses, column: str, own: Subgroups) -> PageTable:
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
    return PageTable([*heads, *(short[name] for name in shares)], rows, f"Figures by {column}, with 95 % intervals")


MOST_ROWS = 40  # sites; of more, only those with a figure are drawn
TALL = 24  # rows of a drawing that scrolls
POOLED, WITHIN = "all sites together", "within sites"


def sites(run: StoredRun) -> Section | None:
    """A forest plot of the sites, and the pooled AUROC beside that within sites.

    Args:
        run: The run.
    """
    found = two_classes(run)
    if found is None or len(found.choice.sites) < 2 or found.choice.pooled.auroc is None:
        return None
    blocks: list[Block] = [Text(_in_words(found))]
    worst = worst_site(run)
    if worst is not None:
        blocks.append(Text(worst_site_in_words(worst)))
    unranked = without_figure(found)
    if unranked:
        blocks.append(Text(unranked))
    blocks.append(_site_chart(found))
    return Section("sites", "Site by site", blocks)


def without_figure(found: TwoClasses) -> str:
    """How many sites have no AUROC, and why; empty if all have one.

    Args:
        found: The run.
    """
    every = found.choice.sites
    empty = [s for s in every if not s.positives + s.negatives]
    single = [s for s in every if s.single_class and s not in empty]
    few = [s for s in every if s.few and not s.single_class]
    said = []
    if single:
        said.append(f"{many(len(single), 'has', 'have')} rows of one class only")
    if few:
        said.append(f"{many(len(few), 'has', 'have')} fewer than {FEW} rows of a class")
    if empty:
        said.append(f"{many(len(empty), 'has', 'have')} no {found.part} rows")
    if not said:
        return ""
    rest = len(single) + len(few) + len(empty)
    start = f"{rest:,} of {many(len(every), 'site')} {'has' if rest == 1 else 'have'} no AUROC of their own"
    if rest == 1:
        start = start.replace("their", "its")
    elif rest == len(every):
        start = f"None of the {many(rest, 'site')} has an AUROC of its own"
    return (
        f"{start}: {', '.join(said)}. So few rows cannot distinguish a good ranking "
        "from chance; they count in the figures of all sites together."
    )


def _in_words(found: TwoClasses) -> str:
    choice = found.choice
    text = (
        f"All {found.part} rows together have an AUROC of {with_interval(choice.pooled.auroc, 3)}. It also compares "
        "rows of different sites, and so depends on whether the scores of two sites are on the same scale."
    )
    if choice.within is not None:
        text += (
            f" Within sites it is {with_interval(choice.within, 3)}: only rows of the same site are compared, as when "
            "a hospital ranks its own patients."
        )
    if found.difference is not None and found.difference.within_site_auroc is not None and found.other is not None:
        gap = found.difference.within_site_auroc
        decided = "" if gap.low > 0 or gap.high < 0 else ", which is not significant"
        text += f" Within sites the difference from {found.other.name} is {with_interval(gap, 3, sign=True)}{decided}."
    return text


def _site_chart(found: TwoClasses) -> Chart:
    choice, other = found.choice, found.other
    every = range(len(choice.sites))
    ranked = [k for k in every if choice.sites[k].auroc is not None]
    drawn = list(every) if len(choice.sites) <= MOST_ROWS else sorted(ranked, key=lambda k: _value(choice.sites[k]))
    rows = [_site_row(choice.sites[k], None if other is None else other.sites[k]) for k in drawn]
    rows.append(_total(WITHIN, choice.within, None if other is None else other.within, ("", "")))
    pooled = choice.pooled
    counts = (f"{pooled.positives + pooled.negatives:,}", f"{pooled.positives:,}")
    rows.append(_total(POOLED, pooled.auroc, None if other is None else other.pooled.auroc, counts))
    lows = [row.low for row in rows if row.low is not None]
    lows += [row.second[1] for row in rows if row.second is not None]
    axis = ChartAxis("AUROC", max(0.0, min([0.5, *lows]) // 0.1 * 0.1), 1.0)
    heads = ("site", "rows", f"with {found.outcome}")
    middle = None if pooled.auroc is None else pooled.auroc.value
    models = [] if other is None else [choice.name, other.name]
    svg = forest(rows, axis, heads=heads, reference=middle, models=models, key="sites")
    best = [choice.sites[k].auroc for k in ranked]
    values = [a.value for a in best if a is not None]
    spread = f" Those of the sites range from {min(values):.3f} to {max(values):.3f}." if values else ""
    left_out = len(choice.sites) - len(drawn)
    rest = f" The {many(left_out, 'site')} without a figure are in the table." if left_out else ""
    return Chart(
        "AUROC of each site",
        svg,
        f"AUROC of {many(len(ranked), 'site')} with a figure; all sites together {with_interval(pooled.auroc, 3)}, "
        f"within sites {with_interval(choice.within, 3)}.{spread}",
        _site_table(found),
        "Each line is a site with its 95 % interval; where intervals overlap widely, the sites may not differ. "
        f"A value of 0.5 is guessing; the dashed line is the value of all sites together.{rest}",
        scrolls=len(rows) > TALL,
    )


def _value(site: RankingFigures) -> float:
    return 2.0 if site.auroc is None else site.auroc.value


def _site_row(site: RankingFigures, second: RankingFigures | None) -> ForestRow:
    counts = (f"{site.positives + site.negatives:,}", f"{site.positives:,}")
    if site.auroc is None:
        return ForestRow(visible(site.name), counts, None, why_not=site.why_not or "no figure")
    own = site.auroc
    return ForestRow(
        visible(site.name),
        counts,
        own.value,
        own.low,
        own.high,
        second=_three(None if second is None else second.auroc),
    )


def _total(name: str, own: Interval | None, second: Interval | None, counts: tuple[str, str]) -> ForestRow:
    if own is None:
        return ForestRow(name, counts, None, kind="total", why_not="no pairs")
    return ForestRow(name, counts, own.value, own.low, own.high, kind="total", second=_three(second))


def _three(figure: Interval | None) -> tuple[float, float, float] | None:
    return None if figure is None else (figure.value, figure.low, figure.high)


def _site_table(found: TwoClasses) -> PageTable:
    models = list(found.models.values())
    rows = []
    for k, site in enumerate(found.choice.sites):
        cells = [site.why_not if site.auroc is None else brief(m.sites[k].auroc, 3) for m in models]
        rows.append(
            [visible(site.name), f"{site.positives + site.negatives:,}", f"{site.positives:,}", *map(str, cells)]
        )
    rows.sort(key=lambda row: row[3][:1].isalpha())  # those with a figure first
    pooled = found.choice.pooled
    rows.append([WITHIN, "", "", *(brief(m.within, 3) for m in models)])
    total = [POOLED, f"{pooled.positives + pooled.negatives:,}", f"{pooled.positives:,}"]
    rows.append([*total, *(brief(m.pooled.auroc, 3) for m in models)])
    heads = ["site", "rows", f"with {found.outcome}", *(f"AUROC of {m.name}" for m in models)]
    return PageTable(heads, rows, f"AUROC of the {found.part} rows, with 95 % intervals", totals=2)
