"""Masks of secure aggregation: how a site masks and unmasks, and how the server removes masks from a sum.

The protocol is that of Bonawitz et al. (2017) on the complete graph.

In an exchange with cohort C, site i sends `y_i = x_i + PRG(b_i) ± Σ_{j in C} PRG(m_ij)`: b_i is its own secret;
m_ij is shared by i and j, who add it with opposite signs. Then the server names the set S of sites that answered, and
site i reveals b_i, and m_ij for each j of C that is not in S. So the server learns the sum over S only. The b_i of a
late reply is not revealed.

What i reveals is sealed with `⊕_{j in S} a_ij`, where j sends `a_ij`, a value that depends on S. So the server can
read it only if all of S received the same S, and gains nothing by naming different sets to different sites.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol

from fedsaddle.errors import BadMessage, Refused
from fedsaddle.secure.fixed_point import LEAST_SITES, Words, too_few
from fedsaddle.secure.keys import SEED, RunKeys, add_masks_, derive, exclusive_or


@dataclass(frozen=True)
class Question:
    """A request to a cohort: its digest, the sites with their shares of the weight, and round and exchange.

    Args:
        digest: of the message.
        cohort: the sites asked.
        shares: their shares of the weight.
        when: round and exchange.
    """

    digest: bytes
    cohort: tuple[int, ...]
    shares: tuple[float, ...]
    when: tuple[int, int] = (0, 0)

    def shares_of(self, sites: Iterable[int]) -> list[float]:
        """The shares of some of the cohort."""
        return [self.shares[self.cohort.index(i)] for i in sites]


@dataclass(frozen=True)
class LoggedAnswer:
    """A question that a site answered.

    Args:
        question: that was answered.
        reply: digest of the masked values.
        opened: the set for which its masks were revealed.
    """

    question: Question
    reply: str
    opened: tuple[int, ...] | None = None


class AnswerLog(Protocol):
    """The log of a site's answers; it must outlive the site's process."""

    def locked(self) -> AbstractContextManager[None]:
        """Lock the log, against other processes of the site too, and read what they have appended."""
        ...

    def get(self, nonce: str) -> LoggedAnswer | None:
        """The logged answer to a question; None if there is none."""
        ...

    def put(self, nonce: str, logged: LoggedAnswer) -> None:
        """Log an answer."""
        ...

    def opened_at(self, when: tuple[int, int]) -> LoggedAnswer | None:
        """The logged answer whose masks were revealed in that round and exchange."""
        ...


@dataclass
class InMemoryAnswerLog:
    """A log in this process, for simulations and tests.

    Args:
        by_nonce: answers by the nonce of their question.
        opened: answers whose masks were opened, by round and exchange.
    """

    by_nonce: dict[str, LoggedAnswer] = field(default_factory=dict)
    opened: dict[tuple[int, int], LoggedAnswer] = field(default_factory=dict)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """No lock is needed within one process."""
        yield

    def get(self, nonce: str) -> LoggedAnswer | None:
        """The logged answer to a question; None if there is none."""
        return self.by_nonce.get(nonce)

    def put(self, nonce: str, logged: LoggedAnswer) -> None:
        """Log an answer."""
        self.by_nonce[nonce] = logged
        if logged.opened is not None:
            self.opened[logged.question.when] = logged

    def opened_at(self, when: tuple[int, int]) -> LoggedAnswer | None:
        """The logged answer whose masks were revealed in that round and exchange."""
        return self.opened.get(when)


@dataclass(frozen=True)
class UnmaskShare:
    """The masks that a site reveals for one set S, sealed, and its parts of the seals of others.

    Args:
        own: b_i.
        lost: j not in S -> m_ij.
        agreed: j of S -> a_ji.
    """

    own: bytes
    lost: Mapping[int, bytes]
    agreed: Mapping[int, bytes]


@dataclass
class SiteMasks:
    """One site's side; `publics[j]` is the public key of site j in this run.

    All masks depend on `roster`, a digest of the run, its sites in order and their keys: values masked for one list of
    sites can only be unmasked for the same list.

    Args:
        me: number of this site.
        keys: of this site in this run.
        publics: public keys of all sites.
        roster: digest of run, sites and keys.
        answers: log of answers.
        least: sites of a sum; a site's policy may ask for more.
    """

    me: int
    keys: RunKeys
    publics: Mapping[int, bytes]
    roster: bytes
    answers: AnswerLog = field(default_factory=InMemoryAnswerLog)
    least: int = LEAST_SITES
    _pairs: dict[int, bytes] = field(default_factory=dict, repr=False)

    def require(self, question: Question) -> None:
        """Refuse a cohort whose sum would reveal the value of one site."""
        cohort = set(question.cohort)
        if self.me not in cohort or len(cohort) != len(question.cohort) or not cohort <= self.publics.keys():
            raise Refused("a list of sites for secure aggregation that has this site not at all, or one twice")
        if reason := too_few(question.shares, self.least):
            raise Refused(reason)

    def hide_(self, words: Words, question: Question) -> None:
        """Mask the words of the answer to a question."""
        self.require(question)
        others = [j for j in question.cohort if j != self.me]
        pairs = [(self._seed(question, j), sign_of(self.me, j)) for j in others]
        add_masks_(words, [(self._own(question), 1), *pairs])

    def log(self, nonce: str, question: Question, reply: str) -> None:
        """Log an answer before it leaves; refuse another answer to the same question, or under the same nonce."""
        with self.answers.locked():
            logged = self.answers.get(nonce)
            if logged is None:
                self.answers.put(nonce, LoggedAnswer(question, reply))
            elif (logged.question, logged.reply) != (question, reply):
                raise Refused("another answer to a question that was answered before; its mask is used once only")

    def open(self, nonce: str, alive: Sequence[int]) -> UnmaskShare:
        """Reveal the masks of an answer for one set of sites, and never for another one."""
        with self.answers.locked():
            logged, S = self.answers.get(nonce), tuple(sorted(alive))
            if logged is None:
                raise Refused("this site has not answered that question, so that it has no masks to open")
            self._allow(logged, S)
            if logged.opened is None:
                self.answers.put(nonce, replace(logged, opened=S))
        question, seal = logged.question, bytes(SEED)
        for j in S:
            if j != self.me:
                seal = exclusive_or(seal, self._agreed(question, S, j, self.me))
        lost = {j: self._seed(question, j) for j in question.cohort if j not in S}
        return UnmaskShare(
            own=_sealed(seal, "own", self._own(question)),
            lost={j: _sealed(seal, f"lost {j}", seed) for j, seed in lost.items()},
            agreed={j: self._agreed(question, S, j, j) for j in S if j != self.me},
        )

    def _allow(self, logged: LoggedAnswer, S: tuple[int, ...]) -> None:
        """Refuse a set whose sum, alone or with what was revealed before, would reveal the value of one site."""
        question = logged.question
        if len(set(S)) != len(S) or not set(S) <= set(question.cohort) or self.me not in S:
            raise Refused("a set of sites that is not a part of those asked with this site in it")
        if reason := too_few(question.shares_of(S), self.least):  # a site of weight 0 hides nobody
            raise Refused(reason)
        if logged.opened not in (None, S):
            raise Refused("the masks of this answer were opened for another set of sites")
        before = self.answers.opened_at(question.when)
        if before is not None and _sum_of(before.question, before.opened or ()) != _sum_of(question, S):
            reason = "in this exchange of this round the masks of another sum were opened"
            raise Refused(f"{reason}, with other sites or weights; the difference of the two would reveal one site")

    def _own(self, question: Question) -> bytes:
        return derive(self.keys.own, "own mask", self.roster, question.digest)

    def _seed(self, question: Question, other: int) -> bytes:
        return derive(self._pair(other), "pair mask", question.digest)

    def _agreed(self, question: Question, S: tuple[int, ...], other: int, about: int) -> bytes:
        """a_ij of the pair with `other`, for the seal of the one of the two whose number is `about`."""
        text = ",".join(map(str, S)).encode()
        return derive(self._pair(other), "agreed", question.digest, text, str(about).encode())

    def _pair(self, other: int) -> bytes:
        if other not in self._pairs:
            numbers = f"{min(self.me, other)},{max(self.me, other)}".encode()
            self._pairs[other] = self.keys.pair(self.publics[other], self.roster, numbers)
        return self._pairs[other]


def sign_of(i: int, j: int) -> int:
    """The sign with which i adds the mask that it shares with j."""
    return 1 if i < j else -1


def _sum_of(question: Question, S: Iterable[int]) -> dict[int, float]:
    """The sites of a sum with their weights."""
    return dict(zip(S, question.shares_of(S), strict=True))


def _sealed(seal: bytes, what: str, content: bytes) -> bytes:
    return exclusive_or(content, derive(seal, "seal", what.encode()))


def unmask_(total: Words, alive: Iterable[int], openings: Mapping[int, UnmaskShare], lost: Iterable[int]) -> None:
    """Remove the masks from the sum over the sites `alive`, given the unmask shares of all of them."""
    S, away = sorted(alive), sorted(lost)
    if sorted(openings) != S:
        raise BadMessage("masks of some sites are not opened")
    masks = []
    for i in S:
        seal = bytes(SEED)
        for j in S:
            if j != i:
                if i not in openings[j].agreed:
                    raise BadMessage("an opening without what the seals of others need")
                seal = exclusive_or(seal, openings[j].agreed[i])
        if sorted(openings[i].lost) != away:
            raise BadMessage("an opening without the masks of lost sites")
        masks.append((_sealed(seal, "own", openings[i].own), -1))
        masks += [(_sealed(seal, f"lost {j}", openings[i].lost[j]), -sign_of(i, j)) for j in away]
    add_masks_(total, masks)
