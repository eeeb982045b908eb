"""Partition of rows among clients: every row goes to exactly one client, and every client has a name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from fedsaddle.arguments import whole
from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput
from fedsaddle.text import visible


def plain_names(clients: int) -> tuple[str, ...]:
    """Plain names: client 0, client 1, ..."""
    return tuple(f"client {i}" for i in range(clients))


def numbered_names(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels; one that occurs more than once is numbered from 1: "Female 1", "class 3 (1)"."""
    total, seen = Counter(labels), Counter[str]()
    names = []
    for label in labels:
        seen[label] += 1
        number = f"({seen[label]})" if label[-1:].isdigit() else str(seen[label])
        names.append(f"{label} {number}" if total[label] > 1 else label)
    return tuple(names)


def visible_name(name: str) -> str:
    """The name in one line; a blank by its own name, and signs in quotes."""
    blanks = {" ": "space", "\n": "newline", "\t": "tab"}
    if name in blanks:
        return blanks[name]
    return visible(name) if any(c.isalnum() for c in name) else repr(name)


Parts = list[Ints]

TRAIN, TEST, PLAN = 0, 1, 2


def generator(seed: int, *key: int) -> np.random.Generator:
    """A generator of its own for each seed and key."""
    return np.random.default_rng([whole("seed", seed, least=0), *key])


def allocate(rows: int, shares: Floats) -> Ints:
    """The number of rows of each share, rounded so that they sum to `rows`."""
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


@runtime_checkable
class Split(Protocol):
    """A rule that says which client holds which rows, and names the clients.

    The same rule serves the training rows and the official test rows. Every row goes to exactly one client. Every
    client has training rows; a client may be left without test rows. A split that changes the data before
    partitioning them is a `PreparesData` too.
    """

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, in ascending order, of the training and, if there is one, of the test table."""
        ...

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        ...


@runtime_checkable
class PreparesData(Protocol):
    """A split that first changes the data set that it assigns: with other classes, or fewer rows."""

    def prepare(self, dataset: Dataset, seed: int, test_share: float) -> Dataset:
        """The data set to be split."""
        ...
