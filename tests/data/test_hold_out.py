"""Parts of the rows: disjoint, complete, in the right shares, and never a patient on two sides."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsaddle.config.build import cast
from fedsaddle.data.describe import describe
from fedsaddle.data.federated import federate
from fedsaddle.data.hold_out import hold_out
from fedsaddle.data.noise import Noise
from fedsaddle.data.sets.sklearn_sets import diabetes, digits
from fedsaddle.data.splits import Iid, Imbalanced, Natural
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput
from fedsaddle_papers.reproductions.jobs import first_sources

clients_of_rows = st.lists(st.integers(0, 4), min_size=1, max_size=60)
shares = st.tuples(st.floats(0, 0.6), st.floats(0, 0.39))


def parts_of(clients: list[int]) -> list[np.ndarray]:
    """Row numbers of each client that there is."""
    at = np.array(clients)
    return [np.flatnonzero(at == c) for c in np.unique(at)]


@settings(max_examples=200, deadline=None)
@given(clients_of_rows, shares, st.integers(0, 3), st.booleans(), st.integers(1, 3))
def test_parts_are_disjoint_complete_and_of_the_right_size(clients, both, seed, stratify, classes):
    parts, (test_share, validation_share) = parts_of(clients), both
    labels = np.random.default_rng(seed).integers(0, classes, len(clients)) if stratify else None
    made = hold_out(parts, test_share, seed, labels, validation_share=validation_share)
    for i, part in enumerate(parts):
        own = [three[i] for three in made]
        assert sorted(np.concatenate(own).tolist()) == part.tolist()
        assert all((np.diff(rows) > 0).all() for rows in own)
        assert len(made.train[i]) > 0
        for stratum in (part,) if labels is None else (part[labels[part] == c] for c in range(classes)):
            for held, share in ((made.test[i], test_share), (made.validation[i], validation_share)):
                assert abs(np.isin(held, stratum).sum() - share * len(stratum)) <= 1 + 1e-9


@settings(max_examples=200, deadline=None)
@given(clients_of_rows, shares, st.integers(0, 3), st.booleans(), st.integers(1, 12))
def test_a_patient_is_on_one_side_at_all_clients(clients, both, seed, stratify, patients):
    parts, chance = parts_of(clients), np.random.default_rng(seed)
    patient, labels = chance.integers(0, patients, len(clients)), chance.integers(0, 2, len(clients))
    made = hold_out(parts, both[0], seed, labels if stratify else None, patient, both[1])
    sides = [set(patient[np.concatenate(three)].tolist()) for three in made]
    assert sum(map(len, sides)) == len(set(patient.tolist()))
    assert all(len(part) for part in made.train)
    assert sorted(np.concatenate([rows for three in made for rows in three]).tolist()) == list(range(len(clients)))


def test_the_expected_share_of_a_class_with_one_or_two_rows_is_right():
    labels = np.array(([0] * 8 + [1, 1]) * 200 + ([0] * 9 + [1]) * 200)
    parts = np.split(np.arange(4000), 400)
    made = hold_out(list(parts), 0.2, 1, labels, validation_share=0.16)
    for rows, share in ((made.test, 0.2), (made.validation, 0.16)):
        positives = [labels[part].sum() for part in rows]
        assert np.mean(positives[:200]) / 2 == pytest.approx(share, abs=0.06)
        assert np.mean(positives[200:]) == pytest.approx(share, abs=0.08)


def test_validation_rows_are_taken_from_the_training_rows_and_leave_the_test_rows_alone():
    one, other = (federate(digits(), Iid(5), seed=2, validation_share=share) for share in (0.0, 0.16))
    assert one.test_rows.tolist() == other.test_rows.tolist()
    assert one.validation is None
    assert one.validation_rows is None
    assert other.validation.sizes.sum() == pytest.approx(0.16 * 1797, abs=3)
    rows = np.concatenate([other.train_rows, other.validation_rows, other.test_rows])
    assert sorted(rows.tolist()) == list(range(1797))
    x = digits().train.x
    for part, numbers in ((other.train, other.train_rows), (other.validation, other.validation_rows)):
        assert (part.x.numpy() == x[numbers]).all()


@pytest.mark.parametrize("key", ["validation_share", "test_share"])
def test_a_share_that_leaves_nothing_is_refused(key):
    with pytest.raises(BadInput, match="validation_share"):
        federate(digits(), Iid(3), **{"test_share": 0.4, "validation_share": 0.5, key: 0.6})


def hospitals(shared: bool = False) -> Dataset:
    """Three hospitals with patients; row i has feature i. If `shared`, patient 0 was at all three."""
    rows = np.arange(90)
    patient = np.where(shared & (rows % 30 < 2), 0, 1 + rows // 3)
    names = np.array(["lake", "hill", "town"])[rows // 30]
    table = Table.of(rows[:, None], rows % 5 == 0, {"site": names, "patient": patient}, ("no", "yes"))
    return Dataset("hospitals", table, None, "", "", together="patient")


@pytest.mark.parametrize("stratify", [False, True])
def test_a_test_client_is_not_trained_on(stratify):
    data = federate(
        hospitals(), Natural("site"), seed=1, stratify=stratify, validation_share=0.2, test_clients=["lake"]
    )
    assert data.names == ("hill", "town")
    assert data.test_names == ("hill", "town", "lake")
    assert data.count == data.train.count == data.validation.count == 2
    assert data.test.sizes[2] == 30
    assert data.test.client(2)[0].ravel().tolist() == list(range(30))
    assert data.train_rows.min() >= 30
    assert data.test_units.tolist() == (1 + data.test_rows // 3).tolist()
    assert not set(data.test_units) & set(1 + data.train_rows // 3)
    assert not set(data.validation_units) & set(1 + data.train_rows // 3)
    report = describe(data)
    assert report.test_clients == {"lake": 30}
    assert "test only" in report.text()
    assert f"{len(data.validation.x)} validation and {len(data.test.x)} test rows" in report.headline()
    assert len(report.test_sizes) == len(report.validation_sizes) == 2
    one = data.pooled()
    assert one.test_names == one.names == ("all rows",)
    assert len(one.validation.x) == len(data.validation.x)


def test_a_patient_of_a_test_client_is_a_test_patient_everywhere():
    data = federate(hospitals(shared=True), Natural("site"), test_share=0.0, test_clients=["lake"])
    assert data.test.sizes.tolist() == [2, 2, 30]
    table = hospitals().train
    same = Table(table.x, table.y, {**table.columns, "person": np.zeros(90)}, table.classes)
    with pytest.raises(BadInput, match=r"test_clients.*'hill' no rows to train on"):
        federate(Dataset("d", same, None, "", "", together="person"), Natural("site"), test_clients=["lake"])


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["lak"], "did you mean 'lake'"),
        (["sea"], "is no client"),
        ("lake", "list of names"),
        (["lake", "hill", "town"], "leaves no client"),
    ],
)
def test_wrong_test_clients_are_refused(names, text):
    with pytest.raises(BadInput, match=f"^test_clients.*{text}"):
        federate(hospitals(), Natural("site"), test_clients=names)


def test_beside_an_official_test_table():
    table = hospitals().train
    both = Dataset("d", table, table, "", "", together="patient")
    data = federate(both, Natural("site"), validation_share=0.2)
    assert data.test_rows.tolist() == np.argsort(table.columns["site"], kind="stable").tolist()
    assert data.validation.sizes.tolist() == [6, 6, 6]
    assert data.test_units.tolist() == table.columns["patient"][data.test_rows].tolist()
    with pytest.raises(BadInput, match="test rows of their own"):
        federate(both, Natural("site"), test_clients=["lake"])


def test_row_numbers_of_a_split_that_leaves_rows_out_are_those_of_the_data_set():
    rows = np.arange(400)
    table = Table.of(rows[:, None], rows % 4, classes=("a", "b", "c", "d"))
    data = federate(Dataset("four", table, None, "", ""), Imbalanced(2, 0.2), validation_share=0.1)
    for part, numbers in (
        (data.train, data.train_rows),
        (data.validation, data.validation_rows),
        (data.test, data.test_rows),
    ):
        assert part.x.ravel().tolist() == numbers.tolist()


def test_what_changes_data_keeps_the_parts():
    data = federate(diabetes(), Iid(4), validation_share=0.2)
    double = cast(data, "float64")
    assert str(double.validation.x.dtype) == str(double.test.x.dtype) == "torch.float64"
    noisy = Noise(variance=1.0).apply(data)
    assert (noisy.validation.x == data.validation.x).all()
    first = first_sources(data, 2)
    assert first.validation.sizes.tolist() == [data.validation.sizes[0], data.validation.sizes[1:].sum()]
    assert len(first.train_rows) == len(first.train.x)
    assert first.test_names == data.names[:2]
