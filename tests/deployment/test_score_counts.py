"""What the server keeps of the sites' score counts, and what its report says of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from in_process import config, deployed, simulated, sites

from fedsaddle.config.build import build
from fedsaddle.deployment.score_counts import kept_scores
from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges
from fedsaddle.metrics.merged_histograms import MergedHistogram
from fedsaddle.metrics.ranking import rank
from fedsaddle.report.run_report import page_of, write_report
from fedsaddle.report.stored_run import read_run

GIVEN = config(
    {"name": "FedAvg", "local_steps": 3},
    data="breast-cancer",
    held_out={"validation_share": 0.2},
    rounds=8,
    select="auroc",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a deployed run, and the scores of its test rows as a simulation has them."""
    home = tmp_path_factory.mktemp("deployed")
    deployed(GIVEN, sites(GIVEN, home), home / "out")
    result, data = simulated(GIVEN), build(GIVEN).data
    scores = build(GIVEN).algorithm.problem.ranking(result.model, data.test.x).double().numpy()
    return home / "out", scores, data.test


def test_the_summary_has_the_counts_of_all_sites_together(finished):
    out, scores, test = finished
    kept = json.loads((out / "summary.json").read_text())["scores"]
    exact = ScoreHistogram.of(scores, test.y.numpy(), sigmoid_edges(1000))
    assert (kept["part"], kept["bins"], kept["edges"]) == ("test", 1000, "sigmoid")
    assert kept["positives"] == exact.positives.tolist()
    assert kept["negatives"] == exact.negatives.tolist()


def test_sites_have_figures_but_no_histogram(finished):
    out, scores, test = finished
    kept = json.loads((out / "summary.json").read_text())["scores"]["sites"]
    found = rank(scores, test.y.numpy(), test.offsets, [f"site-{i + 1}" for i in range(4)])
    for own in found.clients:
        entry = kept[own.name]
        assert (entry["positives"], entry["negatives"]) == (own.positives, own.negatives)
        assert abs(entry["auroc"]["value"] - own.auroc.value) <= entry["auroc_error"] + 1e-12
        assert entry["auroc"]["interval"] == pytest.approx([own.auroc.low, own.auroc.high], abs=0.02)
        assert all(not isinstance(v, list) or len(v) <= 2 for v in entry.values())


def test_the_threshold_is_an_edge_with_the_best_f1_on_validation_rows(finished):
    out, *_ = finished
    summary = json.loads((out / "summary.json").read_text())
    p, found = summary["threshold"]["probability"], summary["probabilities"]
    score = (np.log(p) - np.log1p(-p) - found["intercept"]) / found["slope"]
    assert np.abs(sigmoid_edges(1000) - score).min() < 1e-6


def test_the_report_shows_bounds_and_says_what_they_are(finished):
    out, *_ = finished
    html = write_report(out).read_text()
    sections = {section.key: section for section in page_of(read_run(out)).sections}
    assert {"score-counts", "clients", "data", "left-sites"} <= set(sections)
    assert "come from counts that may leave the sites" in html
    assert "not confidence intervals" in html
    assert "The rows stayed at the sites" in html
    assert "Raise an alarm" in html


def test_a_site_of_one_class_has_counts_and_no_area():
    edges = sigmoid_edges(10)
    one = MergedHistogram.of(ScoreHistogram.of([0.1, 0.5], [1, 1], edges), 1)
    two = MergedHistogram.of(ScoreHistogram.of(np.linspace(-3, 3, 20), [0, 1] * 10, edges), 1)
    kept = kept_scores("validation", {"a": one, "b": two})["scores"]
    assert kept["sites"]["a"] == {"positives": 2, "negatives": 0}
    assert kept["sites"]["b"]["auroc"]["interval"][0] < kept["sites"]["b"]["auroc"]["value"]
    alone = kept_scores("test", {"a": one})["scores"]
    assert alone["pooled"] == {}
    assert sum(alone["positives"]) == 2
