"""What the server keeps of the sites' last score histograms: their sum, and figures of each site.

The histogram of a single site is not kept: small counts could tell about single rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedsaddle.metrics.histograms import ScoreHistogram
from fedsaddle.metrics.merged_histograms import MergedHistogram, PooledHistogram
from fedsaddle.metrics.ranking import rank

MOST_ROWS = 5_000_000  # more rows have no intervals


def kept_scores(part: str, sites: Mapping[str, MergedHistogram]) -> dict[str, Any]:
    """The summary's `scores`: counts in bins over all sites, and rows and AUROC of each site.

    Rows of merged bins stand in the middle one. An `interval` is of 95 % and takes rows as drawn independently, with
    rows of one bin as ties; `error` is the most that the bins can hide.
    """
    pooled = PooledHistogram(tuple(sites.values()))
    together, own = pooled.middle, [site.in_the_middle() for site in sites.values()]
    figures = _figures(list(sites), own) if sum(together.sides) <= MOST_ROWS else {}
    entry = {
        "part": part,
        "edges": "sigmoid",
        "bins": len(together.edges) + 1,
        "positives": together.positives.tolist(),
        "negatives": together.negatives.tolist(),
        "pooled": {**_errors(pooled), **figures.get("pooled", {})},
        "within_site_auroc": figures.get("within_site_auroc"),
        "sites": {name: _site(own, figures.get("sites", {}).get(name, {})) for name, own in sites.items()},
    }
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


def _site(own: MergedHistogram, figures: Mapping[str, Any]) -> dict[str, Any]:
    up, down = own.sides
    return {"positives": up, "negatives": down, **_errors(own), **figures}


def _errors(counts: MergedHistogram | PooledHistogram) -> dict[str, Any]:
    found = counts.auroc()
    return {} if found is None else {"auroc": {"value": found.value}, "auroc_error": found.error}
