"""One model at every client, against a loop over the clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.metrics.evaluation import Measured, client_means, evaluate
from fedsaddle.metrics.selection import spread
from fedsaddle.problems.losses import CrossEntropy, Custom, Logistic, Square
from fedsaddle.problems.models.networks import CharacterGru, McMahanCnn, logistic_regression, mlp
from fedsaddle.problems.supervised import Supervised

SIZES = (5, 1, 17, 0, 8, 0)


def offsets(sizes):
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def rows(x, y):
    return Stacked(x, y, offsets(SIZES), allow_empty=True)


def problems():
    torch.manual_seed(0)
    n, labels = sum(SIZES), torch.randint(3, (sum(SIZES),))
    table = torch.randn(n, 4)
    return {
        "logistic regression": (Supervised(mlp(4, [], 3)), rows(table, labels)),
        "mlp": (Supervised(mlp(4, [6, 5], 3), l2=0.1), rows(table, labels)),
        "cnn": (Supervised(McMahanCnn(1, 3, 8)), rows(torch.randn(n, 1, 8, 8), labels)),
        "gru": (Supervised(CharacterGru(7, 3, 4)), rows(torch.randint(7, (n, 5)), torch.randint(7, (n, 5)))),
        "one score": (Supervised(nn.Linear(4, 1), Logistic()), rows(table, labels.clamp(max=1))),
        "regression": (Supervised(nn.Linear(4, 1), Square()), rows(table, torch.randn(n))),
    }


def by_loop(problem, w, data):
    """Each client on its own, through the plain module."""
    module = problem.module(w).eval()
    loss, accuracy = [], []
    with torch.no_grad():
        for i in range(data.count):
            x, y = data.client(i)
            if not len(x):
                loss.append(np.nan), accuracy.append(np.nan)
                continue
            scores = module(x)
            if isinstance(problem.loss, CrossEntropy):
                loss.append(float(nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten())))
                accuracy.append(float((scores.argmax(-1) == y).double().mean()))
            elif isinstance(problem.loss, Logistic):
                s = scores[:, 0]
                loss.append(float(nn.functional.binary_cross_entropy_with_logits(s, y.float())))
                accuracy.append(float(((s > 0) == (y > 0)).double().mean()))
            else:
                loss.append(float((scores[:, 0] - y).square().mean() / 2))
    return {"loss": loss, **({"accuracy": accuracy} if accuracy and not isinstance(problem.loss, Square) else {})}


@pytest.mark.parametrize("name", problems())
def test_equals_a_loop_over_the_clients(name):
    problem, data = problems()[name]
    w = problem.initial()
    expected = by_loop(problem, w, data)
    for block in (4, 4096):
        measured = evaluate(problem, w, data, block=block)
        assert measured.values.keys() == expected.keys()
        assert measured.sizes.tolist() == list(SIZES)
        for measure, values in expected.items():
            np.testing.assert_allclose(measured.values[measure], values, rtol=1e-5, atol=1e-7)
            higher = measure == "accuracy"
            assert measured.spread()[measure] == spread(measured.values[measure], SIZES, higher_is_better=higher)


def test_evaluation_leaves_no_graph_and_the_model_alone():
    problem, data = problems()["mlp"]
    before = [p.detach().clone() for p in problem.model.parameters()]
    w = problem.initial().requires_grad_()
    measured = evaluate(problem, w, data)
    assert isinstance(measured, Measured)
    assert w.grad is None
    assert all(torch.equal(p, q) for p, q in zip(problem.model.parameters(), before, strict=True))


def test_a_loss_of_ones_own_has_no_accuracy():
    mine = Custom(lambda scores, y: (scores[..., 0] - y).abs())
    problem, data = Supervised(nn.Linear(4, 1), mine), problems()["regression"][1]
    assert set(evaluate(problem, problem.initial(), data).spread()) == {"loss"}


def test_the_penalty_is_no_part_of_the_measured_loss():
    model = mlp(4, [], 3)
    data = problems()["mlp"][1]
    plain, heavy = Supervised(model), Supervised(model, l2=9.0)
    a, b = (evaluate(p, p.initial(), data).values["loss"] for p in (plain, heavy))
    np.testing.assert_array_equal(a, b)


def test_of_lazy_clients_the_first_are_measured():
    problem = Supervised(logistic_regression(4, 3))
    asked = []

    def load(i):
        asked.append(i)
        return torch.ones(2, 4) * i, torch.zeros(2, dtype=torch.int64)

    measured = evaluate(problem, problem.initial(), Lazy(np.full(50, 2), load), most_clients=7)
    assert asked == list(range(7))
    assert measured.sizes.tolist() == [2] * 7
    np.testing.assert_allclose(measured.values["loss"], np.log(3), rtol=1e-6)
    assert len(evaluate(problem, problem.initial(), Lazy(np.full(5, 2), load)).sizes) == 5


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([2, 3], [1.5, 4.0]),
        ([5], [3.0]),
        ([0, 2, 0, 3, 0], [np.nan, 1.5, np.nan, 4.0, np.nan]),
        ([0, 0, 5], [np.nan, np.nan, 3.0]),
        ([5, 0, 0], [3.0, np.nan, np.nan]),
    ],
)
def test_means_of_stretches(sizes, expected):
    np.testing.assert_array_equal(client_means(np.array([1.0, 2, 3, 4, 5]), offsets(sizes)), expected)


def test_means_of_nobody():
    assert np.isnan(client_means(np.array([]), offsets([0, 0]))).all()


def test_one_client_s_loss_does_not_swallow_another_s():
    """A running sum over all rows would: 1e20 + 0.5 is 1e20."""
    np.testing.assert_array_equal(client_means(np.array([1e20, 0.5, 0.25]), offsets([1, 1, 1])), [1e20, 0.5, 0.25])


def test_one_client_s_infinity_stays_with_it():
    means = client_means(np.array([1.0, np.inf, np.nan, 2.0]), offsets([1, 1, 1, 1]))
    np.testing.assert_array_equal(means, [1.0, np.inf, np.nan, 2.0])


def test_of_many_lazy_clients_a_thousand_are_measured():
    problem = Supervised(logistic_regression(2, 2))
    many = Lazy(np.full(1002, 1), lambda i: (torch.ones(1, 2), torch.zeros(1, dtype=torch.int64)))
    assert len(evaluate(problem, problem.initial(), many).sizes) == 1000


def test_class_accuracies_of_clients_with_their_own_models_are_counted_under_each_ones_model():
    """Two classes told apart by the sign of x; the second client's model has it the wrong way round for its ones."""
    from fedsaddle.metrics.evaluation import personal_pooled

    problem = fs.ClassFair(model=torch.nn.Linear(1, 2, bias=False), classes=2)
    x, y = torch.tensor([[-1.0], [1.0], [2.0], [-1.0], [1.0], [3.0]]), torch.tensor([0, 1, 1, 0, 1, 1])
    rows = fs.Stacked(x, y, np.array([0, 3, 6]))
    right, wrong = torch.tensor([-1.0, 1.0]), torch.tensor([1.0, -1.0])
    found = personal_pooled(problem, lambda i: (right, wrong)[i], None, rows)
    assert found == {"worst_class_accuracy": 0.5, "mean_class_accuracy": 0.5}
    found = personal_pooled(problem, lambda i: (right, torch.tensor([0.5, 1.0]))[i], None, rows)
    assert found == {"worst_class_accuracy": 1.0, "mean_class_accuracy": 1.0}
    assert personal_pooled(fs.NonconvexPl(1), lambda i: right, None, rows) == {}


@pytest.mark.parametrize("classes", [1, 2, 1000, 1001])
def test_from_two_to_a_thousand_classes_are_counted(classes):
    from fedsaddle.metrics.evaluation import class_counts

    problem, y = Supervised(nn.Linear(1, classes)), torch.tensor([0, 0])
    found = class_counts(problem, problem.initial(), Stacked(torch.zeros(2, 1), y, offsets([2])), classes)
    assert (found is not None) == (classes in (2, 1000))
    assert found is None or found.rows.tolist() == [2] + [0] * (classes - 1)
