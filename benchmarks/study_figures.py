"""How right deployed figures are at sites of usual sizes: error, and coverage of every printed interval.

    python benchmarks/study_figures.py [--draws 200] [--json FILE]

Four sites with 8 % positives and a true AUROC of .80 (scores are log odds around -3; two rows a patient, alike in half
of their variance), by the number of test positives at a site. Figures come from the counts merged at each site until
every cell has 0 or 5 rows (without masks), and from the counts summed first (behind masks). Errors are differences to
the exact figures of the same rows; coverage is that of the truth, of the intervals that a page prints.
"""

from __future__ import annotations

import argparse
import json
import os
from collections import defaultdict
from collections.abc import Iterator

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from fedsaddle.deployment.evaluation import PLAIN_CUTS
from fedsaddle.deployment.score_summary import SiteScores, within_sites
from fedsaddle.metrics.histograms import MergedHistogram
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.ranking import rank
from fedsaddle.metrics.score_sums import BinCounts, SpreadQuestion, SquareSums, bins_of
from fedsaddle.metrics.sum_figures import SummedScores

POSITIVES = (6, 10, 20, 40, 300)
SITES, SHARE, LEAST, CUT = 4, 0.08, 5, 200  # the threshold is a probability of .2
NAMES = [f"site-{i + 1}" for i in range(SITES)]
SHARES = ("sensitivity", "specificity", "positive_predictive_value", "negative_predictive_value", "alarms")
TRUTH_ROWS = 2_000_000


def drawn(chance, rows, positives=None):
    """Scores of two models, labels and patients."""
    y = (chance.random(rows) < SHARE) if positives is None else np.arange(rows) < positives
    y = chance.permutation(y).astype(int)
    units = np.arange(rows) // 2
    alike = chance.normal(size=units[-1] + 1)[units]
    first = np.sqrt(0.5) * alike + np.sqrt(0.5) * chance.normal(size=rows) + 1.19 * y - 3
    second = 0.9 * first + 0.4 * chance.normal(size=rows)
    return (first, second), y, units


def figures_of(scores, y, units, cut=CUT):
    """Exact figures of rows."""
    called = bins_of(scores) >= cut
    ranked = rank(scores, y, [0, len(y)], ["all"], units=units).pooled
    p, n = (y == 1), (y == 0)
    found = {name: getattr(ranked, name).value for name in ("auroc", "average_precision", "partial_auroc")}
    shares = (called[p].mean(), 1 - called[n].mean(), p[called].mean() if called.any() else np.nan, n[~called].mean())
    return found | dict(zip(SHARES, (*shares, called.mean()), strict=True))


def checked(chance, positives, truth, gaps) -> Iterator[tuple[str, str, float]]:
    """(what, "error", "holds" or "given", value) of one draw."""
    sites = []
    for _ in NAMES:
        up = int(chance.poisson(positives))
        sites.append(drawn(chance, round(max(up, 1) / SHARE), up))
    together = [np.concatenate([s[0][k] for s in sites]) for k in (0, 1)]
    y = np.concatenate([s[1] for s in sites])
    units = np.concatenate([s[2] + 10**6 * i for i, s in enumerate(sites)])
    if len(np.unique(y)) < 2:
        return
    exact = figures_of(together[0], y, units)
    own = {
        name: OwnFigures.of(s[0], labels, LEAST, (CUT, *PLAIN_CUTS), who)
        for name, (s, labels, who) in zip(NAMES, sites, strict=True)
    }
    sums = []
    for k in (0, 1):
        first, *more = (BinCounts.of(s[k], labels) for s, labels, _ in sites)
        sums.append(sum(more, first).histogram())
    yield from merged_at_sites(sites, own, exact)
    asked = SpreadQuestion.of(sums, [(CUT,), (CUT,)], LEAST)
    first, *more = (SquareSums.of(asked, s, labels, who) for s, labels, who in sites)
    summed = SummedScores(tuple(sums), LEAST, asked, sum(more, first))
    for name, figure in summed.figures().items():
        yield f"{name}, summed", "given", figure.value is not None
        if figure.value is not None:
            yield f"{name}, summed", "error", abs(figure.value - exact[name])
        if figure.interval is not None:
            yield name, "holds", figure.interval[0] <= truth[name] <= figure.interval[1]
    shown = summed.shown((CUT, *PLAIN_CUTS))
    if shown is not None:
        at = summed.at_cuts([CUT], shown)[0]
        for name in SHARES:
            figure = getattr(at, name)
            if figure is None or np.isnan(exact[name]):
                continue
            yield f"{name}, summed", "given", figure.value is not None
            low, high = figure.bounds
            yield f"{name}, summed", "inside", low - 1e-9 <= exact[name] <= high + 1e-9
            yield f"{name}, summed", "error", abs((low + high) / 2 - exact[name])
            if figure.interval is not None:
                yield name, "holds", figure.interval[0] <= truth[name] <= figure.interval[1]
    for name, gap in summed.differences().items():
        yield f"difference, {name}", "holds", gap.low <= gaps[name] <= gap.high
    for model in own.values():
        if model.auroc is not None:
            yield "own AUROC", "holds", model.auroc.low <= truth["auroc"] <= model.auroc.high
    inside = summed.within_sites.interval()
    yield "within sites", "holds", inside.low <= truth["auroc"] <= inside.high
    alone = within_sites(own)
    if alone is not None:
        yield "within sites, from own figures", "holds", alone.low <= truth["auroc"] <= alone.high
    gap = summed.within_sites.difference()
    yield "difference, within sites", "holds", gap.low <= gaps["auroc"] <= gap.high
    told = {name: model.auroc.value for name, model in own.items() if model.auroc is not None}
    if len(told) == SITES:
        areas = areas_of(sites)
        yield "worst site, own", "holds", min(told, key=told.get) == min(areas, key=areas.get)


def areas_of(sites):
    """Exact, of each site."""
    return {name: figures_of(s[0], y, who)["auroc"] for name, (s, y, who) in zip(NAMES, sites, strict=True)}


def merged_at_sites(sites, own, exact):
    """As without masks: bounds, and what their middle would be."""
    merged = {}
    for name, (s, labels, _) in zip(NAMES, sites, strict=True):
        found = MergedHistogram.with_cuts(BinCounts.of(s[0], labels).histogram(), LEAST, (CUT, *PLAIN_CUTS))
        if found is not None:
            merged[name] = found
    if not merged:
        return
    told = SiteScores("test", own, merged, None, [], (CUT, *PLAIN_CUTS), LEAST).to_dict()["scores"]
    low, high = told["pooled"]["auroc_bounds"]
    yield "auroc, merged", "error", abs((low + high) / 2 - exact["auroc"])
    yield "auroc, merged", "half", (high - low) / 2
    yield "auroc, merged", "given", "auroc" in told["pooled"]
    if len(merged) == SITES:
        yield "auroc, merged", "inside", low - 1e-9 <= exact["auroc"] <= high + 1e-9
    areas = {name: sum(one.auroc_bounds()) / 2 for name, one in merged.items() if one.auroc_bounds()}
    if len(areas) == SITES:
        rows = areas_of(sites)
        yield "worst site, merged", "holds", min(areas, key=areas.get) == min(rows, key=rows.get)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, default=200)
    parser.add_argument("--json")
    options = parser.parse_args()
    (first, second), y, _ = drawn(np.random.default_rng(99), TRUTH_ROWS)
    truth, other = (figures_of(s, y, None) for s in (first, second))
    gaps = {name: truth[name] - other[name] for name in ("auroc", "average_precision", "partial_auroc")}
    found = {}
    for positives in POSITIVES:
        chance, values = np.random.default_rng(positives), defaultdict(list)
        for _ in range(options.draws):
            for what, kind, value in checked(chance, positives, truth, gaps):
                values[what, kind].append(float(value))
        found[positives] = {f"{what}: {kind}": (float(np.mean(v)), len(v)) for (what, kind), v in values.items()}
    names = sorted({name for one in found.values() for name in one})
    print(f"{'test positives a site':42}" + "".join(f"{n:>14}" for n in POSITIVES))
    for name in names:
        cells = [found[n].get(name) for n in POSITIVES]
        print(f"{name:42}" + "".join(f"{'-':>14}" if c is None else f"{c[0]:>8.4f} {c[1]:>5}" for c in cells))
    if options.json:
        with open(options.json, "w") as out:
            json.dump(found, out)


if __name__ == "__main__":
    main()
