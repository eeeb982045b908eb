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
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import bounds, many, short
from fedsaddle.shown import visible

LISTED = 200
SCROLLED = 40
FEW = 5
NO_COUNTS = "no counts: too few rows of a class, or no answer"
ROWS = {"test": "test rows", "validation": "validation rows", "train": "training rows"}


@dataclass(frozen=True, eq=False)
class Counts:
    """The counts over all sites, and how scores become probabilities."""

    part: str
    sides: tuple[int, int]
    bins: int
    figures: Mapping[str, Any]  # as the summary has them
    known: ScoreHistogram | None  # None: only bounds are known
    platt: Platt | None
    threshold: float | None = None  # a probability

    @property
    def histogram(self) -> ScoreHistogram:
        """The counts in bins, where they are known."""
        assert self.known is not None
        return self.known

    @property
    def widest(self) -> float:
        """The width of the widest group of merged bins, as a share of all."""
        return float(self.figures.get("widest", 1 / self.bins))

    @property
    def merged(self) -> bool:
        """Whether some site has merged bins."""
        return self.widest > 1.5 / self.bins

    def bounds(self, figure: str) -> tuple[float, float] | None:
        """The lowest and the highest value of a figure that fit the counts."""
        found = (self.figures.get("pooled") or {}).get(f"{figure}_bounds")
        return None if found is None else (float(found[0]), float(found[1]))

    @property
    def whose(self) -> str:
        """All sites, or all but those without counts."""
        missing = [visible(name) for name in self.figures.get("without_counts") or ()]
        return "all sites" + (f" but {', '.join(missing)}" if missing else "")

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
    if not isinstance(stored, dict) or stored.get("edges") != "sigmoid" or "sides" not in stored:
        return None
    up, down = map(int, stored["sides"])
    if not up or not down:
        return None
    histogram, bins = None, int(stored["bins"])
    if "positives" in stored:
        both = [np.asarray(stored[key], dtype=np.int64) for key in ("positives", "negatives")]
        histogram = ScoreHistogram(sigmoid_edges(bins), both[0], both[1])
        if histogram.sides != (up, down):
            return None
    found = run.summary.get("probabilities") or {}
    platt = Platt(float(found["slope"]), float(found["intercept"])) if "slope" in found else None
    threshold = (run.summary.get("threshold") or {}).get("probability")
    threshold = None if threshold is None else float(threshold)
    return Counts(str(stored.get("part")), (up, down), bins, stored, histogram, platt, threshold)


def site_bounds(counts: Counts) -> Table | None:
    """The bounds of each site's AUROC, where no more is known; in the order of the sites, as they cannot be ranked."""
    sites: Mapping[str, Any] = counts.figures.get("sites") or {}
    cells = []
    for name in list(sites)[:LISTED]:
        own = sites[name]
        up, down, area = int(own["positives"]), int(own["negatives"]), own.get("auroc_bounds")
        text = "one class only" if area is None else bounds(float(area[0]), float(area[1]))
        cells.append([visible(name), f"{up:,}", f"{down:,}", text])
    cells += [[visible(name), "–", "–", NO_COUNTS] for name in counts.figures.get("without_counts") or ()]
    return Table(["site", "positives", "negatives", "AUROC, bounds"], cells, caption=f"Each site, on its {counts.rows}")


def site_areas(counts: Counts) -> Chart | None:
    """The AUROC of each site with what its bins may hide, and the interval where it has rows enough."""
    sites: Mapping[str, Any] = counts.figures.get("sites") or {}
    if not sites:
        return None
    rows, cells = [], []
    order = sorted(sites, key=lambda name: (sites[name].get("auroc") or {}).get("value", 2.0))[:LISTED]
    for name in order:
        own = sites[name]
        up, down, known = int(own["positives"]), int(own["negatives"]), own.get("auroc_bounds")
        found = own.get("auroc")
        numbers = [f"{up:,}", f"{down:,}"]
        if found is None or "interval" not in found or known is None:
            why = "one class only" if not up or not down else f"fewer than {FEW} of a class"
            rows.append(ForestRow(visible(name), numbers, None, why_not=why))
            cells.append([visible(name), *numbers, "–", "–", why])
            continue
        value, (low, high), (least, most) = float(found["value"]), found["interval"], map(float, known)
        rows.append(ForestRow(visible(name), numbers, value, float(low), float(high)))
        cells.append(
            [
                visible(name),
                *numbers,
                short(value),
                bounds(least, most, 4),
                f"{short(low)} to {short(high)}",
            ]
        )
    for name in counts.figures.get("without_counts") or ():
        rows.append(ForestRow(visible(name), ["–", "–"], None, why_not=NO_COUNTS))
        cells.append([visible(name), "–", "–", "–", "–", NO_COUNTS])
    together, interval = counts.bounds("auroc"), (counts.figures.get("pooled") or {}).get("auroc", {}).get("interval")
    if together is not None and interval:
        up, down = counts.sides
        low, high = map(float, interval)
        rows.append(ForestRow(counts.whose, [f"{up:,}", f"{down:,}"], sum(together) / 2, low, high, kind="total"))
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
        f"{many(judged, 'site has', 'sites have')} rows enough of both classes for a figure.",
        Table(["site", "positives", "negatives", "AUROC", "bounds of the bins", "95 % interval"], cells),
        note=(
            "Lines are 95 % intervals in closed form from the site's counts, with rows taken as independent. The "
            "bounds of the bins, in the table, are not "
            "confidence intervals: they only say how far the figure may be off because scores were counted in bins."
        ),
        scrolls=len(rows) > SCROLLED,
    )
