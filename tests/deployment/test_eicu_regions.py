"""eICU's four regions as sites: the deployed figures beside the exact ones of the pooled rows of the same split."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_process import config
from test_masked_counts import go, test_rows

from fedsaddle.config.schema import validate_config
from fedsaddle.deployment.secure_site import read_identity, write_site_keys
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.metrics.calibration import Platt, at_threshold
from fedsaddle.metrics.ranking import difference, rank
from fedsaddle.metrics.score_sums import BinCounts, SpreadQuestion, SquareSums, bins_of
from fedsaddle.metrics.sum_figures import SummedScores

test_rows.__test__ = False
pytestmark = pytest.mark.data
NOT_FEATURES = ("label", "region", "site", "patient", "beds", "teaching")


@pytest.fixture(scope="module", params=[0, 1], ids=["seed 0", "seed 1"])
def regions(request, tmp_path_factory):
    """A run of FedAvg over the regions, its sites with the policy by default, and the folder."""
    home = tmp_path_factory.mktemp("eicu")
    table = pd.read_csv(Path(os.environ["FEDSADDLE_DATA"]) / "tables" / "eicu-demo-died.csv")
    columns = [name for name in table.columns if name not in NOT_FEATURES]
    data = {"name": "file", "target": "label", "together": "patient", "features": columns}
    stored = config(
        {"name": "FedAvg", "batch_size": 32, "local_steps": 10, "primal_step": 0.05},
        rounds=20, evaluate_every=10, seed=request.param,
    ).model_dump(mode="json")  # fmt: skip
    stored |= {"data": data | {"test_share": 0.2, "validation_share": 0.2}, "split": {"name": "natural"}}
    cfg = validate_config({**stored, "privacy": {"secure_aggregation": True}})
    kits = {name: home / f"kit-{name}" for name in sorted(table.region.dropna().unique())}
    write_site_keys(kits, list(kits))
    services = {}
    for i, (name, kit) in enumerate(kits.items()):
        table[table.region == name].to_csv(path := home / f"{name}.csv", index=False)
        settings = SiteSettings(name, path, home / f"disk-{name}")
        services[i] = SiteService(cfg, settings, identity=read_identity(kit, name))
    return services, go(cfg, services, home / "out"), home / "out"


def test_deployed_figures_are_the_exact_ones(regions):
    services, result, out = regions
    scores, y, ends, units = test_rows(services, result)
    names = [site.settings.name for site in services.values()]
    exact, summary = rank(scores, y, ends, names, units=units), json.loads((out / "summary.json").read_text())
    found = summary["scores"]
    assert (found["least"], found["sides"]) == (5, [int(y.sum()), int((y == 0).sum())])
    area, told = exact.pooled.auroc, found["pooled"]["auroc"]
    assert told["value"] == pytest.approx(area.value, abs=0.005)
    assert told["interval"] == pytest.approx([area.low, area.high], abs=0.005)
    within = found["within_site_auroc"]
    assert within["value"] == pytest.approx(exact.within_site_auroc.value, abs=1e-9)
    assert within["interval"] == pytest.approx([exact.within_site_auroc.low, exact.within_site_auroc.high], abs=0.005)
    own = {c.name: c.auroc.value for c in exact.clients if c.auroc is not None}
    said = {name: one["auroc"]["value"] for name, one in found["sites"].items() if "auroc" in one}
    assert said == own, "each site's own figure is exact"
    assert min(said, key=said.get) == min(own, key=own.get)
    platt = Platt(summary["probabilities"]["slope"], summary["probabilities"]["intercept"])
    chosen = summary["threshold"]["probability"]
    lines = []
    for at in found["thresholds"]:
        score = at["score"]
        lines.append(float(platt.probability(np.log(score) - np.log1p(-score))))
        there = at_threshold(bins_of(scores).astype(float), y, round(1000 * score), units)
        p = at_threshold(platt.probability(scores), y, lines[-1], units)
        for name in ("sensitivity", "alarms"):
            low, high = at[name]
            value = getattr(p, name).value
            assert low - 0.02 <= value <= high + 0.02
            if f"{name}_interval" in at:
                interval = getattr(there, name)
                assert at[f"{name}_interval"] == pytest.approx([interval.low, interval.high], abs=0.005)
    assert min(abs(p - chosen) for p in lines) < 1e-9


def test_paired_intervals_of_two_models_are_those_of_the_pooled_rows(regions):
    services, result, _ = regions
    scores, y, ends, units = test_rows(services, result)
    other = scores + 0.7 * np.random.default_rng(0).normal(size=len(y))
    both = [rank(s, y, ends, [site.settings.name for site in services.values()], units=units) for s in (scores, other)]
    parts = [slice(a, b) for a, b in itertools.pairwise(ends)]
    counts = []
    for s in (scores, other):
        first, *more = (BinCounts.of(s[own], y[own]) for own in parts)
        counts.append(sum(more, first).histogram())
    asked = SpreadQuestion.of(counts, [[], []], 5)
    first, *more = (SquareSums.of(asked, [scores[own], other[own]], y[own], units[own]) for own in parts)
    found, exact = SummedScores(tuple(counts), 5, asked, sum(more, first)).differences(), difference(*both)
    for name in ("auroc", "partial_auroc"):
        ours, theirs = found[name], getattr(exact, name)
        assert (ours.value, ours.low, ours.high) == pytest.approx((theirs.value, theirs.low, theirs.high), abs=0.005)
