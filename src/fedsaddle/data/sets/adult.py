"""UCI Adult: does a person of the 1994 US census earn more than 50,000 dollars a year?"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Literal

import numpy as np

from fedsaddle.arguments import choice
from fedsaddle.data.sets.locate import PublicFile
from fedsaddle.data.table import GROUP, Array, Dataset, Scale, Table, one_hot, ordinal

FEATURES = (
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education-num",
    "marital-status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital-gain",
    "capital-loss",
    "hours-per-week",
    "native-country",
)
NUMERIC = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")
CLASSES = ("<=50K", ">50K")

_SOURCE = "UCI dataset 2 'Adult' (Becker and Kohavi, 1996, doi 10.24432/C5XW20)"
_SHA256 = {
    "adult.data": "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
    "adult.test": "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05",
}


def adult(encoding: Literal["ordinal", "onehot"] = "ordinal", groups: Sequence[str] = ()) -> Dataset:
    """32,561 training and 16,281 test rows; class 1 earns more than 50,000 dollars.

    "ordinal": 14 features. A category becomes its place among the sorted categories of the training set,
    where '?' is a category too; then each feature is standardised with the training mean and deviation.
    "onehot": one 0/1 feature per category, and the 6 numeric columns standardised as above.
    Rows with '?' are kept. One can split by the eight columns of categories, such as sex and race.

    Args:
        encoding: Categories as numbers (14 features) or as 0/1 features (108).
        groups: Columns of categories for whose values figures are reported apart, such as the sex.
    """
    choice("encoding", encoding, ("ordinal", "onehot"))
    train, test = (parse_adult(_read(name)) for name in ("adult.data", "adult.test"))
    categories = [k for k in FEATURES if k not in NUMERIC]
    for name in groups:
        choice("groups", name, categories)
    encode = _ordinal if encoding == "ordinal" else _one_hot
    x_train, x_test, features = encode(train, test)
    tables = [
        Table(x, _labels(raw), {k: raw[k] for k in categories} | {GROUP + k: raw[k] for k in groups}, CLASSES, features)
        for x, raw in ((x_train, train), (x_test, test))
    ]
    return Dataset("adult", tables[0], tables[1], _SOURCE, "CC BY 4.0")


def parse_adult(text: str) -> dict[str, Array]:
    """The 15 columns as strings; comment lines and empty lines are left out."""
    rows = [row for row in csv.reader(text.splitlines(), skipinitialspace=True) if len(row) == len(FEATURES) + 1]
    cells = zip(*rows, strict=True)
    return {name: np.array(column) for name, column in zip((*FEATURES, "income"), cells, strict=True)}


def _read(name: str) -> str:
    return PublicFile("adult", name, _SHA256[name], _SOURCE).read().decode("ascii")


def _labels(raw: dict[str, Array]) -> Array:
    # The labels of the test file end in a full stop.
    return np.char.startswith(raw["income"], ">50K").astype(np.int64)


def _ordinal(train: dict[str, Array], test: dict[str, Array]) -> tuple[Array, Array, tuple[str, ...]]:
    blocks = []
    for raw in (train, test):
        coded = [
            raw[name].astype(np.float64) if name in NUMERIC else ordinal(raw[name], np.unique(train[name]))
            for name in FEATURES
        ]
        blocks.append(np.stack(coded, axis=1))
    scale = Scale.fit(blocks[0])
    return scale.apply(blocks[0]), scale.apply(blocks[1]), FEATURES


def _one_hot(train: dict[str, Array], test: dict[str, Array]) -> tuple[Array, Array, tuple[str, ...]]:
    left: list[Array] = []
    right: list[Array] = []
    names: list[str] = []
    for name in FEATURES:
        if name in NUMERIC:
            fitted, other = (raw[name].astype(np.float64)[:, None] for raw in (train, test))
            scale = Scale.fit(fitted)
            left.append(scale.apply(fitted))
            right.append(scale.apply(other))
            names.append(name)
        else:
            categories = np.unique(train[name])
            left.append(one_hot(train[name], categories))
            right.append(one_hot(test[name], categories))
            names.extend(f"{name}={category}" for category in categories)
    return np.concatenate(left, axis=1), np.concatenate(right, axis=1), tuple(names)
