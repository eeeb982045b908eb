"""Files of older versions are read as far as they tell something."""

from __future__ import annotations

import dataclasses

import pytest
from stored_by_hand import digits

from fedsaddle.report.front import front_of_clients
from fedsaddle.report.sections.effects import SCORE, unit_of
from fedsaddle.report.sections.subgroups import sites
from fedsaddle.report.stored_run import current_feature, current_roc


def older():
    def ranked(name, positives, negatives, area):
        return {"name": name, "positives": positives, "negatives": negatives, "auroc": area, "interval": [0.5, 0.9]}

    clients = [ranked("H1", 2, 25, 0.6), ranked("H2", 8, 9, 0.7)]
    curve = {"false_positive_rate": [0.0, 0.5, 1.0], "true_positive_rate": [0.0, 0.8, 1.0]}
    model = {"pooled": ranked("pooled", 10, 34, 0.8), "average_precision": 0.3, "clients": clients, "curve": curve}
    gap = {"pooled_auroc": -0.03, "interval": [-0.05, -0.01]}
    return {"part": "test", "models": {"CODASCA": model, "FedAvg": model}, "difference": gap}


def test_plain_figures_become_figures_with_intervals():
    found = current_roc(older())
    ours = found["models"]["CODASCA"]
    assert ours["pooled"]["auroc"] == {"value": 0.8, "interval": [0.5, 0.9]}
    assert ours["clients"][0]["auroc"] is None  # two positives: today such a site has no figure
    assert ours["clients"][1]["auroc"]["value"] == 0.7
    assert found["difference"]["auroc"] == {"value": -0.03, "interval": [-0.05, -0.01]}


def test_a_file_of_today_stays_as_it_is():
    new = {"models": {"a": {"pooled": {"auroc": {"value": 0.8, "interval": [0.7, 0.9]}}}}}
    assert current_roc(new) is new
    assert current_roc({}) == {}


def test_an_older_run_has_figures_on_its_page():
    summary = {"algorithm": "CODASCA", "test": {"loss": {"mean": -0.1, "worst": 0.0, "std": 0.1}}}
    run = dataclasses.replace(digits(), roc=current_roc(older()), summary=summary)
    front = front_of_clients(run)
    said = " ".join(answer.words for answer in front.answers)
    assert "AUROC is 0.800 (95 % interval 0.500 to 0.900)" in said
    assert "loss" not in said  # the value of a min-max objective says nothing to a reader
    assert front.figures[0].value == "0.80"
    assert sites(run) is not None


@pytest.mark.parametrize(
    ("stored", "kind"), [({"category": None}, "number"), ({"category": "a"}, "category"), ({"kind": "site"}, "site")]
)
def test_features_without_a_kind(stored, kind):
    assert current_feature(stored)["kind"] == kind


def test_weights_of_an_auc_problem_are_no_log_odds():
    run = dataclasses.replace(digits(), config={"problem": {"name": "auc"}})
    assert unit_of(run) == SCORE
