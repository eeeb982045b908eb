"""The column of privacy: every algorithm that can be private is the same on every engine, and releases what it says."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

pytest.importorskip("dp_accounting")

import torch
from every_algorithm import TABLE, algorithm
from test_every_algorithm import lossy_run, near
from test_secure import rounds_of
from worlds import FAIR, GAME, GRU, LOGISTIC, MLP, VMAP

import fedsaddle as fs
from fedsaddle.engines.simulated import DeviceEngine, VectorisedEngine
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.privacy.accountant import reason_against, within
from fedsaddle.privacy.client_level import ClientPrivate
from fedsaddle.privacy.private import Accounted, Private
from pretend import PRETEND
from small import loopback, play, serial, vectorised

ROUNDS = 3
DROPOUT = ("FedAvg, dropout", "CODASCA, dropout")
CASES = [c for c in TABLE if not reason_against(c.make) and c.name not in DROPOUT]
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
    monkeypatch.setattr("fedsaddle.privacy.client_level.noise_for", lambda *given: 0.5)


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


def for_clients(case, world):
    """The algorithm as privacy of clients wants it; None if its line says otherwise."""
    alg = algorithm(case, world)
    if getattr(alg, "weighting", None) == "size":
        alg = replace(alg, weighting="uniform")
    return alg if alg.output == "last" else None


def accounted(case, world, unit):
    """The algorithm, and its clients, who lose replies and whose budget is kept."""
    rows = world.rows()
    lossy = Lossy(serial(rows), 0.15, 7)
    if unit == "row":
        alg = private(case, world)
        return alg, Accounted(lossy, alg, rows.sizes)
    alg = for_clients(case, world)
    return alg, ClientPrivate(lossy, fs.Privacy(epsilon=4, unit="client", rounds=ROUNDS), alg, 0)


@pytest.mark.parametrize("unit", ["row", "client"])
@pytest.mark.parametrize(("case", "world"), ONCE)
def test_with_lost_replies_a_resumed_run_is_the_same_and_spends_the_same(case, world, unit):
    if unit == "client" and for_clients(case, world) is None:
        with pytest.raises(fs.BadInput, match="output"):
            ClientPrivate(serial(world.rows()), fs.Privacy(epsilon=4, rounds=1), algorithm(case, world), 0)
        return
    alg, clients = accounted(case, world, unit)
    expected = rounds_of(alg, clients, ROUNDS)
    alg, first = accounted(case, world, unit)
    found = rounds_of(alg, first, 1)
    kept = first.state()
    alg, again = accounted(case, world, unit)
    records = {i: {k: v.clone() for k, v in vars(record).items()} for i, record in kept.records.items()}
    again.restore(records, json.loads(json.dumps(kept.notes)), alg)
    assert again.spent == first.spent
    found += rounds_of(alg, again, ROUNDS - 1, state=found[-1], first=1)[1:]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert again.spent == clients.spent, "lost replies count, and nothing counts twice"
    with pytest.raises(fs.BadInput, match="planned for"):  # what empty rounds have not touched may last a little longer
        rounds_of(alg, again, 2 * ROUNDS, state=found[-1], first=ROUNDS)


@pytest.mark.parametrize("unit", ["row", "client"])
@pytest.mark.parametrize("name", ["DRFA", "Local SGDA", "CODASCA"])
def test_a_device_gives_the_numbers_of_the_cpu(name, unit):
    case = next(c for c in CASES if c.name == name)
    rows = case.family[0].rows()

    def states(engine):
        if unit == "row":
            return play(private(case, case.family[0]), engine, 2)
        alg = for_clients(case, case.family[0])
        privacy = fs.Privacy(epsilon=4, unit="client", rounds=ROUNDS)
        return play(alg, ClientPrivate(engine, privacy, alg, 0), 2)

    here, there = states(VectorisedEngine(rows, chunk=3)), states(DeviceEngine(rows, device=PRETEND, chunk=3))
    for a, b in zip(there, here, strict=True):
        near(a, b)


@pytest.mark.parametrize("case", [c for c in TABLE if reason_against(c.make)], ids=lambda c: c.name)
def test_others_are_refused_with_a_reason(case):
    plain = algorithm(case, case.family[0])
    with pytest.raises(fs.BadInput, match="has no private form: "):
        fs.Private(algorithm=plain, privacy=fs.Privacy(epsilon=4, rounds=1))
    with pytest.raises(fs.BadInput, match="has no client-level privacy: "):
        ClientPrivate(serial(case.family[0].rows()), fs.Privacy(epsilon=4, unit="client", rounds=1), plain, 0)


def test_lost_replies_are_not_counted_in_the_mean():
    case = next(c for c in CASES if c.name == "DRFA")
    alg = private(case, LOGISTIC)
    states, _ = lossy_run(alg, lambda: serial(LOGISTIC.rows()), 3)
    again, _ = lossy_run(alg, lambda: serial(LOGISTIC.rows()), 3)
    assert same(states[-1], again[-1])
    assert not torch.equal(states[-1].w, play(alg, serial(LOGISTIC.rows()), 3)[-1].w)
