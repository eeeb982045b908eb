import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

import fedsaddle as fs
from fedsaddle.metrics.measures import Position, WorstClientAuroc


def rows(sizes, seed=0):
    g = torch.Generator().manual_seed(seed)
    n = sum(sizes)
    y = (torch.rand(n, generator=g) < 0.4).long()
    x = torch.randn(n, 3, generator=g) + 0.5 * y[:, None]
    return fs.Stacked(x, y, np.concatenate([[0], np.cumsum(sizes)]))


def problem():
    torch.manual_seed(0)
    return fs.Supervised(torch.nn.Linear(3, 1), loss=fs.losses.Logistic())


def test_it_is_the_least_of_the_clients_that_have_enough_rows():
    data, f = rows([40, 60, 8]), problem()
    w = f.initial()
    scores = f.module(w)(data.x).squeeze(-1).detach().numpy()
    each = [roc_auc_score(data.y[a:b], scores[a:b]) for a, b in ((0, 40), (40, 100), (100, 108))]
    assert WorstClientAuroc(least=1)(Position(f, w, None, data)) == pytest.approx(min(each), abs=1e-12)
    assert WorstClientAuroc(least=5)(Position(f, w, None, data)) == pytest.approx(min(each[:2]), abs=1e-12)
    assert WorstClientAuroc(least=1000)(Position(f, w, None, data)) == 0.5


def test_it_looks_at_test_rows_where_there_are_any():
    train, test, f = rows([40, 40]), rows([50, 50], seed=1), problem()
    w, least = f.initial(), WorstClientAuroc()
    assert least(Position(f, w, None, train, test)) == least(Position(f, w, None, test))
    assert least(Position(f, w, None, train, test)) != least(Position(f, w, None, train))


def test_a_problem_without_two_classes_is_refused():
    f = fs.Supervised(torch.nn.Linear(3, 4))
    with pytest.raises(fs.BadInput, match="does not rank rows of two classes"):
        WorstClientAuroc()(Position(f, f.initial(), None, rows([10])))
    with pytest.raises(fs.BadInput, match="least"):
        WorstClientAuroc(least=0)
