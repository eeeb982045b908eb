"""The two sets of MedMNIST."""

from __future__ import annotations

import numpy as np
import pytest

from fedsaddle.data.sets import pictures as medmnist
from fedsaddle.errors import MissingData


@pytest.mark.data
@pytest.mark.parametrize(
    ("load", "train", "validation", "test", "positives"),
    [(medmnist.pneumoniamnist, 4708, 524, 624, (3494, 390)), (medmnist.breastmnist, 546, 78, 156, (147, 42))],
)
def test_the_official_rows(load, train, validation, test, positives, real_data):
    data = load()
    data.check()
    assert (len(data.train), len(data.test)) == (train, test)
    assert (int(data.train.y.sum()), int(data.test.y.sum())) == positives
    assert data.train.x.shape[1:] == (784,)
    assert 0 <= data.train.x.min() < data.train.x.max() <= 1
    pictures = load(images=True, validation=True)
    assert pictures.train.x.shape == (train + validation, 1, 28, 28)
    assert np.array_equal(pictures.train.x[:train].reshape(train, -1), data.train.x)


def test_a_missing_file_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(MissingData, match=r"pneumoniamnist\.npz"):
        medmnist.pneumoniamnist()
