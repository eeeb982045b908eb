"""A split by sorted labels, with a part of the rows at random (Hsu, Qi, Brown 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaddle.arguments import optional, text, whole
from fedsaddle.arguments import share as check_share
from fedsaddle.data.splits.by_label import need_classes
from fedsaddle.data.splits.client_names import plain_names
from fedsaddle.data.splits.partition import (
    TEST,
    TRAIN,
    Parts,
    allocate,
    check_clients,
    equal_shares,
    generator,
    rows_by_code,
)
from fedsaddle.data.store import Ints
from fedsaddle.data.table import Table
from fedsaddle.errors import BadInput


@dataclass(frozen=True)
class Sorted:
    """`share` of the rows, drawn at random, are sorted by class and handed out in that order; the rest at random.

    Every client gets the same number of rows, give or take one of each kind. Share 0 is `iid`, share 1 gives every
    client neighbours in the order of classes. With `column`, the rows are sorted by its values instead: the classes
    before `positive` made two of them are the column "class".

    Arguments:
        clients: How many clients.
        share: The share of the rows that are sorted, from 0 to 1.
        column: The column to sort by; None: the class.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    >>> table = Table.of(np.zeros((4, 1)), [1, 0, 1, 0], classes=("a", "b"))
    >>> [rows.tolist() for rows in Sorted(2, share=1.0).assign(table, None, seed=0)[0]]
    [[1, 3], [0, 2]]
    """

    clients: int
    share: float = 0.9
    column: str | None = None

    def __post_init__(self) -> None:
        whole("clients", self.clients)
        check_share("share", self.share)
        optional(text, "column", self.column)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        check_clients(self.clients, len(train))
        parts = self._partition(self._codes(train), generator(seed, TRAIN))
        return parts, None if test is None else self._partition(self._codes(test), generator(seed, TEST))

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        check_clients(self.clients, len(train))
        return plain_names(self.clients)

    def _codes(self, table: Table) -> Ints:
        if self.column is None:
            need_classes(table, "sorted")
            return np.asarray(table.y, dtype=np.int64)
        if self.column not in table.columns:
            there = ", ".join(table.columns) or "none"
            raise BadInput("column", self.column, f"the data has no such column to sort by; there are: {there}")
        return np.unique(table.columns[self.column], return_inverse=True)[1].astype(np.int64)

    def _partition(self, codes: Ints, rng: np.random.Generator) -> Parts:
        order = rng.permutation(len(codes))
        ends = round(self.share * len(codes))
        in_order, at_random = order[:ends], order[ends:]
        in_order = in_order[np.argsort(codes[in_order], kind="stable")]
        owner = np.zeros(len(codes), dtype=np.int64)
        sizes = allocate(len(codes), equal_shares(self.clients))
        first = allocate(len(in_order), equal_shares(self.clients))
        owner[in_order] = np.repeat(np.arange(self.clients), first)
        owner[at_random] = np.repeat(np.arange(self.clients), sizes - first)
        return rows_by_code(owner, self.clients)
