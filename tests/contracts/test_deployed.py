"""Every algorithm through the wire: the deployed run has the bits of the simulated one."""

from __future__ import annotations

import json

import pytest
from every_algorithm import BY_NAME, EVERYWHERE, algorithm

from deployment import deployed
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy
from small import play

everywhere = pytest.mark.parametrize(("case", "world"), EVERYWHERE)
by_name = pytest.mark.parametrize(("case", "world"), BY_NAME)


@everywhere
def test_a_deployed_run_is_the_simulated_one_to_the_bit(case, world):
    rows = world.rows()
    simulated = play(algorithm(case, world), SerialEngine(rows), 4)
    found = play(algorithm(case, world), deployed(lambda: algorithm(case, world), rows), 4)
    assert all(same(a, b) for a, b in zip(simulated, found, strict=True))


@by_name
def test_the_same_with_another_seed_and_lost_replies(case, world):
    rows = world.rows()
    simulated = play(algorithm(case, world), Lossy(SerialEngine(rows, seed=7), 0.2, seed=7), 3, seed=7)
    clients = deployed(lambda: algorithm(case, world), rows, seed=7)
    found = play(algorithm(case, world), Lossy(clients, 0.2, seed=7), 3, seed=7)
    assert same(simulated[-1], found[-1])
    assert not clients.attendance.left_out


@by_name
def test_samples_and_dry_runs(case, world):
    """The server counts what sites worked on; and each task's dry run succeeds, so that wrong shapes are found."""
    rows = world.rows()
    serial = SerialEngine(rows)
    play(algorithm(case, world), serial, 2)
    clients = deployed(lambda: algorithm(case, world), rows)
    play(algorithm(case, world), clients, 2)
    assert clients.samples == serial.samples
    assert clients.expected.known
    assert None not in clients.expected.known.values()


@by_name
def test_a_server_that_starts_again_from_its_checkpoint(case, world):
    """Sites have gone three rounds further than the checkpoint when the server dies; nothing is applied twice."""
    rows = world.rows()
    expected = play(algorithm(case, world), SerialEngine(rows), 6)
    clients = deployed(lambda: algorithm(case, world), rows)
    alg = algorithm(case, world)
    states = play(alg, clients, 2)
    kept = clients.state()
    assert not kept.records, "clients keep their memory to themselves"
    stored = json.loads(json.dumps(kept.notes))
    clients.checkpointed()
    play(alg, clients, 3, state=states[-1], first=2)
    again = deployed(lambda: algorithm(case, world), rows, transport=clients.courier.transport)
    again.restore({}, stored, alg)
    found = play(alg, again, 4, state=states[-1], first=2)
    assert same(found[-1], expected[-1])
