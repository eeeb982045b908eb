"""Noise in the training rows: shares, means and variances as asked for, the test rows as they were."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.config.build import build_data
from fedsaddle.config.schema import validate_config
from fedsaddle.data.federated import federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.sets.sklearn_sets import diabetes
from fedsaddle.data.splits import Iid
from fedsaddle.errors import BadInput


def clean(**options):
    return fs.load("digits", split="iid", clients=4, **options)


def test_the_share_of_flipped_labels_is_that_of_every_class():
    before, after = clean(), clean(noise=Noise(flipped_labels=0.2))
    wrong = before.train.y != after.train.y
    for c in range(10):
        own = before.train.y == c
        assert int(wrong[own].sum()) == round(0.2 * int(own.sum()))
    assert len(set(after.train.y[wrong].tolist())) == 10
    assert torch.equal(before.train.x, after.train.x)
    assert torch.equal(before.test.y, after.test.y)


def test_all_labels_of_two_classes_turned():
    before = fs.load("breast-cancer", clients=2)
    assert torch.equal(Noise(flipped_labels=1.0).apply(before).train.y, 1 - before.train.y)


def test_each_client_has_a_mean_of_its_own():
    before, after = clean(), clean(noise=Noise(mean=-0.08, mean_step=0.01, variance=0.04))
    for i in range(4):
        added = after.train.client(i)[0] - before.train.client(i)[0]
        few = 5 * 0.2 / np.sqrt(added.numel())
        assert float(added.mean()) == pytest.approx(-0.08 + 0.01 * i, abs=few)
        assert float(added.var()) == pytest.approx(0.04, rel=0.05)
    assert torch.equal(before.test.x, after.test.x)
    assert torch.equal(before.train.y, after.train.y)


def test_a_shift_without_variance_is_a_constant():
    before, after = clean(), clean(noise=Noise(mean=1.0, mean_step=0.5))
    torch.testing.assert_close(after.train.client(3)[0], before.train.client(3)[0] + 2.5)


def test_seeded_and_the_original_is_left_alone():
    data = clean()
    kept = data.train.x.clone(), data.train.y.clone()
    noise = Noise(flipped_labels=0.3, variance=1.0)
    one, same, other = (noise.apply(data, seed) for seed in (0, 0, 1))
    assert torch.equal(one.train.x, same.train.x)
    assert torch.equal(one.train.y, same.train.y)
    assert not torch.equal(one.train.x, other.train.x)
    assert not torch.equal(one.train.y, other.train.y)
    assert torch.equal(kept[0], data.train.x)
    assert torch.equal(kept[1], data.train.y)


def test_from_a_config():
    config = {
        "data": {"name": "digits"},
        "split": {"name": "iid", "clients": 4},
        "model": {"name": "logistic"},
        "algorithm": {"name": "FedAvg"},
        "noise": {"flipped_labels": 0.2, "mean": -0.08, "mean_step": 0.01, "variance": 0.04},
    }
    expected = clean(noise=Noise(flipped_labels=0.2, mean=-0.08, mean_step=0.01, variance=0.04))
    assert torch.equal(build_data(validate_config(config)).train.x, expected.train.x)
    config["noise"] = {"flipped_labels": 2.0}
    with pytest.raises(BadInput, match=r"noise\.flipped_labels = 2"):
        build_data(validate_config(config))
    config["noise"] = {"flipped": 0.2}
    with pytest.raises(BadInput, match=r"noise\.flipped.*did you mean 'flipped_labels'"):
        validate_config(config)


@pytest.mark.parametrize("options", [{"flipped_labels": -0.1}, {"variance": -1.0}, {"mean": float("nan")}])
def test_what_cannot_be_is_named(options):
    with pytest.raises(BadInput, match=next(iter(options))):
        Noise(**options)


def test_regression_has_no_labels_to_flip():
    with pytest.raises(BadInput, match="one class a row"):
        Noise(flipped_labels=0.1).apply(federate(diabetes(), Iid(2)))
