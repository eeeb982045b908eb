"""Secure aggregation, for every algorithm: the bits of a run in the same fixed point, lost replies and resuming too."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
import torch
import wrappers
from every_algorithm import BY_NAME, algorithm

from deployment import deployed, sites
from fedsaddle.deployment.courier import InProcess
from fedsaddle.deployment.messages import Answer, Request, UnmaskAsked, read_payload
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.deployment.secure_site import SiteSecure
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.clients import merge_repeats
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.records import same
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.federation.wrappers import Lossy, Wrapper
from fedsaddle.secure.keys import RunKeys
from fedsaddle.secure.masking import SiteMasks
from fedsaddle.secure.secured import Secured

once = pytest.mark.parametrize(("case", "world"), BY_NAME)
FEW = {"FedAvg", "CODASCA", "FedX2", "FedSGDA-STORM"}  # the others with the slow tests
few = pytest.mark.parametrize(
    ("case", "world"),
    [p if p.id in FEW else pytest.param(*p.values, id=p.id, marks=pytest.mark.slow) for p in BY_NAME],
)
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
    return Secured(Lossy(SerialEngine(rows), lost, seed) if lost else SerialEngine(rows), masked=masked)


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


@few
def test_the_fixed_point_is_near_the_plain_run_and_chunks_do_not_matter(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    try:
        clients = SerialEngine(rows)
        clients.begin(0)
        plain = alg.round(alg.start(clients), clients, server_generator(0, 0))
        clients = secured(rows, masked=False, lost=0)
        clients.begin(0)
        found = alg.round(alg.start(clients), clients, server_generator(0, 0))
    except NobodyAnswered as reason:
        pytest.skip(f"a cohort drawn with repeats: {reason}")
    torch.testing.assert_close(alg.model(found), alg.model(plain), rtol=0, atol=1e-9)
    chunks = Secured(VectorisedEngine(rows, chunk=3))
    chunks.begin(0)
    torch.testing.assert_close(
        alg.model(alg.round(alg.start(chunks), chunks, server_generator(0, 0))), alg.model(found), rtol=0, atol=1e-9
    )


def at_sites(case, world, transport=InProcess, **patience):
    """Sites that mask for themselves, and a server; the book of each site is in its memory."""
    rows, made = world.rows(), sites(lambda: algorithm(case, world), world.rows())
    keys = {i: RunKeys.new() for i in made}
    publics = {i: own.public for i, own in keys.items()}
    for i, site in made.items():
        site.secure = SiteSecure(SiteMasks(i, keys[i], publics, b"trial"))
    found = deployed(lambda: algorithm(case, world), rows, transport=transport(routes(made)), **patience)
    return SecureClients(**{f.name: getattr(found, f.name) for f in fields(found)}), made


def routes(made):
    """What a site's service does with a message: a task to its worker, an opening to its masks."""

    def answer(site):
        def routed(content):
            if "do" not in about(content):
                return site.answer(content)
            message = unpack(content, {})
            request = Request.read(message.about)
            try:
                record = site.secure.open(read_payload(UnmaskAsked, message.record))
            except Exception as reason:
                return pack(Message(Answer.failed(request.nonce, reason).to_dict()))
            told = Answer(nonce=request.nonce, version=None, samples=0, failure=None)
            return pack(Message(told.to_dict(), record))

        return routed

    return {i: answer(site) for i, site in made.items()}


class Losing(InProcess):
    """Loses the replies of one site to tasks, another one in each round."""

    def exchange(self, clients, content, least, timeout):
        arrivals = super().exchange(clients, content, least, timeout)
        told = about(content)
        lost = None if "do" in told or told["round"] % 2 else sorted(clients)[-1]
        return [a for a in arrivals if a.client != lost or len(clients) < 4]


class Witness(wrappers.Witness):
    """Writes down whether an exchange had no result."""

    voided = False

    def ask(self, cohort, task, sent, *, weights=None):
        try:
            return super().ask(cohort, task, sent, weights=weights)
        except NobodyAnswered:
            self.voided = True
            raise


class Followed(Wrapper):
    """Simulated clients of whom those answer who answered at the sites; entry by entry."""

    answered = iter(())

    def ask(self, cohort, task, sent, *, weights=None):
        clients, total = merge_repeats(cohort, weights, self.count)
        here = np.isin(clients, next(self.answered))
        return self.inner.ask(clients[here], task, sent, weights=total[here])


@few
def test_real_sites_have_the_bits_of_the_simulation_also_when_some_are_lost(case, world):
    alg = algorithm(case, world)
    clients, _ = at_sites(case, world, Losing)
    witness = Witness(clients)
    found = rounds_of(alg, witness, 2)
    followed = Followed(SerialEngine(world.rows()))
    followed.answered = iter(witness.answered)
    simulated = Secured(followed, masked=False)
    if witness.voided:
        pytest.skip("a cohort drawn with repeats is too small")
    assert all(same(a, b) for a, b in zip(found, rounds_of(alg, simulated, 2), strict=True))
    assert clients.report()["secure_aggregation"] == simulated.report()["secure_aggregation"]
    assert clients.samples > 0
