"""Splits that do not look at the labels: at random, or by the values of a column."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaddle.arguments import optional, text, whole
from fedsaddle.array_types import Ints
from fedsaddle.data.splits.partition import (
    Parts,
    check_clients,
    equal_shares,
    numbered_names,
    partition_both,
    plain_names,
    rows_by_code,
)
from fedsaddle.data.table import Array, Table, ordinal
from fedsaddle.errors import BadInput


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
