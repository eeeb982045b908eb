"""How often the 95 % intervals of ranking figures cover, and how wide they are, in worlds whose truth is known.

OMP_NUM_THREADS=1 python benchmarks/coverage.py --trials 1000
OMP_NUM_THREADS=1 python benchmarks/coverage.py --trials 1000 --worst

Scores are normal, positives higher by what gives the AUROC. Four kinds of worlds: `alike` sites; `shifted` ones, with
other scales of scores and shares of positives, the same in every trial; `drawn` ones, whose labels are drawn too; and
`patients` of three correlated rows, of which two are positive if the patient is. The second model's scores have a
correlation of 0.7 with the first's, and its AUROC is the same, or lower by 0.05.

With `--worst`, the interval of the site with the lowest AUROC: how often it covers the true AUROC of the site that was
picked. Sites have the same true AUROC (`alike`), or run from 0.1 below to 0.1 above it (`unlike`).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from fedsaddle.metrics.intervals import (
    FIGURES,
    GroupedUnits,
    Intervals,
    Linearised,
    area,
    bounds,
    differences,
    gap_excess,
    order,
    sample,
    within_site_area,
)
from fedsaddle.metrics.ranking import FEW
from fedsaddle.metrics.subgroups import RowsInGroups, worst

DESIGNS = ((16, 1, 2), (12, 2, 8), (8, 3, 20), (4, 20, 80), (4, 5, 20))  # sites, positives and negatives of each
AUROCS = (0.6, 0.7, 0.8, 0.9, 0.95)
KINDS = ("alike", "shifted", "drawn", "patients")
GAPS = (0.0, 0.05)
CORRELATION, ALIKE_ROWS, PATIENT_ROWS = 0.7, 0.5, 3
WORST_SITES, WORST_ROWS, WORST_AUROCS = (4, 8, 20, 40), ((5, 20), (10, 40), (20, 80)), (0.6, 0.75, 0.88)
APART = {"alike": 0.0, "unlike": 0.1}  # the AUROCs of the sites


@dataclass(frozen=True)
class World:
    """Sites and a model whose true figures are known; the AUROC is that within each site."""

    sites: int
    positives: int
    negatives: int
    auroc: float
    kind: str = "alike"
    correlation: float = field(default=CORRELATION, repr=False)  # of the two models' scores

    def __str__(self) -> str:
        return f"{self.sites} sites of {self.positives}+, {self.negatives}-, {self.kind}"

    def labels(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The site, the patient and the label of each row."""
        m = self.positives * (1 + (np.arange(self.sites) % 2 if self.kind == "shifted" else np.zeros(self.sites, int)))
        label = np.concatenate([np.repeat([1, 0], [k, self.negatives]) for k in m])
        site = np.repeat(np.arange(self.sites), m + self.negatives)
        patient = np.arange(len(site))
        if self.kind == "patients":
            site, patient, label = (np.repeat(x, PATIENT_ROWS) for x in (site, patient, label))
            label = label * (np.arange(len(label)) % PATIENT_ROWS > 0)
        return site, patient, label

    def shifts(self) -> np.ndarray:
        """How much higher the scores of each site are."""
        middle = ndtri((np.arange(self.sites) + 0.5) / self.sites)
        return middle * (0.7 if self.kind == "shifted" else 0.0)

    def truth(self, auroc: float) -> dict[str, float]:
        """The figures of infinitely many rows, as the sites have them."""
        (site, _, label), x, up = self.labels(), np.linspace(12, -9, 20_001), _distance(auroc)
        shift, share = self.shifts()[site], label.mean()
        tpr, fpr = _mean(shift[label > 0] + up, x), _mean(shift[label == 0], x)
        precision = share * tpr / (share * tpr + (1 - share) * fpr)
        area, least = np.trapezoid(np.interp(GRID, fpr, tpr), GRID), 0.3**2 / 2
        return {
            "auroc": float(np.trapezoid(tpr, fpr)),
            "average_precision": float(np.trapezoid(precision, tpr)),
            "partial_auroc": float(0.5 * (1 + (area - least) / (0.3 - least))),
            "within_site_auroc": auroc,
            "site_auroc": auroc,
        }

    def trials(self, count: int, rng: np.random.Generator) -> Trials:
        """So many data sets one after the other, with our scores and another model's for each gap."""
        site, patient, label = (np.tile(x, count) for x in self.labels())
        trial = np.repeat(np.arange(count), len(site) // count)
        site, patient = trial * self.sites + site, trial * (patient.max() + 1) + patient
        if self.kind == "drawn":
            label = (rng.random(len(label)) < label.mean()).astype(np.int64)
        ours, other = (self._noise(rng, patient) for _ in range(2))
        theirs = self.correlation * ours + np.sqrt(1 - self.correlation**2) * other
        shift, gaps = self.shifts()[site % self.sites], [_distance(self.auroc - gap) for gap in GAPS]
        scores = [ours + shift + _distance(self.auroc) * label, *(theirs + shift + d * label for d in gaps)]
        return Trials(count, self.sites, trial, site, patient, label > 0, scores)

    def _noise(self, rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
        """Rows of one patient have a correlation of `ALIKE_ROWS`."""
        own, common = rng.normal(size=len(patient)), rng.normal(size=patient.max() + 1)[patient]
        return np.sqrt(1 - ALIKE_ROWS) * own + np.sqrt(ALIKE_ROWS) * common if self.kind == "patients" else own


@dataclass(frozen=True)
class Trials:
    """Data sets one after the other: each is a group, so that all are worked out at once."""

    count: int
    sites: int  # of a trial
    trial: np.ndarray  # (n,)
    site: np.ndarray
    patient: np.ndarray
    positive: np.ndarray
    scores: list[np.ndarray]  # ours, then another model's for each gap

    def figures(self, scores: np.ndarray) -> dict[str, Linearised]:
        """Every figure, of each trial or of each site."""
        whole = order(scores, self.positive, self.trial, self.count)
        apart = order(scores, self.positive, self.site, self.count * self.sites)
        within = within_site_area(apart, self.trial_of_site, self.count)
        within = replace(within, ranks=whole.ranks)
        return {k: f(whole) for k, f in FIGURES.items()} | {"within_site_auroc": within, "site_auroc": area(apart)}

    @property
    def trial_of_site(self) -> np.ndarray:
        return np.arange(self.count * self.sites) // self.sites

    def sample_of(self, name: str) -> GroupedUnits:
        """Who was drawn in each trial, or at each site."""
        if name == "site_auroc":
            return sample(self.positive, self.site, self.count * self.sites, self.patient)
        return sample(self.positive, self.trial, self.count, self.patient)


GRID = np.linspace(0, 0.3, 3001)


def measured(world: World, trials: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """For each figure, the share of trials whose interval covers the truth, and the mean width."""
    made = world.trials(trials, np.random.default_rng([seed, *map(ord, repr(world))]))
    truth, (ours, *others) = world.truth(world.auroc), [made.figures(s) for s in made.scores]
    found = {}
    for name in ours:
        if name == "site_auroc" and min(world.positives, world.negatives) < FEW:
            continue
        drawn = made.sample_of(name)
        found[name] = _covered(bounds(ours[name], drawn), truth[name])
        for gap, theirs in zip(GAPS, others, strict=True):
            twice = None
            if name == "within_site_auroc":
                twice = gap_excess(ours[name], theirs[name], made.positive, made.site, made.trial_of_site)
            between = differences(ours[name], theirs[name], drawn, twice)
            found[f"{name} - {gap}"] = _covered(between, truth[name] - world.truth(world.auroc - gap)[name])
    return found


def _covered(found: Intervals, truth: float) -> tuple[float, float]:
    defined = ~np.isnan(found.values)
    inside = (found.low <= truth + 1e-12) & (truth - 1e-12 <= found.high)
    return float(inside[defined].mean()), float((found.high - found.low)[defined].mean())


def _mean(centres: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The share above each x of normal scores around the centres."""
    values, counts = np.unique(centres, return_counts=True)
    return counts @ ndtr(values[:, None] - x) / counts.sum()


def table(results: dict[World, dict[str, tuple[float, float]]]) -> list[str]:
    """For each design and kind, the least coverage over the AUROCs with its width; then of the differences."""
    heads = (*FIGURES, "within_site_auroc", "site_auroc")
    lines = ["| world | " + " | ".join(h.replace("_", " ") for h in heads) + " |", "| --- " * (len(heads) + 1) + "|"]
    for design in dict.fromkeys(str(world) for world in results):
        cells = []
        for head in heads:
            own = [r[head] for w, r in results.items() if str(w) == design and head in r]
            keys = [f"{head} - {gap}" for gap in GAPS]
            pairs = [r[k] for w, r in results.items() if str(w) == design for k in keys if k in r]
            cells.append(f"{_least(own)}; {_least(pairs)}" if own else "")
        lines.append(f"| {design} | " + " | ".join(cells) + " |")
    return lines


def _least(pairs: list[tuple[float, float]]) -> str:
    covered, width = min(pairs)
    return f"{100 * covered:.1f} ({width:.2f})"


@dataclass(frozen=True)
class WorstWorld:
    """Sites of equal size, one of which is picked for its low AUROC."""

    sites: int
    positives: int
    negatives: int
    auroc: float  # the mean of the sites
    kind: str = "alike"

    def measured(self, trials: int, seed: int = 0) -> dict[str, float]:
        """Shares of trials whose interval covers the picked site's AUROC: as reported, and as if it were any site."""
        rng = np.random.default_rng([seed, *map(ord, repr(self))])
        truth = self.auroc + APART[self.kind] * np.linspace(-1, 1, self.sites)
        distance = np.sqrt(2) * ndtri(truth)
        positive = np.tile(np.repeat([True, False], [self.positives, self.negatives]), self.sites)
        group = np.repeat(np.arange(self.sites), self.positives + self.negatives)
        drawn, shown = sample(positive, group, self.sites), {"reported": 0, "own": 0, "width": 0.0, "width of own": 0.0}
        for _ in range(trials):
            scores = rng.normal(size=len(group)) + distance[group] * positive
            found = worst(RowsInGroups(scores, positive, group, [str(k) for k in range(self.sites)]), within=True)
            assert found is not None
            k = int(found.name)
            own = bounds(area(order(scores, positive, group, self.sites)), drawn).of(k)
            assert own is not None
            for name, width, interval in (("reported", "width", found.auroc), ("own", "width of own", own)):
                shown[name] += interval.low <= truth[k] <= interval.high
                shown[width] += interval.high - interval.low
        return {name: total / trials for name, total in shown.items()}


def worst_table(results: dict[WorstWorld, dict[str, float]]) -> list[str]:
    """For each number of sites and size, the least coverage over AUROCs and kinds: as reported, and not widened."""
    heads = [f"{up}+, {down}-" for up, down in WORST_ROWS]
    lines = ["| sites | " + " | ".join(heads) + " |", "| --- " * (len(heads) + 1) + "|"]
    for sites in WORST_SITES:
        cells = []
        for up, down in WORST_ROWS:
            own = [r for w, r in results.items() if (w.sites, w.positives, w.negatives) == (sites, up, down)]
            pairs = (("reported", "width"), ("own", "width of own"))
            cells.append("; ".join(_least([(r[name], r[width]) for r in own]) for name, width in pairs))
        lines.append(f"| {sites} | " + " | ".join(cells) + " |")
    return lines


def _distance(auroc: float) -> float:
    return float(np.sqrt(2) * ndtri(auroc))


def main() -> None:
    """Measure every world on all cores, print the table and write all figures beside the other results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--correlation", type=float, default=CORRELATION)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--worst", action="store_true", help="measure the interval of the site with the lowest AUROC")
    given, began = parser.parse_args(), time.perf_counter()
    trials, common = given.trials, {"correlation": given.correlation}
    if given.worst:
        picks = [
            WorstWorld(n, *own, a, k) for n in WORST_SITES for own in WORST_ROWS for a in WORST_AUROCS for k in APART
        ]
        with ProcessPoolExecutor(os.cpu_count()) as pool:
            found = dict(zip(picks, pool.map(partial(WorstWorld.measured, trials=trials), picks), strict=True))
        print("\n".join(worst_table(found)))
        least = min((r["reported"], str(w)) for w, r in found.items())
        print(f"least of all: {least}; {trials} trials each, {time.perf_counter() - began:.0f} s")
        return
    worlds = [World(*design, auroc, kind, **common) for kind in given.kinds for design in DESIGNS for auroc in AUROCS]
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        results = dict(zip(worlds, pool.map(partial(measured, trials=trials), worlds), strict=True))
    print("\n".join(table(results)))
    worst = min((r[key][0], str(w), w.auroc, key) for w, r in results.items() for key in r)
    print(f"least of all: {worst}; {trials} trials each, {time.perf_counter() - began:.0f} s")
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    every = [{"world": str(w), "auroc": w.auroc, "coverage and width": r} for w, r in results.items()]
    (out / "coverage.json").write_text(json.dumps(every, indent=1))


if __name__ == "__main__":
    main()
