"""Mutated messages: bits flipped, cut off, spliced, and values of their JSON exchanged. None may crash server or site.

`pytest tests/deployment/test_message_fuzz.py` takes 500 of them, with `-m slow` 100,000. Each must cost
less than five seconds of processor time, and less memory than twice its size and 32 MB. Nothing is answered outside of
the plan of the run, in whatever order messages come.
"""

from __future__ import annotations

import json
import logging
import struct
import time
import tracemalloc
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_cases import GIVEN, framed
from in_process import deployed, sites
from test_deployed_runs import of_files, own_files, with_own_files

from fedsaddle.deployment.agreement import SiteFacts
from fedsaddle.deployment.courier import Arrival, Courier, InProcess
from fedsaddle.deployment.evaluation import check_measurements
from fedsaddle.deployment.messages import AgreeTold, Answer, Fault, read_counts, read_payload, reply_limits
from fedsaddle.deployment.questions import FILE, LoggedQuestion, Questions
from fedsaddle.deployment.remote_clients import reply_fault
from fedsaddle.deployment.site import SiteService
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, about, unpack

SECONDS, SPARE = 5.0, 32 << 20
ODD: list[Any] = [
    None, True, -1, 0, 10**30, 2**53 + 1, -0.5, 1e308, 5e-324, "", "x", "../../x", "a\nb\x1b[2J", "\ud800", "é" * 50,
    {"$tensor": "0"}, {"$float": "nan"}, {"$record": "os:system", "fields": {}}, {"$tuple": [1]}, {"$dict": [[1, 2]]},
    {}, [], [[]], [0] * 500, ["x"] * 50, {"a": {"b": {"c": 1}}}, "0" * 3000,
]  # fmt: skip


class Tap(InProcess):
    """Notes all that is sent and answered."""

    def __init__(self, made: Any) -> None:
        super().__init__({i: site.answer for i, site in made.items()})
        self.asked: list[bytes] = []
        self.answered: list[tuple[bytes, bytes]] = []

    def exchange(self, clients, content, least, timeout):
        found = super().exchange(clients, content, least, timeout)
        self.asked.append(content)
        self.answered += [(content, a.content) for a in found if a.client == 1]
        return found


@pytest.fixture(scope="module")
def spoken(tmp_path_factory):
    """What is said in a run on tables and in one on arrays, and a site of each."""
    folder = tmp_path_factory.mktemp("spoken")
    own_files(folder)
    given = of_files(folder)
    made = with_own_files(given, folder)
    first, second = Tap(made), Tap(others := sites(GIVEN, folder / "second"))
    deployed(given, made, folder / "tables", first)
    deployed(GIVEN, others, folder / "arrays", second)
    return [(first, made[1]), (second, others[1])]


def mutated(content: bytes, other: bytes, chance: np.random.Generator) -> bytes:
    """One change or several, of the bytes or of the JSON in them."""
    kind = int(chance.integers(5))
    changed = bytearray(content)
    if kind == 0:
        for at in chance.integers(0, len(changed), int(chance.integers(1, 6))):
            changed[at] ^= 1 << int(chance.integers(8))
        return bytes(changed)
    if kind == 1:
        return bytes(changed[: int(chance.integers(len(changed)))])
    if kind == 2:
        cut, join = int(chance.integers(len(content))), int(chance.integers(len(other)))
        return content[:cut] + other[join:]
    if kind == 3:  # the bytes of its tensors, or of their header
        body = 8 + struct.unpack("<I", content[4:8])[0]
        at = int(chance.integers(body, len(content)))
        return content[:at] + chance.bytes(int(chance.integers(1, 9))) + content[at + int(chance.integers(3)) :]
    return with_other_json(content, chance)


def with_other_json(content: bytes, chance: np.random.Generator) -> bytes:
    length = struct.unpack("<I", content[4:8])[0]
    tree = json.loads(content[8 : 8 + length])
    for _ in range(int(chance.integers(1, 4))):
        node, key = tree, str(chance.choice(list(tree)))
        for _ in range(int(chance.integers(6))):
            inner = deepcopy(node[key])
            if not isinstance(inner, dict | list) or not inner:
                break
            node = inner
            key = (
                list(inner)[int(chance.integers(len(inner)))]
                if isinstance(inner, dict)
                else chance.integers(len(inner))
            )
        action = int(chance.integers(4))
        if action == 0 and isinstance(node, dict) and len(tree) > 1:
            node.pop(key)
            if not tree:
                break
        elif action == 1 and isinstance(node, dict):
            node[str(ODD[int(chance.integers(len(ODD)))])] = deepcopy(node[key])
        else:
            node[key] = deepcopy(ODD[int(chance.integers(len(ODD)))])
        if not isinstance(tree, dict) or not tree:
            break
    return framed(json.dumps(tree).encode(), content[8 + length :])


def checked(courier: Courier, ask: bytes, reply: bytes, kinds: Any) -> Any:
    """What the server makes of a reply: a result, or a fault of the site."""
    said = about(ask)
    do = said.get("do", "task")

    def check(client: int, answer: Answer, record: Any) -> Any:
        if do == "facts":
            return read_payload(SiteFacts, record)
        if do == "counts":
            return read_counts(record, 2)
        if do == "agree":
            return read_payload(AgreeTold, record)
        if do == "measure":
            return check_measurements(client, record, {"loss", "accuracy"}, 91)
        return reply_fault(client, record, record) or record

    return courier._read(Arrival(1, reply), said["nonce"], kinds, check, reply_limits(do))


def answered_tasks(site: SiteService) -> list[tuple[int, int, str]]:
    """What a site has answered, in the order of its notes."""
    lines = (
        (site._questions("trial").folder / FILE).read_text().splitlines() if not site._questions("trial").new else []
    )
    entries = [LoggedQuestion.model_validate_json(line) for line in lines]
    return [(each.round, each.exchange, each.task) for each in entries if each.what == "task"]


def fuzz(spoken: Any, count: int, seed: int) -> None:
    before_all = [answered_tasks(site) for _, site in spoken]
    chance, most = np.random.default_rng(seed), 0.0
    logging.disable(logging.CRITICAL)  # of tens of thousands of messages
    taps = [
        (Courier(tap, ("a", "b")), tap, site, records_of(site._runs["trial"].worker.algorithm)) for tap, site in spoken
    ]
    refused = 0
    tracemalloc.start()
    try:
        for n in range(count):
            courier, tap, site, kinds = taps[n // 2 % 2]
            tracemalloc.reset_peak()
            before, began = tracemalloc.get_traced_memory()[0], time.process_time()
            if n % 2:
                ask, reply = tap.answered[int(chance.integers(len(tap.answered)))]
                content = mutated(reply, ask, chance)
                found = checked(courier, ask, content, kinds)
                refused += isinstance(found, Fault)
                str(found)
            else:
                content = mutated(tap.asked[int(chance.integers(len(tap.asked)))], tap.answered[0][1], chance)
                answer = Answer.read(unpack(site.answer(content), kinds).about)
                refused += answer.failure is not None
            most = max(most, time.process_time() - began)
            assert most < SECONDS
            assert tracemalloc.get_traced_memory()[1] - before < 2 * len(content) + SPARE
    finally:
        tracemalloc.stop()
        logging.disable(logging.NOTSET)
    assert refused > 0.7 * count, "most mutations are noticed"
    assert [answered_tasks(site) for _, site in spoken] == before_all, "the plan was answered before"
    print(f"{count} messages, {refused} refused, at most {most:.2f} s each")


def reorder(spoken: Any, folder: Path, times: int, seed: int) -> int:
    """The messages of a run, mixed and repeated, at new sites: how many tasks were answered."""
    chance, total = np.random.default_rng(seed), 0
    for n in range(times):
        tap, old = spoken[n % 2]
        site = SiteService(old.config, replace(old.settings, folder=folder / str(n)), old.policy)
        first = [ask for ask in tap.asked if about(ask).get("do") in ("facts", "counts", "agree")]
        for ask in first if n % 3 else ():
            site.answer(ask)
        for at in chance.integers(0, len(tap.asked), 40):
            site.answer(tap.asked[int(at)])
        found, honest = answered_tasks(site), answered_tasks(old)
        assert found == sorted(found), "in order"
        assert len(set(found)) == len(found), "once"
        assert set(found) <= set(honest), "of the plan"
        total += len(found)
    return total


@pytest.fixture(autouse=True)
def never_stops(monkeypatch):
    """Sites that refuse any number of questions, so that all messages are looked at."""
    monkeypatch.setattr("fedsaddle.deployment.questions.MOST_REFUSALS", 10**9)
    monkeypatch.setattr(Questions, "_stop", Questions._refuse)


def test_reordered_messages_are_answered_within_the_plan(spoken, tmp_path):
    assert reorder(spoken, tmp_path, 12, seed=3) > 5


@pytest.mark.slow
def test_many_reordered_messages_are_answered_within_the_plan(spoken, tmp_path):
    assert reorder(spoken, tmp_path, 1000, seed=4) > 500


def test_mutated_messages_crash_neither_server_nor_site(spoken):
    fuzz(spoken, 500, seed=1)


@pytest.mark.slow
def test_many_mutated_messages_crash_neither_server_nor_site(spoken):
    fuzz(spoken, 100_000, seed=2)


def test_what_was_said_is_read(spoken):
    """The mutations start from messages that are in order."""
    for tap, site in spoken:
        kinds = records_of(site._runs["trial"].worker.algorithm)
        assert {about(ask).get("do", "task") for ask in tap.asked} >= {"facts", "agree", "measure", "task"}
        for ask, reply in tap.answered:
            assert isinstance(unpack(ask, kinds), Message)
            assert Answer.read(unpack(reply, kinds).about).failure is None
