"""What the server keeps of the sites' last score histograms: their sum, and figures of each site.

The histogram of a single site is not kept: small counts could tell about single rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsaddle.metrics.histograms import Estimate, ScoreHistogram
from fedsaddle.metrics.merged_histograms import MergedHistogram, PooledHistogram
from fedsaddle.metrics.ranking import rank

MOST_ROWS = 5_000_000  # more rows have no intervals
SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # thresholds with bounds, on the scale of the bins


def kept_scores(part: str, sites: Mapping[str, MergedHistogram], without: Sequence[str] = ()) -> dict[str, Any]:
    """The summary's `scores`: figures over all sites, rows and AUROC of each site, and the sites `without` counts.

    `auroc_bounds` and `average_precision_bounds` are the lowest and the highest value that fit the counts. Counts in
    bins, values and 95 % intervals, which take rows as drawn independently, are there only where no site has merged
    bins to groups that are too wide; rows of merged bins stand in the middle one. Otherwise there are bounds of the
    sensitivity and the specificity at some thresholds.
    """
    pooled = PooledHistogram(tuple(sites.values()))
    entry: dict[str, Any] = {
        "part": part,
        "edges": "sigmoid",
        "bins": pooled.sites[0].bins,
        "widest": pooled.widest,
        "sides": list(pooled.sides),
        "without_counts": list(without),
        "pooled": _bounds(auroc=pooled.auroc(), average_precision=pooled.average_precision()),
        "sites": {name: _site(own) for name, own in sites.items()},
    }
    if pooled.wide:
        found = {share: pooled.above(share) for share in SHOWN}
        entry["thresholds"] = [
            {"score": share, "sensitivity": list(both[0]), "specificity": list(both[1])}
            for share, both in found.items()
            if both is not None
        ]
        return {"scores": entry}
    together, own = pooled.middle, [site.in_the_middle() for site in sites.values()]
    figures = _figures(list(sites), own) if sum(together.sides) <= MOST_ROWS else {}
    entry["positives"], entry["negatives"] = together.positives.tolist(), together.negatives.tolist()
    entry["pooled"] |= figures.get("pooled", {})
    entry["within_site_auroc"] = figures.get("within_site_auroc")
    for name, found_there in figures.get("sites", {}).items():
        entry["sites"][name] |= found_there
    return {"scores": entry}


def _figures(names: Sequence[str], sites: Sequence[ScoreHistogram]) -> dict[str, Any]:
    """Figures with intervals, from rows that have the numbers of their bins for scores."""
    scores, labels, sizes = [], [], []
    for own in sites:
        bins = np.arange(len(own.positives))
        scores += [np.repeat(bins, own.positives), np.repeat(bins, own.negatives)]
        labels += [np.full(own.sides[0], 1), np.full(own.sides[1], 0)]
        sizes.append(sum(own.sides))
    if 0 in np.bincount(np.concatenate(labels), minlength=2):
        return {}
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    found = rank(np.concatenate(scores), np.concatenate(labels), offsets, names).to_dict()
    wanted = ("auroc", "average_precision", "partial_auroc")
    return {
        "pooled": {k: v for k, v in found["pooled"].items() if k in wanted and v is not None},
        "within_site_auroc": found["within_site_auroc"],
        "sites": {own["name"]: {"auroc": own["auroc"]} for own in found["clients"] if own["auroc"] is not None},
    }


def _site(own: MergedHistogram) -> dict[str, Any]:
    up, down = own.sides
    area = own.auroc_bounds()
    return {"positives": up, "negatives": down} | ({} if area is None else {"auroc_bounds": list(area)})


def _bounds(**figures: Estimate | None) -> dict[str, list[float]]:
    return {f"{name}_bounds": list(found.bounds) for name, found in figures.items() if found is not None}
