"""Bounds and robust aggregation, for every algorithm on every engine."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from every_algorithm import ONE_A_KIND, algorithm
from test_every_algorithm import lossy_run, near
from wrappers import Only

from deployment import deployed, sites
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.deployment.courier import InProcess
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import same
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, pack, unpack
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.robust.attacks import Attack, Attacked
from fedsaddle.robust.reduction import Guarded
from fedsaddle.robust.settings import AGGREGATIONS, Robust
from small import SIZES, classes, play, seeded

once = pytest.mark.parametrize(("case", "world"), ONE_A_KIND)
BOUNDS = Robust(bounds=True)


def tight(n: int) -> Robust:
    """Every aggregation in turn, with bounds that honest clients exceed, so that they have something to do."""
    return Robust(aggregation=AGGREGATIONS[n % len(AGGREGATIONS)], bounds=True, norm_factor=1.2, loss_factor=1.3)


def by_name(case) -> Robust:
    return tight(sum(map(ord, case.name)))


@once
def test_bounds_do_nothing_to_honest_clients(case, world):
    if (case.name, world.name) == ("Local Pair, f not linear", "precision"):
        pytest.skip("clients of two rows have next to nothing to learn from their own pairs: another's is 20 x as long")
    rows, alg = world.rows(), algorithm(case, world)
    plain, clients = play(alg, SerialEngine(rows), 4), Guarded(SerialEngine(rows), BOUNDS)
    found = play(alg, clients, 4)
    assert clients.guard.counts == {}
    assert all(same(a, b) for a, b in zip(plain, found, strict=True))
    chunks = VectorisedEngine(rows, chunk=3)
    plain, found = play(alg, VectorisedEngine(rows, chunk=3), 2), play(alg, Guarded(chunks, BOUNDS), 2)
    assert all(same(a, b) for a, b in zip(plain, found, strict=True))


@once
def test_chunks_and_sites_give_what_one_client_after_the_other_gives(case, world):
    rows, alg, how = world.rows(), algorithm(case, world), by_name(case)
    expected = play(alg, Guarded(SerialEngine(rows), how), 3)
    for a, b in zip(play(alg, Guarded(VectorisedEngine(rows, chunk=3), how), 3), expected, strict=True):
        near(a, b, atol=1e-7)  # the iteration of the geometric median ends where a step is short enough
    sites = Guarded(deployed(lambda: algorithm(case, world), rows), how)
    assert all(same(a, b) for a, b in zip(play(alg, sites, 3), expected, strict=True))


@once
def test_a_resumed_run_has_the_running_scales(case, world):
    rows, alg, how = world.rows(), algorithm(case, world), by_name(case)
    expected = play(alg, Guarded(SerialEngine(rows), how), 6)
    first = Guarded(SerialEngine(rows), how)
    states = play(alg, first, 3)
    first.begin(3)
    first.ask([0, 1], *_task(alg, states[-1]))  # a round that is not finished leaves nothing
    first.begin(3)
    kept = first.state()
    again = Guarded(SerialEngine(rows), how)
    records = {i: {k: v.clone() for k, v in vars(record).items()} for i, record in kept.records.items()}
    again.restore(records, json.loads(json.dumps(kept.notes)), alg)
    assert same(play(alg, again, 3, state=states[-1], first=3)[-1], expected[-1])


def _task(alg, state):
    """The first task that a round asks for, and what it sends."""
    asked = []

    class Caught(Exception):
        pass

    class Catching:
        count, sizes = len(SIZES), np.array(SIZES)

        def ask(self, cohort, task, sent, *, weights=None):
            asked.append((task, sent))
            raise Caught

    with pytest.raises(Caught):
        alg.round(state, Catching(), server_generator(0, 3))
    return asked[0]


def fedavg() -> FedAvg:
    return FedAvg(problem=Supervised(seeded(lambda: logistic_regression(4, 3))), local_steps=2, batch_size=3)


def hostile(answer):
    """A site whose model is -100 times as far from what it was sent as it should be."""

    def changed(content: bytes) -> bytes:
        kinds = records_of(fedavg())
        sent, reply = unpack(content, kinds).record, unpack(answer(content), kinds)
        record = replace(reply.record, final=sent.w - 100 * (reply.record.final - sent.w))
        return pack(Message(reply.about, record))

    return changed


def test_a_hostile_site_is_what_the_simulated_hostile_client_is():
    rows, attack = classes(), Attack(name="scale", clients=[1])
    made = {i: site.answer for i, site in sites(fedavg, rows).items()}
    made[1] = hostile(made[1])
    for how in (BOUNDS, Robust(aggregation="median")):
        at_sites = Guarded(deployed(fedavg, rows, transport=InProcess(made)), how)
        simulated = Attacked(Guarded(SerialEngine(rows), how), attack)
        found, expected = play(fedavg(), at_sites, 4), play(fedavg(), simulated, 4)
        for a, b in zip(found, expected, strict=True):
            near(a, b)
        assert at_sites.guard.counts == simulated.inner.guard.counts
    plain = play(fedavg(), deployed(fedavg, rows, transport=InProcess(made)), 4)[-1]
    assert plain.w.norm() > 10 * found[-1].w.norm()


def test_a_site_that_sends_nan_is_left_out_as_a_simulated_client_is():
    rows = classes()
    rows.x[rows.offsets[3] : rows.offsets[4]] *= 1e200
    expected = play(fedavg(), simulated := SerialEngine(rows), 6)
    found = play(fedavg(), clients := deployed(fedavg, rows), 6)
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    (reason,) = clients.attendance.left_out[3]
    assert simulated.left_out.to_dict() == {"left_out": {"3": {reason: 6}}}


@once
def test_lost_replies_are_not_counted(case, world):
    rows, alg, how = world.rows(), algorithm(case, world), by_name(case)
    states, lossy = lossy_run(alg, lambda: Guarded(SerialEngine(rows), how), 4)
    filtered = Only(Guarded(SerialEngine(rows), how), lossy.answered)
    assert all(same(a, b) for a, b in zip(states, play(alg, filtered, 4), strict=True))
    assert isinstance(lossy.inner, Lossy)
