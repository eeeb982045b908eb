"""The sections on columns, missing cells, trials and settings."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from safetensors.numpy import save_file
from stored_by_hand import changed, digits, search

from fedsaddle.report.sections.effects import SCORE, effects, linear_effects, unit_of
from fedsaddle.report.sections.inputs import missing_cells
from fedsaddle.report.sections.settings import commands, flat, settings, trials

FEATURES = [
    {"column": "age", "kind": "number", "mean": 60.0, "std": 10.0},
    {"column": "sex", "kind": "category", "category": "female"},
    {"column": "hospital", "kind": "site", "category": "H1", "unknown": 0.5},
    {"column": "hospital", "kind": "site", "category": "H2", "unknown": 0.5},
]


def with_weights(folder, weights, features=FEATURES):
    save_file({"1.weight": np.array([weights], dtype=np.float32), "1.bias": np.zeros(1)}, folder / "model.safetensors")
    return changed(search(), folder=folder, features=features)


def test_weights_become_log_odds_by_the_slope_of_the_probabilities(tmp_path):
    effects = linear_effects(with_weights(tmp_path, [0.5, -0.25, 0.1, -0.1]))
    assert [e.change for e in effects] == pytest.approx([1.0, -0.5, 0.2, -0.2])  # the slope is 2
    assert effects[0].name == "age, per 10"


def test_columns_and_intercepts_are_told_apart(tmp_path):
    section = effects(with_weights(tmp_path, [0.5, -0.25, 0.1, -0.1]))
    columns, sites = section.blocks
    assert columns.table.rows[0] == ("age, per 10", "+1.000", f"{math.e:.2f}")
    assert [row[0] for row in sites.table.rows] == ["H1", "H2"]
    assert "from +0.200 at H1 to −0.200 at H2" in sites.description


def coefficients(of, measure="odds ratio"):
    one = {"name": "age, per 10", "estimate": 0.5, "standard_error": 0.1, "interval": [0.3, 0.7], "p_value": 1e-6}
    two = {"name": "sex: <b>", "estimate": -3.0, "standard_error": 2.0, "interval": [-7.0, 1.0], "p_value": 0.134}
    moved = {"site": "H1", "rows": 40, "coefficient": "age, per 10", "estimate": 0.0, "change": -5.0}
    return {
        "of": of, "measure": measure, "rows": 1200, "patients": 900, "penalty": 1.0, "listed": [two, one],
        "sites": [moved],
    }  # fmt: skip


@pytest.mark.parametrize("measure", ["odds ratio", "difference"])
def test_ratios_have_intervals_and_words(measure, tmp_path):
    run = with_weights(tmp_path, [0.5, -0.25, 0.1, -0.1])
    run = changed(run, summary={"coefficients": coefficients(run.search_summary.choice, measure)})
    chart, moved, sites = effects(run).blocks
    shown = [f"{math.exp(v):.2f}" for v in (0.5, 0.3, 0.7)] if measure == "odds ratio" else ["0.500", "0.300", "0.700"]
    assert chart.table.rows[0] == ("age, per 10", shown[0], f"{shown[1]} to {shown[2]}", "0.1", "< 0.001")
    assert chart.table.rows[1][-1] == "0.13"
    assert "1,200 training rows of 900 patients" in chart.note
    assert "prior" in chart.note
    assert moved.rows[0][:2] == ("H1", "40")
    assert moved.rows[0][4:] == ("1.00" if measure == "odds ratio" else "0", "−5.0")
    assert sites.table.heads[0] == "site"


def test_ratios_of_the_default_stand_beside_the_weights_of_another_choice(tmp_path):
    run = with_weights(tmp_path, [0.5, -0.25, 0.1, -0.1])
    run = changed(run, summary={"coefficients": coefficients("another")})
    blocks = effects(run).blocks
    assert len(blocks) == 4
    assert "The chosen model is another" in blocks[0].note
    without = dataclasses.replace(run, features=[])  # such as a network
    assert len(effects(without).blocks) == 2


def test_hinges_are_summed_to_a_curve(tmp_path):
    hinges = [FEATURES[0], {**FEATURES[0], "kind": "hinge", "knot": 0.5}]
    (curve,) = effects(with_weights(tmp_path, [1.0, -1.0], hinges)).blocks
    assert curve.table.rows == [("age", "−4.000", "−2.000", "0.000", "+1.000", "+1.000")]  # flat above the knot


def test_other_models_have_no_effects(tmp_path):
    assert effects(search()) is None
    run = with_weights(tmp_path, [1.0, 2.0])  # not as many as features
    assert effects(run) is None
    (tmp_path / "model.safetensors").write_bytes(b"damaged")
    assert effects(run) is None


def test_missing_cells_name_the_worst_site():
    text, chart = missing_cells(search()).blocks
    assert "lactate (40 %)" in text.words
    assert "H2 never fills lactate" in text.words
    assert chart.table.rows[0] == ("lactate", "40 %", "100 %", "H2")


def test_missing_cells_of_runs_that_do_not_know():
    assert missing_cells(digits()) is None
    complete = missing_cells(search(summary={"missing": {}}))
    assert "No cell" in complete.blocks[0].words


def test_trials_show_the_gain_with_two_standard_errors():
    text, chart = trials(search()).blocks
    assert text.words.startswith("1 way to train was tried,")
    assert "−0.0100" in chart.description
    assert trials(digits()) is None


def test_what_the_budget_had_no_time_for_was_not_tried():
    late = {"candidate": "CODASCA", "rounds": "0", "note": "not run: budget"}
    run = search()
    run = dataclasses.replace(run, trials=[*run.trials, late])
    text = trials(run).blocks[0].words
    assert text.startswith("1 way to train was tried,")
    assert "Not tried, as the time budget was used up: CODASCA." in text


def test_the_command_is_the_one_that_was_given_or_follows_from_the_search():
    assert commands(search())[0] == (
        "fedsaddle run patients.csv --label died --site hospital --drop id --seed 0 --for auroc"
    )
    made = {"finished": "2026", "command": "fedsaddle run p.csv --label 'a b'", "machine": "m", "versions": {}}
    run = changed(search(), provenance=made)
    assert commands(run) == ["fedsaddle run p.csv --label 'a b'", "fedsaddle report runs/patients"]
    assert "CONFIG.toml" in commands(digits())[0]


def test_settings_are_flat_and_complete():
    assert dict(flat({"run": {"seed": 3, "target": None}, "a": [1]})) == {"run.seed": "3", "run.target": "", "a": "[1]"}
    section = settings(dataclasses.replace(digits(), damage=("roc.json cannot be read",)))
    assert any("roc.json" in line for block in section.blocks for line in getattr(block, "lines", ()))


def test_weights_of_an_auc_problem_are_no_log_odds():
    assert unit_of(changed(digits(), config={"problem": {"name": "auc"}})) == SCORE
