from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.data.federated import federate
from fedsaddle.data.sets.sklearn_sets import diabetes, digits
from fedsaddle.data.splits import ByClass, ByColumn, Dirichlet, Iid, Natural
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset, Table
from fedsaddle.data.tables.own import from_file
from fedsaddle.errors import BadInput


def _numbered_rows(rows: int, clients: int, **kind: object) -> Table:
    """Row i has the feature i, so that one can follow it."""
    client = np.arange(rows) % clients
    y = np.zeros(rows, np.float32)
    return Table(np.arange(rows, dtype=np.float32)[:, None], y, {"client": client}, **kind)  # type: ignore[arg-type]


def test_each_client_holds_out_its_share_of_its_own_rows() -> None:
    data = federate(Dataset("d", _numbered_rows(100, 4), None, "", ""), Natural(), seed=1, test_share=0.2)
    assert data.test is not None
    assert data.train.sizes.tolist() == [20] * 4
    assert data.test.sizes.tolist() == [5] * 4
    for i in range(4):
        ours = torch.cat([data.train.client(i)[0], data.test.client(i)[0]]).ravel()
        assert sorted(ours.tolist()) == list(range(i, 100, 4))


def test_the_held_out_rows_depend_on_the_seed_only() -> None:
    dataset = Dataset("d", _numbered_rows(100, 4), None, "", "")

    def held(seed: int) -> list[float]:
        test = federate(dataset, Natural(), seed=seed).test
        assert test is not None
        return test.x.ravel().tolist()

    assert held(1) == held(1)
    assert held(1) != held(2)


def test_a_client_with_one_row_trains_on_it_and_one_with_two_tests_one() -> None:
    client = np.array([0, 1, 1, 2, 2, 2, 2])
    table = Table.of(np.arange(7)[:, None], np.zeros(7), {"client": client})
    data = federate(Dataset("d", table, None, "", ""), Natural(), test_share=0.01)
    assert data.test is not None
    assert data.train.sizes.tolist() == [1, 1, 3]
    assert data.test.sizes.tolist() == [0, 1, 1]
    assert len(data.test.client(0)[0]) == 0
    most = federate(Dataset("d", table, None, "", ""), Natural(), test_share=0.99)
    assert most.train.sizes.tolist() == [1, 1, 1]


def test_no_share_no_test() -> None:
    data = federate(digits(), Iid(3), test_share=0)
    assert data.test is None
    assert data.train.sizes.sum() == 1797


def test_the_official_test_table_is_dealt_by_the_split(made_up: tuple[Table, Table]) -> None:
    dataset = Dataset("d", *made_up, "here", "free")
    data = federate(dataset, ByColumn("sex", clients=10), seed=0, test_share=0.5)
    assert data.test is not None
    assert data.train.sizes.tolist() == [200] * 5 + [400] * 5
    assert data.test.sizes.tolist() == [40] * 5 + [80] * 5
    assert data.names[0] == "Female 1"
    assert (data.source, data.licence, data.count) == ("here", "free", 10)


def test_types_and_labels_of_the_tensors() -> None:
    data = federate(digits(), ByClass(10))
    assert (data.train.x.dtype, data.train.y.dtype) == (torch.float32, torch.int64)
    assert all((data.train.client(i)[1] == i).all() for i in range(10))
    assert federate(diabetes(), Iid(4)).train.y.dtype == torch.float32
    codes = np.arange(60).reshape(12, 5) % 3
    text = Table(codes, codes, {"client": np.arange(12) % 3}, ("a", "b", "c"))
    data = federate(Dataset("t", text, None, "", ""), Natural())
    assert data.train.x.dtype == data.train.y.dtype == torch.int64
    assert data.train.y.shape == (12 - 3, 5)


def test_rows_keep_their_labels() -> None:
    dataset = digits()
    data = federate(dataset, Dirichlet(8, 0.3), seed=4)
    assert data.test is not None
    original = {row.tobytes(): label for row, label in zip(dataset.train.x, dataset.train.y, strict=True)}
    for part in (data.train, data.test):
        for x, y in zip(part.x.numpy(), part.y.tolist(), strict=True):
            assert original[x.tobytes()] == y


def test_read_only_arrays_are_taken_without_a_warning() -> None:
    table = _numbered_rows(10, 2)
    table.x.flags.writeable = False
    federate(Dataset("d", table, None, "", ""), Natural())


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_bad_shares_are_refused(share: float) -> None:
    with pytest.raises(BadInput, match="test_share"):
        federate(digits(), Iid(3), test_share=share)


def test_bad_rows_are_refused() -> None:
    table = _numbered_rows(10, 2)
    table.x[3] = np.nan
    with pytest.raises(BadInput, match="row 3"):
        federate(Dataset("d", table, None, "", ""), Natural())


def test_only_a_test_store_may_have_empty_clients() -> None:
    x, y = torch.zeros(3, 1), torch.zeros(3)
    parts = [np.array([0, 1, 2]), np.array([], dtype=np.int64)]
    assert Stacked.of(x, y, parts, allow_empty=True).sizes.tolist() == [3, 0]
    with pytest.raises(BadInput, match="rows of client 1 = 0: a client needs rows"):
        Stacked.of(x, y, parts)
    with pytest.raises(BadInput, match="rows of client 1 = -1"):
        Stacked(x, y, np.array([0, 4, 3]), allow_empty=True)


def test_stratified_test_rows_have_every_class_of_every_client() -> None:
    y = (np.arange(200) % 20 == 0).astype(np.int64)  # one row in twenty
    table = Table(np.arange(200, dtype=np.float32)[:, None], y, {"client": np.arange(200) // 100}, ("no", "yes"))
    dataset = Dataset("rare", table, None, "", "")
    data = federate(dataset, Natural(), seed=0, test_share=0.2, stratify=True)
    assert data.test is not None
    for part, positives, rows in ((data.train, 4, 80), (data.test, 1, 20)):
        assert part.sizes.tolist() == [rows, rows]
        assert [int(part.client(i)[1].sum()) for i in range(2)] == [positives, positives]
    both = torch.cat([data.train.x, data.test.x]).ravel()
    assert sorted(both.tolist()) == list(range(200))
    assert sorted(data.train.client(1)[0].ravel().tolist() + data.test.client(1)[0].ravel().tolist())[0] == 100


def test_stratified_clients_may_lack_a_class() -> None:
    table = Table.of(np.arange(9)[:, None], [0, 0, 0, 0, 1, 1, 1, 1, 0], {"client": np.arange(9) // 4}, ("no", "yes"))
    data = federate(Dataset("few", table, None, "", ""), Natural(), test_share=0.5, stratify=True)
    assert data.train.sizes.tolist() == [2, 2, 1]
    assert data.test is not None
    assert data.test.sizes.tolist() == [2, 2, 0]


def test_regression_cannot_be_stratified() -> None:
    with pytest.raises(BadInput, match="stratify"):
        federate(diabetes(), Iid(3), stratify=True)


def test_rows_of_a_patient_stay_together(tmp_path):
    chance = np.random.default_rng(1)
    patient = chance.integers(0, 60, 400)
    lines = [f"{h},{p},{p},{p % 7 == 0}" for h, p in zip(patient % 3, patient, strict=True)]
    (tmp_path / "t.csv").write_text("hospital,patient,age,ill\n" + "\n".join(lines) + "\n")
    data = from_file(tmp_path / "t.csv", "ill", "hospital", standardise=False, together="patient")
    for stratify in (False, True):
        made = federate(data, Natural("hospital"), seed=3, test_share=0.25, stratify=stratify)
        assert made.features == ("age",), "the patient is no feature"
        trained, tested = (set(rows.x[:, 0].tolist()) for rows in (made.train, made.test))
        assert not trained & tested
        assert len(trained | tested) == len(set(patient.tolist()))
        assert 0.15 < len(tested) / len(trained | tested) < 0.35
        if stratify:
            ill = [sum(p % 7 == 0 for p in made.test.client(i)[0][:, 0].tolist()) > 0 for i in range(3)]
            assert all(ill), "every hospital's test has an ill patient"
