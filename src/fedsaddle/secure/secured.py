"""A wrapper that makes a simulated engine aggregate as a deployment with secure aggregation does, bit for bit."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import Generic

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.clients import Own, Sent, Task, merge_repeats
from fedsaddle.federation.records import R, Visibility, select_clients, tensors, visibility
from fedsaddle.federation.reduction import NOBODY, Reduces, finite_clients, first_not_finite
from fedsaddle.federation.tasks import tasks_of
from fedsaddle.federation.wrappers import Wrapper, engine_of
from fedsaddle.files import Json
from fedsaddle.secure.fixed_point import (
    LEAST_SITES,
    Layout,
    OutOfRange,
    Words,
    decode,
    encode,
    layout_of,
    shares_of,
    shown_fields,
    too_few,
)
from fedsaddle.secure.keys import RunKeys, require_cryptography
from fedsaddle.secure.masking import InMemoryAnswerLog, Question, SiteMasks, unmask_

MOST_MASKED = 50  # clients of a simulated cohort; masks of more would take long, and the result is the same


@dataclass
class SeenFields:
    """The fields of all replies: those of which the server saw sums, and those of which it saw each value.

    Args:
        sums: fields of which it saw sums.
        single: fields of which it saw each client's.
    """

    sums: set[str] = field(default_factory=set)
    single: set[str] = field(default_factory=set)

    def note(self, kind: type, names: set[str]) -> None:
        """Add the fields of a reply that were not empty."""
        for name, visible in visibility(kind).items():
            if name in names:
                (self.sums if visible is Visibility.AVERAGED else self.single).add(f"{kind.__name__}.{name}")

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return {"secure_aggregation": {"sums": sorted(self.sums), "single": sorted(self.single)}}


@dataclass
class Secured(Wrapper):
    """The same clients, whose averaged fields are summed in fixed point and, if `masked`, under masks.

    Without masks the result is the same bit for bit; the tests compare with it.

    Args:
        masked: whether masks are made.
        seen: fields that the server has seen.
    """

    masked: bool = True
    seen: SeenFields = field(default_factory=SeenFields)
    _masks: dict[int, SiteMasks] = field(default_factory=dict, repr=False)
    _publics: dict[int, bytes] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        require_cryptography()
        engine = engine_of(self.inner)
        if not isinstance(engine, Reduces):
            name, remedy = (
                type(engine).__name__,
                "reduces replies itself; secure aggregation works on the library's own",
            )
            raise BadInput("engine", name, f"{remedy} engines, or on one with an attribute `reduce` that it uses")
        if self.count < LEAST_SITES:
            raise BadInput("secure_aggregation", True, f"needs at least {LEAST_SITES} clients; there are {self.count}")
        engine.reduce = self._reduction
        self._asked: tuple[Ints, Floats] | None = None

    def settings(self) -> dict[str, Json]:
        """Settings that affect the rounding of a run."""
        return {**self.inner.settings(), "secure_aggregation": True}

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary, with the fields that the server saw."""
        return {**self.inner.report(), **self.seen.to_dict()}

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask the clients; the engine hands their replies to a reduction that masks and sums them."""
        clients, total = merge_repeats(cohort, weights, self.count)
        self._asked = clients, shares_of(total)
        return self.inner.ask(clients, task, sent, weights=total)

    def _reduction(self, task: Task[Own, Sent, R], sent: Sent) -> SecureReduction[R]:
        assert self._asked is not None
        clients, shares = self._asked
        return SecureReduction(self, clients.tolist(), shares.tolist())

    def masks(self, cohort: list[int]) -> dict[int, SiteMasks]:
        """The masks of each client, with new keys for clients without any."""
        for i in cohort:
            if i not in self._masks:
                keys = RunKeys.new()
                self._publics[i] = keys.public
                self._masks[i] = SiteMasks(i, keys, self._publics, b"simulated")
        return {i: self._masks[i] for i in cohort}


@dataclass
class SecureReduction(Generic[R]):
    """Masks the replies of one exchange as their sites would, and removes the masks from the sum.

    Args:
        of: the clients.
        cohort: numbers of the clients asked.
        shares: of the weight, in the same order.
        kind: class of the reply.
        layout: of the masked fields.
        clients: that have answered.
        words: masked words of each client.
        shown: fields that are not masked.
    """

    of: Secured
    cohort: list[int]
    shares: list[float]
    kind: type[R] | None = None
    layout: Layout = ()
    clients: list[int] = field(default_factory=list)
    words: dict[int, Words] = field(default_factory=dict)
    shown: dict[str, list[Tensor]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.question = Question(secrets.token_bytes(32), tuple(self.cohort), tuple(self.shares))

    def add(self, clients: Ints, weights: Floats, reply: R) -> None:
        """Add the replies of `clients`, stacked along the leading axis."""
        if not bool(finite_clients(reply).all()):
            name, value = next((n, v) for n, v in tensors(reply) if not bool(torch.isfinite(v).all()))
            raise Diverged(first_not_finite(clients, value), name)
        self.kind = type(reply)
        for c, i in enumerate(clients.tolist()):
            one = select_clients(reply, torch.tensor([c]))
            self.layout = layout_of(one)
            if self.layout:
                self.words[i] = self._encoded(i, one)
            for name, value in shown_fields(one).items():
                self.shown.setdefault(name, []).append(value)
            self.clients.append(i)

    def _encoded(self, client: int, reply: R) -> Words:
        share = self.shares[self.cohort.index(client)]
        try:
            words = encode(reply, share)
        except OutOfRange as reason:
            raise BadInput("secure_aggregation", True, f"client {client} has {reason}") from None
        if self._masked and not too_few(self.shares):
            masks = self.of.masks(self.cohort)[client]
            masks.hide_(words, self.question)
            masks.log(self.question.digest.hex(), self.question, "")
        return words

    @property
    def _masked(self) -> bool:
        return self.of.masked and len(self.cohort) <= MOST_MASKED

    def answer(self) -> tuple[Ints, R]:
        """The clients that answered, and the reduced record."""
        if self.kind is None:
            raise NobodyAnswered(NOBODY)
        fields = {**self._sums(), **self._shown()}
        self.of.seen.note(self.kind, set(fields))
        return np.array(self.clients, dtype=np.int64), self.kind(**fields)

    def _sums(self) -> dict[str, Tensor]:
        if not self.layout:
            return {}
        there = [share for i, share in zip(self.cohort, self.shares, strict=True) if i in self.words]
        if reason := too_few(self.shares) or too_few(there):
            raise NobodyAnswered(reason)
        total: Words = np.add.reduce(list(self.words.values()))
        if self._masked:
            masks = self.of.masks(self.cohort)
            nonce, alive = self.question.digest.hex(), list(self.words)
            opened = {i: masks[i].open(nonce, alive) for i in alive}
            for one in masks.values():
                one.answers = InMemoryAnswerLog()  # no question is asked twice here
            unmask_(total, self.words, opened, set(self.cohort) - self.words.keys())
        return decode(total, self.layout)

    def _shown(self) -> dict[str, Tensor]:
        assert self.kind is not None
        visible, shown = visibility(self.kind), {}
        for name, parts in self.shown.items():
            whole = torch.cat(parts)
            shown[name] = whole.flatten(0, 1) if visible[name] is Visibility.POOLED else whole
        return shown


def reply_fields(algorithm: type) -> dict[str, Visibility]:
    """`{"LocalModels.final": Visibility.AVERAGED, ...}` of all tasks of an algorithm, in their order."""
    replies = dict.fromkeys(reply for task in tasks_of(algorithm).values() for reply in task.replies)
    return {f"{kind.__name__}.{name}": seen for kind in replies for name, seen in visibility(kind).items()}
