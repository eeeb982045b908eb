"""Sections for any run: curves, clients, classes, weights, rows and what left the sites."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from stored_by_hand import stored

from fedsaddle.metrics.intervals import wilson_share
from fedsaddle.report.page.charts import axis_for, picked
from fedsaddle.report.page.parts import Bullets, Chart, Page, PageTable, Section, Text
from fedsaddle.report.page.render import render
from fedsaddle.report.sections.clients import classes, clients, mixture
from fedsaddle.report.sections.disclosure import left_sites
from fedsaddle.report.sections.inputs import split
from fedsaddle.report.sections.learning_curves import learning_curves
from fedsaddle.report.stored_run import StoredRun
from fedsaddle.report.words import short

NAMES = ["north", "<b>south</b>", "west\x1b[2J"]
ALL = [classes, clients, learning_curves, left_sites, mixture, split]


def spread(*values: float) -> dict[str, float]:
    found = {"mean": float(np.mean(values)), "worst": min(values), "best": max(values), "std": float(np.std(values))}
    return {**found, "global": found["mean"], "bottom10": min(values)}


def record(done: int, *accuracies: float, **more: Any) -> dict[str, Any]:
    return {
        "round": done,
        "test": {"accuracy": spread(*accuracies)},
        "clients": {"test": {"accuracy": list(accuracies)}},
        "mixture": [0.2, 0.7, 0.1],
        **more,
    }


LAST = (0.9, 0.5, 0.8)
SUMMARY: dict[str, Any] = {
    "algorithm": "DRFA",
    "stopped": "finished",
    "rounds": 4,
    "test": {"accuracy": spread(*LAST)},
    "clients": {"test": {"rows": [100, 10, 50], "measures": {"accuracy": list(LAST)}}},
    "classes": {"part": "test", "counts": {"cat": {"rows": 80, "correct": 76}, "dog": {"rows": 80, "correct": 0}}},
    "ledger": {
        "exchanges": 8,
        "bytes_up": 3_000_000,
        "bytes_down": 4000,
        "asked": 24,
        "answered": 23,
        "fields": {"LocalModels.final": "averaged", "LocalLoss.loss": "per client"},
    },
}
HISTORY = [record(2, 0.4, 0.1, 0.5), record(4, *LAST)]
SPLIT = {
    "names": NAMES,
    "classes": ["cat", "dog"],
    "train_sizes": [400, 40, 200],
    "test_sizes": [100, 10, 50],
    "label_counts": [[200, 200], [40, 0], [100, 100]],
}


def run_with(summary: dict[str, Any] | None = None, **changes: Any) -> StoredRun:
    """A run with other keys in its summary, or other parts."""
    given = {"summary": {**SUMMARY, **(summary or {})}, "history": HISTORY}
    return stored("run", **{**given, "split": SPLIT, **changes})


def words(section: Section | None) -> str:
    """All that a section says, with its tables."""
    assert section is not None
    said: list[str] = []
    for block in section.blocks:
        if isinstance(block, Text):
            said.append(block.words)
        elif isinstance(block, Bullets):
            said += block.lines
        elif isinstance(block, Chart):
            said += [block.title, block.description, block.note]
        tables = [block] if isinstance(block, PageTable) else [block.table] if isinstance(block, Chart) else []
        said += [" | ".join(row) for table in tables if table is not None for row in (table.heads, *table.rows)]
    return "\n".join(said)


def test_every_section_can_be_rendered_and_names_stay_text():
    sections = [found for make in ALL if (found := make(run_with())) is not None]
    assert len(sections) == len(ALL)
    html = render(Page("run", "", (), sections=sections))
    assert "<b>south" not in html
    assert "\x1b" not in html
    assert "&lt;b&gt;south&lt;/b&gt;" in html


def test_clients_stand_worst_first_with_intervals():
    said = words(clients(run_with()))
    assert "The worst is <b>south</b> with 50.0 % (24 % to 76 %)" in said
    assert said.index("<b>south</b> | 10") < said.index("west\\x1b[2J | 50") < said.index("north | 100")
    assert "2 clients have an interval wider than 20 points" in said
    assert "The model classifies 73 of 100 rows correctly at the average client, and 50 at the worst." in said


def test_losses_stand_highest_first():
    summary = {
        "test": {"loss": {**spread(0.2, 3.0, 1.0), "worst": 3.0, "best": 0.2, "bottom10": 3.0}},
        "clients": {"test": {"rows": [100, 10, 50], "measures": {"loss": [0.2, 3.0, 1.0]}}},
    }
    said = words(clients(run_with(summary)))
    assert "The worst is <b>south</b> with 3.000; the best is north with 0.200" in said


def test_thousands_of_clients_are_grouped():
    deciles = np.linspace(0, 1, 11).tolist()
    summary = {"clients": {"test": {"rows": 9000, "clients": 3000, "deciles": {"accuracy": deciles}}}}
    said = words(clients(run_with(summary)))
    assert "Accuracy over 3,000 clients" in said
    assert "one tenth has 10.0 % or worse" in said
    assert "north" not in said


def test_a_list_of_clients_has_an_end():
    names = [f"c{i}" for i in range(300)]
    summary = {"clients": {"test": {"rows": [10] * 300, "measures": {"accuracy": [i / 300 for i in range(300)]}}}}
    section = clients(run_with(summary, split={"names": names}))
    chart = next(block for block in section.blocks if isinstance(block, Chart))
    assert chart.scrolls
    assert len(chart.table.rows) == 200
    assert "The 200 worst of 300 clients are listed" in chart.description


def test_a_class_that_is_never_found_is_a_caution():
    section = classes(run_with())
    said = words(section)
    assert "Of 100 test rows of class dog the model classifies 0 correctly, the fewest of 2 classes" in said
    assert [b.words for b in section.blocks if isinstance(b, Text) and b.kind == "caution"] == [
        "1 class is never predicted correctly."
    ]
    assert "cat | 80 | 76 | 95.0 %" in said


def test_the_kept_round_and_fedavg_stand_in_the_curves():
    run = run_with(summary={"selected_round": 2}, baseline=[record(2, 0.3, 0.1, 0.2), record(4, 0.6, 0.2, 0.3)])
    section = learning_curves(run)
    chart = next(block for block in section.blocks if isinstance(block, Chart))
    assert "selected: round 2" in chart.svg
    assert "FedAvg, worst client" in chart.svg
    assert "The model of round 2 was selected" in words(section)


@pytest.mark.parametrize(
    ("stopped", "said"),
    [("interrupted", "was interrupted"), ("diverged", "It diverged"), ("patience", "stopped early")],
)
def test_curves_say_why_a_run_ended(stopped, said):
    assert said in words(learning_curves(stored(summary={"stopped": stopped, "algorithm": "DRFA"}, history=HISTORY)))


def test_measures_that_fall_are_on_a_logarithmic_axis_and_inexact_ones_are_said():
    history = [
        record(
            k, 0.4, 0.1, 0.5, pooled={"duality_gap": 10.0**-k}, **({"not_reached": ["duality_gap"]} if k > 2 else {})
        )
        for k in (1, 2, 3)
    ]
    said = words(learning_curves(run_with(history=history)))
    assert "Duality gap goes from 0.100 to 0.001; its best is 0.001 in round 3." in said
    assert "in 1 of 3 evaluations the inner solve of duality gap did not reach its tolerance" in said


def test_the_objective_of_a_ranking_has_no_curve():
    history = [{"round": k, "test": {"loss": spread(1, 2)}, "pooled": {"auroc": 0.7 + k / 100}} for k in (1, 2)]
    said = words(learning_curves(run_with(history=history)))
    assert "AUROC of all rows together" in said
    assert "Loss" not in said


def test_weights_name_the_client_that_counted_most():
    said = words(mixture(run_with()))
    assert "<b>south</b> has the largest weight, 70.0 %; equal weights would be 33.3 % each" in said
    assert mixture(run_with(history=[{"round": 1}])) is None


def test_weights_of_many_clients_sum_up_the_rest():
    many = [record(k, 0.5, mixture=[1 / 100] * 100) for k in (1, 2)]
    chart = next(b for b in mixture(run_with(history=many)).blocks if isinstance(b, Chart))
    assert "the other 60 clients together" in chart.svg


def test_rows_say_how_unlike_the_clients_are():
    said = words(split(run_with()))
    assert "3 clients: 640 training rows, 160 test rows." in said
    # shares of cat 0.5, 1, 0.5 against 340 of 640
    distance = (abs(0.5 - 340 / 640) * 2 + abs(1 - 340 / 640)) / 3
    assert f"on average {100 * distance:.0f} % of a client's training rows would have to change class" in said
    assert "1 client has rows of one class only" in said
    assert "all | 640 | 160 | 300" in said


def test_a_simulation_says_that_nothing_left_the_machine():
    said = words(left_sites(run_with()))
    assert "nothing left it" in said
    assert "LocalLoss.loss | the client's loss on a batch of its rows | per client" in said
    assert "3.0 MB of replies to the server" in said
    assert "answered 23 times" in said


def test_a_deployed_run_says_who_was_left_out():
    sites = {
        "a": {"answered": 9, "left_out": {"did not answer": 2}, "bytes_up": 10, "bytes_down": 20},
        "b": {"answered": 11, "left_out": {}, "bytes_up": 10, "bytes_down": 20},
    }
    said = words(left_sites(run_with(summary={"sites": sites})))
    assert "The rows and the scores of single rows stayed at the sites." in said
    assert "a | 9 | 2 | 10 bytes | 20 bytes | did not answer (2)" in said
    assert "Left out of some exchanges: a (2 times)" in said


def test_scores_that_leave_are_not_kept_quiet():
    sites = {"a": {"answered": 1, "left_out": {}}}
    ledger = {**SUMMARY["ledger"], "fields": {"Scores.scores1": "pooled"}}
    said = words(left_sites(run_with({"sites": sites, "ledger": ledger})))
    assert "it includes scores of rows" in said
    assert "without their names" in said


def test_numbers_as_text():
    assert [short(v) for v in (0.0, 0.5, 1234.5, 1e9, 1e-5, float("nan"))] == [
        "0.000", "0.500", "1,234", "1e+09", "1e-05", "–",
    ]  # fmt: skip
    assert picked(5, 3) == [0, 2, 4]
    assert picked(2, 9) == [0, 1]
    found = axis_for("loss", [0.0, 0.0])
    assert found.low < found.high


@pytest.mark.parametrize(("right", "rows"), [(0, 1), (1, 1), (5, 10), (999, 1000)])
def test_wilson_holds_its_share(right, rows):
    found = wilson_share(right, rows)
    assert 0 <= found.low <= found.value <= found.high <= 1
    assert found.high > found.low
