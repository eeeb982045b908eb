"""The site and the group for which the model ranks worst, and figures for the front of the page."""

from __future__ import annotations

from dataclasses import dataclass

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.subgroups import Subgroups, Worst, gap, subgroups, worst
from fedsaddle.report.page.parts import Figure
from fedsaddle.report.sections.decisions import chosen_figures
from fedsaddle.report.sections.two_classes import TwoClasses, two_classes
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import LEVEL, decimal, of_100, percent, with_interval
from fedsaddle.shown import visible


@dataclass(frozen=True)
class WorstGroup:
    """The group with the lowest AUROC, of all columns that were asked for."""

    column: str
    found: Worst

    @property
    def name(self) -> str:
        """The group, with its column."""
        return f"{self.column} {self.found.name}"


def worst_site(run: StoredRun) -> Worst | None:
    """The site with the lowest AUROC, against pairs of rows within the other sites; None with fewer than two ranked."""
    found = two_classes(run)
    if found is None:
        return None
    if "worst site" not in found.kept:
        rows = found.rows_by_site()
        found.kept["worst site"] = None if rows is None else worst(rows, within=True)
    kept: Worst | None = found.kept["worst site"]
    return kept


def worst_group(run: StoredRun) -> WorstGroup | None:
    """The group with the lowest AUROC; its intervals allow for the groups of all columns that were looked at."""
    found = two_classes(run)
    if found is None:
        return None
    if "worst group" not in found.kept:
        every = groups_of(found)
        lowest = [(f.worst.auroc.value, column) for column, f in every.items() if f.worst is not None]
        looks = sum(group.auroc is not None for f in every.values() if f.worst is not None for group in f.groups)
        picked = None
        if lowest:
            column = min(lowest)[1]
            rows = found.rows_by_group(column)
            again = None if rows is None else worst(rows, looks=looks)
            picked = None if again is None else WorstGroup(column, again)
        found.kept["worst group"] = picked
    kept: WorstGroup | None = found.kept["worst group"]
    return kept


def least_found(run: StoredRun) -> str:
    """The groups of a column that are found least and most often at the threshold, where they differ most; or nothing.

    Ranking alone does not show it: a threshold may miss most of one group.
    """
    found = two_classes(run)
    every = {} if found is None else groups_of(found)
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
    verdict = "more than chance explains" if between.low > 0 else "too few rows to be sure"
    return (
        f"At the threshold {percent(low)} of those with the outcome are found in the group {visible(column)} {fewest}, "
        f"against {percent(high)} in {most} (a gap of {of_100(between.value)} points, {LEVEL} {of_100(between.low)} to "
        f"{of_100(between.high)}): {verdict}."
    )


def groups_of(found: TwoClasses) -> dict[str, Subgroups]:
    """The figures of the groups of each column, worked out once."""
    if "groups" not in found.kept:
        columns = {} if found.test is None else found.test.groups
        made = {column: found.rows_by_group(column) for column in columns}
        found.kept["groups"] = {column: subgroups(rows) for column, rows in made.items() if rows is not None}
    kept: dict[str, Subgroups] = found.kept["groups"]
    return kept


def worst_site_in_words(found: Worst) -> str:
    """The worst site, and whether it differs from the others by more than chance."""
    return (
        f"The lowest AUROC is that of {found.name}: {with_interval(found.auroc, 3)}, from {found.positives:,} rows "
        f"with and {found.negatives:,} without the outcome. Within the other sites it is "
        f"{decimal(found.others.value, 3)}. {gap_in_words(found, 'site')}"
    )


def gap_in_words(found: Worst, what: str) -> str:
    """The gap of the worst of several, with an interval that allows for having picked it."""
    interval = f"95 % interval {decimal(found.gap.low, 3, sign=True)} to {decimal(found.gap.high, 3, sign=True)}"
    start = (
        f"The difference is {decimal(found.gap.value, 3, sign=True)} ({interval}; both intervals are wide enough for "
        f"the worst of {found.looks} {what}s picked after looking)"
    )
    if found.distinguishable:
        return f"{start}: the model ranks worse there, by more than chance."
    return f"{start}: too few rows to be sure that the model ranks worse there than elsewhere."


def headline(run: StoredRun) -> tuple[Figure, ...]:
    """The main figures of a run with two classes, for the top of its page; empty without any."""
    found = two_classes(run)
    if found is None or found.choice.pooled.auroc is None:
        return ()
    figures = [Figure("AUROC", decimal(found.choice.pooled.auroc.value), _interval(found.choice.pooled.auroc))]
    ahead = None if found.difference is None else found.difference.auroc
    if ahead is not None and found.other is not None:
        text = _interval(ahead, digits=3, sign=True)
        decided = "" if ahead.low > 0 or ahead.high < 0 else "; may be chance"
        figures.append(Figure(f"AUROC minus {found.other.name}'s", decimal(ahead.value, 3, sign=True), text + decided))
    at = chosen_figures(found)
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
