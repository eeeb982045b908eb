"""Sends a message to several sites and collects checked answers; retries while too few sites answer.

Sites that fail are counted, left out of the round, and paused for some rounds before they are asked again.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

from fedsaddle.deployment.audit import traceback_lines
from fedsaddle.deployment.messages import Answer, Fault, FaultKind, Request, reply_limits
from fedsaddle.errors import BadMessage, Diverged, NobodyAnswered, TooFewAnswered
from fedsaddle.federation.wire import SMALL, Kinds, Limits, Message, pack, unpack


class Arrival(NamedTuple):
    """The answer of one client: bytes, or a fault.

    Args:
        client: who sent it.
        content: the bytes, None for a fault.
        fault: why there are no bytes.
    """

    client: int
    content: bytes | None
    fault: Fault | None = None


class Transport(Protocol):
    """Sends bytes and waits for answers. It authenticates the senders and does not read the content."""

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Send to the clients and wait for all answers or for the timeout.

        Once `least` clients have answered, a transport may return after a grace period. A client without an arrival
        did not answer.
        """
        ...


@runtime_checkable
class QuickTransport(Protocol):
    """A transport with a second way for small messages, on which sites need not ask for work first."""

    def quick(self, clients: Sequence[int], content: bytes, timeout: float) -> list[Arrival]:
        """Send to the clients and wait for their answers; those who cannot be reached so may be missing."""
        ...


@dataclass
class InProcess:
    """Sites in this process, one function each, without a network.

    Args:
        sites: what answers for each client.
    """

    sites: Mapping[int, Callable[[bytes], bytes]]

    def exchange(self, clients: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
        """Call the sites one after the other."""
        return [Arrival(i, self.sites[i](content)) for i in clients]


MAX_REST = 16  # rounds
MAX_QUICK = 10.0  # seconds for an answer to a small message
REFUSALS = frozenset({FaultKind.REFUSED})  # a site that refuses does so again
FINAL = REFUSALS | {FaultKind.BAD_MESSAGE, FaultKind.TOO_LARGE}  # where all sites are needed: asking again is no help

log = logging.getLogger("fedsaddle.server")
T = TypeVar("T")
MakeMessage = Callable[[str, list[int]], Message]  # nonce and clients of one attempt -> the message
Check = Callable[[int, Answer, Any], T | Fault]  # client, answer and record -> the result, or a fault


@dataclass
class Attendance:
    """Counts per client: answers, faults and bytes.

    Args:
        names: of the sites.
        answered: valid answers of each client.
        left_out: faults of each client, and how often.
        bytes_down: bytes sent to each client.
        bytes_up: bytes received from each client.
        in_a_row: faults of each client since its last valid answer.
        rests_until: first round in which a paused client is asked again.
    """

    names: tuple[str, ...]
    answered: Counter[int] = field(default_factory=Counter)
    left_out: dict[int, Counter[str]] = field(default_factory=dict)
    bytes_down: Counter[int] = field(default_factory=Counter)
    bytes_up: Counter[int] = field(default_factory=Counter)
    in_a_row: Counter[int] = field(default_factory=Counter)
    rests_until: dict[int, int] = field(default_factory=dict)

    def count_answer(self, client: int) -> None:
        """Count a valid answer."""
        self.answered[client] += 1
        self.in_a_row.pop(client, None)
        self.rests_until.pop(client, None)

    def count_fault(self, fault: Fault, round: int) -> None:
        """Count a fault and pause the client, twice as long after each fault in a row."""
        client = fault.client
        self.left_out.setdefault(client, Counter())[str(fault)] += 1
        self.in_a_row[client] += 1
        self.rests_until[client] = round + min(2 ** (self.in_a_row[client] - 1), MAX_REST)

    def rests(self, client: int, round: int) -> bool:
        """Whether the client is paused in this round."""
        return round < self.rests_until.get(client, 0)

    def to_dict(self) -> dict[str, Any]:
        """The counts by site name, for JSON."""
        return {
            name: {
                "answered": self.answered[i],
                "left_out": dict(self.left_out.get(i, {})),
                "bytes_down": self.bytes_down[i],
                "bytes_up": self.bytes_up[i],
            }
            for i, name in enumerate(self.names)
        }

    def restore(self, stored: dict[str, Any]) -> None:
        """Restore the counts from a checkpoint."""
        for i, name in enumerate(self.names):
            line = stored.get(name, {})
            self.answered[i] = line.get("answered", 0)
            self.left_out[i] = Counter(line.get("left_out", {}))
            self.bytes_down[i], self.bytes_up[i] = line.get("bytes_down", 0), line.get("bytes_up", 0)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait for answers, and for how many.

    Args:
        timeout: seconds for one exchange.
        minimum: sites that must be up.
        patience: seconds to retry while fewer answer.
        pause: seconds between two attempts.
        most_bytes: of one reply, at most.
    """

    timeout: float = 60.0
    minimum: int = 1
    patience: float = 300.0
    pause: float = 1.0
    most_bytes: int = 1 << 30


@dataclass
class Courier:
    """Exchanges messages with the sites; `names[i]` is the site of client i.

    Args:
        transport: brings messages to the sites.
        names: of the sites, in the order of their clients.
        patience: how long to wait, and for how many.
        now: the time in seconds, which tests replace.
        sleep: waits for so many seconds, which tests replace.
    """

    transport: Transport
    names: tuple[str, ...]
    patience: Patience = field(default_factory=Patience)
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.attendance = Attendance(self.names)

    def least(self, cohort: int) -> int:
        """How many of a cohort must answer if `minimum` sites are up; may be 0."""
        return max(0, self.patience.minimum - (len(self.names) - cohort))

    def request(
        self,
        do: str,
        run: str,
        payload: Mapping[str, object],
        *,
        fingerprint: str = "",
        everyone: bool = False,
        round: int = 0,
        check: Check[T],
    ) -> dict[int, T]:
        """Send a request other than a task to every site; return the replies by client."""

        def make_message(nonce: str, clients: list[int]) -> Message:
            return Message(Request(do=do, run=run, fingerprint=fingerprint, nonce=nonce).to_dict(), dict(payload))

        least = len(self.names) if everyone else max(1, self.least(len(self.names)))
        final = FINAL if everyone else REFUSALS
        everybody, limits = range(len(self.names)), reply_limits(do)
        return self.collect(everybody, least, make_message, {}, check, do, round, limits, final, all_needed=everyone)

    def collect(
        self,
        clients: Sequence[int],
        least: int,
        make_message: MakeMessage,
        kinds: Kinds,
        check: Check[T],
        where: str,
        round: int,
        limits: Limits = SMALL,
        final: Set[FaultKind] = REFUSALS,
        afresh: bool = False,
        all_needed: bool = False,
    ) -> dict[int, T]:
        """The results of `check` by client, from at least `least` clients and at least one.

        Clients that fail are counted, logged with the fault, and left out; `final` faults are not waited for;
        with `all_needed` a smaller `minimum` is no remedy. With `afresh` all answers are to one and the same message:
        if too few come, all clients are asked again.

        Raises:
            Diverged: if no reply is finite.
            NobodyAnswered: if `least` is 0 and no client answers.
            TooFewAnswered: if fewer than `least` answer within the patience, or too many refuse.
        """
        active = [i for i in clients if not self.attendance.rests(i, round)]
        asked = active if len(active) >= least else list(clients)
        if not asked:
            raise NobodyAnswered(f"{where}: all {len(clients)} sites of the cohort are paused after earlier faults")
        good: dict[int, T] = {}
        began = self.now()
        while True:
            good = {} if afresh else good
            waiting = [i for i in asked if i not in good]
            new, faults = self._attempt(waiting, make_message, kinds, check, max(1, least - len(good)), limits)
            good |= new
            self._note(faults, where, round)
            if len(good) >= max(1, least):
                return good
            if not good and all(fault.kind is FaultKind.NOT_FINITE for fault in faults):
                raise Diverged(faults[0].client, faults[0].detail)
            if least == 0:
                raise NobodyAnswered(f"{where}: none of the {len(waiting)} sites answered")
            available = len(clients) - sum(fault.kind in final for fault in faults)
            if self.now() - began >= self.patience.patience or available < least:
                fewer = not all_needed and 1 < least <= self.least(len(clients))
                raise TooFewAnswered(self._error_text(where, len(good), least, faults, self.now() - began, fewer))
            asked = list(clients)
            self.sleep(self.patience.pause)

    def once(
        self, clients: Sequence[int], make_message: MakeMessage, check: Check[T], where: str, round: int
    ) -> dict[int, T]:
        """The results of one attempt at these clients, paused or not; may be empty."""
        good, faults = self._attempt(list(clients), make_message, {}, check, len(clients), SMALL)
        self._note(faults, where, round)
        return good

    def quick(self, clients: Sequence[int], make_message: MakeMessage, check: Check[T]) -> dict[int, T]:
        """The same by the transport's way for small messages, if it has one; those who do not answer are no fault."""
        transport = self.transport
        if not isinstance(transport, QuickTransport):
            return {}

        def send(to: Sequence[int], content: bytes, least: int, timeout: float) -> list[Arrival]:
            return transport.quick(to, content, min(timeout, MAX_QUICK))

        return self._attempt(list(clients), make_message, {}, check, len(clients), SMALL, send)[0]

    def _note(self, faults: list[Fault], where: str, round: int) -> None:
        for fault in faults:
            self.attendance.count_fault(fault, round)
            log.warning("%s: %s left out: %s", where, self.names[fault.client], fault)

    def _attempt(
        self,
        clients: list[int],
        make_message: MakeMessage,
        kinds: Kinds,
        check: Check[T],
        least: int,
        limits: Limits,
        send: Callable[[Sequence[int], bytes, int, float], list[Arrival]] | None = None,
    ) -> tuple[dict[int, T], list[Fault]]:
        """The valid replies, and a fault for each other client, in the order of `clients`."""
        nonce = secrets.token_hex(8)
        content = pack(make_message(nonce, clients))
        for i in clients:
            self.attendance.bytes_down[i] += len(content)
        good: dict[int, T] = {}
        faults = {i: self._silent(i) for i in clients}
        for arrival in (send or self.transport.exchange)(clients, content, least, self.patience.timeout):
            client = arrival.client
            if client not in faults:  # not asked, or already answered
                continue
            found = self._read(arrival, nonce, kinds, check, limits)
            if isinstance(found, Fault):
                faults[client] = found
            else:
                good[client] = found
                del faults[client]
        return good, list(faults.values())

    def _read(self, arrival: Arrival, nonce: str, kinds: Kinds, check: Check[T], limits: Limits) -> T | Fault:
        """The checked result of one arrival, or its fault; nothing that a site sends raises anything."""
        client, content = arrival.client, arrival.content
        if content is None:
            return arrival.fault or self._silent(client)
        self.attendance.bytes_up[client] += len(content)
        if len(content) > self.patience.most_bytes:
            detail = f"{len(content):,} bytes, more than the limit of {self.patience.most_bytes:,}"
            return Fault(FaultKind.TOO_LARGE, client, detail)
        try:
            message = unpack(content, kinds, limits)
            answer = Answer.read(message.about)
            if answer.nonce != nonce and (answer.nonce or answer.failure is None):
                return Fault(FaultKind.STALE, client)
            if answer.failure is not None:  # without a nonce: it could not read that of the ask
                return answer.failure.fault(client)
            return check(client, answer, message.record)
        except BadMessage as reason:
            return Fault(FaultKind.BAD_MESSAGE, client, str(reason))
        except Exception as reason:  # not foreseen by a check: still this site's fault alone
            log.error("a reply of %s could not be checked: %s", self.names[client], traceback_lines(reason))
            return Fault(FaultKind.BAD_MESSAGE, client, f"a reply that cannot be checked ({type(reason).__name__})")

    def _silent(self, client: int) -> Fault:
        return Fault(FaultKind.SILENT, client, f"{self.patience.timeout:g} s")

    def _error_text(self, where: str, good: int, least: int, faults: list[Fault], seconds: float, fewer: bool) -> str:
        """One line; with `fewer` a smaller `minimum` in deployment.toml would help."""
        reasons = "; ".join(f"{self.names[f.client]} {f}" for f in sorted(faults, key=lambda f: f.client)[:5])
        away = any(fault.kind in (FaultKind.SILENT, FaultKind.NOT_CONNECTED) for fault in faults)
        remedy = "start the missing sites" if away else "see the logs of these sites"
        return (
            f"{where}: {good} of at least {least} sites answered within {seconds:.0f} s ({reasons}); "
            f"{remedy} and resume{', or lower the minimum' if fewer else ''}"
        )
