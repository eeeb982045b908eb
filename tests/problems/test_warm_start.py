"""Two-stage training: a trained body under a fresh head."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedsaddle.errors import BadInput, MissingData
from fedsaddle.problems.models.papers import mlp
from fedsaddle.problems.models.warm_start import last_linear, trained_tensors, warm_started


def made(outputs: int, hidden: int = 5) -> nn.Module:
    return mlp(4, [hidden], outputs)


def test_the_body_is_taken_over_and_the_head_is_not():
    trained, fresh = made(2), made(1)
    head = {k: v.clone() for k, v in fresh.state_dict().items() if k.startswith(last_linear(fresh))}
    warm = warm_started(fresh, trained.state_dict()).state_dict()
    for key, value in warm.items():
        assert torch.equal(value, head[key] if key in head else trained.state_dict()[key])
    assert len(head) == 2


def test_running_statistics_come_along():
    def net() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 2))

    trained = net()
    trained[1].running_mean += 7
    assert torch.equal(warm_started(net(), trained.state_dict())[1].running_mean, trained[1].running_mean)


def test_another_network_is_refused():
    with pytest.raises(BadInput, match=r"start_from = '.*weight': has another shape: \(6, 4\) there, \(5, 4\) here"):
        warm_started(made(1), made(2, hidden=6).state_dict())
    with pytest.raises(BadInput, match="is not in the trained model"):
        warm_started(made(1), {})


def test_what_cannot_be_read(tmp_path):
    with pytest.raises(MissingData, match="name a finished run's folder"):
        trained_tensors(str(tmp_path))
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(BadInput, match="cannot be read"):
        trained_tensors(str(tmp_path))
    save_file({"a": torch.ones(2)}, tmp_path / "model.safetensors")
    assert torch.equal(trained_tensors(str(tmp_path))["a"], torch.ones(2))
