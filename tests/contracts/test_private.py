"""The column of privacy: every algorithm that can be private is the same on every engine, and releases what it says."""

from __future__ import annotations

import pytest

pytest.importorskip("dp_accounting")

import torch
from every_algorithm import TABLE, algorithm
from test_every_algorithm import lossy_run, near
from worlds import FAIR, GAME, GRU, LOGISTIC, MLP, VMAP

import fedsaddle as fs
from fedsaddle.federation.records import same
from fedsaddle.privacy.accounted import Accounted
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.releases import KINDS, within
from small import loopback, play, serial, vectorised

ROUNDS = 3
DROPOUT = ("FedAvg, dropout", "CODASCA, dropout")
CASES = [c for c in TABLE if c.make in KINDS and c.name not in DROPOUT]
ONCE = [
    pytest.param(c, c.family[0], id=c.name, marks=[pytest.mark.slow] if c.slow or "," in c.name else []) for c in CASES
]
WORLDS = [pytest.param(c, w, id=f"{c.name} | {w}") for c, w in [
    *((c, w) for c in CASES if c.name == "DRFA" for w in (LOGISTIC, MLP, VMAP, GRU)),
    *((c, w) for c in CASES if c.name == "Local SGDA" for w in (FAIR, GAME)),
]]  # fmt: skip


@pytest.fixture(autouse=True)
def _any_noise(monkeypatch):
    """How much noise there is does not matter here, and to find it takes a second for each size of client."""
    monkeypatch.setattr(Private, "noise", lambda self, units: 0.5 + 1 / units)


def private(case, world):
    return fs.Private(algorithm=algorithm(case, world), privacy=fs.Privacy(epsilon=4, rounds=ROUNDS))


@pytest.mark.parametrize(("case", "world"), [*ONCE, *WORLDS])
def test_a_chunk_at_once_and_workers_are_one_client_after_the_other(case, world):
    rows, alg = world.rows(), private(case, world)
    expected = play(alg, serial(rows), 2)
    plain = play(alg.algorithm, serial(rows), 2)
    assert not torch.equal(alg.model(expected[-1]), alg.model(plain[-1])), "it has noise"
    for a, b in zip(play(alg, vectorised(rows), 2), expected, strict=True):
        near(a, b)
    for a, b in zip(play(private(case, world), loopback(alg, rows, chunk=3), 2), expected, strict=True):
        near(a, b)


@pytest.mark.parametrize(("case", "world"), ONCE)
def test_it_releases_no_more_than_planned(case, world):
    rows, alg = world.rows(), private(case, world)
    clients = Accounted(serial(rows), alg, rows.sizes)
    play(alg, clients, ROUNDS)
    assert clients.spent
    assert all(within(released, alg.plan) for released in clients.spent.values())
    if case.options.get("sampled_clients") is None:
        assert any(released == alg.plan for released in clients.spent.values()), "nor is more planned than is released"


def test_lost_replies_are_not_counted_in_the_mean():
    case = next(c for c in CASES if c.name == "DRFA")
    alg = private(case, LOGISTIC)
    states, _ = lossy_run(alg, lambda: serial(LOGISTIC.rows()), 3)
    again, _ = lossy_run(alg, lambda: serial(LOGISTIC.rows()), 3)
    assert same(states[-1], again[-1])
    assert not torch.equal(states[-1].w, play(alg, serial(LOGISTIC.rows()), 3)[-1].w)
