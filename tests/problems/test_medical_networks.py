"""Networks from MONAI, with BatchNorm, in every part of the library that a user meets."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.errors import MissingData
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models import networks


def test_without_monai_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "monai.networks.nets", None)
    with pytest.raises(MissingData, match=r"pip install .\.\[medical\]"):
        networks.resnet18(1, 28, 2)


@pytest.mark.parametrize("make", [networks.densenet121, networks.resnet18])
@pytest.mark.parametrize(("channels", "side"), [(1, 28), (3, 32)])
def test_shapes(make, channels, side):
    pytest.importorskip("monai")
    net = make(channels, side, 2).eval()
    assert net(torch.zeros(2, channels, side, side)).shape == (2, 2)


@pytest.mark.parametrize(("side", "zeros"), [(28, (2, 2)), (31, (0, 1)), (1, (15, 16))])
def test_small_pictures_are_centred_in_32_pixels_a_side(side, zeros):
    padded = networks._padded(nn.Identity(), side)(torch.ones(2, 3, side, side))
    torch.testing.assert_close(padded, nn.functional.pad(torch.ones(2, 3, side, side), zeros * 2))
    assert padded.shape[2:] == (32, 32)


@pytest.mark.parametrize("side", [32, 33, 64])
def test_larger_pictures_are_left_as_they_are(side):
    net = nn.Identity()
    assert networks._padded(net, side) is net


@pytest.mark.data
@pytest.mark.parametrize("make", [networks.densenet121, pytest.param(networks.resnet18, marks=pytest.mark.slow)])
def test_codasca_trains_them_on_pneumonia(make):
    """A few rounds, to show that it works: the weights and the running statistics of three hospitals move."""
    pytest.importorskip("monai")
    data = fs.load("pneumoniamnist", split="iid", clients=3, options={"images": True})
    few = np.concatenate([np.arange(24) + data.train.offsets[i] for i in range(3)])
    rows = fs.Stacked(data.train.x[few], data.train.y[few], np.array([0, 24, 48, 72]))
    torch.manual_seed(0)
    problem = MinimaxAuc(model=make(1, 28, 1).float(), positive_share=float(data.train.y.double().mean()))
    algorithm = fs.Codasca(problem=problem, local_steps=1, batch_size=8, primal_step=0.01)
    result = fs.run(algorithm, rows, 2, evaluate_every=2)
    before, after = problem.initial()[0], algorithm.model(result.server)
    tail = problem.flat.tail
    assert torch.isfinite(after).all()
    assert (after[:-tail] != before[:-tail]).float().mean() > 0.9
    assert (after[-tail - 2 : -2] != before[-tail - 2 : -2]).float().mean() > 0.9
    assert 0 <= result.summary["pooled"]["auroc"] <= 1
