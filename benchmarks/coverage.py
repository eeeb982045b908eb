"""How often the 95 % intervals of ranking figures cover, and how wide they are, in worlds whose truth is known.

OMP_NUM_THREADS=1 python benchmarks/coverage.py --trials 1000

Scores are normal, positives higher by what gives the AUROC. Four kinds of worlds: `alike` sites; `shifted` ones, with
other scales of scores and shares of positives, the same in every trial; `drawn` ones, whose labels are drawn too; and
`patients` of three correlated rows, of which two are positive if the patient is. The second model's scores have a
correlation of 0.7 with the first's, and its AUROC is the same, or lower by 0.05.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from scipy.special import ndtr, ndtri

from fedsaddle.metrics.ranking import difference, rank

DESIGNS = ((16, 1, 2), (12, 2, 8), (8, 3, 20), (4, 20, 80), (4, 5, 20))  # sites, positives and negatives of each
AUROCS = (0.6, 0.7, 0.8, 0.9, 0.95)
KINDS = ("alike", "shifted", "drawn", "patients")
FIGURES = ("auroc", "average_precision", "partial_auroc")
GAPS = (0.0, 0.05)
CORRELATION, ALIKE_ROWS, PATIENT_ROWS = 0.7, 0.5, 3


@dataclass(frozen=True)
class World:
    """Sites and a model whose true figures are known; the AUROC is that within each site."""

    sites: int
    positives: int
    negatives: int
    auroc: float
    kind: str = "alike"

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
        shift = self.shifts()[site]
        tpr = np.mean([ndtr(up + b - x) for b in shift[label > 0]], axis=0)
        fpr = np.mean([ndtr(b - x) for b in shift[label == 0]], axis=0)
        share = label.mean()
        precision = share * tpr / (share * tpr + (1 - share) * fpr)
        area, least = np.trapezoid(np.interp(GRID, fpr, tpr), GRID), 0.3**2 / 2
        return {
            "auroc": float(np.trapezoid(tpr, fpr)),
            "average_precision": float(np.trapezoid(precision, tpr)),
            "partial_auroc": float(0.5 * (1 + (area - least) / (0.3 - least))),
            "within_site_auroc": auroc,
            "site_auroc": auroc,
        }

    def scores(self, rng: np.random.Generator) -> Iterator[np.ndarray]:
        """The rows' offsets, patients and labels, our scores, and another model's for each gap."""
        site, patient, label = self.labels()
        if self.kind == "drawn":
            label = (rng.random(len(label)) < label.mean()).astype(np.int64)
        yield np.concatenate([[0], np.cumsum(np.bincount(site, minlength=self.sites))])
        yield patient
        yield label
        ours, other = (self._noise(rng, patient) for _ in range(2))
        theirs = CORRELATION * ours + np.sqrt(1 - CORRELATION**2) * other
        shift = self.shifts()[site]
        yield ours + shift + _distance(self.auroc) * label
        for gap in GAPS:
            yield theirs + shift + _distance(self.auroc - gap) * label

    def _noise(self, rng: np.random.Generator, patient: np.ndarray) -> np.ndarray:
        """Rows of one patient have a correlation of `ALIKE_ROWS`."""
        own, common = rng.normal(size=len(patient)), rng.normal(size=patient.max() + 1)[patient]
        return np.sqrt(1 - ALIKE_ROWS) * own + np.sqrt(ALIKE_ROWS) * common if self.kind == "patients" else own


GRID = np.linspace(0, 0.3, 3001)


def measured(world: World, trials: int, seed: int = 0) -> dict[str, tuple[float, float]]:
    """For each figure, the share of trials whose interval covers the truth, and the mean width."""
    rng, names = np.random.default_rng([seed, *map(ord, repr(world))]), [str(i) for i in range(world.sites)]
    truth = world.truth(world.auroc)
    lower = [world.truth(world.auroc - gap) for gap in GAPS]
    found: dict[str, list[tuple[bool, float]]] = {}

    def note(name: str, interval: object, true: float) -> None:
        if interval is not None:
            inside = interval.low <= true + 1e-12 and true <= interval.high + 1e-12
            found.setdefault(name, []).append((inside, interval.high - interval.low))

    for _ in range(trials):
        offsets, patients, labels, ours, *others = world.scores(rng)
        units = patients if world.kind == "patients" else None
        model, *rest = (rank(s, labels, offsets, names, units=units) for s in (ours, *others))
        for key in FIGURES:
            note(key, getattr(model.pooled, key), truth[key])
        note("within_site_auroc", model.within_site_auroc, truth["within_site_auroc"])
        note("site_auroc", model.clients[0].auroc, truth["site_auroc"])
        for gap, true, theirs in zip(GAPS, lower, rest, strict=True):
            between = difference(model, theirs)
            for key in (*FIGURES, "within_site_auroc"):
                note(f"{key} - {gap}", getattr(between, key), truth[key] - true[key])
            note(f"site_auroc - {gap}", between.clients[0].auroc, gap)
    return {key: tuple(np.mean(pairs, axis=0).tolist()) for key, pairs in found.items()}


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


def _distance(auroc: float) -> float:
    return float(np.sqrt(2) * ndtri(auroc))


def main() -> None:
    """Measure every world on all cores, print the table and write all figures beside the other results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=1000)
    trials, began = parser.parse_args().trials, time.perf_counter()
    worlds = [World(*design, auroc, kind) for kind in KINDS for design in DESIGNS for auroc in AUROCS]
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
