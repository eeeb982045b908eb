"""Layers that stay at the clients: what the wrapper equals at special values, an oracle, and what the server sees."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.config.build import check_keys
from fedsaddle.config.schema import validate_config
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.federation.records import same, tensors
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.numerics.roc import ranking_measures
from small import classes, play, seeded, serial, vectorised

ROWS = classes()
LOCAL = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3}
engines = pytest.mark.parametrize("engine", [serial, vectorised])


def supervised() -> fs.Supervised:
    return fs.Supervised(seeded(lambda: nn.Linear(4, 3)))


def game() -> fs.MinimaxAuc:
    return fs.MinimaxAuc(model=seeded(lambda: fs.models.mlp(4, [5], 1)), positive_share=0.4)


def network() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2)))


PLAIN = {
    "FedAvg": lambda: fs.FedAvg(problem=supervised(), sampled_clients=4, **LOCAL),
    "FedAvgM": lambda: fs.FedAvg(problem=supervised(), sampled_clients=4, server_momentum=0.9, **LOCAL),
    "DRFA": lambda: fs.Drfa(problem=supervised(), sampled_clients=4, output="average", **LOCAL),
    "DRFA-GA": lambda: fs.DrfaGa(problem=supervised(), sampled_clients=4, **LOCAL),
    "TERM": lambda: fs.Term(problem=supervised(), sampled_clients=4, **LOCAL),
    "AAggFF-S": lambda: fs.AaggFf(problem=supervised(), server_step=1.5, **LOCAL),
    "PropFair": lambda: fs.PropFair(problem=supervised(), sampled_clients=4, **LOCAL),
    "Local SGDA": lambda: fs.LocalSgda(problem=game(), sampled_clients=4, **LOCAL),
    "Local SGDA+": lambda: fs.LocalSgda(problem=game(), snapshot_every=2, **LOCAL),
}


class Witness(Wrapper):
    """Keeps all that goes down and up."""

    def __init__(self, inner):
        super().__init__(inner)
        self.seen = []

    def ask(self, cohort, task, sent, *, weights=None):
        def told(own, sent, site):
            own, reply = task(own, sent, site)
            self.seen += [*tensors(sent), *((n, v[0]) for n, v in tensors(reply))]
            return own, reply

        told.__self__ = task.__self__
        return self.inner.ask(cohort, told, sent, weights=weights)


@engines
@pytest.mark.parametrize("name", PLAIN)
def test_no_local_layer_is_the_plain_algorithm(name, engine):
    rows = classes(classes=2) if "SGDA" in name else ROWS
    a, b = PLAIN[name](), fs.Personal(algorithm=PLAIN[name](), layers=[])
    for u, v in zip(play(a, engine(rows), 3), play(b, engine(rows), 3), strict=True):
        for f in fields(u):
            x, y = getattr(u, f.name), getattr(v, f.name)
            if isinstance(x, Tensor):
                torch.testing.assert_close(x, y, rtol=0, atol=1e-14)
            else:
                assert x == y


@pytest.mark.parametrize("name", PLAIN)
def test_no_message_carries_a_local_layer(name):
    """Nothing as long as a whole model, or as the local part, goes down or up; values of layers are nowhere in it."""
    rows, pattern = (classes(classes=2), "3.*") if "SGDA" in name else (ROWS, "bias")
    personal = fs.Personal(algorithm=PLAIN[name](), layers=[pattern])
    inner = SerialEngine(rows)
    witness = Witness(inner)
    play(personal, witness, 3)
    whole = len(personal.local) + len(personal.shared)
    lengths = {v.numel() for _, v in witness.seen}
    assert len(personal.shared) in lengths
    assert whole not in lengths
    own = torch.cat([record.layers for record in inner.memory.kept.values()])
    said = torch.cat([v.flatten().double() for _, v in witness.seen])
    assert not torch.isin(own, said).any()


def test_fedbn_keeps_scales_and_statistics():
    """Li et al. 2021: BatchNorm stays, all else is averaged."""
    rows = classes(classes=2)
    average = fs.FedAvg(problem=fs.Supervised(network()), local_steps=3, batch_size=4)
    bn = fs.Personal(algorithm=average, layers=["batch-norm"])
    assert bn.local_names == ("1.weight", "1.bias", "1.running_mean", "1.running_var")
    clients = SerialEngine(rows)
    states = play(bn, clients, 2)
    assert torch.equal(states[0].w[bn.local], states[-1].w[bn.local])
    layers = [r.layers for r in clients.memory.kept.values()]
    assert not torch.equal(layers[0], layers[1])
    assert all((v[-5:] > 0).all() and (v[-10:-5].abs() > 1e-4).all() for v in layers)


def test_figures_are_of_the_clients_own_models(tmp_path):
    data = fs.load("breast-cancer", split="iid", clients=3)
    problem = fs.Supervised(fs.models.logistic_regression(30, 2).float())
    personal = fs.Personal(algorithm=fs.FedAvg(problem=problem, **LOCAL), layers=["*weight"])
    result = fs.run(personal, data, 3, out=tmp_path / "run")
    expected, scores = [], []
    for i in range(3):
        x, y = data.test.client(i)
        z = result.client_module(i)(x).detach()
        expected.append(float((z.argmax(1) == y).double().mean()))
        scores.append(z[:, 1] - z[:, 0])
    assert result.summary["clients"]["test"]["measures"]["accuracy"] == pytest.approx(expected)
    pooled = ranking_measures(torch.cat(scores), data.test.y)
    assert result.summary["pooled"]["auroc"] == pytest.approx(pooled["auroc"])
    counted = result.summary["classes"]["counts"].values()
    right = sum(a * len(data.test.client(i)[1]) for i, a in enumerate(expected))
    assert sum(c["correct"] for c in counted) == round(right)
    assert torch.equal(result.model[personal.local], problem.initial()[personal.local])
    assert not torch.equal(result.client_model(0), result.client_model(1))
    assert result.summary["local_layers"] == ["1.weight"]
    assert (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize("select", [None, "worst accuracy"])
def test_resuming_and_choosing_a_round_keep_the_layers(tmp_path, select):
    data = fs.load("iris", split="iid", clients=3, validation_share=0.2)

    def run(rounds, folder, **options):
        problem = fs.Supervised(fs.models.logistic_regression(4, 3).float())
        personal = fs.Personal(algorithm=fs.FedAvg(problem=problem, **LOCAL), layers=["*bias"])
        return fs.run(
            personal, data, rounds, out=tmp_path / folder, select=select, options=fs.RunOptions(report=False), **options
        )

    whole = run(6, "whole")
    run(3, "half")
    resumed = run(6, "half", resume=True)
    assert same(whole.server, resumed.server)
    for i in range(3):
        assert torch.equal(whole.client_model(i), resumed.client_model(i))
    assert whole.summary["test"] == resumed.summary["test"]


def test_a_new_client_starts_from_the_initial_layers():
    personal = fs.Personal(algorithm=fs.FedAvg(problem=supervised(), sampled_clients=1, **LOCAL), layers=["bias"])
    result = fs.run(personal, ROWS, 1)
    models = [result.client_model(i)[personal.local] for i in range(6)]
    start = personal.problem.initial()[personal.local]
    assert sum(torch.equal(m, start) for m in models) == 5


REFUSED = {
    "FedSGDA": (
        lambda: fs.FedSgda(problem=game()),
        "algorithm = 'FedSgda': cannot keep layers at the clients: Slopes.x",
    ),
    "CODASCA": (
        lambda: fs.Codasca(problem=game()),
        "algorithm = 'Codasca': .*: Variates.cx is not declared as a model",
    ),
    "CODA+": (lambda: fs.CodaPlus(problem=game()), "algorithm = 'CodaPlus': .*: Start.centre is not"),
    "q-FedAvg": (lambda: fs.QFedAvg(problem=supervised()), "algorithm = 'QFedAvg': .*: Update.delta is not"),
    "FedMGDA+": (lambda: fs.FedMgda(problem=supervised()), "algorithm = 'FedMgda': .*: Moved.update is not"),
    "SCAFFOLD": (lambda: fs.Scaffold(problem=supervised()), "algorithm = 'Scaffold': .*: Variate.c is not"),
    "FedX2": (
        lambda: fs.FedX2(problem=fs.risks.auc(network_of_one())),
        "algorithm = 'FedX2': .*: InnerMeans.u is not",
    ),
    "momentum": (
        lambda: fs.MomentumLocalSgda(problem=game()),
        "algorithm = 'MomentumLocalSgda': .*: Momentum.dx is not",
    ),
    "server": (lambda: fs.FessGda(problem=game()), "algorithm = 'FessGda': .* its server projects whole models"),
    "projection": (
        lambda: fs.FedAvg(problem=supervised(), server_momentum=0.9, projection=fs.projections.Ball(1.0)),
        "projection = ",
    ),
    "wrapper": (lambda: fs.Personal(algorithm=PLAIN["FedAvg"](), layers=[]), "algorithm = 'Personal': wraps another"),
    "class": (lambda: fs.FedAvg, "algorithm = "),
    "output": (lambda: fs.LocalSgda(problem=game(), output="average"), "output = 'average'"),
    "pairs": (lambda: fs.FedAvg(problem=fs.risks.auc(network_of_one())), "problem = 'PairwiseRisk'"),
}


def network_of_one() -> nn.Module:
    return seeded(lambda: nn.Linear(4, 1))


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_keep_layers(name):
    make, said = REFUSED[name]
    with pytest.raises(fs.BadInput, match=said):
        fs.Personal(algorithm=make(), layers=["*"])


@pytest.mark.parametrize(("layers", "said"), [(["head"], "no layer has such a name; there are weight, bias"), ("bias", "list"), ([3], "list")])  # noqa: E501  # fmt: skip
def test_names_of_layers(layers, said):
    with pytest.raises(fs.BadInput, match=said):
        fs.Personal(algorithm=PLAIN["FedAvg"](), layers=layers)


def test_measures_of_one_model_are_refused():
    personal = fs.Personal(algorithm=fs.LocalSgda(problem=game()), layers=["3"])
    with pytest.raises(fs.BadInput, match="leave it out where layers are local"):
        fs.run(personal, classes(classes=2), 1, measures=["duality_gap"])


def test_configs_name_them():
    made = fs.algorithm("FedAvg", problem=supervised(), local_layers=["bias"])
    assert isinstance(made, fs.Personal)
    assert made.local_names == ("bias",)
    with pytest.raises(fs.BadInput, match="local_layers = 'head'"):
        fs.algorithm("FedAvg", problem=supervised(), local_layers=["head"])


def test_real_sites_refuse_them():
    config = {
        "data": {"name": "file", "path": "x.csv", "target": "y", "client": "site", "features": ["a"]},
        "split": {"name": "natural", "column": "site"},
        "model": {"name": "logistic"},
        "algorithm": {"name": "FedAvg", "local_layers": ["1"]},
    }
    with pytest.raises(fs.BadInput, match=r"algorithm.local_layers = \['1'\]: is for simulated runs"):
        check_keys(validate_config(config))
