"""Two of ten clients are hostile: what attacks do, and what the settings hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import same
from fedsaddle.robust.attacks import ATTACKS, Attacked, with_flipped_labels
from fedsaddle.robust.reduction import Guarded
from small import classes, play

GEOMETRIC = fs.Robust(aggregation="geometric-median", bounds=True)


def digits():
    return fs.load("digits", split="iid", clients=10)


def fedavg():
    return fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), primal_step=0.3)


def drfa(**options):
    return fs.Drfa(problem=fs.Supervised(fs.models.logistic_regression(64, 10)), primal_step=0.3, **options)


def accuracy(algorithm, attack=None, robust=None, rounds=40):
    hostile = None if attack is None else fs.Attack(name=attack, clients=2)
    result = fs.run(
        algorithm,
        digits(),
        rounds,
        evaluate_every=rounds,
        attack=hostile,
        robust=robust,
        callbacks=[fs.LambdaCallback(on_warning=print)],
    )
    return result.summary["test"]["accuracy"]["global"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_fedavg_with_a_geometric_median_stays_within_two_points(attack):
    assert accuracy(fedavg(), attack, GEOMETRIC) > accuracy(fedavg()) - 0.02


@pytest.mark.parametrize("attack", ["scale", "inflated-loss"])
def test_drfa_with_a_ceiling_stays_close_and_without_it_is_lost(attack):
    honest = accuracy(drfa())
    assert accuracy(drfa(), attack) < 0.5
    held = drfa(mixture_ceiling=1.5, weighting="weight")
    assert accuracy(held, attack, GEOMETRIC) > honest - 0.03


def test_bounds_alone_hold_a_naive_attack():
    assert accuracy(fedavg(), "scale") < 0.5
    assert accuracy(fedavg(), "scale", fs.Robust(bounds=True)) > 0.85


def test_what_was_bounded_is_counted_for_the_hostile_alone():
    result = fs.run(
        fedavg(), digits(), 5, attack=fs.Attack(name="scale", clients=[3, 7]), robust=fs.Robust(bounds=True)
    )
    assert result.summary["robust"]["bounded"] == {"3": {"final": 5}, "7": {"final": 5}}
    assert result.summary["attack"] == {"name": "scale", "clients": [3, 7], "factor": -100.0}


def small():
    return fs.Drfa(problem=fs.Supervised(torch.nn.Linear(4, 3).double()), local_steps=2, batch_size=3)


@pytest.mark.parametrize("attack", ATTACKS)
def test_hostile_clients_do_the_same_on_both_engines(attack):
    torch.manual_seed(0)
    rows, algorithm = classes(), small()
    hostile = fs.Attack(name=attack, clients=[1, 4])
    rows = with_flipped_labels(rows, np.array([1, 4])) if hostile.flips_labels else rows
    ways = [
        play(algorithm, Attacked(Guarded(engine, fs.Robust(bounds=True)), hostile), 3)[-1]
        for engine in (fs.SerialEngine(rows), fs.VectorisedEngine(rows, chunk=3))
    ]
    torch.testing.assert_close(ways[0].w, ways[1].w, rtol=0, atol=1e-9)
    assert not same(ways[0], play(algorithm, fs.SerialEngine(classes()), 3)[-1])


def test_a_factor_of_one_is_honest():
    torch.manual_seed(0)
    algorithm, idle = small(), fs.Attack(name="sign-flip", clients=2, factor=1.0)
    found = play(algorithm, Attacked(fs.SerialEngine(classes()), idle), 3)[-1]
    torch.testing.assert_close(found.w, play(algorithm, fs.SerialEngine(classes()), 3)[-1].w, rtol=0, atol=1e-12)


def test_flipped_labels_are_those_of_the_hostile():
    rows = classes()
    found = with_flipped_labels(rows, np.array([2]))
    for i in range(6):
        assert torch.equal(found.client(i)[1], 2 - rows.client(i)[1] if i == 2 else rows.client(i)[1])
    lazy = fs.Lazy(rows.sizes, rows.client)
    with pytest.raises(BadInput, match="needs all rows in memory"):
        with_flipped_labels(lazy, np.array([2]))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"name": "bribe"}, "name = 'bribe'"),
        ({"name": "scale", "clients": 0}, "clients"),
        ({"name": "scale", "clients": [1, 1]}, "name each hostile client once"),
        ({"name": "scale", "clients": []}, "at least one"),
        ({"name": "scale", "factor": float("inf")}, "factor"),
    ],
)
def test_attacks_that_cannot_be(options, said):
    with pytest.raises(BadInput, match=said):
        fs.Attack(**options)


def test_one_client_must_be_honest():
    with pytest.raises(BadInput, match=r"attack\.clients = 10: there are 10 clients"):
        fs.run(fedavg(), digits(), 1, attack=fs.Attack(name="scale", clients=10))
