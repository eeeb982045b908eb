"""Bytes and time of an exchange with secure aggregation, beside one without; run by benchmarks/privacy.py.

Every site gets so many float32 numbers and sends as many back. Both sides run in one process, by turns: messages are
packed, read and checked at both ends, sites write their logs and notes to the disk. Sites work at the same time in a
deployment, so the time of an exchange is the server's plus that of the slowest site; processor time, without waiting
for the disk or a network.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Stacked
from fedsaddle.deployment.audit import AuditLog, Occasion
from fedsaddle.deployment.courier import Arrival, Courier, Patience
from fedsaddle.deployment.messages import Answer, Request, UnmaskAsked, read_payload
from fedsaddle.deployment.remote_clients import ExpectedReplies, RemoteClients, placeholder_rows
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.deployment.secure_site import AnswerLogFile, SiteSecure
from fedsaddle.deployment.site_worker import OwnRows, SiteWorker
from fedsaddle.federation.records import Averaged
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.secure.keys import RunKeys
from fedsaddle.secure.masking import SiteMasks


@dataclass(frozen=True)
class Numbers:
    """Server to site."""

    v: Tensor


@dataclass(frozen=True)
class Echoed:
    """Site to server."""

    v: Averaged


@dataclass(frozen=True)
class Echo:
    """An algorithm whose clients send back what they got, plus their number."""

    def echo(self, own: None, sent: Numbers, site: Any) -> tuple[None, Echoed]:
        """The task."""
        return None, Echoed(sent.v[None] + float(site.clients[0]))


class Timed:
    """Sites in this process, each with the processor time that it took."""

    def __init__(self, sites: dict[int, Callable[[bytes], bytes]], lost: set[int]) -> None:
        self.sites, self.lost, self.took, self.trips = sites, lost, dict.fromkeys(sites, 0.0), 0

    def exchange(self, clients: Any, content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Call one after the other."""
        found, self.trips = [], self.trips + 1
        for i in clients:
            began = time.process_time()
            reply = self.sites[i](content)
            self.took[i] += time.process_time() - began
            if i not in self.lost:
                found.append(Arrival(i, reply))
        return found


def opening(site: SiteWorker, content: bytes) -> bytes:
    """What a site's service does with a message."""
    if "do" not in about(content):
        return site.answer(content)
    message = unpack(content, {})
    assert site.secure is not None
    assert site.audit is not None
    nonce = Request.read(message.about).nonce
    record = site.secure.open(read_payload(UnmaskAsked, message.record))
    site.audit.add(Occasion("run", "unmask"), record)
    return pack(Message(Answer(nonce=nonce, version=None, samples=0, failure=None).to_dict(), record))


def federation(sites: int, folder: Path, secure: bool, lost: set[int]) -> tuple[RemoteClients, Timed]:
    """A server and its sites."""
    rows = Stacked(torch.zeros(2, 1), torch.tensor([0, 1]), np.array([0, 2], dtype=np.int64))
    keys = {i: RunKeys.new() for i in range(sites)}
    publics = {i: own.public for i, own in keys.items()}
    made = {}
    for i in range(sites):
        home = folder / str(i)
        home.mkdir(parents=True)
        made[i] = SiteWorker(Echo(), OwnRows(rows, i, sites), i, 0, "run", "print", audit=AuditLog(home))
        if secure:
            made[i].secure = SiteSecure(SiteMasks(i, keys[i], publics, b"run", AnswerLogFile.new(home / "notes.jsonl")))
    transport = Timed({i: (lambda content, s=site: opening(s, content)) for i, site in made.items()}, lost)
    courier = Courier(transport, tuple(f"site-{i}" for i in made), Patience(minimum=3))
    kind = SecureClients if secure else RemoteClients
    expected = ExpectedReplies(placeholder_rows(rows.x, rows.y))
    return kind(courier, np.full(sites, 2, dtype=np.int64), "run", "print", expected), transport


def once(clients: RemoteClients, transport: Timed, sent: Numbers, round: int) -> tuple[float, float]:
    """Seconds of one exchange as in a deployment (the server and the slowest site), and of all together."""
    transport.took = dict.fromkeys(transport.took, 0.0)
    clients.begin(round)
    clients.attendance.rests_until.clear()
    began = time.process_time()
    clients.ask(np.arange(clients.count), Echo().echo, sent)
    took = time.process_time() - began
    return took - sum(transport.took.values()) + max(transport.took.values()), took


def measure(sites: int, size: int, times: int, lost: int = 0) -> dict[str, float]:
    """Medians of both, and their ratios."""
    sent = Numbers(torch.randn(size))
    with tempfile.TemporaryDirectory() as name:
        away = set(range(sites - lost, sites))
        both = {on: federation(sites, Path(name) / str(on), on, away) for on in (False, True)}
        found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
        for round in range(times + 1):
            for on, (clients, transport) in both.items():
                took = once(clients, transport, sent, round)
                if round:
                    found[on].append(took)
        bytes_up = {on: sum(c.attendance.bytes_up.values()) for on, (c, _) in both.items()}
        bytes_all = {on: bytes_up[on] + sum(c.attendance.bytes_down.values()) for on, (c, _) in both.items()}
        trips = both[True][1].trips / (times + 1)
    plain, secure = ([statistics.median(one[k] for one in found[on]) for k in (0, 1)] for on in (False, True))
    return {
        "plain_ms": 1e3 * plain[0],
        "secure_ms": 1e3 * secure[0],
        "time_ratio": secure[0] / plain[0],
        "all_processors_ratio": secure[1] / plain[1],
        "bytes_up_ratio": bytes_up[True] / bytes_up[False],
        "bytes_ratio": bytes_all[True] / bytes_all[False],
        "messages_each_way": trips,
    }


def lines(sites: int, sizes: list[int], times: int) -> list[str]:
    """The table of the documentation."""
    heads = "numbers | lost | plain, ms | secure, ms | ratio | all processors | bytes up | bytes both ways | messages"
    found = [f"| {heads} |", "|" + " --- |" * 9]
    for size in sizes:
        for lost in (0, 1):
            m = measure(sites, size, times, lost)
            ratios = " | ".join(
                f"{m[key]:.2f}" for key in ("time_ratio", "all_processors_ratio", "bytes_up_ratio", "bytes_ratio")
            )
            ms = f"{m['plain_ms']:.1f} | {m['secure_ms']:.1f}"
            found.append(f"| {size:,} | {lost} | {ms} | {ratios} | {m['messages_each_way']:.0f} |")
    return found
