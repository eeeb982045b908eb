"""A split by sorted labels, a part of the rows being dealt out at random (Hsu, Qi, Brown 2019)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedsaddle.data.splits.by_label import need_classes
from fedsaddle.data.splits.client_names import counted
from fedsaddle.data.splits.partition import TEST, TRAIN, Parts, by_code, check_clients, cut, even, generator
from fedsaddle.data.store import Ints
from fedsaddle.data.table import Table
from fedsaddle.errors import BadInput


@dataclass(frozen=True)
class Sorted:
    """`share` of the rows, drawn at random, are sorted by class and handed out in that order; the rest at random.

    Every client gets the same number of rows, give or take one of each kind. Share 0 is `iid`, share 1 gives every
    client neighbours in the order of classes. With `column`, the rows are sorted by its values instead: the classes
    before `positive` made two of them are the column "class".
    """

    clients: int
    share: float = 0.9
    column: str | None = None

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        check_clients(self.clients, len(train))
        if not 0 <= self.share <= 1:
            raise BadInput("share", self.share, "must be from 0 to 1")
        parts = self._deal(self._codes(train), generator(seed, TRAIN))
        return parts, None if test is None else self._deal(self._codes(test), generator(seed, TEST))

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        return counted(self.clients)

    def _codes(self, table: Table) -> Ints:
        if self.column is None:
            need_classes(table, "sorted")
            return np.asarray(table.y, dtype=np.int64)
        if self.column not in table.columns:
            there = ", ".join(table.columns) or "none"
            raise BadInput("column", self.column, f"the data has no such column to sort by; there are: {there}")
        return np.unique(table.columns[self.column], return_inverse=True)[1].astype(np.int64)

    def _deal(self, codes: Ints, rng: np.random.Generator) -> Parts:
        order = rng.permutation(len(codes))
        ends = round(self.share * len(codes))
        in_order, at_random = order[:ends], order[ends:]
        in_order = in_order[np.argsort(codes[in_order], kind="stable")]
        owner = np.zeros(len(codes), dtype=np.int64)
        sizes = cut(len(codes), even(self.clients))
        first = cut(len(in_order), even(self.clients))
        owner[in_order] = np.repeat(np.arange(self.clients), first)
        owner[at_random] = np.repeat(np.arange(self.clients), sizes - first)
        return by_code(owner, self.clients)
