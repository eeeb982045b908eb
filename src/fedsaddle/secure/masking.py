"""What a site hides and opens, and how the server takes masks out of a sum (Bonawitz et al. 2017, complete graph).

In an exchange among the cohort C a site i sends `y_i = x_i + PRG(b_i) ± Σ_{j in C} PRG(m_ij)`: b_i is its own secret,
m_ij is known to i and j, who add it with opposite signs. Then the server names the set S of those who answered, and
site i opens b_i, and m_ij for each j of C that is not in S. So the server learns the sum over S. A reply that comes
late keeps its b_i.

What i opens is sealed with `⊕_{j in S} a_ij`, where j tells `a_ij`, a value that depends on S. So the server can read
it only if all of S were told the same S, and it opens nothing by telling different sites of different sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from fedsaddle.errors import BadMessage, Refused
from fedsaddle.secure.fixed_point import LEAST_SITES, Words, too_few
from fedsaddle.secure.keys import RunKeys
from fedsaddle.secure.masks import SEED, add_mask_, derive, exclusive_or


@dataclass(frozen=True)
class Noted:
    """What a site remembers of a question that it answered."""

    about: str  # digest of the question
    cohort: tuple[int, ...]
    reply: str  # digest of what it sent
    opened: tuple[int, ...] | None = None  # the set for which it opened its masks


class Book(Protocol):
    """Where a site notes what it has answered; it must outlive the site's process."""

    def get(self, nonce: str) -> Noted | None:
        """The note of a question."""
        ...

    def put(self, nonce: str, noted: Noted) -> None:
        """Note it."""
        ...


@dataclass
class InMemoryBook:
    """Notes in this process, for simulations and tests."""

    notes: dict[str, Noted] = field(default_factory=dict)

    def get(self, nonce: str) -> Noted | None:
        """The note of a question."""
        return self.notes.get(nonce)

    def put(self, nonce: str, noted: Noted) -> None:
        """Note it."""
        self.notes[nonce] = noted


@dataclass(frozen=True)
class Opening:
    """What a site opens of its masks for one set S, sealed, and what it tells for the seals of others."""

    own: bytes  # b_i
    lost: Mapping[int, bytes]  # j not in S -> m_ij
    agreed: Mapping[int, bytes]  # j of S -> a_ji


@dataclass
class SiteMasks:
    """One site's side; `publics[j]` is the public key of site j in this run."""

    me: int
    keys: RunKeys
    publics: Mapping[int, bytes]
    run: str
    book: Book = field(default_factory=InMemoryBook)
    _pairs: dict[int, bytes] = field(default_factory=dict, repr=False)

    def hide_(self, words: Words, question: bytes, cohort: Sequence[int], shares: Sequence[float]) -> None:
        """Mask the words of the answer to a question, given by its digest; refuse a cohort that would tell of one."""
        if reason := too_few(shares):
            raise Refused(reason)
        if self.me not in cohort or len(set(cohort)) != len(cohort) or not set(cohort) <= self.publics.keys():
            raise Refused("a list of sites for secure aggregation that has this site not at all, or one twice")
        add_mask_(words, self._own(question), 1)
        for j in cohort:
            if j != self.me:
                add_mask_(words, self._seed(question, j), sign_of(self.me, j))

    def note(self, nonce: str, question: bytes, cohort: Sequence[int], reply: str) -> None:
        """Note an answer before it leaves; refuse another answer to the same question, or under the same nonce."""
        found = self.book.get(nonce)
        if found is None:
            self.book.put(nonce, Noted(question.hex(), tuple(cohort), reply))
        elif (found.about, found.cohort, found.reply) != (question.hex(), tuple(cohort), reply):
            raise Refused("another answer to a question that was answered before; its mask is used once only")

    def open(self, nonce: str, alive: Sequence[int]) -> Opening:
        """Open the masks of an answer for one set of sites, and never for another one."""
        noted, S = self.book.get(nonce), tuple(sorted(alive))
        if noted is None:
            raise Refused("this site has not answered that question, so that it has no masks to open")
        if len(set(S)) != len(S) or not set(S) <= set(noted.cohort) or self.me not in S:
            raise Refused("a set of sites that is not a part of those asked with this site in it")
        if len(S) < LEAST_SITES:
            raise Refused(f"a sum of {len(S)} sites; secure aggregation needs at least {LEAST_SITES}")
        if noted.opened not in (None, S):
            raise Refused("the masks of this answer were opened for another set of sites")
        if noted.opened is None:
            self.book.put(nonce, Noted(noted.about, noted.cohort, noted.reply, S))
        question = bytes.fromhex(noted.about)
        seal = bytes(SEED)
        for j in S:
            if j != self.me:
                seal = exclusive_or(seal, self._agreed(question, S, j, self.me))
        lost = {j: self._seed(question, j) for j in noted.cohort if j not in S}
        return Opening(
            own=_sealed(seal, "own", self._own(question)),
            lost={j: _sealed(seal, f"lost {j}", seed) for j, seed in lost.items()},
            agreed={j: self._agreed(question, S, j, j) for j in S if j != self.me},
        )

    def _own(self, question: bytes) -> bytes:
        return derive(self.keys.own, "own mask", question)

    def _seed(self, question: bytes, other: int) -> bytes:
        return derive(self._pair(other), "pair mask", question)

    def _agreed(self, question: bytes, S: tuple[int, ...], other: int, about: int) -> bytes:
        """a_ij of the pair with `other`, for the seal of the one of the two whose number is `about`."""
        text = ",".join(map(str, S)).encode()
        return derive(self._pair(other), "agreed", question, text, str(about).encode())

    def _pair(self, other: int) -> bytes:
        if other not in self._pairs:
            self._pairs[other] = self.keys.pair(self.publics[other], self.run)
        return self._pairs[other]


def sign_of(i: int, j: int) -> int:
    """The sign with which i adds the mask that it shares with j."""
    return 1 if i < j else -1


def _sealed(seal: bytes, what: str, content: bytes) -> bytes:
    return exclusive_or(content, derive(seal, "seal", what.encode()))


def unmasked_sum(replies: Mapping[int, Words], openings: Mapping[int, Opening], lost: Iterable[int]) -> Words:
    """The sum of what the sites hid, from the masked replies and the openings of all of them."""
    alive, away = sorted(replies), sorted(lost)
    if sorted(openings) != alive:
        raise BadMessage("masks of some sites are not opened")
    total = np.zeros_like(replies[alive[0]])
    for i in alive:
        total += replies[i]
        seal = bytes(SEED)
        for j in alive:
            if j != i:
                if i not in openings[j].agreed:
                    raise BadMessage("an opening without what the seals of others need")
                seal = exclusive_or(seal, openings[j].agreed[i])
        if sorted(openings[i].lost) != away:
            raise BadMessage("an opening without the masks of lost sites")
        add_mask_(total, _sealed(seal, "own", openings[i].own), -1)
        for j in away:
            add_mask_(total, _sealed(seal, f"lost {j}", openings[i].lost[j]), -sign_of(i, j))
    return total
