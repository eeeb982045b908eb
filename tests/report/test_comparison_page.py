"""Several runs on a page: pairs of rows and of clients, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, brier_score_loss, log_loss, roc_auc_score
from stored_by_hand import changed
from stored_by_hand import stored as stored_run

from fedsaddle.metrics.ranking import difference, rank
from fedsaddle.report.comparison import comparison_page, write_comparison
from fedsaddle.report.page.render import render
from fedsaddle.report.paired import (
    client_figures,
    difference_of_clients,
    difference_on_rows,
    differing_settings,
    probabilities_on_rows,
    side_by_side,
)
from fedsaddle.report.stored_run import HeldOut, StoredRun

OFFSETS = np.array([0, 60, 120])
RNG = np.random.default_rng(1)
LABELS = RNG.integers(0, 2, 120)
SCORES = RNG.normal(LABELS, 1.0)


def held(scores: Any = SCORES, **changes: Any) -> HeldOut:
    given: dict[str, Any] = {"rows": np.arange(120), "units": np.arange(120) // 2, **changes}
    return HeldOut(LABELS, OFFSETS, ("A", "B"), {"choice": np.asarray(scores)}, **given)


def stored(*accuracies: float, seed: int = 0, test: HeldOut | None = None, **more: Any) -> StoredRun:
    values = list(accuracies or (0.5, 0.7, 0.9))
    spread = {"mean": float(np.mean(values)), "worst": min(values), "best": max(values), "std": 0.1}
    spread |= {"global": spread["mean"], "bottom10": min(values)}
    summary = {
        "algorithm": "DRFA",
        "stopped": "finished",
        "rounds": 2,
        "seconds": 1.5,
        "test": {"accuracy": spread},
        "clients": {"test": {"rows": [10] * len(values), "measures": {"accuracy": values}}},
        "ledger": {"exchanges": 2, "bytes_up": 100, "bytes_down": 100, "fields": {}},
        **more,
    }
    history = [{"round": k, "test": {"accuracy": spread}} for k in (1, 2)]
    names = {"names": [f"c{i}" for i in range(len(values))]}
    config = {"run": {"seed": seed}, "data": {"name": "digits"}}
    return stored_run(summary=summary, history=history, config=config, split=names, test=test)


def test_clients_are_compared_in_pairs():
    found = difference_of_clients(stored(0.6, 0.6, 0.95), stored(0.5, 0.7, 0.9))
    assert (found.better, found.worse) == (2, 1)
    d = np.array([0.1, -0.1, 0.05])
    half = 4.302652729911275 * d.std(ddof=1) / np.sqrt(3)  # Student's, two degrees of freedom
    assert [found.mean.value, found.mean.low, found.mean.high] == pytest.approx(
        [d.mean(), d.mean() - half, d.mean() + half]
    )


@pytest.mark.parametrize("other", [stored(0.1, 0.2), changed(stored(), split={"names": ["x", "y", "z"]})])
def test_other_clients_are_no_pairs(other):
    assert difference_of_clients(stored(), other) is None


AUC, LOGISTIC = {"name": "auc", "sigmoid": True}, {"name": "supervised", "loss": "logistic"}


def of_loss(*losses: float, problem: Any = None, config: Any = None, test: HeldOut | None = None) -> StoredRun:
    """A run with a loss and no accuracy."""
    run = stored(*losses, test=test)
    spread = run.summary.test["accuracy"]
    measures = {"loss": run.summary.clients["test"].measures["accuracy"]}
    summary = {
        "test": {"loss": spread},
        "clients": {"test": {"rows": [10] * len(losses or (0, 0, 0)), "measures": measures}},
    }
    summary |= {} if problem is None else {"problem": problem}
    history = [{"round": k, "test": {"loss": spread}} for k in (1, 2)]
    return changed(run, summary=summary, history=history, config=run.config | ({} if config is None else config))


@pytest.mark.parametrize(
    ("ours", "theirs", "same"),
    [
        ({"problem": "Supervised(loss=Logistic())"}, {"problem": "Supervised(loss=Logistic())"}, True),
        ({"problem": "Supervised(loss=Logistic())"}, {"problem": "MinimaxAuc(sigmoid=True)"}, False),
        ({"config": {"problem": LOGISTIC}}, {"config": {"problem": LOGISTIC | {"l2": 0.1}}}, True),
        ({"config": {"problem": LOGISTIC}}, {"config": {"problem": AUC}}, False),
        ({"config": {"problem": LOGISTIC}}, {"config": {"trial": {"problem": LOGISTIC}}}, True),
        ({"config": {"problem": LOGISTIC}}, {"config": {"trial": {"problem": AUC}}}, False),
        ({}, {}, False),
        ({"problem": "MinimaxAuc(sigmoid=True)"}, {"config": {"problem": AUC}}, False),
    ],
)
def test_losses_are_compared_where_they_are_the_same(ours, theirs, same):
    a, b = of_loss(1.8, 0.4, 0.5, **ours), of_loss(-0.1, 0.1, 0.0, **theirs)
    assert (difference_of_clients(a, b) is not None) is same
    page = comparison_page({"a": a, "b": b})
    shown = render(page)
    assert ("loss, worst client" in shown) is same
    assert ("It is better at" in said(page)) is same
    assert ("Losses are not compared" in said(page)) is not same
    assert ("Loss, worst client, on test rows" in shown) is same


def test_probabilities_are_compared_whatever_the_loss():
    p = 1 / (1 + np.exp(-2 * SCORES))
    worse = np.clip(p + 0.2 * (1 - 2 * LABELS), 0.01, 0.99)
    ours = of_loss(problem="a", test=replace(held(), probabilities={"choice": p}))
    theirs = of_loss(problem="b", test=replace(held(), probabilities={"choice": worse}))
    sides = side_by_side({"a": ours, "b": theirs})
    assert sides.measure is None
    for side, own in zip(sides.sides.values(), (p, worse), strict=True):
        assert side.rows["auroc"] == pytest.approx(roc_auc_score(LABELS, SCORES))
        assert side.rows["average_precision"] == pytest.approx(average_precision_score(LABELS, SCORES))
        assert side.rows["brier_score"] == pytest.approx(brier_score_loss(LABELS, own))
        assert side.rows["log_loss"] == pytest.approx(log_loss(LABELS, own))
    found = probabilities_on_rows(ours, theirs)
    assert found["brier_score"].value == pytest.approx(brier_score_loss(LABELS, p) - brier_score_loss(LABELS, worse))
    assert found["log_loss"].value == pytest.approx(log_loss(LABELS, p) - log_loss(LABELS, worse))
    assert found["log_loss"].high < 0
    assert "Brier score, lower is better" in render(comparison_page({"a": ours, "b": theirs}))
    assert probabilities_on_rows(ours, replace(theirs, test=held(rows=np.arange(1, 121)))) == {}


def test_the_worst_client_has_five_rows():
    one, other = stored(0.0, 0.5, 0.7), stored(0.4, 0.6, 0.8)
    few = {"test": {"rows": [1, 10, 10], "measures": {"accuracy": [0.0, 0.5, 0.7]}}}
    one = changed(one, summary={"clients": few})
    found = side_by_side({"one": one, "other": other})
    assert [side.clients["worst"] for side in found.sides.values()] == [0.5, 0.4]
    assert found.notes == ("worst: of clients with at least 5 rows",)
    unlisted = changed(one, summary={"clients": {}}, history=[])
    names = ["a", "b", "c"]
    small = changed(unlisted, split={"names": names, "test_sizes": [1, 10, 10]})
    assert client_figures(small, "accuracy")["worst"] is None
    enough = changed(unlisted, split={"names": names, "test_sizes": [9, 10, 10]})
    assert client_figures(enough, "accuracy")["worst"] == 0.0


def test_a_search_stands_beside_single_runs():
    figures = {"choice": {"auroc": {"value": 0.9, "interval": [0.8, 0.95]}}}
    study = stored(test=held(SCORES + LABELS), choice="FedAvgM", pooled=figures)
    study = changed(study, search={"label": "died"})
    alone = stored(test=held(), pooled={"auroc": 0.5}, tuned=False)
    found = side_by_side({"study": study, "alone": alone})
    assert found.sides["study"].rows["auroc"] == pytest.approx(roc_auc_score(LABELS, SCORES + LABELS))
    assert [side.tuned for side in found.sides.values()] == [True, False]
    assert "a single run is not tuned" in found.notes[0]
    assert "as set, not tuned" in render(comparison_page({"study": study, "alone": alone}))
    assert "no run is tuned" in side_by_side({"a": alone, "b": alone}).notes[0]


def test_the_same_rows_are_compared_whatever_their_order():
    better = SCORES + LABELS
    order = np.concatenate([np.arange(60)[::-1], np.arange(60, 120)])
    shuffled = HeldOut(LABELS[order], OFFSETS, ("A", "B"), {"choice": SCORES[order]}, rows=order)
    found = difference_on_rows(stored(test=held(better)), stored(test=shuffled))
    units = np.arange(120) // 2
    expected = difference(*(rank(s, LABELS, OFFSETS, ("A", "B"), units=units) for s in (better, SCORES)))
    assert found == expected


@pytest.mark.parametrize(
    "other",
    [
        None,
        held(rows=np.arange(1, 121)),
        replace(held(), labels=1 - LABELS),
        held(rows=np.zeros(120, dtype=np.int64)),
    ],
    ids=["none", "other rows", "other labels", "no numbers"],
)
def test_other_rows_are_no_pairs(other):
    assert difference_on_rows(stored(test=held()), stored(test=other)) is None


def test_rows_without_numbers_need_the_same_seed():
    ours = stored(test=held(rows=None))
    assert difference_on_rows(ours, stored(test=held(rows=None))) is not None
    assert difference_on_rows(ours, stored(test=held(rows=None), seed=1)) is None


def said(page: Any) -> str:
    return " ".join([*(a.words for a in page.answers), *page.cautions])


def test_runs_that_differ_in_their_seed_are_said_to():
    assert differing_settings({"a": stored(), "b": stored(seed=3)}) == {"run.seed": ["0", "3"]}
    assert "the same settings except the seed" in said(comparison_page({"a": stored(), "b": stored(seed=3)}))


def test_verdicts_follow_the_intervals():
    page = comparison_page({"a": stored(test=held()), "b": stored(test=held(SCORES + 2 * LABELS))})
    assert "b against a, on the same test rows: difference in AUROC +" in said(page)
    assert "significantly better" in said(page)
    page = comparison_page({"a": stored(), "b": stored()})
    assert "no difference in mean accuracy of 3 clients." in said(page)


def test_all_are_compared_with_the_first(tmp_path):
    runs = {"<b>a</b>": stored(), "b": stored(0.6, 0.8, 0.9), "c": stored(0.1, 0.2)}
    page = comparison_page(runs)
    assert len(page.answers) == 2
    assert "c and <b>a</b> were not evaluated on the same rows or clients" in page.answers[1].words
    assert "There are 2 comparisons" in said(page)
    html = write_comparison(runs, tmp_path / "deep" / "c.html").read_text()
    assert "<b>a" not in html
