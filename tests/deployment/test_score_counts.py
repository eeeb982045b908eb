"""What the server keeps of the sites' score counts, and what its report says of them."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from in_process import config, deployed, simulated, sites
from sklearn.metrics import average_precision_score, roc_auc_score

from fedsaddle.config.build import build
from fedsaddle.deployment.evaluation import PLAIN_CUTS, PartAnswers, RemoteEvaluator, check_measurements
from fedsaddle.deployment.score_summary import SiteScores
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.errors import BadInput, BadMessage
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram, sigmoid_edges
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.ranking import rank
from fedsaddle.metrics.score_sums import BINS
from fedsaddle.metrics.selection import STATISTICS, Target
from fedsaddle.report.front import _ranked
from fedsaddle.report.page.parts import PageTable
from fedsaddle.report.run_report import page_of, write_report
from fedsaddle.report.sections.score_counts import score_counts
from fedsaddle.report.stored_run import StoredRun, read_run
from fedsaddle.report.tables import one_run
from summaries import run_summary

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
        assert entry["auroc"] == own.auroc.to_dict(), "each site computes its own, exactly"
        assert entry.keys() <= {"positives", "negatives", "auroc", "alarms"}
        rows = slice(*test.offsets[(at := int(own.name[-1]) - 1) : at + 2])
        for line in entry["alarms"]:
            called = 1 / (1 + np.exp(-scores[rows])) >= line["score"]
            y = test.y.numpy()[rows]
            assert (line["true"], line["false"]) == ((called & (y == 1)).sum(), (called & (y == 0)).sum())


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
    assert "computed from counts" in html
    assert "not confidence intervals" in html
    assert "The rows and the scores of single rows stayed at the sites." in html
    assert "Raise an alarm" in html


def test_a_site_of_one_class_has_counts_and_no_area():
    edges = sigmoid_edges(10)
    one = MergedHistogram.of(ScoreHistogram.of([0.1, 0.5], [1, 1], edges), 1)
    two = MergedHistogram.of(ScoreHistogram.of(np.linspace(-3, 3, 20), [0, 1] * 10, edges), 1)
    kept = SiteScores("validation", {}, {"a": one, "b": two}).to_dict()["scores"]
    assert kept["sites"]["a"] == {"positives": 2, "negatives": 0}
    assert kept["sites"]["b"] == {"positives": 10, "negatives": 10, "auroc_bounds": list(two.auroc_bounds())}
    alone = SiteScores("test", {}, {"a": one}).to_dict()["scores"]
    assert alone["pooled"].keys() == {"average_precision_bounds"}
    assert sum(alone["positives"]) == 2


def test_figures_of_all_sites_come_with_intervals():
    """Rows of one bin count as ties, so a figure from single bins is that of the bins' numbers."""
    chance, edges = np.random.default_rng(0), sigmoid_edges(1000)
    y = np.repeat([1, 0], 60)
    scores = chance.normal(size=120) + y
    parts = [slice(0, 120, 2), slice(1, 120, 2)]
    own = [MergedHistogram.of(ScoreHistogram.of(scores[at], y[at], edges), 1) for at in parts]
    found = SiteScores("test", {}, {"a": own[0], "b": own[1]}).to_dict()["scores"]["pooled"]
    bins = np.searchsorted(edges, scores, side="right")
    exact = {"auroc": roc_auc_score(y, bins), "average_precision": average_precision_score(y, bins)}
    for name, value in exact.items():
        low, high = found[name]["interval"]
        assert low < value < high
        assert found[name]["value"] == pytest.approx(value, abs=1e-12)
        assert found[f"{name}_bounds"][0] <= value <= found[f"{name}_bounds"][1]
    assert found["partial_auroc"] is not None


def counted(**changes):
    """A reply of 20 positives and 30 negatives, whose bins are merged in two groups."""
    up, down = [0] * BINS, [0] * BINS
    up[0], up[600], down[0], down[600] = 5, 15, 20, 10
    return {"rows": 50, "means": {"loss": 0.5}, "scores": [up, down], "groups": [600, BINS]} | changes


def test_counts_that_fit_the_rows_and_the_groups_are_taken():
    for reply in (counted(), {k: v for k, v in counted().items() if k != "groups"}, {"rows": 0}):
        assert check_measurements(0, reply, {"loss"}, 50) == reply


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"scores": [[50], [0]]}, "are not two lists of 1000 whole numbers"),
        ({"scores": [[1] * BINS, [0] * BINS]}, "do not sum up to the 50 rows"),
        ({"groups": [500, BINS]}, "groups of score bins do not fit"),
        ({"groups": [600]}, "groups of score bins do not fit"),
        ({"groups": [600, 600, BINS]}, "groups of score bins do not fit"),
    ],
)
def test_counts_that_do_not_fit_are_refused(changes, reason):
    with pytest.raises(BadMessage, match=reason):
        check_measurements(0, counted(**changes), {"loss"}, 50)


def merged_sites(chance: np.random.Generator, positives: int, least: int = 5):
    """Four sites with 8 % positives and a true AUROC of .80: their exact rows, and what they say of them."""
    drawn, counted, own = {}, {}, {}
    for i in range(4):
        up = int(chance.poisson(positives))
        y = np.repeat([1, 0], [up, round(up / 0.08) - up])
        scores = chance.normal(size=len(y)) + 1.19 * y - 3.0
        drawn[f"site-{i + 1}"] = (scores, y)
        own[f"site-{i + 1}"] = OwnFigures.of(scores, y, least, PLAIN_CUTS)
        counts = MergedHistogram.with_cuts(ScoreHistogram.of(scores, y, sigmoid_edges(1000)), least, PLAIN_CUTS)
        if counts is not None:
            counted[f"site-{i + 1}"] = counts
    return drawn, counted, own


def printed(text: str) -> list[tuple[float, float]]:
    """All ranges in a text."""
    found = re.findall(r"(\d+\.\d+) to (\d+\.\d+)", text)
    return [(float(low), float(high)) for low, high in found]


@pytest.mark.parametrize("positives", [6, 10, 20, 40, 300])
def test_printed_bounds_hold_the_exact_figures(positives, tmp_path):
    chance, seen = np.random.default_rng(positives), 0
    for _ in range(4 if positives > 100 else 10):
        drawn, counted, own = merged_sites(chance, positives)
        without = [name for name in drawn if name not in counted]
        if not counted:
            continue
        scores, y = (np.concatenate([drawn[name][k] for name in counted]) for k in (0, 1))
        stated = SiteScores("test", own, counted, None, without, PLAIN_CUTS, 5)
        summary = {"pooled": stated.pooled(), **stated.to_dict()}
        summary |= {"sites": {}, "ledger": {"exchanges": 1, "bytes_down": 1, "bytes_up": 1, "samples": 1}}
        summary |= {"algorithm": "FedAvg", "rounds": 1, "stopped": "finished", "seconds": 1.0}
        summary["test"] = {"loss": dict.fromkeys(STATISTICS, 0.5)}
        run = StoredRun(tmp_path, run_summary(**summary))
        section = score_counts(run)
        about, words, *blocks = section.blocks
        exact = [roc_auc_score(y, scores), average_precision_score(y, scores)]
        for value, (low, high) in zip(exact, printed(words.words), strict=True):
            assert low <= value <= high
        assert printed(_ranked(run)) == printed(words.words)[:1], "one pair of bounds on a page"
        table = one_run(run_summary(**summary))
        said = "\n".join(str(cell) for column in table.columns for cell in column.cells)
        assert printed(said)[0] == printed(words.words)[0]
        tables = {t.heads[0]: t for b in blocks if (t := b if isinstance(b, PageTable) else b.table)}
        assert [b.title for b in blocks if not isinstance(b, PageTable)] in ([], ["AUROC of each site"]), "no curve"
        for at, *both in tables["score, 0 to 1"].rows if "score, 0 to 1" in tables else ():
            called = 1 / (1 + np.exp(-scores)) >= float(at)
            exact = 100 * called[y == 1].mean(), 100 * (~called[y == 0]).mean()
            for value, [(low, high)] in zip(exact, map(printed, both), strict=True):
                assert low - 1e-9 <= value <= high + 1e-9
                seen += 1
        for name in without:
            assert name in about.words
            assert name in _ranked(run)
            assert name in said
        told = json.loads(json.dumps(summary))["scores"]
        for name, entry in told["sites"].items():
            exact_own = rank(*drawn[name], [0, len(drawn[name][1])], ["own"]).clients[0].auroc
            assert entry.get("auroc") == (None if name in without or exact_own is None else exact_own.to_dict())
        assert "interval" not in json.dumps(told["pooled"])
        assert not any(key in summary["pooled"] for key in ("auroc", "auroc_error"))
    assert seen or positives < 300


def test_sites_are_named_where_none_shares_counts(tmp_path):
    given = config({"name": "FedAvg"}, data="breast-cancer", rounds=2)
    strict = SitePolicy(minimum_cell=14, minimum_rows=1, minimum_sites=1)
    found = deployed(given, sites(given, tmp_path, strict), tmp_path / "out").summary
    names = ["site-1", "site-2", "site-3", "site-4"]
    assert found["scores"]["without_counts"] == names
    assert "pooled" not in found["scores"]
    assert "pooled" not in found
    assert "None of the sites (site-1, site-2, site-3, site-4) shares score counts" in _ranked(
        read_run(tmp_path / "out")
    )


def test_wide_groups_give_no_probabilities_and_no_threshold():
    _, counted, _ = merged_sites(np.random.default_rng(0), 20)
    replies = {}
    for i, own in enumerate(counted.values()):
        told = own.placed(own.first, own.first)
        both = [told.positives.tolist(), told.negatives.tolist()]
        replies[i] = {"rows": sum(own.sides), "scores": both, "groups": own.ends.tolist()}
    evaluator = RemoteEvaluator(None, None, np.zeros(4), np.zeros(4), _answers={"validation": PartAnswers(replies, [])})
    assert evaluator.probabilities() == {}


def test_the_best_round_is_not_chosen_by_bounds(tmp_path):
    given = config(
        {"name": "FedAvg", "local_steps": 3},
        data="breast-cancer",
        held_out={"validation_share": 0.2},
        select="auroc",
    )
    strict = SitePolicy(minimum_cell=5, minimum_rows=1, minimum_sites=1)
    with pytest.raises(BadInput, match=r"select = 'auroc': only bounds of it are known.*\"worst loss\""):
        deployed(given, sites(given, tmp_path, strict), tmp_path / "out")


def test_a_target_is_met_when_both_bounds_meet_it():
    record = {"pooled": {"auroc_low": 0.7, "auroc_high": 0.9}}
    assert Target.parse("auroc >= 0.7").met(record)
    assert not Target.parse("auroc >= 0.8").met(record)
    assert not Target.parse("auroc <= 0.8").met(record)
    assert Target.parse("auroc < 0.95").met(record)
    Target.parse("auroc >= 0.8").check(record["pooled"])
