"""Held-out rows: each client's rows for validation and for the test."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedsaddle.arguments import number
from fedsaddle.array_types import Ints
from fedsaddle.data.splits.partition import Parts, generator
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput

HOLD_OUT, ROUNDING = 3, 8  # streams of random numbers
TRAIN, VALIDATION, TEST = 0, 1, 2


class HeldOutParts(NamedTuple):
    """The row numbers of each client to train on, for validation and for the test, in ascending order."""

    train: Parts
    validation: Parts
    test: Parts


def hold_out(
    parts: Parts,
    test_share: float,
    seed: int,
    labels: Array | None = None,
    together: Array | None = None,
    validation_share: float = 0.0,
    tested: Array | None = None,
) -> HeldOutParts:
    """Split each client's rows into training, validation and test rows; a client always keeps a training row.

    Both shares are of all rows of a client. Without `labels`, each is rounded, and at least one row where a client has
    enough. With `labels`, they are those of each class of each client, rounded up or down at random so that the
    expected share is right however few the rows.

    Rows with the same value in `together` form a group, which is not split, also if several clients have its rows: it
    counts as one row, with the highest of its labels, at the client that has the first of them. Groups whose value is
    in `tested` are test rows.

    Examples:
        >>> [part[0].tolist() for part in hold_out([np.arange(5)], 0.2, seed=0, validation_share=0.4)]
        [[0, 1], [2, 3], [4]]
    """
    check_shares(test_share, validation_share)
    rows, client = np.concatenate(parts), _codes([len(part) for part in parts])
    codes = None if labels is None else np.unique(labels, return_inverse=True)[1][rows]
    shares = np.array([test_share, validation_share])
    if together is None:
        side = _sides(client, codes, shares, seed)
    else:
        units = Units.of(rows, client, together[rows], codes)
        side = units.sides(shares, seed, np.array([]) if tested is None else tested)
    return HeldOutParts(*(_parts(rows, client, side == part, len(parts)) for part in (TRAIN, VALIDATION, TEST)))


def check_shares(test_share: float, validation_share: float) -> None:
    """Refuse shares that leave nothing to train on."""
    number("test_share", test_share, least=0, below=1)
    number("validation_share", validation_share, least=0, below=1)
    if test_share + validation_share >= 1:
        remedy = f"with test_share = {test_share:g} nothing is left to train on; the sum must be below 1"
        raise BadInput("validation_share", validation_share, remedy)


@dataclass(frozen=True)
class Units:
    """Groups of rows that are not split: the unit and the client of each row; value, home and label of each unit."""

    member: Ints  # of each row
    client: Ints
    values: Array  # of each unit
    home: Ints
    codes: Ints | None

    @classmethod
    def of(cls, rows: Ints, client: Ints, together: Array, codes: Ints | None) -> Units:
        """The units of these rows; the home is the client of the row with the lowest number."""
        values, member = np.unique(together, return_inverse=True)
        home = np.zeros(len(values), dtype=np.int64)
        last_first = np.argsort(rows)[::-1]
        home[member[last_first]] = client[last_first]
        highest = None
        if codes is not None:
            highest = np.zeros(len(values), dtype=np.int64)
            np.maximum.at(highest, member, codes)
        return cls(member, client, values, home, highest)

    def sides(self, shares: Array, seed: int, tested: Array) -> Ints:
        """The part of each row, that of its unit; units of `tested` are for the test."""
        side = np.full(len(self.values), TEST, dtype=np.int64)
        free = ~np.isin(self.values, tested)
        order = np.argsort(self.home, kind="stable")  # client by client
        order = order[free[order]]
        side[order] = _sides(self.home[order], None if self.codes is None else self.codes[order], shares, seed)
        sizes = np.bincount(self.member, minlength=len(self.values))
        trained = np.bincount(self.client[side[self.member] == TRAIN], minlength=int(self.client.max()) + 1)
        for bare in np.flatnonzero(trained == 0):  # all that it has may be at home elsewhere
            own = np.unique(self.member[self.client == bare])
            own = own[free[own]]
            if len(own) and not (side[own] == TRAIN).any():
                side[own[np.argmin(sizes[own])]] = TRAIN  # the smallest, so that the shares change least
        return side[self.member]


def _sides(client: Ints, codes: Ints | None, shares: Array, seed: int) -> Ints:
    """The part of each row; rows are given client by client, and with `codes` each class has its share."""
    if not len(client):
        return client
    named = client if codes is None else client * (int(codes.max()) + 1) + codes
    known, stratum = np.unique(named, return_inverse=True)
    sizes = np.bincount(stratum, minlength=len(known))
    owner = np.zeros(len(known), dtype=np.int64)
    owner[stratum] = client
    if codes is None:
        counts = _rounded(sizes, shares)
    else:  # an end is rounded up with the probability of what is behind its point
        ends = np.cumsum(shares)[:, None] * sizes + generator(seed, ROUNDING).random(len(known))
        counts = np.diff(np.floor(ends), axis=0, prepend=0).astype(np.int64)
    counts = _keep_one(counts, sizes, shares, owner)
    # Shuffle within each stratum, and hold out the first rows: in one step, as there may be very many clients.
    order = np.lexsort((generator(seed, HOLD_OUT).random(len(stratum)), stratum))
    place = np.arange(len(stratum)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    at = stratum[order]
    side = np.empty(len(stratum), dtype=np.int64)
    held = place < counts.sum(axis=0)[at]
    side[order] = np.where(place < counts[0][at], TEST, np.where(held, VALIDATION, TRAIN))
    return side


def _rounded(sizes: Ints, shares: Array) -> Ints:
    """Number of rows of each client to hold out for the test and for validation: at least one of each."""
    ends = np.round(np.cumsum(shares)[:, None] * sizes).astype(np.int64)
    counts = np.diff(ends, axis=0, prepend=0)
    return np.maximum(counts, (shares > 0).astype(np.int64)[:, None])


def _keep_one(counts: Ints, sizes: Ints, shares: Array, owner: Ints) -> Ints:
    """Leave every client a training row: take it from the part that exceeds its share most."""
    counts, there = counts.copy(), np.unique(owner)
    while True:
        over, left = counts - shares[:, None] * sizes, sizes - counts.sum(axis=0)
        bare = there[np.bincount(owner, left)[there] <= 0]
        too_many = left < 0
        if not len(bare) and not too_many.any():
            return counts
        at = np.union1d(_most_above(over, owner, bare), np.flatnonzero(too_many))
        counts[np.argmax(over[:, at], axis=0), at] -= 1


def _most_above(over: Array, owner: Ints, clients: Ints) -> Ints:
    """The stratum of each of these clients with the part that exceeds its share most; `owner` ascends."""
    order = np.lexsort((-over.max(axis=0), owner))
    return order[np.searchsorted(owner, clients)]


def _codes(sizes: Iterable[int]) -> Ints:
    counts = np.fromiter(sizes, dtype=np.int64)
    return np.repeat(np.arange(len(counts)), counts)


def _parts(rows: Ints, client: Ints, chosen: Array, count: int) -> Parts:
    """The chosen rows, client by client."""
    ends = np.cumsum(np.bincount(client[chosen], minlength=count))
    return np.split(rows[chosen], ends[:-1])
