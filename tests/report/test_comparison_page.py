"""Several runs on a page: pairs of rows and of clients, and what is said of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsaddle.metrics.ranking import difference, rank
from fedsaddle.report.comparison_page import comparison_page, write_comparison
from fedsaddle.report.paired import difference_of_clients, difference_on_rows, differing_settings
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
    return StoredRun(Path("run"), summary, history, config=config, split=names, test=test)


def test_clients_are_compared_in_pairs():
    found = difference_of_clients(stored(0.6, 0.6, 0.95), stored(0.5, 0.7, 0.9))
    assert (found.better, found.worse) == (2, 1)
    d = np.array([0.1, -0.1, 0.05])
    half = 4.302652729911275 * d.std(ddof=1) / np.sqrt(3)  # Student's, two degrees of freedom
    assert [found.mean.value, found.mean.low, found.mean.high] == pytest.approx(
        [d.mean(), d.mean() - half, d.mean() + half]
    )


@pytest.mark.parametrize("other", [stored(0.1, 0.2), replace(stored(), split={"names": ["x", "y", "z"]})])
def test_other_clients_are_no_pairs(other):
    assert difference_of_clients(stored(), other) is None


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
    assert "the same settings but for the seed" in said(comparison_page({"a": stored(), "b": stored(seed=3)}))


def test_verdicts_follow_the_intervals():
    page = comparison_page({"a": stored(test=held()), "b": stored(test=held(SCORES + 2 * LABELS))})
    assert "b against a, on the same test rows: difference in AUROC +" in said(page)
    assert "ahead, by more than chance" in said(page)
    page = comparison_page({"a": stored(), "b": stored()})
    assert "no difference in mean accuracy of 3 clients at all" in said(page)


def test_all_are_compared_with_the_first(tmp_path):
    runs = {"<b>a</b>": stored(), "b": stored(0.6, 0.8, 0.9), "c": stored(0.1, 0.2)}
    page = comparison_page(runs)
    assert len(page.answers) == 2
    assert "c and <b>a</b> were not measured on the same rows or clients" in page.answers[1].words
    assert "There are 2 comparisons" in said(page)
    html = write_comparison(runs, tmp_path / "deep" / "c.html").read_text()
    assert "<b>a" not in html


@pytest.mark.parametrize("key", ["test", "clients", "ledger", "rounds", "pooled", "algorithm"])
@pytest.mark.parametrize("damaged", [None, 3, "x", [], {}])
def test_damaged_summaries_do_not_end_a_page(key, damaged):
    run = stored()
    other = replace(run, summary={**run.summary, key: damaged})
    comparison_page({"a": run, "b": other})
    comparison_page({"b": other, "a": run})
