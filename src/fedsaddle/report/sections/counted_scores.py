"""The score counts of a deployed run, as its summary has them, and the AUROC of each site."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsaddle.metrics.calibration import Platt
from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges
from fedsaddle.report.page.charts import Axis, ForestRow, forest
from fedsaddle.report.page.parts import Chart, Table
from fedsaddle.report.sections.numbers import count, short
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.shown import visible

LISTED = 200
SCROLLED = 40
FEW = 5
ROWS = {"test": "test rows", "validation": "validation rows", "train": "training rows"}


@dataclass(frozen=True, eq=False)
class Counts:
    """The counts over all sites, and how scores become probabilities."""

    part: str
    histogram: ScoreHistogram
    platt: Platt | None
    figures: Mapping[str, Any]
    threshold: float | None = None  # a probability

    @property
    def rows(self) -> str:
        """In words."""
        return ROWS.get(self.part, "rows")

    def above(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """True and false positives with a score of at least each edge, ascending from none called negative."""
        up, down = self.histogram.positives, self.histogram.negatives
        return up[::-1].cumsum()[::-1], down[::-1].cumsum()[::-1]

    def probability(self, scores: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Of scores; without calibration, scores are taken as log odds."""
        return (self.platt or Platt(1.0, 0.0)).probability(scores)


def counts_of(run: StoredRun) -> Counts | None:
    """The stored counts; None where there are none of both classes."""
    stored = run.summary.get("scores")
    if not isinstance(stored, dict) or stored.get("edges") != "sigmoid":
        return None
    both = [np.asarray(stored[key], dtype=np.int64) for key in ("positives", "negatives")]
    histogram = ScoreHistogram(sigmoid_edges(int(stored["bins"])), both[0], both[1])
    if 0 in histogram.sides:
        return None
    found = run.summary.get("probabilities") or {}
    platt = Platt(float(found["slope"]), float(found["intercept"])) if "slope" in found else None
    threshold = (run.summary.get("threshold") or {}).get("probability")
    return Counts(str(stored.get("part")), histogram, platt, stored, None if threshold is None else float(threshold))


def site_areas(counts: Counts) -> Chart | None:
    """The AUROC of each site with what its bins may hide, and the interval where it has rows enough."""
    sites: Mapping[str, Any] = counts.figures.get("sites") or {}
    if not sites:
        return None
    rows, cells = [], []
    order = sorted(sites, key=lambda name: (sites[name].get("auroc") or {}).get("value", 2.0))[:LISTED]
    for name in order:
        own = sites[name]
        up, down, error = int(own["positives"]), int(own["negatives"]), own.get("auroc_error")
        found = own.get("auroc")
        numbers = [f"{up:,}", f"{down:,}"]
        if found is None or "interval" not in found:
            why = "one class only" if not up or not down else f"fewer than {FEW} of a class"
            rows.append(ForestRow(visible(name), numbers, None, why_not=why))
            cells.append([visible(name), *numbers, "–", "–", why])
            continue
        value, (low, high) = float(found["value"]), found["interval"]
        rows.append(ForestRow(visible(name), numbers, value, float(low), float(high)))
        bounds = f"{short(value - error, 4)} to {short(value + error, 4)}"
        cells.append([visible(name), *numbers, short(value), bounds, f"{short(low)} to {short(high)}"])
    together, interval = counts.histogram.auroc(), (counts.figures.get("pooled") or {}).get("auroc", {}).get("interval")
    if together is not None and interval:
        up, down = counts.histogram.sides
        low, high = map(float, interval)
        rows.append(ForestRow("all sites", [f"{up:,}", f"{down:,}"], together.value, low, high, kind="total"))
    lows = [r.low for r in rows if r.low is not None]
    judged = sum(r.value is not None for r in rows if r.kind == "row")
    return Chart(
        "AUROC of each site",
        forest(
            rows,
            Axis("AUROC", min([0.5, *lows]), 1.0),
            heads=["site", "positives", "negatives"],
            reference=0.5,
            key="sites",
        ),
        f"{count(judged, 'site has', 'sites have')} rows enough of both classes for a figure.",
        Table(["site", "positives", "negatives", "AUROC", "bounds of the bins", "95 % interval"], cells),
        note=(
            "Lines are 95 % intervals in closed form from the site's counts, with rows taken as independent. The "
            "bounds of the bins, in the table, are not "
            "confidence intervals: they only say how far the figure may be off because scores were counted in bins."
        ),
        scrolls=len(rows) > SCROLLED,
    )
