"""The site's side of an exchange: run the requested task of the site's own algorithm and return the reply."""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.data.store import ClientRows, Labelled, Stacked
from fedsaddle.deployment.audit import AuditLog, Occasion, traceback_lines
from fedsaddle.deployment.ledger import SiteBudget
from fedsaddle.deployment.messages import Answer, Ask
from fedsaddle.deployment.questions import Questions, digest
from fedsaddle.deployment.secure_site import SiteSecure
from fedsaddle.deployment.site_plan import Plan
from fedsaddle.engines.device import CPU, ResidentRows, fits, moved, site_on
from fedsaddle.engines.site import LocalSite, Memory
from fedsaddle.errors import BadCheckpoint, BadMessage, CannotWrite, FedSaddleError, Refused
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import is_record, tensors
from fedsaddle.federation.tasks import records_of, task_of
from fedsaddle.federation.wire import Kinds, Message, pack, require_record, unpack
from fedsaddle.files import write_atomically
from fedsaddle.privacy.site import SecretKeys, digest_of

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_DIGEST = hashlib.sha256().digest_size


class Versions(Protocol):
    """The store of a client's memory."""

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        ...

    def write(self, version: str, record: object) -> None:
        """Store a record under a new version."""
        ...

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        ...


@dataclass
class InMemory:
    """Versions in this process, for tests and for runs that are not resumed.

    Args:
        stored: records as bytes, by version.
    """

    stored: dict[str, bytes] = field(default_factory=dict)

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        if version not in self.stored:
            raise BadCheckpoint(f"memory {version} does not exist")
        return unpack(self.stored[version], kinds).record

    def write(self, version: str, record: object) -> None:
        """Store a record under a new version."""
        self.stored[version] = pack(Message({}, record))

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        self.stored = {k: v for k, v in self.stored.items() if k in versions}


@dataclass(frozen=True)
class OnDisk:
    """Versions as files in one folder, each with a checksum.

    Args:
        folder: with a file for each version.
    """

    folder: Path

    def read(self, version: str, kinds: Kinds) -> Any:
        """The record of that version."""
        path = self._path(version)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BadCheckpoint(f"memory {version} does not exist") from None
        if hashlib.sha256(content[_DIGEST:]).digest() != content[:_DIGEST]:
            raise BadCheckpoint(f"memory {version} is damaged (the checksum differs)")
        return unpack(memoryview(content)[_DIGEST:], kinds).record

    def write(self, version: str, record: object) -> None:
        """Store a record under a new version."""
        self.folder.mkdir(parents=True, exist_ok=True)
        content = pack(Message({}, record))
        write_atomically(self._path(version), hashlib.sha256(content).digest() + content)

    def keep_only(self, versions: set[str]) -> None:
        """Delete all other versions."""
        for path in self.folder.glob("*.memory"):
            if path.stem not in versions:
                path.unlink(missing_ok=True)

    def _path(self, version: str) -> Path:
        return self.folder / f"{safe_name(version)}.memory"


def safe_name(name: str) -> str:
    """Check that a received name is safe as a file name."""
    if not _NAME.fullmatch(name) or ".." in name:
        raise BadMessage(f"{name!r:.60} is not a valid file name")
    return name


_FIRST = np.zeros(1, dtype=np.int64)
log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class OwnRows:
    """The rows of one client in a federation of `count` clients; the other clients appear empty.

    Args:
        own: the rows, as a federation of one client.
        client: number of this site.
        count: clients of the federation.
    """

    own: Stacked
    client: int
    count: int

    @property
    def positives(self) -> float | None:
        """The share of label 1 in every minibatch."""
        return self.own.positives

    @cached_property
    def sizes(self) -> Ints:
        """Rows per client; 0 for all other clients."""
        sizes = np.zeros(self.count, dtype=np.int64)
        sizes[self.client] = len(self.own.x)
        return sizes

    def unit_numbers(self, client: int) -> Ints | None:
        """The number of each row's patient; None: each row is its own."""
        return self.own.unit_numbers(0)

    def unit_rows(self, client: int) -> list[Ints]:
        """The rows of each patient."""
        return self.own.unit_rows(0)

    def labelled(self, clients: Ints, label: int) -> Labelled:
        """The positions of the rows of one label."""
        return self.own.labelled(_FIRST, label)

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Some rows, with a leading axis of one client."""
        return self.own.gather(_FIRST, rows)

    def everything(self, clients: Ints) -> tuple[Tensor, Tensor] | None:
        """All rows, without a copy."""
        return self.own.everything(_FIRST)


@dataclass
class SiteWorker:
    """Runs tasks for one client; the site builds the algorithm from its own config.

    Args:
        algorithm: as the site's config builds it.
        rows: of this site.
        client: number of this site.
        seed: of the run.
        run: name of the run.
        fingerprint: of the algorithm that all agreed on.
        versions: where its memory is stored.
        audit: log of what leaves.
        questions: what was answered; None: everything is, any number of times.
        plan: of the run, which the questions must follow.
        sizes: rows of each client, as all were told; empty: not known.
        secret: that rows are drawn with; empty: by the seed, as in a simulation.
        device: where the tasks run.
        secure: None: replies are not masked.
        budget: of a private run; None: draws and noise come from the seed, as in a simulation.
    """

    algorithm: Any
    rows: ClientRows
    client: int
    seed: int
    run: str
    fingerprint: str
    versions: Versions = field(default_factory=InMemory)
    audit: AuditLog | None = None
    questions: Questions | None = None
    plan: Plan | None = None
    sizes: Sequence[int] = ()
    secret: bytes = b""
    device: torch.device = CPU
    secure: SiteSecure | None = None
    budget: SiteBudget | None = None

    def __post_init__(self) -> None:
        self.kinds: Kinds = records_of(self.algorithm)
        own = self.rows.own if isinstance(self.rows, OwnRows) else None
        there = own is not None and self.device.type != "cpu" and fits(own, self.device)
        self._resident = ResidentRows(own, self.device, alone=True) if own is not None and there else None

    def answer(self, content: bytes) -> bytes:
        """Run the requested task; a failure is reported by its kind only, because its text may contain data."""
        nonce, occasion = "", Occasion(self.run, "task")
        try:
            message = unpack(content, self.kinds)
            ask = Ask.read(message.about)
            nonce, occasion = ask.nonce, Occasion(self.run, ask.task, ask.round, ask.exchange)
            reply = self._run(ask, message.record)
            sent = (
                reply if self.secure is None else replace(reply, record=self.secure.hidden(ask, content, reply.record))
            )
            if self.audit is not None:
                self.audit.add(occasion, reply.record, masked=self.secure is not None)
            return pack(sent)
        except Exception as reason:
            return pack(failed(nonce, reason, self.audit, occasion))

    def _run(self, ask: Ask, record: object) -> Message:
        if (ask.run, ask.fingerprint) != (self.run, self.fingerprint):
            raise Refused(
                f"this site is configured for run {self.run!r} with fingerprint {self.fingerprint}, "
                f"not for {ask.run!r} with {ask.fingerprint}"
            )
        if (ask.secure is None) != (self.secure is None):
            here = "secure_aggregation = true" if self.secure is not None else "no secure aggregation"
            raise Refused(f"this site's config says {here}, and the server asks for the opposite")
        if self.plan is not None and ask.round >= self.plan.rounds:
            limit = f"this site's policy says most_rounds = {self.plan.rounds}; the run is at {ask.round + 1}"
            raise Refused(f"{limit}: raise it there, or give the site a config with more rounds")
        task, me = task_of(self.algorithm, ask.task), str(self.client)
        number = np.array([self.client], dtype=np.int64)
        seeded = ClientKeys.of(self.seed, ask.round, ask.exchange, number)
        keys = ClientKeys.secret(self.secret, ask.round, ask.exchange) if self.secret else seeded
        site = self._site(number, keys)
        start = ask.starts.get(me)
        memory = Memory() if start is None else Memory({self.client: self.versions.read(start, self.kinds)})
        own, sent = memory.read(task, site), require_record(record)
        self._note(ask, sent, own)
        if self.budget is not None:
            site = self._site(number, self.budget.draws(ask, sent, own))
        new, reply = task(moved(own, self.device), moved(sent, self.device), site)
        memory.write(site.clients, site.sizes, moved(new, CPU))
        memory.commit()
        version = None
        if self.client in memory.kept:
            version = ask.version
            self.versions.write(version, memory.kept[self.client])
        self.versions.keep_only({*ask.keep.get(me, ()), *(v for v in (start, version) if v is not None)})
        answer = Answer(nonce=ask.nonce, version=version, samples=site.samples, failure=None)
        return Message(answer.to_dict(), moved(reply, CPU))

    def _site(self, client: Ints, keys: ClientKeys | SecretKeys) -> LocalSite:
        """The task's view of this site's rows, on its device."""
        resident = None if isinstance(keys, SecretKeys) else self._resident  # those are drawn on the host
        return site_on(self.device, self.rows, client, cast(ClientKeys, keys), resident)

    def _note(self, ask: Ask, sent: object, own: object) -> None:
        """Note the question before it is answered; refuse one that the plan does not have."""
        if self.questions is None or self.plan is None:
            return
        if ask.secure is not None:
            shares = {int(i): share for i, share in ask.secure.shares.items()}
            if reason := self.plan.shares_objection(ask.task, shares, self.sizes):
                self.questions.refuse(reason)
        given = digest_of(ask.task, ask.round, ask.exchange, sent, own).hex()
        carried = [digest(v) for _, v in tensors(sent)] if ask.exchange == 0 and is_record(sent) else []
        self.questions.task(ask, self.plan, given, carried)


def failed(nonce: str, reason: Exception, audit: AuditLog | None, occasion: Occasion) -> Message:
    """The answer to a failed request; the full text goes only to the site's own log."""
    if isinstance(reason, FedSaddleError):
        log.error("could not answer: %s", reason)
    else:
        log.error("could not answer: %s", traceback_lines(reason))
    answer = Answer.failed(nonce, reason)
    if audit is not None and answer.failure is not None and not isinstance(reason, CannotWrite):
        try:
            audit.add(occasion, None, answer.failure.detail)
        except FedSaddleError as again:  # the answer has no data of the site
            log.error("%s", again)
    return Message(answer.to_dict())
