"""Any nn.Module works with the algorithms on both engines, with the same draws."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.engines.choose import chunk_and_workers
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.numerics.keyed_draws import KeyedDraws
from small import classes, near, play, seeded
from small_modules import MODULES

modules = pytest.mark.parametrize("name", MODULES)
LOCAL = {"local_steps": 2, "batch_size": 4, "primal_step": 0.1}


def model(name, scores):
    return seeded(lambda: MODULES[name].make(scores))


def algorithms(name):
    """By name; a problem of each kind."""
    two, one = (lambda: model(name, 2)), (lambda: model(name, 1))
    return {
        "FedAvg": lambda: fs.FedAvg(problem=fs.Supervised(model(name, 3), l2=0.01), **LOCAL),
        "DRFA": lambda: fs.Drfa(problem=fs.Supervised(two()), **LOCAL),
        "CODASCA": lambda: fs.Codasca(problem=fs.MinimaxAuc(model=one(), positive_share=0.5), **LOCAL),
        "Local SGDA": lambda: fs.LocalSgda(problem=fs.ClassFair(model=two(), classes=2), **LOCAL),
        "FedSGDA": lambda: fs.FedSgda(problem=fs.ClassFair(model=two(), classes=2), **LOCAL),
        "FedX2": lambda: fs.FedX2(problem=fs.risks.partial_auc(one()), **LOCAL),
        "robust": lambda: fs.LocalSgda(problem=fs.RobustTraining(model=two(), shape=(4,), radius=0.1), **LOCAL),
        "own": lambda: fs.LocalSgda(
            problem=fs.Minimax(
                lambda h, y, batch: (h(batch.x).squeeze(-1) - y) ** 2, start_y=torch.zeros(1), model=one().double()
            ),
            **LOCAL,
        ),
    }


def both_engines_agree(make, rows, chunk, workers=1):
    expected = play(make(), SerialEngine(rows), 2)
    for a, b in zip(play(make(), VectorisedEngine(rows, chunk=chunk, workers=workers), 2), expected, strict=True):
        near(a, b)
    return expected


@modules
def test_fedavg_on_both_engines(name):
    small = MODULES[name]
    make = algorithms(name)["FedAvg"]
    states = both_engines_agree(make, small.rows(3), 3, workers=2)
    assert not torch.equal(states[-1].w, states[0].w)
    assert make().problem.flat.draws(small.rows(3).x[None]) == small.draws


FEW = ["dropout mlp", "lstm", "bag of words", "random functions in forward", "batch norm and lstm"]


@pytest.mark.parametrize(
    ("name", "algorithm"),
    [(n, a) for n in FEW for a in ("DRFA", "CODASCA", "Local SGDA", "FedSGDA", "FedX2")]
    + [("gru, time first", "FedSGDA")],
)
def test_other_algorithms_on_both_engines(name, algorithm):
    both_engines_agree(algorithms(name)[algorithm], MODULES[name].rows(2), 3)


AUTOMATIC = [(n, a) for n in ("dropout mlp", "a decision on a number") for a in ("robust", "own")] + [("lstm", "own")]


@pytest.mark.parametrize(("name", "algorithm"), AUTOMATIC)
def test_problems_by_automatic_differentiation(name, algorithm):
    both_engines_agree(algorithms(name)[algorithm], MODULES[name].rows(2), 3)


@modules
def test_one_step_of_one_client_is_a_plain_step_of_torch(name):
    """With dropout, of the module in training mode under the same draws."""
    small = MODULES[name]
    start, (x, y) = model(name, 3), small.rows(3).client(2)
    rows = fs.Stacked(x, y, np.array([0, len(x)], dtype=np.int64))
    algorithm = fs.FedAvg(problem=fs.Supervised(start), local_steps=1, batch_size=6, primal_step=0.1)
    ours = play(algorithm, SerialEngine(rows), 1)[-1].w
    engine = SerialEngine(rows)
    engine.begin(0)
    batch = engine._site(np.array([0]), 0).minibatch(0, 6)
    plain = deepcopy(start).train()
    optimiser = torch.optim.SGD(plain.parameters(), lr=0.1)
    with KeyedDraws(batch.keys()[0]):
        nn.functional.cross_entropy(plain(batch.x[0]), batch.y[0]).backward()
    optimiser.step()
    moved = torch.nn.utils.parameters_to_vector(plain.parameters())
    torch.testing.assert_close(ours[: len(moved)], moved.detach(), rtol=0, atol=1e-12)


@modules
def test_evaluation_has_no_dropout(name):
    small = MODULES[name]
    problem, (x, y) = fs.Supervised(model(name, 3)), small.rows(3).client(2)
    w = problem.initial()
    plain = problem.module(w).eval()
    with torch.no_grad():
        expected = nn.functional.cross_entropy(plain(x), y, reduction="none")
        torch.testing.assert_close(problem.row_measures(w, x, y)["loss"], expected, rtol=0, atol=1e-12)


@modules
def test_the_engine_knows_what_vmap_takes(name):
    small = MODULES[name]
    chunk, _ = chunk_and_workers(fs.Supervised(model(name, 3)), small.rows(3))
    assert (chunk > 1) == (small.cohorts and "cnn" not in name)


@pytest.mark.parametrize("name", FEW)
def test_torchs_generator_is_left_alone(name):
    small, before = MODULES[name], torch.random.get_rng_state()
    play(algorithms(name)["FedAvg"](), SerialEngine(small.rows(3)), 1)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_resuming_a_run_with_dropout(tmp_path):
    rows = classes()

    def make():
        return algorithms("dropout mlp")["FedAvg"]()

    whole = fs.run(make(), rows, 4)
    fs.run(make(), rows, 2, out=tmp_path, options=fs.RunOptions(report=False))
    assert torch.equal(
        fs.run(make(), rows, 4, out=tmp_path, resume=True, options=fs.RunOptions(report=False)).model, whole.model
    )


@pytest.mark.parametrize("name", ["dropout mlp", "random functions in forward"])
def test_a_batch_by_hand_has_no_dropout_and_the_same_batch_the_same_masks(name):
    problem, rows = fs.Supervised(model(name, 3)), classes()
    site = LocalSite.alone(rows, 0)
    w, batch = problem.initial()[None], site.minibatch(0, 4)
    with_dropout = problem.gradient(w, batch)
    assert torch.equal(problem.gradient(w, batch), with_dropout)
    plain = problem.gradient(w, batch._replace(keys=None))
    assert not torch.allclose(plain, with_dropout)
    again = deepcopy(problem.model)
    nn.functional.cross_entropy(again.eval()(batch.x[0]), batch.y[0]).backward()
    expected = torch.cat([p.grad.flatten() for p in again.parameters()])
    torch.testing.assert_close(plain[0], expected, rtol=0, atol=1e-12)


def test_keys_differ_between_clients_steps_streams_and_rounds():
    rows, found = classes(), []
    for round in range(2):
        for exchange in range(2):
            site = LocalSite(rows, np.arange(6), fs.ClientKeys.of(0, round, exchange, np.arange(6)))
            for step in range(3):
                for stream in (0, 1):
                    found += site.minibatch(step, 2, stream).keys().tolist()
            found += site.everything().keys().tolist()
    assert len(set(found)) == len(found)


def test_compiled_with_dropout_is_refused(monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)  # to load the compiler takes seconds
    problem = fs.Supervised(model("dropout mlp", 3), compiled=True)
    site = LocalSite.alone(classes(), 0)
    with pytest.raises(BadInput, match="compiled = True: the model has dropout"):
        problem.gradient(problem.initial()[None], site.minibatch(0, 4))


@pytest.mark.parametrize("name", ["gru of tokens", "layer norm"])
def test_compiled_recurrent_layers_run_one_client_at_a_time(name, monkeypatch):
    monkeypatch.setattr(torch, "compile", lambda function: function)
    rows = MODULES[name].rows(3)
    compiled, plain = (fs.Supervised(model(name, 3), compiled=c) for c in (True, False))
    assert plain.flat.takes_cohorts(rows.x[None])
    assert compiled.flat.takes_cohorts(rows.x[None]) == (name == "layer norm")
    both_engines_agree(lambda: fs.FedAvg(problem=compiled, **LOCAL), rows, 3)


def test_nested_outputs_are_refused():
    problem = fs.Supervised(seeded(lambda: nn.LSTM(4, 3, batch_first=True)))
    with pytest.raises(BadInput, match=r"model = 'output of type tuple': must be one tensor.*out\[0\]"):
        fs.run(fs.FedAvg(problem=problem), MODULES["lstm"].rows(3), 1)


class Draws(nn.Module):
    def __init__(self, draw):
        super().__init__()
        self.a, self.draw = nn.Linear(4, 3), draw

    def forward(self, x):
        return self.a(x) + self.draw(x).sum()


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda x: torch.randint(3, (2,)), "randint"),
        (lambda x: torch.multinomial(torch.ones(3), 1), "multinomial"),
        (lambda x: nn.functional.rrelu(x, training=True), "rrelu"),
        (lambda x: nn.functional.gumbel_softmax(x), "exponential_"),
    ],
)
def test_draws_that_cannot_be_keyed_are_refused(draw, name):
    problem = fs.Supervised(seeded(lambda: Draws(draw)))
    with pytest.raises(BadInput, match=f"model = '{name}': draws random numbers that the seed does not key"):
        play(fs.FedAvg(problem=problem, local_steps=1), SerialEngine(classes()), 1)


def test_draws_in_evaluation_are_refused():
    problem = fs.Supervised(seeded(lambda: Draws(lambda x: torch.rand(3))))
    with pytest.raises(BadInput, match="model = 'rand': draws random numbers in evaluation mode too"):
        fs.run(fs.FedAvg(problem=problem), classes(), 1)
