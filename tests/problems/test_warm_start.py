"""Two-stage training: a trained body under a fresh head."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.models.transfer import trained_tensors, warm_started


def made(outputs: int, hidden: int = 5) -> nn.Module:
    return mlp(4, [hidden], outputs)


@pytest.mark.parametrize(("outputs", "head"), [(2, "auto"), (2, "fresh"), (1, "fresh")])
def test_the_body_is_taken_over_and_a_head_of_other_shapes_or_a_fresh_one_is_not(outputs, head):
    trained, fresh = made(outputs), made(1)
    top = {k: v.clone() for k, v in fresh.state_dict().items() if v.shape[0] == 1}
    warm = warm_started(fresh, trained.state_dict(), head).state_dict()
    for key, value in warm.items():
        assert torch.equal(value, top[key] if key in top else trained.state_dict()[key])
    assert len(top) == 2


def test_a_head_of_the_same_shapes_is_taken_over():
    trained = made(1)
    warm = warm_started(made(1), trained.state_dict()).state_dict()
    assert all(torch.equal(value, trained.state_dict()[key]) for key, value in warm.items())


def test_a_model_that_is_one_layer():
    trained = nn.Linear(3, 1)
    assert torch.equal(warm_started(nn.Linear(3, 1), trained.state_dict()).weight, trained.weight)
    with pytest.raises(BadInput, match=r"start_from.*only layer"):
        warm_started(nn.Linear(3, 2), trained.state_dict())


def test_a_model_without_a_linear_layer():
    trained = nn.Conv1d(2, 3, 1)
    assert torch.equal(warm_started(nn.Conv1d(2, 3, 1), trained.state_dict()).weight, trained.weight)
    with pytest.raises(BadInput, match=r"head = 'fresh'.*no linear layer"):
        warm_started(nn.Conv1d(2, 3, 1), trained.state_dict(), "fresh")


def test_an_unknown_head_is_refused():
    with pytest.raises(BadInput, match="head = 'new': choose one of auto, fresh"):
        warm_started(made(1), made(1).state_dict(), "new")


@pytest.mark.parametrize("head", [None, "fresh"])
def test_a_config_starts_from_a_file(head, tmp_path):
    start = {"start_from": str(tmp_path / "model.safetensors")} | ({} if head is None else {"head": head})
    config = {
        "data": {"name": "iris"},
        "split": {"name": "iid", "clients": 3},
        "model": {"name": "mlp", "hidden": [5], **start},
        "algorithm": {"name": "FedAvg"},
    }
    trained = mlp(4, [5], 3)
    save_file(trained.state_dict(), tmp_path / "model.safetensors")
    problem = build(validate_config(config)).algorithm.problem
    model = problem.module(problem.initial()).state_dict()
    taken = [torch.equal(model[key], value.float()) for key, value in trained.state_dict().items()]
    assert taken == [True, True, head is None, head is None]
    config["model"].pop("start_from")
    if head is not None:
        with pytest.raises(BadInput, match=r"model.head = 'fresh'.*start_from"):
            build(validate_config(config))


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
