"""Carries one message to several sites and brings back checked answers; asks again while too few have answered."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from fedsaddle.deployment.attendance import Attendance
from fedsaddle.deployment.messages import REFUSED, Answer, Errand
from fedsaddle.deployment.transport import Transport
from fedsaddle.errors import BadMessage, Diverged, NobodyAnswered, TooFewAnswered
from fedsaddle.federation.wire import Kinds, Message, pack, unpack

log = logging.getLogger("fedsaddle.server")
T = TypeVar("T")
Check = Callable[[Answer, Any], T]  # facts and record of an answer -> what is taken from it, or BadMessage


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to wait, and for how many."""

    timeout: float = 60.0  # seconds for one exchange
    minimum: int = 1  # sites of the federation that must be up
    patience: float = 300.0  # seconds to go on asking while fewer do
    pause: float = 1.0  # seconds between such attempts
    most_bytes: int = 1 << 30  # of one reply


@dataclass
class Courier:
    """The way to the sites: `names[i]` is the site of client i."""

    transport: Transport
    names: tuple[str, ...]
    patience: Patience = field(default_factory=Patience)
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.attendance = Attendance(self.names)

    def least(self, cohort: int) -> int:
        """How many of a cohort must answer: as many as it surely holds of the sites that are up; 0: perhaps none."""
        return max(0, self.patience.minimum - (len(self.names) - cohort))

    def errand(
        self,
        do: str,
        run: str,
        payload: Mapping[str, Any],
        *,
        fingerprint: str = "",
        everyone: bool = False,
        round: int = 0,
        check: Check[Any] | None = None,
    ) -> dict[int, Any]:
        """Something other than a task: `do` it everywhere; what came back, by client."""

        def made(nonce: str, clients: list[int]) -> Message:
            return Message(Errand(do=do, run=run, fingerprint=fingerprint, nonce=nonce).to_dict(), dict(payload))

        least = len(self.names) if everyone else max(1, self.least(len(self.names)))
        taken = check or (lambda answer, record: record)
        return self.collect(range(len(self.names)), least, made, {}, taken, do, round)

    def collect(
        self,
        clients: Sequence[int],
        least: int,
        made: Callable[[str, list[int]], Message],
        kinds: Kinds,
        check: Check[T],
        where: str,
        round: int,
    ) -> dict[int, T]:
        """What `check` takes from the answers, by client: of at least `least` of them.

        `made(nonce, clients)` is the message for one attempt. Clients that fail are counted, named in the log with the
        reason, and left out.
        """
        awake = [i for i in clients if not self.attendance.rests(i, round)]
        asked = awake if len(awake) >= least else list(clients)
        good: dict[int, T] = {}
        began = self.now()
        while True:
            waiting = [i for i in asked if i not in good]
            new, faults = self._attempt(waiting, made, kinds, check, max(1, least - len(good)))
            good |= new
            for i, reason in faults.items():
                self.attendance.bad(i, reason, round)
                log.warning("%s: %s left out: %s", where, self.names[i], reason)
            if len(good) >= max(1, least):
                return good
            if not good and all("not finite" in reason for reason in faults.values()):
                first = next(iter(faults))
                raise Diverged(first, faults[first].split("'")[1])
            if least == 0:
                raise NobodyAnswered(f"{where}: none of the {len(waiting)} sites asked has answered")
            willing = len(clients) - sum(reason.startswith(REFUSED) for reason in faults.values())
            if self.now() - began >= self.patience.patience or willing < least:
                raise TooFewAnswered(self._complaint(where, len(good), least, faults, self.now() - began))
            asked = list(clients)
            self.sleep(self.patience.pause)

    def _attempt(
        self, clients: list[int], made: Callable[[str, list[int]], Message], kinds: Kinds, check: Check[T], least: int
    ) -> tuple[dict[int, T], dict[int, str]]:
        """Those who answered properly, and what is wrong with the others."""
        nonce = secrets.token_hex(8)
        content = pack(made(nonce, clients))
        for i in clients:
            self.attendance.bytes_down[i] += len(content)
        good: dict[int, T] = {}
        faults = dict.fromkeys(clients, f"did not answer in {self.patience.timeout:g} s")
        for arrival in self.transport.exchange(clients, content, least, self.patience.timeout):
            if arrival.client not in faults:  # not asked, or heard already
                continue
            try:
                if arrival.content is None:
                    raise BadMessage(arrival.reason)
                good[arrival.client] = check(*self._read(arrival.client, arrival.content, nonce, kinds))
                del faults[arrival.client]
            except BadMessage as reason:
                faults[arrival.client] = str(reason)
        return good, faults

    def _read(self, client: int, content: bytes, nonce: str, kinds: Kinds) -> tuple[Answer, Any]:
        self.attendance.bytes_up[client] += len(content)
        if len(content) > self.patience.most_bytes:
            raise BadMessage(f"sent {len(content):,} bytes, more than the limit of {self.patience.most_bytes:,}")
        message = unpack(content, kinds)
        answer = Answer.read(message.about)
        if answer.failure:
            raise BadMessage(f"{'' if answer.failure.startswith(REFUSED) else 'failed: '}{answer.failure:.200}")
        if answer.nonce != nonce:
            raise BadMessage("sent a reply to another ask")
        return answer, message.record

    def _complaint(self, where: str, good: int, least: int, faults: dict[int, str], seconds: float) -> str:
        why = "; ".join(f"{self.names[i]} {reason}" for i, reason in sorted(faults.items())[:5])
        silent = any("answer" in reason or "connected" in reason for reason in faults.values())
        remedy = "start the missing sites" if silent else "see the logs of these sites"
        return (
            f"{where}: {good} of at least {least} sites answered within {seconds:.0f} s ({why}); "
            f"{remedy} and resume, or lower the minimum"
        )
