"""How the model does at each site."""

from __future__ import annotations

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.ranking import FEW, RankingFigures
from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Block, Chart, Section, Table, Text
from fedsaddle.report.sections.two_classes import TwoClasses, two_classes
from fedsaddle.report.sections.worst import worst_site, worst_site_in_words
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import brief, many, with_interval
from fedsaddle.shown import visible

MOST_ROWS = 40  # sites; of more, only those with a figure are drawn
TALL = 24  # rows of a drawing that scrolls
POOLED, WITHIN = "all sites together", "within sites"


def sites(run: StoredRun) -> Section | None:
    """A forest plot of the sites, and what pooled and within sites mean."""
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
    blocks.append(_chart(found))
    return Section("sites", "Site by site", blocks)


def without_figure(found: TwoClasses) -> str:
    """How many sites have no figure of their own, and why; empty if all have."""
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
        f"{start}: {', '.join(said)}. From so few rows a good ranking cannot "
        "be told from luck; the rows count in the figures of all sites together."
    )


def _in_words(found: TwoClasses) -> str:
    choice = found.choice
    text = (
        f"All {found.part} rows together have an AUROC of {with_interval(choice.pooled.auroc, 3)}. It also compares "
        "rows of different sites, and so asks whether the scores of two sites are on one scale."
    )
    if choice.within is not None:
        text += (
            f" Within sites it is {with_interval(choice.within, 3)}: only rows of the same site are compared, as a "
            "hospital would that ranks its own patients."
        )
    if found.difference is not None and found.difference.within_site_auroc is not None and found.other is not None:
        gap = found.difference.within_site_auroc
        decided = "" if gap.low > 0 or gap.high < 0 else ", which may be chance"
        text += f" Within sites the difference to {found.other.name} is {with_interval(gap, 3, sign=True)}{decided}."
    return text


def _chart(found: TwoClasses) -> Chart:
    choice, other = found.choice, found.other
    every = range(len(choice.sites))
    ranked = [k for k in every if choice.sites[k].auroc is not None]
    drawn = list(every) if len(choice.sites) <= MOST_ROWS else sorted(ranked, key=lambda k: _value(choice.sites[k]))
    rows = [_row(choice.sites[k], None if other is None else other.sites[k]) for k in drawn]
    rows.append(_total(WITHIN, choice.within, None if other is None else other.within, ("", "")))
    pooled = choice.pooled
    counts = (f"{pooled.positives + pooled.negatives:,}", f"{pooled.positives:,}")
    rows.append(_total(POOLED, pooled.auroc, None if other is None else other.pooled.auroc, counts))
    lows = [row.low for row in rows if row.low is not None]
    lows += [row.second[1] for row in rows if row.second is not None]
    axis = Axis("AUROC", max(0.0, min([0.5, *lows]) // 0.1 * 0.1), 1.0)
    heads = ("site", "rows", f"with {found.outcome}")
    svg = forest(rows, axis, heads=heads, reference=None if pooled.auroc is None else pooled.auroc.value, key="sites")
    best = [choice.sites[k].auroc for k in ranked]
    values = [a.value for a in best if a is not None]
    spread = f" The sites' own run from {min(values):.3f} to {max(values):.3f}." if values else ""
    second = "" if other is None else f" The second mark in a row is {other.name}."
    left_out = len(choice.sites) - len(drawn)
    rest = f" The {many(left_out, 'site')} without a figure are in the table." if left_out else ""
    return Chart(
        "AUROC of each site",
        svg,
        f"AUROC of {many(len(ranked), 'site')} with a figure; all sites together {with_interval(pooled.auroc, 3)}, "
        f"within sites {with_interval(choice.within, 3)}.{spread}",
        _table(found),
        "Each line is a site with its 95 % interval; where intervals overlap widely, the sites may not differ at all. "
        f"A value of 0.5 is guessing; the dashed line is the value of all sites together.{second}{rest}",
        scrolls=len(rows) > TALL,
    )


def _value(site: RankingFigures) -> float:
    return 2.0 if site.auroc is None else site.auroc.value


def _row(site: RankingFigures, second: RankingFigures | None) -> ForestRow:
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


def _table(found: TwoClasses) -> Table:
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
    return Table(heads, rows, f"AUROC of the {found.part} rows, with 95 % intervals", totals=2)
