"""Frozen parameters: no part of the vector, never moved, and stored with the model."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import fedsaddle as fs
from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.errors import BadInput
from fedsaddle.runs.checkpoints import shared_fingerprint
from small import classes, play, seeded


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Tanh())
        self.head = nn.Linear(5, 3)

    def forward(self, x):
        return self.head(self.features(x))


def network(*patterns):
    model = seeded(Network)
    with torch.no_grad():
        model.features[1].running_mean.copy_(torch.arange(5.0))
    return fs.freeze_(model, *patterns)


def fedavg(model, **options):
    return fs.FedAvg(problem=fs.Supervised(model, **options), local_steps=2, batch_size=3)


@pytest.mark.parametrize("pattern", ["features.*", "features", "feat*", "features.?"])
def test_only_the_rest_is_trained(pattern):
    algorithm = fedavg(network(pattern), l2=0.1)
    assert len(algorithm.problem.initial()) == 18
    before = {k: v.clone() for k, v in algorithm.problem.model.state_dict().items()}
    expected = play(algorithm, SerialEngine(classes()), 2)[-1].w
    torch.testing.assert_close(
        play(algorithm, VectorisedEngine(classes(), chunk=3), 2)[-1].w, expected, rtol=0, atol=1e-12
    )
    stored = algorithm.problem.module(expected).state_dict()
    assert stored.keys() == before.keys()
    assert all(torch.equal(stored[k], v) == k.startswith("features") for k, v in before.items())


def test_one_step_is_a_plain_step_of_torch():
    """With the penalty on what is trained alone, and BatchNorm's statistics as they were."""
    algorithm, rows = fedavg(network("features"), l2=0.5), classes((7,))
    site = fs.LocalSite.alone(rows, 0)
    batch, w = site.minibatch(0, 3), algorithm.problem.initial()
    model = network("features")
    penalty = 0.25 * sum(p.square().sum() for p in model.head.parameters())
    (nn.functional.cross_entropy(model(batch.x[0]), batch.y[0]) + penalty).backward()
    expected = torch.cat([p.grad.flatten() for p in model.head.parameters()])
    torch.testing.assert_close(algorithm.problem.gradient(w[None], batch)[0], expected, rtol=0, atol=1e-12)
    moved = algorithm.problem.value(w[None], batch)
    torch.testing.assert_close(
        moved[0], nn.functional.cross_entropy(model(batch.x[0]), batch.y[0]).detach() + penalty.detach()
    )


def test_a_frozen_batch_norm_needs_no_chunk_of_one():
    assert fs.Supervised(network("features")).tail == 0
    assert fs.Supervised(network("features.0")).tail == 10
    fs.RobustTraining(model=network("features"), shape=(4,))


def test_a_chain_with_a_frozen_layer():
    model = fs.freeze_(seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))), "0.weight")
    algorithm = fedavg(model)
    assert len(algorithm.problem.initial()) == 23
    a, b = (
        play(algorithm, engine, 2)[-1].w for engine in (SerialEngine(classes()), VectorisedEngine(classes(), chunk=3))
    )
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_a_frozen_layer_of_a_module_with_a_cohort_of_its_own():
    model = seeded(lambda: fs.models.CharacterGru(6, 3, 4))
    name = next(iter(dict(model.named_parameters())))
    flat = fs.Supervised(fs.freeze_(model, name)).flat
    w, x = flat.initial().expand(2, -1).clone(), torch.randint(6, (2, 3, 5))
    torch.testing.assert_close(flat.scores(w, x)[1], flat.scores(w[1:], x[1:])[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("patterns", [("0", "1"), ("0", "1.*"), ("0.*", "1.weight", "1.bias")], ids=str)
def test_a_batch_norm_all_of_whose_parameters_are_frozen_keeps_its_statistics(patterns):
    model = nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.Linear(5, 3))
    assert fs.Supervised(fs.freeze_(model, *patterns)).dimension == 18
    assert (
        fs.Supervised(fs.freeze_(nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 3)), "0.bias")).dimension == 4 + 15 + 8
    )


def test_what_does_not_match():
    with pytest.raises(BadInput, match=r"frozen = 'feature.x': matches no parameter; names .* are 'features"):
        network("feature.x")
    with pytest.raises(BadInput, match="frozen = 3: must be a list of names"):
        network(3)
    with pytest.raises(BadInput, match="model = 'Network': all its parameters are frozen; leave some to train"):
        fs.Supervised(network("*"))


def test_everybody_must_have_the_same_frozen_part():
    same, other = fedavg(network("features")), network("features")
    with torch.no_grad():
        other.features[0].weight[0, 0] += 1
    found = [shared_fingerprint(a, 3, 0) for a in (same, fedavg(network("features")), fedavg(other))]
    assert found[0] == found[1] != found[2]


def from_config(**model):
    config = {
        "data": {"name": "iris"},
        "split": {"name": "iid", "clients": 3},
        "problem": {"name": "supervised", "loss": {"name": "cross-entropy", "weight": [1, 2, 3]}},
        "model": {"name": "mlp", "hidden": [4], **model},
        "algorithm": {"name": "FedAvg"},
    }
    return build(validate_config(config))


def test_in_a_config(tmp_path):
    built = from_config(frozen=["1.*"])
    result = fs.run(built.algorithm, built.data, 1, out=tmp_path, options=fs.RunOptions(report=False))
    assert len(result.model) == 15
    stored = load_file(tmp_path / "model.safetensors")
    assert torch.equal(stored["1.weight"], dict(from_config().algorithm.problem.model.named_parameters())["1.weight"])
    again = from_config(frozen=["1"], start_from=str(tmp_path))
    assert torch.equal(again.algorithm.problem.initial(), result.model)
    with pytest.raises(BadInput, match=r"model.frozen = 'layer1': matches no parameter"):
        from_config(frozen=["layer1"])
    with pytest.raises(BadInput, match=r"model.frozen = '1': must be a list"):
        from_config(frozen="1")


class Lora(nn.Module):
    """A linear layer that is frozen, with an adapter of low rank beside it."""

    def __init__(self, base, rank=2):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down, self.up = (
            nn.Linear(base.in_features, rank, bias=False),
            nn.Linear(rank, base.out_features, bias=False),
        )
        self.dropout = nn.Dropout(0.2)

    def forward(self, x):
        return self.base(x) + self.up(self.down(self.dropout(x)))


def test_adapters_by_hand():
    algorithm = fedavg(seeded(lambda: nn.Sequential(Lora(nn.Linear(4, 5)), nn.Tanh(), Lora(nn.Linear(5, 3)))))
    assert len(algorithm.problem.initial()) == 2 * (4 + 5) + 2 * (5 + 3)
    a, b = (
        play(algorithm, engine, 2)[-1].w for engine in (SerialEngine(classes()), VectorisedEngine(classes(), chunk=3))
    )
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_adapters_of_peft():
    peft = pytest.importorskip("peft")

    def make():
        base = seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)))
        settings = peft.LoraConfig(r=2, target_modules=["0"], lora_dropout=0.1, modules_to_save=["2"])
        torch.manual_seed(0)
        return fedavg(peft.get_peft_model(base, settings).double())

    assert len(make().problem.initial()) == 2 * (4 + 5) + 18
    a, b = (play(make(), engine, 2)[-1].w for engine in (SerialEngine(classes()), VectorisedEngine(classes(), chunk=3)))
    torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert not torch.equal(a, make().problem.initial())
    merged = make().problem.module(a).merge_and_unload()
    rows = classes()
    scores = make().problem.flat.scores(a[None], rows.x[None])[0]
    torch.testing.assert_close(merged.eval()(rows.x), scores, rtol=0, atol=1e-10)
