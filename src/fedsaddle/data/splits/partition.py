"""Partition of rows among clients, with a name for each; and the splits that do not look at labels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from fedsaddle.arguments import optional, text, whole
from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.table import Array, Dataset, Table, ordinal
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
    """The name in one line; a blank by its own name, and punctuation in quotes."""
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
    """A rule that assigns rows to clients, and names the clients.

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


@dataclass(frozen=True)
class Iid:
    """Rows at random, as many for each client as possible.

    Args:
        clients: How many clients, at most as many as training rows.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((5, 1)), [0, 0, 1, 1, 1], classes=("a", "b"))
        >>> [len(rows) for rows in Iid(2).assign(table, None, seed=0)[0]]
        [3, 2]
    """

    clients: int

    def __post_init__(self) -> None:
        whole("clients", self.clients)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        check_clients(self.clients, len(train))
        one_group = np.zeros(len(train), dtype=np.int64)
        test_group = None if test is None else np.zeros(len(test), dtype=np.int64)
        holders, shares = [np.arange(self.clients)], [equal_shares(self.clients)]
        return partition_both(one_group, test_group, holders, shares, self.clients, seed)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        check_clients(self.clients, len(train))
        return plain_names(self.clients)


@dataclass(frozen=True)
class ByColumn:
    """Each client holds rows of one value of a column.

    Without `clients`, each value is one client. With it, the clients are shared out among the values as
    evenly as possible (one more to the values with most rows), and a value's rows are shared evenly and
    at random among its clients. Clients are in the order of the sorted values.

    Args:
        column: The name of the column.
        clients: How many clients, at least one for each value; None: one for each value.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((4, 1)), [0, 1, 0, 1], {"sex": np.array(["f", "m", "f", "f"])}, ("a", "b"))
        >>> ByColumn("sex", clients=3).names(table)
        ('f 1', 'f 2', 'm')
    """

    column: str
    clients: int | None = None

    def __post_init__(self) -> None:
        text("column", self.column)
        optional(whole, "clients", self.clients)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        nodes = self._nodes(train)
        values = np.unique(train.columns[self.column])
        codes = ordinal(train.columns[self.column], values)
        test_codes = None if test is None else _test_codes(test, self.column, values)
        if nodes.max() == 1:  # nothing to draw, and there may be very many values
            test_parts = None if test_codes is None else rows_by_code(test_codes, len(values))
            return rows_by_code(codes, len(values)), test_parts
        holders = np.split(np.arange(nodes.sum()), np.cumsum(nodes)[:-1])
        shares = [equal_shares(int(n)) for n in nodes]
        return partition_both(codes, test_codes, holders, shares, int(nodes.sum()), seed)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client: the value, numbered if several clients hold it."""
        nodes = self._nodes(train)
        values = np.unique(train.columns[self.column])
        labels = [f"{self.column} {v}" if values.dtype.kind in "iufb" else str(v) for v in values]
        return numbered_names([label for label, n in zip(labels, nodes, strict=True) for _ in range(n)])

    def _nodes(self, train: Table) -> Ints:
        """Clients per value."""
        values, rows = np.unique(_column(train, self.column), return_counts=True)
        if self.clients is None:
            return np.ones(len(values), dtype=np.int64)
        check_clients(self.clients, len(train))
        if self.clients < len(values):
            remedy = f"column '{self.column}' has {len(values)} values; use at least as many clients"
            raise BadInput("clients", self.clients, remedy)
        nodes = np.full(len(values), self.clients // len(values), dtype=np.int64)
        nodes[np.argsort(-rows, kind="stable")[: self.clients % len(values)]] += 1
        if (rows < nodes).any():
            at = int(np.argmax(rows < nodes))
            remedy = f"value '{values[at]}' has {rows[at]} rows for {nodes[at]} clients; use fewer clients"
            raise BadInput("clients", self.clients, remedy)
        return nodes


@dataclass(frozen=True)
class Natural:
    """One client per value of a column, such as the hospital or the speaker, in the order of the names.

    Args:
        column: The name of the column.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((3, 1)), [0, 1, 0], {"client": np.array(["b", "a", "b"])}, ("no", "yes"))
        >>> [rows.tolist() for rows in Natural().assign(table, None, seed=0)[0]]
        [[1], [0, 2]]
    """

    column: str = "client"

    def __post_init__(self) -> None:
        text("column", self.column)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table; the seed changes nothing."""
        return ByColumn(self.column).assign(train, test, seed)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        return ByColumn(self.column).names(train)


def _column(table: Table, name: str) -> Array:
    if name not in table.columns:
        there = ", ".join(table.columns) or "none"
        raise BadInput("column", name, f"the data has no such column to split by; there are: {there}")
    return table.columns[name]


def _test_codes(test: Table, column: str, values: Array) -> Ints:
    codes = ordinal(_column(test, column), values)
    if (codes < 0).any():
        value = str(test.columns[column][int(np.argmax(codes < 0))])
        raise BadInput(f"test column '{column}'", value, "no training row has this value; drop these rows")
    return codes
