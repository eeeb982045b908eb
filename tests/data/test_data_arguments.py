"""Wrong arguments of everything public in `data` are refused by name; the examples in the docstrings run."""

from __future__ import annotations

import doctest
import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedsaddle.data.federated import federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.pictures import pictures
from fedsaddle.data.sets.adult import adult
from fedsaddle.data.sets.pictures import breastmnist, cifar10, cifar100, fashion_mnist, pneumoniamnist
from fedsaddle.data.sets.shakespeare import shakespeare
from fedsaddle.data.sets.sklearn_sets import diabetes, digits, iris, scanned_digits
from fedsaddle.data.sets.synthetic import nonconvex_pl, nonconvex_pl_table
from fedsaddle.data.splits import ByClass, ByColumn, Dirichlet, Iid, Imbalanced, Natural, PreparesData, Sorted, Split
from fedsaddle.data.table import Table
from fedsaddle.data.tables.own import from_file
from fedsaddle.errors import BadInput, MissingData

COUNTS: list[Any] = [0, -1, 1.5, 2.0, True, "ten", None, 2**70, 10**5000, math.nan, math.inf, [3], np.array([3, 4])]
NUMBERS: list[Any] = ["x", None, math.nan, math.inf, True, [1.0], 1j, 10**400]
FLAGS: list[Any] = ["yes", 1, 0, None, [True]]
SEEDS: list[Any] = [-1, 1.5, "x", None, True]
TEXTS: list[Any] = [1, "", b"x", ["x"], 1.5]
PATHS: list[Any] = [None, 3, "", b"x.csv", ["x.csv"]]


def refused(call: Any, key: str) -> None:
    with pytest.raises(BadInput) as error:
        call()
    assert error.value.key == key
    assert len(str(error.value)) < 1000
    assert "\n" not in str(error.value)


def each(values: list[Any], key: str, make: Any) -> list[Any]:
    return [pytest.param(make, key, value, id=f"{make.__name__}-{key}-{type(value).__name__}") for value in values]


def iid(**k: Any) -> Any:
    return Iid(**k)


def by_class(**k: Any) -> Any:
    return ByClass(**{"clients": 5, **k})


def dirichlet(**k: Any) -> Any:
    return Dirichlet(**{"clients": 5, "alpha": 1.0, **k})


def imbalanced(**k: Any) -> Any:
    return Imbalanced(**{"clients": 5, **k})


def sorted_split(**k: Any) -> Any:
    return Sorted(**{"clients": 5, **k})


def by_column(**k: Any) -> Any:
    return ByColumn(**{"column": "sex", **k})


@pytest.mark.parametrize(
    ("make", "key", "value"),
    [
        *each(COUNTS, "clients", iid),
        *each(COUNTS, "clients", by_class),
        *each(COUNTS, "classes_per_client", by_class),
        *each(COUNTS, "clients", dirichlet),
        *each([*NUMBERS, 0, -1.0], "alpha", dirichlet),
        *each(COUNTS, "min_size", dirichlet),
        *each(COUNTS, "clients", imbalanced),
        *each([*NUMBERS, 0, 1, -0.1], "imratio", imbalanced),
        *each(["cat", 3, {"cat"}, [1.5], [True], [None]], "positive", imbalanced),
        *each(FLAGS, "disjoint", imbalanced),
        *each(COUNTS, "clients", sorted_split),
        *each([*NUMBERS, -0.1, 1.1], "share", sorted_split),
        *each(TEXTS, "column", sorted_split),
        *each([c for c in COUNTS if c is not None], "clients", by_column),
        *each([*TEXTS, None], "column", by_column),
        *each([*TEXTS, None], "column", Natural),
        *each([*NUMBERS, -0.1, 1.1], "flipped_labels", Noise),
        *each(NUMBERS, "mean", Noise),
        *each(NUMBERS, "mean_step", Noise),
        *each([*NUMBERS, -0.1], "variance", Noise),
        *each(["hot", None, 1, ["onehot"]], "encoding", adult),
        *each(["Fine", None, 100], "labels", cifar100),
        *each(FLAGS, "images", cifar10),
        *each([1, 0, "both", None, [True], np.array([True, False])], "normalise", cifar10),
        *each(["cat", 3, [1.5], [True]], "positive", cifar10),
        *each([*(c for c in COUNTS if c is not None), 50_001], "first", cifar100),
        *each([*COUNTS, 31], "side", cifar100),
        *each(FLAGS, "images", fashion_mnist),
        *each(FLAGS, "normalise", fashion_mnist),
        *each(FLAGS, "images", pneumoniamnist),
        *each(FLAGS, "validation", breastmnist),
        *each(COUNTS, "sequence_length", shakespeare),
        *each([c for c in COUNTS if c is not None], "clients", shakespeare),
        *each(COUNTS, "min_windows", shakespeare),
        *each(SEEDS, "seed", shakespeare),
        *each([3, "", b"x"], "path", shakespeare),
        *each(FLAGS, "images", digits),
        *each([*COUNTS, 1, 10**6], "sites", scanned_digits),
        *each([-1, 11, 1.5, "x", None, True], "upside_down", scanned_digits),
        *each(FLAGS, "standardise_target", diabetes),
        *each(COUNTS, "clients", nonconvex_pl),
        *each(COUNTS, "rows", nonconvex_pl_table),
        *each(COUNTS, "dimension", nonconvex_pl),
        *each(SEEDS, "seed", nonconvex_pl),
    ],
)
def test_a_wrong_argument_is_named(make: Any, key: str, value: Any) -> None:
    refused(lambda: make(**{key: value}), key)


def test_more_made_up_rows_than_memory_are_refused() -> None:
    refused(lambda: nonconvex_pl(clients=2**40), "clients, rows, dimension")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dataset", None),
        ("dataset", "iris"),
        ("split", None),
        ("split", "iid"),
        ("split", Iid),
        *[("seed", s) for s in SEEDS],
        *[("test_share", s) for s in [*NUMBERS, -0.1, 1, 1.5]],
        *[("stratify", s) for s in FLAGS],
    ],
)
def test_a_wrong_argument_of_federate_is_named(key: str, value: Any) -> None:
    refused(lambda: federate(**{"dataset": iris(), "split": Iid(3), key: value}), key)


def test_wrong_arguments_of_what_federate_gives_are_named() -> None:
    data = federate(iris(), Iid(3))
    refused(lambda: Noise().apply(None), "data")  # type: ignore[arg-type]
    refused(lambda: Noise().apply(data, seed=-1), "seed")
    two = federate(scanned_two(), Iid(3))
    for share in (0, 1, "half", math.nan):
        refused(lambda share=share: two.balanced(share), "positives_per_batch")  # type: ignore[misc]


def scanned_two() -> Any:
    from dataclasses import replace

    from fedsaddle.data.splits.by_label import one_against_rest

    data = digits()
    return replace(data, train=one_against_rest(data.train, [np.int64(3), "5"]))


TABLE = "age,client,y\n1,a,0\n2,b,1\n3,a,1\n"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("path", p) for p in PATHS],
        *[("test_path", p) for p in PATHS if p is not None],
        *[("target", t) for t in [*TEXTS, None]],
        *[("client", t) for t in TEXTS if t != ""],
        *[("together", t) for t in TEXTS if t != ""],
        *[("features", f) for f in ["age", 3, [1], {"age": 1}]],
        *[("standardise", f) for f in FLAGS],
        *[("task", t) for t in ["class", None, 1, ["auto"]]],
        *[("delimiter", d) for d in ["", ",,", "\n", '"', 3, b","]],
        *[("hinges", h) for h in [-1, 21, 1.5, "2", None]],
        *[("site_intercept", s) for s in [1, "yes", None]],
        *[(key, c) for key in ("numeric", "categorical", "drop", "optional_columns") for c in ["age", [1], 3]],
        *[("positive", p) for p in [1.5, [1], b"1"]],
    ],
)
def test_a_wrong_argument_of_from_file_is_named(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE, encoding="utf-8")
    refused(lambda: from_file(**{"path": path, key: value}), key)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("path", p) for p in PATHS],
        *[("folder", p) for p in PATHS if p is not None],
        *[(key, t) for key in ("file", "target", "client") for t in [*TEXTS, None]],
        *[("together", t) for t in TEXTS],
        *[("size", s) for s in [0, -1, 1.5, True, "28", None, [28], [28, 0], [28, 28, 28], [28, 1.5], 4097, 2**70]],
        *[("colour", f) for f in FLAGS],
        *[("standardise", f) for f in FLAGS],
        *[("positive", p) for p in [1.5, [1]]],
        *[("delimiter", d) for d in ["", ",,"]],
    ],
)
def test_a_wrong_argument_of_pictures_is_named(tmp_path: Path, key: str, value: Any) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("file,label,site\n1.png,a,x\n", encoding="utf-8")
    refused(lambda: pictures(**{"path": path, key: value}), key)


def test_paths_may_be_text_or_paths(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(TABLE, encoding="utf-8")
    assert len(from_file(str(path)).train) == len(from_file(path).train) == 3
    with pytest.raises(MissingData):
        from_file("nowhere.csv")


@pytest.mark.parametrize("split", [Iid(10**12), Dirichlet(10**12, 1.0), Sorted(10**12), Imbalanced(10**12)])
def test_far_more_clients_than_rows_are_refused_at_once(split: Any) -> None:
    refused(lambda: federate(iris(), split), "clients")
    refused(lambda: split.names(iris().train), "clients")


def test_numbers_of_numpy_will_do() -> None:
    one = federate(iris(), Dirichlet(np.int64(3), np.float64(1.0)), seed=np.int64(1), test_share=np.float64(0.2))  # type: ignore[arg-type]
    other = federate(iris(), Dirichlet(3, 1.0), seed=1, test_share=0.2)
    assert (one.train.x == other.train.x).all()


def test_what_a_split_can_do_is_in_its_type() -> None:
    splits = (Iid(2), ByClass(2), ByColumn("sex"), Dirichlet(2, 1.0), Natural(), Imbalanced(2), Sorted(2))
    assert all(isinstance(split, Split) for split in splits)
    assert [type(split) for split in splits if isinstance(split, PreparesData)] == [Imbalanced]


MODULES = (
    "store",
    "federated",
    "noise",
    "splits.partition",
    "splits.by_label",
    "tables.own",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_the_docstrings(name: str) -> None:
    found = doctest.testmod(importlib.import_module(f"fedsaddle.data.{name}"), extraglobs={"np": np, "Table": Table})
    assert found.attempted
    assert not found.failed
