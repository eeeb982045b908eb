"""The site's side of an exchange: run the requested task of the site's own algorithm and return the reply."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fedsaddle.data.store import ClientRows, Ints, Labelled, Stacked
from fedsaddle.deployment.logs import traceback_lines
from fedsaddle.deployment.messages import Answer, Ask
from fedsaddle.deployment.site_memory import InMemory, Versions
from fedsaddle.engines.memory import Memory
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadMessage, FedSaddleError, Refused
from fedsaddle.federation.clients import Task
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.wire import Kinds, Message, kinds_of, pack, unpack

_FIRST = np.zeros(1, dtype=np.int64)
log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class OwnRows:
    """The rows of one client in a federation of `count` clients; the other clients appear empty."""

    alone: Stacked  # the rows, as a federation of one client
    client: int
    count: int

    @property
    def positives(self) -> float | None:
        """The share of label 1 in every minibatch."""
        return self.alone.positives

    @cached_property
    def sizes(self) -> Ints:
        """Rows per client; 0 for all other clients."""
        sizes = np.zeros(self.count, dtype=np.int64)
        sizes[self.client] = len(self.alone.x)
        return sizes

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """The positions of the rows of one label."""
        return self.alone.labelled(_FIRST, label)

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Some rows, with a leading axis of one client."""
        return self.alone.gather(_FIRST, rows)

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows, without a copy."""
        return self.alone.everything(_FIRST)


@dataclass
class SiteWorker:
    """Runs tasks for one client; the site builds the algorithm from its own config."""

    algorithm: Any
    rows: ClientRows
    client: int
    seed: int
    run: str
    fingerprint: str
    versions: Versions = field(default_factory=InMemory)

    def __post_init__(self) -> None:
        self.kinds: Kinds = kinds_of(self.algorithm)

    def answer(self, content: bytes) -> bytes:
        """Run the requested task; a failure is reported by its kind only, because its text may contain data."""
        nonce = ""
        try:
            message = unpack(content, self.kinds)
            ask = Ask.read(message.about)
            nonce = ask.nonce
            return pack(self._run(ask, message.record))
        except Exception as reason:
            return failure_answer(nonce, reason)

    def _run(self, ask: Ask, sent: Any) -> Message:
        if (ask.run, ask.fingerprint) != (self.run, self.fingerprint):
            raise Refused(
                f"this site is configured for run {self.run!r} with fingerprint {self.fingerprint}, "
                f"not for {ask.run!r} with {ask.fingerprint}"
            )
        task, me = task_of(self.algorithm, ask.task), str(self.client)
        number = np.array([self.client], dtype=np.int64)
        site = LocalSite(self.rows, number, ClientKeys.of(self.seed, ask.round, ask.exchange, number))
        start = ask.starts.get(me)
        memory = Memory() if start is None else Memory({self.client: self.versions.read(start, self.kinds)})
        own, reply = task(memory.read(task, site), sent, site)
        memory.write(site.clients, site.sizes, own)
        memory.commit()
        version = None
        if self.client in memory.kept:
            version = ask.version
            self.versions.write(version, memory.kept[self.client])
        self.versions.keep_only({*ask.keep.get(me, ()), *(v for v in (start, version) if v is not None)})
        return Message(Answer(nonce=ask.nonce, version=version, samples=site.samples, failure=None).to_dict(), reply)


def failure_answer(nonce: str, reason: Exception) -> bytes:
    """Encode the answer to a failed request; the full text goes only to the site's own log."""
    if isinstance(reason, FedSaddleError):
        log.error("could not answer: %s", reason)
    else:
        log.error("could not answer: %s", traceback_lines(reason))
    return pack(Message(Answer.failed(nonce, reason).to_dict()))


def task_of(algorithm: Any, name: str) -> Task[Any]:
    """The algorithm's task of that name: a public method with the arguments (own, sent, site)."""
    method = getattr(type(algorithm), name, None) if name.isidentifier() and not name.startswith("_") else None
    if not inspect.isfunction(method) or [*inspect.signature(method).parameters][1:] != ["own", "sent", "site"]:
        raise BadMessage(f"{type(algorithm).__name__} has no task {name!r:.40}")
    task: Callable[[Any, Any, Any], tuple[Any, Any]] = getattr(algorithm, name)
    return task
