"""Invalid hyperparameters: the key, the value and the remedy are named."""

from __future__ import annotations

from functools import partial

import pytest
from torch import nn

import fedsaddle as fs
from fedsaddle import Drfa, DrfaGa, FedAvg, QFedAvg
from fedsaddle.errors import BadInput
from fedsaddle.problems.supervised import Supervised
from small import classes, seeded, serial

NAN, INFINITY = float("nan"), float("inf")
EVERY = {"FedAvg": FedAvg, "QFedAvg": QFedAvg, "Drfa": Drfa, "DrfaGa": DrfaGa, "AFL": partial(Drfa, local_steps=1)}
SHARED = [
    ("batch_size", 0),
    ("batch_size", -5),
    ("primal_step", 0.0),
    ("primal_step", -0.1),
    ("primal_step", NAN),
    ("primal_step", INFINITY),
    ("sampled_clients", 0),
    ("sampled_clients", -1),
]
DUAL = [("dual_step", 0.0), ("dual_step", -1.0), ("dual_step", NAN), ("dual_step", INFINITY)]
OWN = {
    "FedAvg": [
        ("weighting", "sise"),
        ("output", "first"),
        ("server_momentum", -0.1),
        ("server_momentum", 1.0),
        ("server_momentum", NAN),
        ("nesterov", 1),
    ],
    "QFedAvg": [("q", -0.1), ("q", NAN), ("q", INFINITY), ("sampling", "none")],
    "Drfa": [*DUAL, ("weighting", "both"), ("output", "best"), ("dual_decay", 0.0), ("dual_decay", 1.1)],
    "DrfaGa": [*DUAL, ("output", "best"), ("average_after", -1)],
    "AFL": [*DUAL, ("weighting", "both"), ("output", "best"), ("dual_decay", NAN)],
}
STEPS = [(name, "local_steps", value) for name in EVERY if name != "AFL" for value in (0, -1)]
CASES = [(name, key, value) for name in EVERY for key, value in SHARED + OWN[name]] + STEPS


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


@pytest.mark.parametrize(("name", "key", "value"), CASES)
def test_refused_when_made(name, key, value):
    with pytest.raises(BadInput) as caught:
        EVERY[name](problem=problem(), **{key: value})
    assert caught.value.key == key
    assert repr(caught.value.value) == repr(value)
    assert str(caught.value).startswith(f"{key} = {value!r}: ")
    assert caught.value.remedy


@pytest.mark.parametrize("name", EVERY)
def test_more_clients_than_there_are(name):
    algorithm = EVERY[name](problem=problem(), sampled_clients=7)
    with pytest.raises(BadInput, match="sampled_clients = 7: there are only 6 clients") as caught:
        algorithm.start(serial(classes()))
    assert caught.value.key == "sampled_clients"


@pytest.mark.parametrize("name", EVERY)
def test_exactly_all_clients(name):
    EVERY[name](problem=problem(), sampled_clients=6).start(serial(classes()))


@pytest.mark.parametrize(("name", "key"), [("FedAvg", "weighting"), ("Drfa", "weighting"), ("QFedAvg", "sampling")])
def test_a_wrong_word_is_answered_with_the_right_ones(name, key):
    with pytest.raises(BadInput, match=r"choose one of '\w+', '\w+'"):
        EVERY[name](problem=problem(), **{key: "wrong"})


def test_afl_takes_one_local_step():
    assert fs.algorithm("AFL", problem=problem()).local_steps == 1
    with pytest.raises(BadInput, match="local_steps = 5: AFL fixes local_steps = 1"):
        fs.algorithm("AFL", problem=problem(), local_steps=5)


def test_drfa_prox_needs_its_regulariser():
    with pytest.raises(BadInput, match="regulariser = None: DRFA-Prox needs a value"):
        fs.algorithm("DRFA-Prox", problem=problem())


@pytest.mark.parametrize("name", EVERY)
def test_unknown_names_are_refused(name):
    with pytest.raises(BadInput, match=r"step_size = 0.1: .* has no such parameter; did you mean 'primal_step'"):
        EVERY[name](problem=problem(), step_size=0.1)


LATER = {
    fs.AaggFf: [("response", "gauss"), ("update", "adam"), ("server_step", 0.0), ("trimmed", 1.0), ("batch_size", 0)],
    fs.Term: [("tilt", -1.0), ("normaliser", "none"), ("trimmed", -0.1), ("local_steps", 0)],
    fs.DeltaFl: [("weighting", "both"), ("trimmed", 1.0), ("primal_step", 0.0), ("sampled_clients", 0)],
    fs.FedMgda: [("primal_step", -1.0), ("batch_size", 0), ("sampled_clients", 0)],
    fs.PropFair: [("ceiling", 0.0), ("near", 0.0), ("near", 6.0), ("weighting", "both"), ("local_steps", 0)],
    fs.ExponentialDro: [
        *[("temperature", 0.0), ("temperature", -1.0), ("inner_averaging", 0.0), ("inner_averaging", 1.1)],
        *[("momentum_averaging", 0.0), ("momentum_averaging", 1.1), ("local_steps", 0), ("sampled_clients", 0)],
    ],
    fs.FedNova: [("epochs", 0.0), ("batch_size", 0), ("primal_step", 0.0)],
    fs.Scaffold: [("local_steps", 0), ("batch_size", 0), ("primal_step", 0.0), ("sampled_clients", 0)],
}


@pytest.mark.parametrize(("make", "key", "value"), [(m, *bad) for m, every in LATER.items() for bad in every])
def test_later_methods_refuse_by_name(make, key, value):
    with pytest.raises(BadInput, match=key) as caught:
        make(problem=Supervised(seeded(lambda: nn.Linear(4, 3))), **{key: value})
    assert caught.value.key == key
