"""The features of a data set, as if all of its rows were training rows."""

from __future__ import annotations

from fedsaddle.data.table import Dataset


def fit_transform(data: Dataset) -> Dataset:
    return data.fit_transform()
