from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fedsaddle.array_types import Ints
from fedsaddle.data.sets.sklearn_sets import diabetes, digits
from fedsaddle.data.splits import ByClass, ByColumn, Dirichlet, Iid, Natural, Sorted, Split
from fedsaddle.data.splits.partition import allocate
from fedsaddle.data.table import Table
from fedsaddle.errors import BadInput

Tables = tuple[Table, Table]

SPLITS: list[Split] = [
    Iid(7),
    ByClass(5),
    ByClass(12),
    ByClass(7, classes_per_client=2),
    ByClass(9, classes_per_client=4),
    Dirichlet(6, 0.5),
    Dirichlet(10, 0.1, min_size=5),
    Sorted(8),
    Sorted(11, share=0.5, column="sex"),
    ByColumn("sex"),
    ByColumn("sex", clients=10),
    Natural("sex"),
]


def _classes(table: Table, parts: list[Ints]) -> list[list[int]]:
    return [np.unique(table.y[rows]).tolist() for rows in parts]


def _counts(table: Table, parts: list[Ints]) -> Ints:
    return np.stack([np.bincount(table.y[rows], minlength=len(table.classes)) for rows in parts])


@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_every_row_goes_to_exactly_one_client(split: Split, made_up: Tables) -> None:
    train, test = made_up
    parts, test_parts = split.assign(train, test, seed=3)
    assert test_parts is not None
    assert len(parts) == len(test_parts) == len(split.names(train))
    assert np.sort(np.concatenate(parts)).tolist() == list(range(len(train)))
    assert np.sort(np.concatenate(test_parts)).tolist() == list(range(len(test)))
    assert min(map(len, parts)) > 0
    assert all((np.diff(rows) > 0).all() for rows in parts)


@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_the_seed_decides(split: Split, made_up: Tables) -> None:
    train, test = made_up

    def as_lists(seed: int, table: Table | None = test) -> list[list[int]]:
        return [rows.tolist() for rows in split.assign(train, table, seed)[0]]

    assert as_lists(3) == as_lists(3)
    assert as_lists(3) == as_lists(3, None)  # the test table does not disturb the training rows
    fixed = isinstance(split, Natural) or split in (ByColumn("sex"), ByClass(5))
    assert (as_lists(3) == as_lists(4)) is fixed


def test_a_negative_seed_is_refused(made_up: Tables) -> None:
    with pytest.raises(BadInput, match="seed = -1"):
        Iid(3).assign(made_up[0], None, seed=-1)


@pytest.mark.parametrize("split", SPLITS, ids=repr)
def test_client_names_differ(split: Split, made_up: Tables) -> None:
    names = split.names(made_up[0])
    assert len(set(names)) == len(names)


def test_cut_sums_and_stays_within_one_of_the_share() -> None:
    rng = np.random.default_rng(0)
    for rows in (0, 1, 7, 1000):
        shares = rng.dirichlet(np.full(13, 0.3))
        counts = allocate(rows, shares)
        assert counts.sum() == rows
        assert (counts >= 0).all()
        assert np.abs(counts - shares * rows).max() <= 1


def test_iid_is_even_and_mixed(made_up: Tables) -> None:
    train, test = made_up
    parts, test_parts = Iid(7).assign(train, test, 0)
    assert test_parts is not None
    for dealt in (parts, test_parts):
        sizes = [len(rows) for rows in dealt]
        assert max(sizes) - min(sizes) <= 1
    shares = _counts(train, parts) / [[len(rows)] for rows in parts]
    assert np.abs(shares - np.bincount(train.y) / len(train)).max() < 0.08


def test_more_clients_than_test_rows_leave_some_without(made_up: Tables) -> None:
    train, test = made_up
    parts, test_parts = Iid(1000).assign(train, test, 0)
    assert test_parts is not None
    assert {len(rows) for rows in parts} == {3}
    assert {len(rows) for rows in test_parts} == {0, 1}


def test_one_class_per_client_in_order() -> None:
    table = digits().train
    split = ByClass(10)
    parts, test_parts = split.assign(table, None, 5)
    assert test_parts is None
    assert _classes(table, parts) == [[c] for c in range(10)]
    assert [len(rows) for rows in parts] == np.bincount(table.y).tolist()
    assert split.names(table) == tuple(f"class {c}" for c in range(10))
    assert ByClass(12).names(table)[:3] == ("class 0 (1)", "class 1 (1)", "class 2")
    assert ByClass(12).names(table)[-1] == "class 1 (2)"


def test_more_clients_than_classes_share_a_class_evenly(made_up: Tables) -> None:
    train, test = made_up
    parts, test_parts = ByClass(12).assign(train, test, 0)
    assert test_parts is not None
    assert _classes(train, parts) == [[i % 5] for i in range(12)]
    for table, dealt in ((train, parts), (test, test_parts)):
        sizes = [len(dealt[i]) for i in (0, 5, 10)]
        assert sum(sizes) == (table.y == 0).sum()
        assert max(sizes) - min(sizes) <= 1
    assert ByClass(12).names(train)[:6] == ("a 1", "b 1", "c 1", "d 1", "e 1", "a 2")


@pytest.mark.parametrize(("clients", "k"), [(10, 2), (7, 3), (3, 4), (100, 2), (4, 10), (13, 9)])
@pytest.mark.parametrize("seed", range(5))
def test_several_classes_per_client(clients: int, k: int, seed: int) -> None:
    table = digits().train
    parts, _ = ByClass(clients, k).assign(table, None, seed)
    held = _classes(table, parts)
    assert {len(classes) for classes in held} == {k}
    holders = np.bincount(np.concatenate(held), minlength=10)
    assert holders.max() - holders.min() <= 1
    assert holders.min() >= 1


def test_the_pairs_of_classes_change_with_the_seed() -> None:
    table = digits().train
    pairs = {tuple(map(tuple, _classes(table, ByClass(10, 2).assign(table, None, s)[0]))) for s in range(4)}
    assert len(pairs) == 4


def test_dirichlet_extremes() -> None:
    table = digits().train

    def largest_share(alpha: float) -> float:
        counts = _counts(table, Dirichlet(10, alpha).assign(table, None, 0)[0])
        return float((counts / counts.sum(0)).max(axis=0).mean())

    assert largest_share(1e6) == pytest.approx(0.1, abs=0.01)
    assert largest_share(0.05) > 0.6
    assert largest_share(0.05) > largest_share(1.0) > largest_share(1e6)


def test_dirichlet_test_rows_follow_the_training_shares(made_up: Tables) -> None:
    train, test = made_up
    parts, test_parts = Dirichlet(6, 0.3).assign(train, test, 1)
    assert test_parts is not None
    a, b = _counts(train, parts), _counts(test, test_parts)
    expected = a / a.sum(0) * b.sum(0)
    assert np.abs(b - expected).max() <= 1.5
    assert np.abs(a / a.sum(0) - 1 / 6).max() > 0.3  # the shares are far from even, so that this says something


def test_dirichlet_draws_again_until_every_client_has_enough() -> None:
    table = digits().train
    free = min(map(len, Dirichlet(10, 0.1).assign(table, None, 0)[0]))
    assert free < 60
    assert min(map(len, Dirichlet(10, 0.1, min_size=60).assign(table, None, 0)[0])) >= 60
    with pytest.raises(BadInput, match=r"alpha = 0.001: 100 draws.*larger alpha"):
        Dirichlet(50, 0.001).assign(table, None, 0)


def test_five_female_and_five_male(made_up: Tables) -> None:
    train, test = made_up
    split = ByColumn("sex", clients=10)
    parts, test_parts = split.assign(train, test, 0)
    assert test_parts is not None
    for table, dealt in ((train, parts), (test, test_parts)):
        values = [np.unique(table.columns["sex"][rows]).tolist() for rows in dealt]
        assert values == [["Female"]] * 5 + [["Male"]] * 5
    assert [len(rows) for rows in parts] == [200] * 5 + [400] * 5
    assert split.names(train)[:2] == ("Female 1", "Female 2")
    assert split.names(train)[-1] == "Male 5"


def test_the_odd_client_goes_to_the_larger_value(made_up: Tables) -> None:
    names = ByColumn("sex", clients=3).names(made_up[0])
    assert names == ("Female", "Male 1", "Male 2")


def test_natural_is_one_client_per_value_by_name() -> None:
    table = diabetes().train
    parts, _ = Natural("sex").assign(table, None, 0)
    assert [len(rows) for rows in parts] == [235, 207]
    assert Natural("sex").names(table) == ("sex 1", "sex 2")
    assert Natural().column == "client"


def test_a_value_without_test_rows_is_allowed_and_one_without_training_rows_is_not(made_up: Tables) -> None:
    train, test = made_up
    women = np.flatnonzero(test.columns["sex"] == "Female")
    only = Table(test.x[women], test.y[women], {"sex": test.columns["sex"][women]}, test.classes)
    _, test_parts = Natural("sex").assign(train, only, 0)
    assert test_parts is not None
    assert [len(rows) for rows in test_parts] == [200, 0]
    with pytest.raises(BadInput, match="test column 'sex' = 'Male'"):
        Natural("sex").assign(only, test, 0)


@pytest.mark.parametrize(
    ("split", "message"),
    [
        (lambda: Iid(0), "clients = 0: must be a whole number of at least 1"),
        (lambda: Iid(3001), "clients = 3001: there are only 3000 training rows"),
        (lambda: ByClass(0), "clients = 0"),
        (lambda: ByClass(5, 6), "classes_per_client = 6: the data has 5 classes"),
        (lambda: ByClass(5, 0), "classes_per_client = 0"),
        (lambda: ByClass(2, 2), "clients = 2: .*at least 3 clients"),
        (lambda: ByClass(2000), "clients = 2000: class 'd' has .* rows for 400 clients"),
        (lambda: Dirichlet(5, 0.0), "alpha = 0.0: must be a positive number"),
        (lambda: Dirichlet(5, -1.0), "alpha = -1.0"),
        (lambda: Dirichlet(5, float("nan")), "alpha = nan"),
        (lambda: Dirichlet(5, 1.0, min_size=601), "min_size = 601: 3000 rows for 5 clients allow 1 to 600"),
        (lambda: Dirichlet(5, 1.0, min_size=0), "min_size = 0"),
        (lambda: ByColumn("race"), "column = 'race': .*there are: sex"),
        (lambda: Natural("race"), "column = 'race'"),
        (lambda: ByColumn("sex", clients=1), "clients = 1: column 'sex' has 2 values"),
        (lambda: ByColumn("sex", clients=2500), "clients = 2500: value 'Female' has 1000 rows for 1250 clients"),
    ],
)
def test_bad_parameters_are_refused(split: Callable[[], Split], message: str, made_up: Tables) -> None:
    with pytest.raises(BadInput, match=message):
        split().assign(made_up[0], None, 0)


@pytest.mark.parametrize("split", [ByClass(2), Dirichlet(2, 1.0)])
def test_splits_by_class_need_one_class_per_row(split: Split) -> None:
    with pytest.raises(BadInput, match="the data has a regression target"):
        split.assign(diabetes().train, None, 0)
    text = Table(np.zeros((4, 3), np.int64), np.zeros((4, 3), np.int64), {}, ("a", "b"))
    with pytest.raises(BadInput, match="the data has sequences of classes"):
        split.assign(text, None, 0)


def test_a_hundred_thousand_clients_take_no_time() -> None:
    clients = np.arange(300_000) % 100_000
    table = Table.of(np.zeros((300_000, 1)), np.zeros(300_000), {"client": clients})
    parts, _ = Natural().assign(table, None, 0)
    assert len(parts) == 100_000
    assert parts[17].tolist() == [17, 100_017, 200_017]


def test_sorted_rows_are_neighbours_in_the_order_of_classes(made_up: Tables) -> None:
    train = made_up[0]
    whole, _ = Sorted(10, share=1.0).assign(train, None, 0)
    assert [len(rows) for rows in whole] == [300] * 10
    lowest = [int(train.y[rows].min()) for rows in whole]
    highest = [int(train.y[rows].max()) for rows in whole]
    assert all(a <= b for a, b in zip(highest, lowest[1:], strict=False))
    most = _counts(train, Sorted(10, share=0.9).assign(train, None, 0)[0])
    assert (most.sum(1) == 300).all()
    assert (most.max(1) >= 135).all()  # at the border of two classes half of the 270 sorted rows at least are of one
    assert ((most > 0).sum(1) >= 3).all()  # the tenth dealt out at random brings others
    mixed = _counts(train, Sorted(10, share=0.0).assign(train, None, 0)[0])
    assert np.abs(mixed / 300 - np.bincount(train.y) / 3000).max() < 0.1


def test_sorted_by_a_column(made_up: Tables) -> None:
    train = made_up[0]
    parts, _ = Sorted(3, share=1.0, column="sex").assign(train, None, 0)
    assert [set(train.columns["sex"][rows]) for rows in parts] == [{"Female"}, {"Male"}, {"Male"}]


@pytest.mark.parametrize(
    ("split", "key"),
    [
        (lambda: Sorted(0), "clients"),
        (lambda: Sorted(3, share=1.1), "share"),
        (lambda: Sorted(3, column="age"), "column"),
    ],
)
def test_what_cannot_be_sorted(split: Callable[[], Split], key: str, made_up: Tables) -> None:
    with pytest.raises(BadInput) as caught:
        split().assign(made_up[0], None, 0)
    assert caught.value.key == key


def test_regression_is_sorted_by_a_column_only() -> None:
    table = diabetes().train
    with pytest.raises(BadInput, match="split = 'sorted'"):
        Sorted(3).assign(table, None, 0)
    assert len(Sorted(3, column="decade").assign(table, None, 0)[0]) == 3
