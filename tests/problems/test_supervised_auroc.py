"""Supervised problems of two classes report the pooled AUROC, so that FedAvg can be compared with AUC training."""

from __future__ import annotations

import pytest
import torch
from sklearn.metrics import average_precision_score, roc_auc_score

import fedsaddle as fs
from fedsaddle.problems.losses import CrossEntropy, Custom, Logistic, Square


def rows(labels):
    torch.manual_seed(0)
    y = torch.tensor(labels)
    return fs.Stacked(torch.randn(len(y), 3), y, torch.tensor([0, 2, len(y)]).numpy())


@pytest.mark.parametrize(("loss", "outputs"), [(CrossEntropy(), 2), (Logistic(), 1)])
def test_of_all_rows_together(loss, outputs):
    data = rows([0, 1, 1, 0, 1, 0, 0])
    problem = fs.Supervised(torch.nn.Linear(3, outputs), loss)
    scores = problem.model(data.x).detach()
    one = scores[:, 1] - scores[:, 0] if outputs == 2 else scores[:, 0]
    found = problem.pooled_measures(problem.initial(), None, data)
    assert found["auroc"] == pytest.approx(roc_auc_score(data.y, one))
    assert found["partial_auroc_30"] == pytest.approx(roc_auc_score(data.y, one, max_fpr=0.3))
    assert found["average_precision"] == pytest.approx(average_precision_score(data.y, one))


@pytest.mark.parametrize(
    ("loss", "outputs", "labels"),
    [
        (CrossEntropy(), 3, [0, 1, 2, 0]),
        (Square(), 1, [0, 1, 1, 0]),
        (Custom(lambda scores, y: scores.sum(-1)), 2, [0, 1, 1, 0]),
        (Logistic(), 1, [0, 0, 0, 0]),
    ],
)
def test_nothing_where_there_are_not_two_classes(loss, outputs, labels):
    problem = fs.Supervised(torch.nn.Linear(3, outputs), loss)
    assert problem.pooled_measures(problem.initial(), None, rows(labels)) == {}


def test_in_history_and_summary_and_as_a_target():
    data = fs.load("breast-cancer", split="iid", clients=3)
    problem = fs.Supervised(fs.models.logistic_regression(30, 2).float())
    result = fs.run(fs.FedAvg(problem=problem), data, rounds=30, target="auroc >= 0.95")
    assert result.summary["stopped"] == "target"
    assert result.history[-1]["pooled"]["auroc"] == result.summary["pooled"]["auroc"] >= 0.95
