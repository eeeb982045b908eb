"""Figures of a deployed run on two classes, from counts of the scores in bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedsaddle.array_types import Floats, Ints
from fedsaddle.documents.summary import Ends, ScoreBounds, ScoreCounts
from fedsaddle.metrics.calibration import FEW_ALARMS, Platt
from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges
from fedsaddle.metrics.intervals import wilson_share
from fedsaddle.report.page.charts import MOST_POINTS, ChartAxis, ForestRow, Line, forest, line_chart, picked, thinned
from fedsaddle.report.page.parts import Block, Chart, PageTable, Section, Text, ThresholdSlider
from fedsaddle.report.sections.ranking import interval_of
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import PARTS, bounds, brief, brief_percent, decimal, many, percent, short, titled
from fedsaddle.text import visible

LISTED = 200
SCROLLED = 40
WIDEST = 0.02  # of the AUROC that fits the points of a curve
NO_COUNTS = "no counts: too few rows of a class, or no reply"


@dataclass(frozen=True, eq=False)
class Counts:
    """The counts over all sites, and how scores become probabilities.

    Args:
        figures: As the summary has them.
        known: The counts in bins, or in groups of them; None if only bounds are known.
        platt: From scores to probabilities.
        threshold: A probability.
    """

    figures: ScoreCounts
    known: ScoreHistogram | None
    platt: Platt | None
    threshold: float | None = None

    @property
    def sides(self) -> tuple[int, int]:
        """Numbers of positives and negatives."""
        return self.figures.sides

    @property
    def bins(self) -> int:
        """Number of bins of the score."""
        return self.figures.bins

    @property
    def histogram(self) -> ScoreHistogram:
        """The counts in bins, where they are known."""
        assert self.known is not None
        return self.known

    @property
    def widest(self) -> float:
        """The width of the widest group of merged bins, as a share of the range."""
        return self.figures.widest or 1 / self.bins

    @property
    def merged(self) -> bool:
        """Whether some site has merged bins, so that counts above an edge have bounds."""
        return not self.figures.summed and self.widest > 1.5 / self.bins

    @property
    def drawn(self) -> bool:
        """Whether the counts are precise enough for a curve."""
        area = None if self.known is None else self.known.auroc()
        return area is not None and 2 * area.error <= WIDEST

    @property
    def middle(self) -> Floats:
        """The mean score of the rows of each group of bins, or the middle of each bin, between 0 and 1."""
        if self.figures.mean_scores is not None:
            return np.clip(np.asarray(self.figures.mean_scores, dtype=np.float64), 1e-6, 1 - 1e-6)
        return np.asarray((np.arange(self.bins) + 0.5) / self.bins)

    @property
    def whose(self) -> str:
        """All sites, or all except those without counts."""
        missing = [visible(name) for name in self.figures.without_counts]
        return "all sites" + (f" but {', '.join(missing)}" if missing else "")

    @property
    def rows(self) -> str:
        """In words."""
        return PARTS[self.figures.part]

    def above(self) -> tuple[Ints, Ints]:
        """True and false positives with a score of at least each edge, ascending from none called negative."""
        up, down = self.histogram.positives, self.histogram.negatives
        return up[::-1].cumsum()[::-1], down[::-1].cumsum()[::-1]

    def probability(self, scores: Floats) -> Floats:
        """Probabilities of scores; without calibration, scores are taken as log odds.

        Args:
            scores: Of rows.
        """
        return (self.platt or Platt(1.0, 0.0)).probability(scores)

    def chance(self, share: float) -> float:
        """The probability of a score on the scale from 0 to 1 of the bins.

        Args:
            share: A score on the scale from 0 to 1 of the bins.
        """
        inside = min(max(share, 1e-9), 1 - 1e-9)
        return float(self.probability(np.array([np.log(inside) - np.log1p(-inside)]))[0])


def counts_of(run: StoredRun) -> Counts | None:
    """The stored counts; None without counts of both classes.

    Args:
        run: The run.
    """
    stored = run.finished.scores if run.finished else None
    if run.finished is None or stored is None or stored.edges != "sigmoid" or not all(stored.sides):
        return None
    fitted, threshold = run.finished.probabilities, run.finished.threshold
    platt = None if fitted is None else Platt(fitted.slope, fitted.intercept + fitted.slope * stored.shift)
    return Counts(stored, _histogram(stored), platt, None if threshold is None else threshold.probability)


def _histogram(stored: ScoreCounts) -> ScoreHistogram | None:
    if stored.positives is None or stored.negatives is None:
        return None
    edges = sigmoid_edges(stored.bins)
    if stored.ends is not None:
        edges = edges[np.asarray(stored.ends[:-1], dtype=np.int64) - 1]
    if not len(edges):
        return None
    up, down = (np.asarray(side, dtype=np.int64) for side in (stored.positives, stored.negatives))
    return ScoreHistogram(edges, up, down)


def site_areas(counts: Counts) -> Chart | PageTable | None:
    """The AUROC that each site computes, with its interval; else its bounds, or why there are none.

    Args:
        counts: Of the run.
    """
    sites = counts.figures.sites
    if not sites:
        return None
    rows, cells = [], []

    def place(name: str) -> float:
        area = sites[name].auroc
        return 2.0 if area is None else area.value

    for name in sorted(sites, key=place)[:LISTED]:
        own = sites[name]
        numbers = ["few" if n is None else f"{n:,}" for n in (own.positives, own.negatives)]
        area = interval_of(own.auroc)
        if area is not None:
            rows.append(ForestRow(visible(name), numbers, area.value, area.low, area.high))
            cells.append([visible(name), *numbers, short(area.value), f"{short(area.low)} to {short(area.high)}"])
            continue
        text = "one class only" if 0 in (own.positives, own.negatives) else "too few rows of a class"
        if own.auroc_bounds is not None:
            text = f"in the range {bounds(*own.auroc_bounds)}"
        rows.append(ForestRow(visible(name), numbers, None, why_not=text))
        cells.append([visible(name), *numbers, text, "–"])
    for name in counts.figures.without_counts:
        if name not in sites:
            rows.append(ForestRow(visible(name), ["–", "–"], None, why_not=NO_COUNTS))
            cells.append([visible(name), "–", "–", NO_COUNTS, "–"])
    table = PageTable(["site", "positives", "negatives", "AUROC", "95 % interval"], cells)
    judged = sum(r.value is not None for r in rows)
    if not judged:
        return replace(table, caption=f"Each site, on its {counts.rows}")
    together = interval_of(counts.figures.pooled.auroc)
    if together is not None:
        up, down = counts.sides
        whole = [f"{up:,}", f"{down:,}"]
        rows.append(ForestRow(counts.whose, whole, together.value, together.low, together.high, kind="total"))
    lows = [r.low for r in rows if r.low is not None]
    return Chart(
        "AUROC of each site",
        forest(
            rows,
            ChartAxis("AUROC", min([0.5, *lows]), 1.0),
            heads=["site", "positives", "negatives"],
            reference=0.5,
            key="sites",
        ),
        f"{many(judged, 'site has', 'sites have')} enough rows of both classes for a figure.",
        table,
        note="Each site computes its figure from its own rows. Lines are 95 % intervals.",
        scrolls=len(rows) > SCROLLED,
    )


def site_alarms(counts: Counts) -> PageTable | None:
    """The confusion matrix of each site at the agreed thresholds, if no count is small.

    Args:
        counts: Of the run.
    """
    cells = []
    for name, own in list(counts.figures.sites.items())[:LISTED]:
        up, down = own.positives, own.negatives
        for at in own.alarms or () if up is not None and down is not None else ():
            assert up is not None
            assert down is not None
            if 0 < at.true + at.false < up + down:
                numbers = [at.true, at.false, up - at.true, down - at.false]
                cells.append([visible(name), short(counts.chance(at.score)), *(f"{n:,}" for n in numbers)])
    if not cells:
        return None
    heads = ["site", "threshold", "true positives", "false positives", "false negatives", "true negatives"]
    return PageTable(heads, cells, caption="Confusion matrices of the sites without small counts")


TENTHS = 10
TITLE = "How well the model separates the two classes"


def score_counts(run: StoredRun) -> Section | None:
    """ROC, precision and recall, thresholds, calibration and sites, with bounds where counts are merged.

    Args:
        run: The run.
    """
    counts = counts_of(run)
    if counts is None:
        return None
    up, down = counts.sides
    about = (
        f"The sites counted how many of the {up:,} positives and {down:,} negatives among the {counts.rows} of "
        f"{counts.whose} lie in each of {counts.bins:,} bins of the score."
    )
    if counts.figures.summed:
        return Section("score-counts", TITLE, [*_summed(counts, about), *_of_each_site(counts)])
    about = f"All figures over several sites are computed from counts. {about} Within a bin the order is unknown: "
    about += "figures have bounds, the best and the worst case."
    if counts.known is None:
        return Section("score-counts", TITLE, _bounds_only(counts, about))
    if counts.merged:
        about += (
            f" Sites merge bins with few rows, up to a width of {short(counts.widest)}; in curves and thresholds "
            "rows are placed at the middle of a merged bin."
        )
    blocks: list[Block] = [Text(about), Text(_in_words(counts)), _roc(counts), _precision(counts), _thresholds(counts)]
    calibration = _calibration(counts)
    if calibration is not None:
        blocks.append(calibration)
    return Section("score-counts", TITLE, [*blocks, *_of_each_site(counts)])


def group_figures(counts: Counts) -> PageTable | None:
    """The figures of the agreed groups.

    Args:
        counts: Of the run.
    """
    rows = []
    for column, groups in (counts.figures.groups or {}).items():
        for own in groups:
            if own.positives is None or own.negatives is None:
                rows.append([visible(column), visible(own.group), "few", "few", *["–"] * 4])
                continue
            figures = (own.sensitivity, own.specificity, own.alarms)
            cells = [brief(interval_of(own.auroc), 3), *(brief_percent(interval_of(one)) for one in figures)]
            numbers = [f"{own.positives:,}", f"{own.negatives:,}"]
            rows.append([visible(column), visible(own.group), *numbers, *(cell or "–" for cell in cells)])
    if not rows:
        return None
    heads = ["column", "group", "positives", "negatives", "AUROC", "sensitivity, %", "specificity, %", "alarms, %"]
    caption = f"Groups on the {counts.rows} of {counts.whose}, at the chosen threshold, with 95 % intervals"
    return PageTable(heads, rows, caption=caption)


def _of_each_site(counts: Counts) -> list[Block]:
    return [block for block in (site_areas(counts), site_alarms(counts), group_figures(counts)) if block is not None]


def _summed(counts: Counts, about: str) -> list[Block]:
    """From counts that were summed by secure aggregation: exact figures, and curves unless counts are small."""
    least = counts.figures.least
    about += (
        " The counts were summed by secure aggregation, so that the counts of a site stayed hidden. Figures of all "
        "rows are computed from the sum."
    )
    if least > 1:
        about += f" Counts on this page are of {least} rows or more (minimum_cell): neighbouring bins are merged."
    blocks: list[Block] = [Text(about), Text(_in_words(counts))]
    curves = counts.drawn
    if curves:
        blocks += [_roc(counts), _precision(counts)]
    else:
        blocks.append(Text(f"There are no curves: with {counts.sides[0]:,} positives they would have too few points."))
    blocks.append(_agreed_thresholds(counts, slides=curves))
    if curves and (calibration := _calibration(counts)) is not None:
        blocks.append(calibration)
    return blocks


def _agreed_thresholds(counts: Counts, slides: bool) -> ThresholdSlider | PageTable:
    """Sensitivity, specificity, PPV and NPV at the thresholds, with intervals, or bounds if a count is small."""
    rows, chosen = [], counts.threshold
    for at in counts.figures.thresholds or ():
        chance = counts.chance(at.score)
        mark = " (chosen)" if chosen is not None and abs(chance - chosen) < 1e-6 else ""
        some = at.alarms is not None and at.alarms[0] * sum(counts.sides) >= FEW_ALARMS
        shares = (
            (at.sensitivity, at.sensitivity_interval),
            (at.specificity, at.specificity_interval),
            (at.positive_predictive_value if some else None, at.positive_predictive_value_interval),
            (at.negative_predictive_value, at.negative_predictive_value_interval),
            (at.alarms, at.alarms_interval),
        )
        benefit = interval_of(at.net_benefit)
        cells = [*(_known(*share) for share in shares), "–"]
        if benefit is not None:
            cells[-1] = " (".join([decimal(100 * benefit.value, 1), decimal(100 * benefit.low, 1)])
            cells[-1] += f" to {decimal(100 * benefit.high, 1)})"
        rows.append([f"{short(chance)}{mark}", *cells])
    table = PageTable(
        ["threshold", "sensitivity", "specificity", "right alarms (PPV)", "right all-clears (NPV)", "alarms",
         "net benefit per 100"], rows,
        caption=f"Thresholds on the {counts.rows} of {counts.whose}, with 95 % intervals"
        + (" of patients" if counts.figures.patients else "")
        + "; a range without one means that the exact share would disclose a small count",
    )  # fmt: skip
    if not slides or chosen is None:
        return table
    tp, fp = counts.above()
    up, down = counts.histogram.sides
    chances = counts.probability(np.concatenate([[-1e6], counts.histogram.edges]))
    keep = np.array(picked(len(chances), MOST_POINTS), dtype=np.int64)
    keep = keep[np.concatenate([[True], np.diff(chances[keep]) > 0])]
    nearest = float(chances[keep][int(np.argmin(np.abs(chances[keep] - chosen)))])
    return ThresholdSlider(chances[keep].tolist(), tp[keep].tolist(), fp[keep].tolist(), up, down, nearest, table)


def _known(known: Ends | None, interval: Ends | None) -> str:
    """A share with its interval, or its bounds if a count is small."""
    if known is None:
        return "–"
    if interval is None:
        return _percents(known)
    return f"{percent(known[0], 1)} ({percent(interval[0], 0)} to {percent(interval[1], 0)})"


def _bounds_only(counts: Counts, about: str) -> list[Block]:
    """The bounds alone, if sites have merged bins to wide groups."""
    about += (
        f" Sites merge bins with few rows (minimum_cell), here up to a width of {short(counts.widest)} of the range of "
        "scores from 0 to 1. The position of rows within a merged bin is unknown. So over all sites there are no "
        "curves, calibration, confidence intervals or chosen threshold. With secure aggregation and three sites or "
        "more the counts are summed before they are merged, and these figures are exact."
    )
    area, precision = counts.figures.pooled.auroc_bounds, counts.figures.pooled.average_precision_bounds
    words = "" if area is None else f"The AUROC lies in the range {bounds(*area)}."
    if precision is not None:
        share = counts.sides[0] / sum(counts.sides)
        words += f" The average precision lies in the range {bounds(*precision)}; guessing gives {short(share)}."
    blocks: list[Block] = [Text(about), Text(words.strip())]
    rows = [_bounds_at(at) for at in counts.figures.thresholds or ()]
    if rows:
        caption = f"Bounds at thresholds that no wide group of scores crosses, on the {counts.rows} of {counts.whose}"
        blocks.append(PageTable(["score, 0 to 1", "sensitivity", "specificity"], rows, caption=caption))
    return [*blocks, *_of_each_site(counts)]


def _bounds_at(at: ScoreBounds) -> list[str]:
    known = (at.sensitivity, at.specificity)
    return [short(at.score), *("–" if share is None else _percents(share) for share in known)]


def _percents(both: Sequence[float]) -> str:
    low, high = (100 * share for share in both)
    return f"{bounds(low, high, 1)} %"


def _in_words(counts: Counts) -> str:
    pooled, summed = counts.figures.pooled, counts.figures.summed
    known, precision, share = pooled.auroc_bounds, pooled.average_precision_bounds, counts.sides[0] / sum(counts.sides)
    if known is None:
        return f"There are fewer than {counts.figures.least} rows of a class, too few for an AUROC."
    area, within, average = (
        interval_of(figure) for figure in (pooled.auroc, counts.figures.within_site_auroc, pooled.average_precision)
    )
    exact = pooled.auroc.value if summed and pooled.auroc is not None else None
    if summed and exact is None:
        words = f"The AUROC lies in the range {bounds(*known)}."
    else:
        value = sum(known) / 2 if exact is None else exact
        words = (
            f"AUROC {short(value)}: of 100 pairs of a positive and a negative, the model puts the positive first in "
            f"about {100 * value:.0f}."
        )
        words += "" if summed else f" {titled(_left(known))}."
    if area is not None:
        words += (
            f" Its 95 % interval is {short(area.low)} to {short(area.high)}, with "
            f"{'patients' if counts.figures.patients else 'rows'} treated as independent."
        )
    if within is not None:
        words += f" Among rows of one site it is {short(within.value)} ({short(within.low)} to {short(within.high)})."
    if precision is None:
        return words
    if average is not None and summed:
        words += f" The average precision is {short(average.value)} ({short(average.low)} to {short(average.high)})"
    elif summed:
        words += f" The average precision lies in the range {bounds(*precision)}"
    else:
        words += f" The average precision is {short(sum(precision) / 2)} ({_left(precision)})"
    return f"{words}; guessing gives {short(share)}."


def _left(known: tuple[float, float]) -> str:
    """The precision of a figure from binned counts."""
    return "exact in spite of the bins" if known[1] - known[0] < 2e-6 else f"bounds of the bins {bounds(*known, 4)}"


def _roc(counts: Counts) -> Chart:
    """The curve through the exact points at the edges; the band is what lies between them."""
    fpr, tpr = counts.histogram.roc()
    apart = np.concatenate([[True], (np.diff(fpr) > 0) | (np.diff(tpr) > 0)])
    fpr, tpr = fpr[apart], tpr[apart]
    at = picked(len(fpr), 2 * MOST_POINTS)
    x, y = thinned(fpr.tolist(), at), thinned(tpr.tolist(), at)
    low, high = _between([0.0, *y[:-1]], y), _between(y, [*y[1:], 1.0])
    exact = not counts.merged
    lines = [
        Line("all sites", _between(x, x), _between(y, y), "first", low if exact else None, high if exact else None),
        Line("guessing", [0.0, 1.0], [0.0, 1.0], "guide"),
    ]
    rows = [
        [percent(f, 1), percent(t, 1)] for f, t in ((g, float(np.interp(g, x, y))) for g in (0.05, 0.1, 0.2, 0.3, 0.5))
    ]
    return Chart(
        "ROC curve of all sites together",
        line_chart(
            lines,
            ChartAxis("false positive rate", 0, 1, percent=True),
            ChartAxis("sensitivity", 0, 1, percent=True),
            square=True,
            key="roc",
        ),
        f"At 10 % false alarms among the negatives, {rows[1][1]} of the positives are found.",
        PageTable(["false positive rate", "sensitivity"], rows),
        note=""
        if counts.merged
        else "Points at the edges of bins are exact. The band contains every curve that fits the counts.",
    )


def _between(before: Sequence[float], after: Sequence[float]) -> list[float]:
    """The values before and after each point in turn: a band that has steps at the points."""
    return [value for both in zip(before, after, strict=True) for value in both]


def _precision(counts: Counts) -> Chart:
    tp, fp = (found[::-1].astype(np.float64) for found in counts.above())
    recall = tp / tp[-1]
    keep = np.flatnonzero(tp + fp > 0)
    recall, tp, fp = recall[keep], tp[keep], fp[keep]
    precision = tp / (tp + fp)
    before = np.concatenate([[0.0], fp[:-1]])
    best, worst = tp / np.maximum(tp + before, 1), np.concatenate([[0.0], tp[:-1]])
    worst = worst / np.maximum(worst + fp, 1)
    at = picked(len(recall), MOST_POINTS)
    low, high = worst[at].tolist(), best[at].tolist()
    x, y = thinned(recall.tolist(), at), thinned(precision.tolist(), at)
    low, high = (_between(side, [*side[1:], y[-1]]) for side in (low, high))
    exact = not counts.merged
    line = Line("all sites", _between(x, x), _between(y, y), "first", low if exact else None, high if exact else None)
    share = counts.histogram.sides[0] / sum(counts.histogram.sides)
    guess = Line("guessing", [0.0, 1.0], [share, share], "guide")
    rows = [
        [percent(r, 0), percent(float(precision[int(np.argmax(recall >= r - 1e-12))]), 1)]
        for r in (0.25, 0.5, 0.75, 0.9, 1.0)
    ]
    return Chart(
        "Precision and recall of all sites together",
        line_chart(
            [line, guess],
            ChartAxis("sensitivity", 0, 1, percent=True),
            ChartAxis("precision", 0, 1, percent=True),
            square=True,
            key="precision",
        ),
        f"Where half of the positives are found, {rows[1][1]} of the alarms are right.",
        PageTable(["sensitivity, at least", "precision"], rows),
    )


def _thresholds(counts: Counts) -> ThresholdSlider | PageTable:
    """Thresholds at edges of bins, where counts are exact; a slider if the run chose one."""
    tp, fp = counts.above()
    edges = np.concatenate([[-1e6], counts.histogram.edges])
    chance, (up, down) = counts.probability(edges), counts.histogram.sides

    def nearest(probability: float) -> int:
        return int(np.argmin(np.abs(chance - probability)))

    shown = sorted({nearest(p) for p in (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)})
    rows = [_threshold_row(float(chance[k]), int(tp[k]), int(fp[k]), up, down) for k in shown]
    heads = [
        "threshold",
        "sensitivity",
        "specificity",
        "right alarms (PPV)",
        "right all-clears (NPV)",
        "alarms per 100",
    ]
    table = PageTable(
        heads, rows, caption=f"Thresholds on the {counts.rows} of all sites, with 95 % intervals (Wilson's)"
    )
    if counts.threshold is None:
        return table
    at = np.array(sorted({*picked(len(edges), MOST_POINTS), nearest(counts.threshold)}))
    at = at[np.concatenate([[True], np.diff(chance[at]) > 0])]
    return ThresholdSlider(
        thresholds=chance[at].tolist(),
        true_positives=tp[at].tolist(),
        false_positives=fp[at].tolist(),
        positives=up,
        negatives=down,
        chosen=float(chance[nearest(counts.threshold)]),
        table=table,
    )


def _threshold_row(chance: float, tp: int, fp: int, up: int, down: int) -> list[str]:
    called, cleared = tp + fp, up + down - tp - fp
    return [
        short(chance),
        _share(tp, up),
        _share(down - fp, down),
        _share(tp, called) if called >= FEW_ALARMS else "–",
        _share(down - fp, cleared),
        f"{100 * called / (up + down):.1f}",
    ]


def _share(part: int, whole: int) -> str:
    if not whole:
        return "–"
    found = wilson_share(part, whole)
    return f"{percent(found.value, 1)} ({percent(found.low, 0)} to {percent(found.high, 0)})"


def _calibration(counts: Counts) -> Chart | None:
    """Predicted and observed shares of positives in tenths of the rows, by Platt scaling on validation rows."""
    if counts.platt is None or counts.platt.slope <= 0:
        return None
    share = counts.middle
    chance = counts.probability(np.log(share) - np.log1p(-share))
    up, total = counts.histogram.positives, counts.histogram.positives + counts.histogram.negatives
    tenth = np.minimum((TENTHS * (total.cumsum() - total / 2) / total.sum()).astype(int), TENTHS - 1)
    groups = []
    for k in range(TENTHS):
        own = tenth == k
        n = int(total[own].sum())
        if n:
            groups.append((float((chance * total)[own].sum() / n), wilson_share(int(up[own].sum()), n), n))
    if len(groups) < 2:
        return None
    lines = [
        Line(
            "observed",
            [p for p, _, _ in groups],
            [i.value for _, i, _ in groups],
            "first",
            [i.low for _, i, _ in groups],
            [i.high for _, i, _ in groups],
            markers=True,
        ),
        Line("perfect calibration", [0.0, 1.0], [0.0, 1.0], "guide"),
    ]
    rows = [
        [percent(p, 1), percent(i.value, 1), f"{percent(i.low, 1)} to {percent(i.high, 1)}", f"{n:,}"]
        for p, i, n in groups
    ]
    expected = sum(p * n for p, _, n in groups) / sum(n for _, _, n in groups)
    observed = counts.histogram.sides[0] / sum(counts.histogram.sides)
    return Chart(
        "Calibration curve",
        line_chart(
            lines,
            ChartAxis("predicted", 0, 1, percent=True),
            ChartAxis("observed", 0, 1, percent=True),
            square=True,
            key="calibration",
        ),
        f"On average {percent(expected, 1)} were predicted and {percent(observed, 1)} observed.",
        PageTable(["predicted", "observed", "95 % interval", "rows"], rows),
        note=(
            "Rows of all sites in ten groups of similar size. Probabilities are calibrated by Platt scaling on the "
            "validation rows."
        ),
    )
