"""The imbalanced heterogeneous construction: disjoint classes, a given share of positives, a test set left alone."""

from __future__ import annotations

import numpy as np
import pytest

from fedsaddle.data.describe import describe
from fedsaddle.data.federated import federate
from fedsaddle.data.sets.sklearn_sets import digits, iris
from fedsaddle.data.splits import Imbalanced
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput


def many_classes(classes: int = 20, rows: int = 40, test: bool = True) -> Dataset:
    """Row r of class c is (c, r): so that a row can be told anywhere."""
    c, r = np.divmod(np.arange(classes * rows), rows)
    names = tuple(f"kind {i}" for i in range(classes))
    table = Table.of(np.stack([c, r], axis=1), c, classes=names)
    return Dataset("kinds", table, table if test else None, "", "")


def classes_of(rows, i) -> set[int]:
    return set(rows.client(i)[0][:, 0].long().tolist())


@pytest.mark.parametrize(("clients", "imratio"), [(4, 0.1), (3, 0.3), (10, 0.05), (1, 0.2)])
def test_disjoint_classes_and_the_share_of_positives(clients, imratio):
    data = federate(many_classes(), Imbalanced(clients, imratio), seed=5)
    owned = [classes_of(data.train, i) for i in range(clients)]
    assert sum(map(len, owned)) == len(set().union(*owned)) == 20
    assert max(map(len, owned)) - min(map(len, owned)) <= 2
    for i in range(clients):
        x, y = data.train.client(i)
        negatives = int((y == 0).sum())
        assert int((y == 1).sum()) == max(1, round(imratio / (1 - imratio) * negatives))
        assert negatives % 40 == 0  # no negative is lost
        positive, negative = (set(x[y == side][:, 0].tolist()) for side in (1, 0))
        assert not positive & negative
    report = describe(data)
    assert report.positive_share == pytest.approx(imratio, abs=0.02)
    assert report.single_class_clients == 0
    assert f"{report.positive_share:.1%} of the training rows" in report.text()


def test_the_test_set_is_untouched_and_follows_the_classes():
    data = federate(many_classes(), Imbalanced(4), seed=5)
    assert data.test is not None
    assert len(data.test.x) == 800
    assert float(data.test.y.double().mean()) == 0.5
    for i in range(4):
        assert classes_of(data.test, i) == classes_of(data.train, i)


def test_without_a_test_set_rows_are_held_out_before_any_is_dropped():
    data = federate(many_classes(test=False), Imbalanced(4, 0.1), seed=5, test_share=0.25)
    assert data.test is not None
    assert len(data.test.x) == 200
    assert float(data.test.y.double().mean()) == 0.5
    seen = [{tuple(row) for row in part.x.tolist()} for part in (data.train, data.test)]
    assert not seen[0] & seen[1]
    assert federate(many_classes(test=False), Imbalanced(4), test_share=0.0).test is None


def test_the_seed_draws_classes_and_rows():
    once, again, other = (federate(many_classes(), Imbalanced(4), seed=s) for s in (1, 1, 2))
    assert once.train.x.tolist() == again.train.x.tolist()
    assert [classes_of(once.train, i) for i in range(4)] != [classes_of(other.train, i) for i in range(4)]


def test_named_positive_classes_and_rows_dealt_at_random():
    data = federate(many_classes(), Imbalanced(5, 0.05, positive=["kind 3", 7], disjoint=False), seed=0)
    positive = set(data.train.x[data.train.y == 1][:, 0].long().tolist())
    assert positive == {3, 7}
    assert all(len(classes_of(data.train, i)) > 15 for i in range(5))
    assert describe(data).positive_share == pytest.approx(0.05, abs=0.01)


def test_of_two_classes_the_second_is_positive():
    table = Table.of(np.arange(800)[:, None], np.arange(800) % 2, classes=("no", "yes"))
    data = federate(Dataset("two", table, table, "", ""), Imbalanced(4, 0.2, disjoint=False))
    assert (data.train.x[data.train.y == 1] % 2 == 1).all()
    assert describe(data).positive_share == pytest.approx(0.2, abs=0.03)
    assert data.classes == ("negative", "positive")


@pytest.mark.parametrize(
    ("split", "dataset", "key"),
    [
        (lambda: Imbalanced(6), digits(), "clients"),
        (lambda: Imbalanced(2), iris(), "clients"),
        (lambda: Imbalanced(3, imratio=0.0), many_classes(), "imratio"),
        (lambda: Imbalanced(3, imratio=0.7), many_classes(), "imratio"),
        (lambda: Imbalanced(0), many_classes(), "clients"),
        (lambda: Imbalanced(2, positive=["cat"]), many_classes(), "positive"),
    ],
)
def test_what_cannot_be_is_named(split, dataset, key):
    with pytest.raises(BadInput, match=f"^{key}"):
        federate(dataset, split())
