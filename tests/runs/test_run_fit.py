"""An algorithm, a problem and rows that do not fit together: one line before the first round, on both engines."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.sets.synthetic import nonconvex_pl
from fedsaddle.errors import BadInput
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl
from fedsaddle.problems.robust import RobustTraining

X = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
OFFSETS = np.array([0, 2, 5, 9])
LABELS = torch.tensor([0, 1, 2, 0, 1, 2, 0, 1, 2])


def rows(y=LABELS, x=X):
    return fs.Stacked(x, y, OFFSETS)


def changed(row, label):
    y = LABELS.clone()
    y[row] = label
    return y


def linear(scores, features=4):
    return fs.models.logistic_regression(features, scores)


def game(function=None, x=4, y=3, **options):
    function = function or (lambda x, y, batch: batch.x @ x * y.sum() - y @ y)
    return fs.Minimax(function, start_x=torch.zeros(x), start_y=torch.zeros(y), **options)


BINARY = rows(LABELS.clamp(max=1))
CASES = {
    "dual of the wrong size": (
        fs.LocalSgda,
        lambda: game(lambda x, y, batch: batch.x @ x + y @ torch.ones(2)),
        rows(),
        "problem = 'Minimax': does not fit the float32 rows of shape (4,) with int64 labels, "
        "starting from 4 float32 numbers and 3 float32 numbers: ",
    ),
    "primal of the wrong size": (fs.FedSgda, lambda: game(x=3), rows(), "starting from 3 float32 numbers and 3 float"),
    "nothing from the function": (fs.FedSgda, lambda: game(lambda x, y, batch: None), rows(), "problem = 'Minimax': "),
    "another dimension": (fs.FedSgda, lambda: NonconvexPl(5), nonconvex_pl(3, 5, 4), "problem = 'NonconvexPl': "),
    "another shape": (fs.LocalSgda, lambda: RobustTraining(model=linear(3), shape=(5,)), rows(), "does not fit"),
    "other features": (fs.FedAvg, lambda: fs.Supervised(linear(3, 5)), rows(), "problem = 'Supervised': does not fit"),
    "another precision": (fs.FedAvg, lambda: fs.Supervised(linear(3)), rows(x=X.double()), "starting from 15 float32"),
    "label too large": (
        fs.FedAvg,
        lambda: fs.Supervised(linear(3)),
        rows(changed(6, 7)),
        "label of client 2 = 7: the problem has 3 classes, so labels are whole numbers from 0 to 2",
    ),
    "label below 0": (fs.Drfa, lambda: fs.Supervised(linear(3)), rows(changed(4, -1)), "label of client 1 = -1: "),
    "labels of real numbers": (fs.FedAvg, lambda: fs.Supervised(linear(3)), rows(LABELS.float()), "float32 labels"),
    "no 0 or 1": (
        fs.FedAvg,
        lambda: fs.Supervised(linear(1), fs.losses.Logistic()),
        rows(),
        "label of client 1 = 2: the problem has 2 classes",
    ),
    "half a positive": (
        fs.FedAvg,
        lambda: fs.Supervised(linear(1), fs.losses.Logistic()),
        rows(LABELS.clamp(max=1) / 2),
        "label of client 0 = 0.5: ",
    ),
    "AUC of -1 and 1": (
        fs.LocalSgda,
        lambda: MinimaxAuc(model=linear(1), positive_share=0.5),
        rows(2 * LABELS.clamp(max=1) - 1),
        "label of client 0 = -1: ",
    ),
    "AUC of two scores": (
        fs.LocalSgda,
        lambda: MinimaxAuc(model=linear(2), positive_share=0.5),
        BINARY,
        "needs a model with one score",
    ),
    "fewer scores than classes": (
        fs.LocalSgda,
        lambda: ClassFair(model=linear(2), classes=3),
        BINARY,
        "classes = 3: the model gives 2 scores",
    ),
    "more classes than said": (
        fs.FedSgda,
        lambda: ClassFair(model=linear(3), classes=3),
        rows(changed(8, 3)),
        "label of client 2 = 3: ",
    ),
    "perturbed labels": (
        fs.LocalSgda,
        lambda: RobustTraining(model=linear(3), shape=(4,)),
        rows(changed(0, 3)),
        "label of client 0 = 3: ",
    ),
    "min-max for FedAvg": (
        fs.FedAvg,
        lambda: ClassFair(model=linear(3), classes=3),
        rows(),
        "problem = 'ClassFair': is not for FedAvg; give it one that minimises, such as fs.Supervised",
    ),
    "minimisation for Local SGDA": (
        fs.LocalSgda,
        lambda: fs.Supervised(linear(3)),
        rows(),
        "problem = 'Supervised': is not for LocalSgda; give it a min-max problem",
    ),
}


@pytest.mark.parametrize("engine", ["serial", "vectorised"])
@pytest.mark.parametrize("name", CASES)
def test_refused_in_one_line(name, engine, tmp_path):
    algorithm, problem, data, said = CASES[name]
    with pytest.raises(BadInput) as caught:
        fs.run(algorithm(problem=problem()), data, 2, engine=engine, out=tmp_path / "run")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run").exists()


def test_test_labels_are_looked_at_too():
    data = FederatedData("mine", rows(), rows(changed(3, 9)), ("a", "b", "c"), ("0", "1", "2"), ())
    with pytest.raises(BadInput, match="test label of client 1 = 9: the problem has 3 classes"):
        fs.run(fs.FedAvg(problem=fs.Supervised(linear(3))), data, 2)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_labels_of_lazy_clients_when_they_are_fetched(bad):
    whole = rows(changed(OFFSETS[bad], 5))
    lazy = fs.Lazy(np.diff(OFFSETS), whole.client)
    with pytest.raises(BadInput, match=f"label of client {bad} = 5: "):
        fs.run(fs.FedAvg(problem=fs.Supervised(linear(3))), lazy, 2)


def test_what_fits_runs():
    assert fs.run(fs.FedAvg(problem=fs.Supervised(linear(3))), rows(), 1).summary["rounds"] == 1
    real = rows(LABELS.clamp(max=1).float())
    assert fs.run(fs.FedAvg(problem=fs.Supervised(linear(1), fs.losses.Logistic())), real, 1).summary["rounds"] == 1
    lazy = fs.Lazy(np.diff(OFFSETS), rows().client)
    assert fs.run(fs.FedAvg(problem=fs.Supervised(linear(3))), lazy, 1).summary["rounds"] == 1
    listed = fs.Stacked(X, LABELS, [0, 2, 5, 9])
    assert fs.run(fs.FedAvg(problem=fs.Supervised(linear(3))), listed, 1).summary["rounds"] == 1
