"""Secure aggregation, for every algorithm: the bits of a run in the same fixed point, lost replies and resuming too."""

from __future__ import annotations

import json

import pytest
import torch
from every_algorithm import BY_NAME, algorithm

from fedsaddle.engines.serial import Serial
from fedsaddle.engines.vectorised import Vectorised
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.secure.secured import Secured

once = pytest.mark.parametrize(("case", "world"), BY_NAME)
LOST = 0.15


def rounds_of(alg, clients, rounds, state=None, first=0):
    """The states after each round; one in which too few answer changes nothing, as in a run."""
    states = [alg.start(clients) if state is None else state]
    for r in range(first, first + rounds):
        clients.begin(r)
        try:
            states.append(alg.round(states[-1], clients, server_generator(0, r)))
        except NobodyAnswered:
            clients.begin(r)
            states.append(states[-1])
        clients.commit()
    return states


def secured(rows, masked=True, lost=LOST, seed=7):
    return Secured(Lossy(Serial(rows), lost, seed) if lost else Serial(rows), masked=masked)


@once
def test_masks_leave_the_bits_of_the_fixed_point(case, world):
    """With lost replies, whose masks the others open; and a run that is resumed goes on with the same bits."""
    rows, alg = world.rows(), algorithm(case, world)
    plain = secured(rows, masked=False)
    expected = rounds_of(alg, plain, 4)
    clients = secured(rows)
    found = rounds_of(alg, clients, 2)
    kept = clients.state()
    again = secured(rows)  # with new keys
    records = {i: {k: v.clone() for k, v in vars(record).items()} for i, record in kept.records.items()}
    again.restore(records, json.loads(json.dumps(kept.notes)), alg)
    found += rounds_of(alg, again, 2, state=found[-1], first=2)[1:]
    assert all(same(a, b) for a, b in zip(found, expected, strict=True))
    assert not torch.equal(alg.model(found[-1]), alg.model(found[0]))
    assert set(plain.report()["secure_aggregation"]["single"]) <= set(case.shows)


@once
def test_the_fixed_point_is_near_the_plain_run_and_chunks_do_not_matter(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    try:
        clients = Serial(rows)
        clients.begin(0)
        plain = alg.round(alg.start(clients), clients, server_generator(0, 0))
        clients = secured(rows, masked=False, lost=0)
        clients.begin(0)
        found = alg.round(alg.start(clients), clients, server_generator(0, 0))
    except NobodyAnswered as reason:
        pytest.skip(f"a cohort drawn with repeats: {reason}")
    torch.testing.assert_close(alg.model(found), alg.model(plain), rtol=0, atol=1e-9)
    chunks = Secured(Vectorised(rows, chunk=3))
    chunks.begin(0)
    torch.testing.assert_close(
        alg.model(alg.round(alg.start(chunks), chunks, server_generator(0, 0))), alg.model(found), rtol=0, atol=1e-9
    )
