"""Partition of the rows of groups among clients: every row goes to exactly one client."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import whole
from fedsaddle.data.store import Ints
from fedsaddle.errors import BadInput

Floats = NDArray[np.float64]

Parts = list[Ints]

TRAIN, TEST, PLAN = 0, 1, 2


def generator(seed: int, *key: int) -> np.random.Generator:
    """The random numbers of one purpose: the same seed and key give the same numbers."""
    return np.random.default_rng([whole("seed", seed, least=0), *key])


def allocate(rows: int, shares: Floats) -> Ints:
    """How many of `rows` each share gets: rounded so that they sum to `rows`."""
    ends = np.floor(np.cumsum(shares) * rows + 0.5).astype(np.int64)
    ends[-1] = rows
    return np.diff(np.minimum(ends, rows), prepend=0)


def partition(
    groups: Ints, holders: Sequence[Ints], shares: Sequence[Floats], clients: int, rng: np.random.Generator
) -> Parts:
    """Row numbers per client. The rows of group g, in random order, go to `holders[g]` by `shares[g]`."""
    owner = np.zeros(len(groups), dtype=np.int64)
    for rows, who, share in zip(rows_by_code(groups, len(holders)), holders, shares, strict=True):
        owner[rng.permutation(rows)] = np.repeat(who, allocate(len(rows), share))
    return rows_by_code(owner, clients)


def partition_both(
    groups: Ints,
    test_groups: Ints | None,
    holders: Sequence[Ints],
    shares: Sequence[Floats],
    clients: int,
    seed: int,
) -> tuple[Parts, Parts | None]:
    """Partition the training rows, and the test rows if there are any, by the same shares."""
    train = partition(groups, holders, shares, clients, generator(seed, TRAIN))
    if test_groups is None:
        return train, None
    return train, partition(test_groups, holders, shares, clients, generator(seed, TEST))


def rows_by_code(codes: Ints, count: int) -> Parts:
    """Row numbers of code 0, 1, ..., count - 1, each list in ascending order."""
    order = np.argsort(codes, kind="stable")
    ends = np.cumsum(np.bincount(codes, minlength=count))
    return np.split(order, ends[:-1])


def check_clients(clients: int, rows: int) -> None:
    """Refuse more clients than rows."""
    if clients > rows:
        raise BadInput("clients", clients, f"there are only {rows} training rows; use at most as many clients")


def equal_shares(count: int) -> Floats:
    """Equal shares."""
    return np.full(count, 1.0 / count)
