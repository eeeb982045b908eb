"""How well a model ranks the rows of all sites together, from what each site counted; and how the sites differ."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedsaddle.metrics.histograms import ScoreHistogram, merged


def pooled_figures(sites: Sequence[ScoreHistogram]) -> dict[str, float]:
    """The figures of a simulation by the same names, each with the most it may be off as `NAME_error`.

    `worst_site_auroc`, `best_site_auroc` and `std_site_auroc` are over the sites that have rows of both classes.
    """
    if not sites:
        return {}
    together = merged(sites)
    figures = {
        "auroc": together.auroc(),
        "partial_auroc_30": together.partial_auroc(0.3),
        "partial_auroc_50": together.partial_auroc(0.5),
        "two_way_partial_auroc": together.two_way_partial_auroc(0.5, 0.5),
        "average_precision": together.average_precision(),
    }
    found: dict[str, float] = {}
    for name, figure in figures.items():
        if figure is not None:
            found |= {name: figure.value, f"{name}_error": figure.error}
    own = [area.value for site in sites if (area := site.auroc()) is not None]
    if own:
        found |= {
            "worst_site_auroc": min(own),
            "best_site_auroc": max(own),
            "std_site_auroc": float(np.std(own)),
        }
    return found
