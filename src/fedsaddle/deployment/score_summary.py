"""What the summary of a deployed run says of scores: from summed counts, or from the counts that each site shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.histograms import BoundedFigure, MergedHistogram, PooledHistogram, Range, ScoreHistogram
from fedsaddle.metrics.intervals import LEVEL, Interval, stdtrit, wilson
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.score_sums import BINS
from fedsaddle.metrics.selection import bounds_of
from fedsaddle.metrics.subgroups import GroupFigures
from fedsaddle.metrics.sum_decisions import LOWER, net_benefit
from fedsaddle.metrics.sum_figures import WIDEST, AtCut, SumFigure, SummedScores

SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # probabilities of the thresholds of a table


@dataclass(frozen=True, eq=False)
class SiteScores:
    """What the sites said of a model's scores on their rows of one part.

    Args:
        part: The part.
        own: Each site's own figures, by name.
        merged: The counts of each site, where sites share counts that are not masked.
        summed: The counts of all sites together, where they were masked.
        without: Sites with rows that are in neither.
        cuts: The first bins of the rows that thresholds call positive, the most important first.
        least: The least count that is shown.
        patients: Whether rows of one patient belong together.
        platt: From scores to probabilities; None: not known.
    """

    part: str
    own: Mapping[str, OwnFigures]
    merged: Mapping[str, MergedHistogram] = field(default_factory=dict)
    summed: SummedScores | None = None
    without: Sequence[str] = ()
    cuts: Sequence[int] = ()
    least: int = 1
    patients: bool = False
    platt: Platt | None = None

    def to_dict(self) -> dict[str, Any]:
        """The summary's `scores`; empty where no site said anything."""
        entry: dict[str, Any] = {"part": self.part, "without_counts": list(self.without)}
        if self.summed is None and not self.merged:
            return {"scores": entry}
        if self.summed is not None:
            entry |= _of_sum(self.summed, self.cuts, self.platt) | {
                "patients": self.patients and self.summed.spread is not None
            }
        else:
            entry |= _of_sites(self.merged, self.cuts)
        if self.summed is not None and self.summed.within_sites is not None:
            within = self.summed.within_sites.interval()
        else:
            within = within_sites(self.own) if len(self.own) > 1 and not self.without else None
        if within is not None:
            entry["within_site_auroc"] = within.to_dict()
        entry["sites"] = {name: self._site(name) for name in dict.fromkeys([*self.own, *self.merged])}
        if self.summed is not None:
            _hide_what_could_be_subtracted(entry["sites"])
        return {"scores": entry}

    def _site(self, name: str) -> dict[str, Any]:
        """The figures of one site: its own, or else the bounds of its counts."""
        own, merged = self.own.get(name), self.merged.get(name)
        entry: dict[str, Any] = {}
        sides = (own.positives, own.negatives) if own is not None else (None, None) if merged is None else merged.sides
        entry["positives"], entry["negatives"] = sides
        if own is not None and own.auroc is not None:
            entry["auroc"] = own.auroc.to_dict()
        elif merged is not None and (area := merged.auroc_bounds()) is not None:
            entry["auroc_bounds"] = list(area)
        if own is not None and any(own.alarms):
            entry["alarms"] = [
                {"score": cut / BINS, "true": both[0], "false": both[1]}
                for cut, both in sorted(zip(self.cuts, own.alarms, strict=True), key=lambda one: one[0])
                if both is not None
            ]
        return entry

    def pooled(self) -> dict[str, float]:
        """The pooled figures under the same names as in a simulation, each with its error bound as `NAME_error`.

        Where sites have merged bins to groups that are too wide, there are bounds only, as `NAME_low` and `NAME_high`.
        `worst_site_auroc`, `best_site_auroc` and `std_site_auroc` are over the sites that
        say their own.
        """
        found: dict[str, float] = {}
        if self.summed is not None:
            counts, wide = self.summed.counts[0], False
            figures = _five(counts) if min(counts.sides) >= self.least else {}
        elif self.merged:
            together = PooledHistogram(tuple(self.merged.values()))
            wide, figures = together.wide, _five(together)
        else:
            return found
        for name, figure in figures.items():
            if figure is not None and wide:
                found |= bounds_of(name, figure.bounds)
            elif figure is not None:
                found |= {name: figure.value, f"{name}_error": figure.error}
        return found | self._extremes(wide)

    def _extremes(self, wide: bool) -> dict[str, float]:
        own: list[Range] = []
        for name in dict.fromkeys([*self.own, *self.merged]):
            mine, merged = self.own.get(name), self.merged.get(name)
            if mine is not None and mine.auroc is not None:
                own.append((mine.auroc.value, mine.auroc.value))
            elif merged is not None and (area := merged.auroc_bounds()) is not None:
                own.append(area if wide else ((area[0] + area[1]) / 2,) * 2)
        if not own:
            return {}
        low, high = (min(a for a, _ in own), min(b for _, b in own)), (max(a for a, _ in own), max(b for _, b in own))
        if any(b - a > WIDEST for a, b in own):
            return bounds_of("worst_site_auroc", low) | bounds_of("best_site_auroc", high)
        middle = [(a + b) / 2 for a, b in own]
        return {
            "worst_site_auroc": min(middle), "best_site_auroc": max(middle), "std_site_auroc": float(np.std(middle)),
        }  # fmt: skip


def _hide_what_could_be_subtracted(sites: dict[str, dict[str, Any]]) -> None:
    """Where one site alone has small counts, the sum less all others would tell them: another's are left out too."""
    hidden = [name for name, own in sites.items() if own["positives"] is None]
    if len(hidden) == 1 and len(sites) > 1:
        fewest = min((own["positives"] or 0, name) for name, own in sites.items() if name not in hidden)[1]
        sites[fewest] = {**sites[fewest], "positives": None, "negatives": None}
        sites[fewest].pop("alarms", None)


def _five(counts: ScoreHistogram | PooledHistogram) -> dict[str, BoundedFigure | None]:
    return {
        "auroc": counts.auroc(),
        "partial_auroc_30": counts.partial_auroc(0.3),
        "partial_auroc_50": counts.partial_auroc(0.5),
        "two_way_partial_auroc": counts.two_way_partial_auroc(0.5, 0.5),
        "average_precision": counts.average_precision(),
    }


def tell_group(own: GroupFigures) -> dict[str, Any]:
    """The figures of a group, for the summary; its name alone where a count is small."""
    if not own.positives + own.negatives:
        return {"group": own.name}
    names = ("auroc", "sensitivity", "specificity", "positive_predictive_value", "alarms")
    figures = {name: figure.to_dict() for name in names if (figure := getattr(own, name)) is not None}
    return {"group": own.name, "positives": own.positives, "negatives": own.negatives, **figures}


def cut_of(score: float) -> int:
    """The first bin of the rows with at least this score, on the scale from 0 to 1 of the bins."""
    return min(max(round(score * BINS), 0), BINS)


def _of_sum(summed: SummedScores, cuts: Sequence[int], platt: Platt | None) -> dict[str, Any]:
    """From the counts of all sites together."""
    counts = summed.counts[0]
    entry: dict[str, Any] = {
        "edges": "sigmoid", "bins": BINS, "summed": True, "least": summed.least, "sides": list(counts.sides),
        "pooled": {}, "widest": 1.0,
    }  # fmt: skip
    for name, figure in summed.figures().items():
        entry["pooled"][f"{name}_bounds"] = list(figure.bounds)
        if figure.value is not None:
            entry["pooled"][name] = _figure(figure)
    shown = summed.shown(cuts)
    if shown is None:
        return entry
    entry["widest"] = shown.widest
    entry["ends"], entry["positives"], entry["negatives"] = (
        side.tolist() for side in (shown.ends, shown.positives, shown.negatives)
    )
    middle = (np.arange(BINS) + 0.5) / BINS * (counts.positives + counts.negatives)
    rows = shown.positives + shown.negatives
    sums = np.add.reduceat(middle, shown.first)
    entry["mean_scores"] = np.divide(sums, rows, out=(shown.first + shown.ends) / (2 * BINS), where=rows > 0).tolist()
    entry["thresholds"] = [
        _threshold(one) | _benefit(summed, shown, one.cut, platt) for one in summed.at_cuts(sorted({*cuts}), shown)
    ]
    return entry


def _figure(figure: SumFigure) -> dict[str, Any]:
    found: dict[str, Any] = {"value": figure.value}
    return found if figure.interval is None else {**found, "interval": list(figure.interval)}


def _threshold(one: AtCut) -> dict[str, Any]:
    entry: dict[str, Any] = {"score": one.cut / BINS}
    for name in ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value", "alarms"):
        figure: SumFigure | None = getattr(one, name)
        if figure is None:
            continue
        entry[name] = list(figure.bounds)
        if figure.interval is not None:
            entry[f"{name}_interval"] = list(figure.interval)
    return entry


def _benefit(summed: SummedScores, shown: MergedHistogram, cut: int, platt: Platt | None) -> dict[str, Any]:
    """The net benefit at a threshold, where scores are known to become probabilities."""
    chance = 0.0 if platt is None or platt.slope <= 0 else float(platt.probability(LOWER[[cut]])[0])
    found = net_benefit(summed, shown, cut, chance)
    return {} if found is None else {"net_benefit": found.model.to_dict(), "net_benefit_of_all": found.everybody}


def _of_sites(sites: Mapping[str, MergedHistogram], cuts: Sequence[int]) -> dict[str, Any]:
    """From the counts of each site: bounds, and where no merged bin is wide, counts and intervals of rows."""
    pooled = PooledHistogram(tuple(sites.values()))
    entry: dict[str, Any] = {
        "edges": "sigmoid", "bins": pooled.sites[0].bins, "widest": pooled.widest, "sides": list(pooled.sides),
        "pooled": _bounds(auroc=pooled.auroc(), average_precision=pooled.average_precision()),
    }  # fmt: skip
    if pooled.wide:
        found = {cut / BINS: pooled.above(cut / BINS) for cut in sorted({*cuts})}
        entry["thresholds"] = [
            {"score": share, "sensitivity": list(both[0]), "specificity": list(both[1])}
            for share, both in found.items()
            if both is not None
        ]
        return entry
    together = pooled.middle
    entry["positives"], entry["negatives"] = together.positives.tolist(), together.negatives.tolist()
    figures = SummedScores((together,)).figures() if 0 not in together.sides else {}
    entry["pooled"] |= {name: _figure(one) for name, one in figures.items() if one.value is not None}
    return entry


def _bounds(**figures: BoundedFigure | None) -> dict[str, list[float]]:
    return {f"{name}_bounds": list(found.bounds) for name, found in figures.items() if found is not None}


def within_sites(own: Mapping[str, OwnFigures]) -> Interval | None:
    """The mean AUROC of the sites that say theirs, weighted by their pairs; None where a site with both does not."""
    told = [one for one in own.values() if all(one.has_both)]
    if not told or any(one.auroc is None for one in told):
        return None
    pairs = np.array([(one.positives or 0) * (one.negatives or 0) for one in told], dtype=np.float64)
    values = np.array([0.0 if one.auroc is None else one.auroc.value for one in told])
    value, spread = pairs @ values / pairs.sum(), pairs**2 @ np.array([one.spread or 0.0 for one in told])
    scarce = np.array([float(min(sum(one.positives or 0 for one in told), sum(one.negatives or 0 for one in told)))])
    t = stdtrit(np.maximum(scarce - 1, 1), (1 + LEVEL) / 2)
    low, high = wilson(np.array([value]), np.array([spread / pairs.sum() ** 2]), scarce, t)
    return Interval(float(value), float(low[0]), float(high[0]))
