"""The imbalanced heterogeneous split of CODASCA: two classes made of many, no class at two clients, few positives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from fedsaddle.arguments import flag, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.data.splits.by_label import need_classes
from fedsaddle.data.splits.partition import (
    PLAN,
    TEST,
    TRAIN,
    Parts,
    check_clients,
    equal_shares,
    generator,
    partition,
    plain_names,
    rows_by_code,
)
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput

COLUMN = "class"


def one_against_rest(table: Table, positive: Sequence[int | str]) -> Table:
    """Class 1 are the `positive` classes, by number or name, class 0 are all others; the old ones go to a column."""
    check_positive(positive)
    codes = sorted({_code(entry, table.classes) for entry in positive})
    if not 0 < len(codes) < len(table.classes):
        raise BadInput("positive", list(positive), f"name at least one of the {len(table.classes)} classes, not all")
    names = [table.classes[code] for code in codes]
    classes = ("rest", " or ".join(names) if len(names) <= 3 else f"{len(names)} classes")
    y = np.isin(table.y, codes).astype(np.int64)
    return replace(table, y=y, classes=classes, columns={**table.columns, COLUMN: np.array(table.classes)[table.y]})


def _code(entry: int | str, classes: tuple[str, ...]) -> int:
    if isinstance(entry, str):
        if entry in classes:
            return classes.index(entry)
    elif 0 <= entry < len(classes):
        return int(entry)
    some = ", ".join(classes[:10]) + (", ..." if len(classes) > 10 else "")
    raise BadInput("positive", entry, f"is none of the classes 0 to {len(classes) - 1}: {some}")


def check_positive(positive: object) -> None:
    """Refuse what is neither None nor a list of classes, by number or name."""
    if positive is None:
        return
    if not isinstance(positive, list | tuple):
        raise BadInput("positive", positive, "must be a list of classes, by number or name, such as [0] or ['cat']")
    for entry in positive:
        if isinstance(entry, bool) or not isinstance(entry, str | Integral):
            raise BadInput("positive", entry, "is no class; give its number or its name")


OWNER = "client"
DROP, HELD = 4, 5


@dataclass(frozen=True)
class Imbalanced:
    """Some classes are positive, the others negative; clients share neither; most positives are left out of training.

    Half of the classes, drawn by the seed, are `positive` unless they are named; of two classes it is the second. Each
    client gets its own positive and negative classes, in groups as equal as can be, and then loses positives at random
    until they are `imratio` of its training rows. The test rows of a class go to the client that has it, all of them:
    the test set stays as balanced as it was. Without an official test set, a share of every class is held out before
    any row is dropped. With `disjoint=False` the rows are assigned at random, so that only the imbalance remains.

    Args:
        clients: How many clients.
        imratio: The share of positives in each client's training rows, above 0 and below 1.
        positive: The positive classes, by name or number; None: half of them, or of two the second.
        disjoint: Whether no class is at two clients.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((400, 1)), np.arange(400) % 4, classes=("a", "b", "c", "d"))
        >>> split, data = Imbalanced(2, imratio=0.2), Dataset("four", table, None, "made up", "none")
        >>> made = split.prepare(data, seed=0, test_share=0.2)
        >>> made.train.classes, float(made.train.y.mean())
        (('negative', 'positive'), 0.2)
    """

    clients: int
    imratio: float = 0.1
    positive: list[int | str] | None = None
    disjoint: bool = True

    def __post_init__(self) -> None:
        whole("clients", self.clients)
        number("imratio", self.imratio, above=0, below=1)
        check_positive(self.positive)
        flag("disjoint", self.disjoint)

    def prepare(self, dataset: Dataset, seed: int, test_share: float) -> Dataset:
        """Two classes, a test set, fewer positives; the client of each row in a column."""
        self._check(dataset.train)
        train, test = dataset.train, dataset.test
        if test is None and test_share > 0:
            train, test = _held_out(train, test_share, seed)
        new = self._thinned(self._binary(train, TRAIN, seed), seed)
        return replace(
            dataset,
            name=f"{dataset.name}-ih",
            train=new,
            test=None if test is None else self._binary(test, TEST, seed),
        )

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client; the tables are those of `prepare`, which has assigned them."""
        parts = rows_by_code(train.columns[OWNER], self.clients)
        return parts, None if test is None else rows_by_code(test.columns[OWNER], self.clients)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        check_clients(self.clients, len(train))
        return plain_names(self.clients)

    def _check(self, train: Table) -> None:
        need_classes(train, "imbalanced")
        check_clients(self.clients, len(train))
        if len(train.classes) < 2:
            raise BadInput("split", "imbalanced", "needs at least two classes")

    def _positive(self, classes: Sequence[str], seed: int) -> list[int | str]:
        """The positive classes: those named, the second of two, or half of them at random."""
        if self.positive is not None:
            return self.positive
        if len(classes) == 2:
            return [1]
        half = generator(seed, PLAN).permutation(len(classes))[: len(classes) // 2]
        return sorted(half.tolist())

    def _binary(self, table: Table, part: int, seed: int) -> Table:
        """Two classes, and the client of each row: that of its class, or one at random."""
        binary = replace(one_against_rest(table, self._positive(table.classes, seed)), classes=("negative", "positive"))
        owner = np.zeros(len(binary), dtype=np.int64)
        if self.disjoint:
            owner = self._holders(table.classes, seed)[table.y]
        else:
            everybody, shares = [np.arange(self.clients)] * 2, [equal_shares(self.clients)] * 2
            parts = partition(binary.y, everybody, shares, self.clients, generator(seed, part))
            for client, rows in enumerate(parts):
                owner[rows] = client
        return replace(binary, columns={**binary.columns, OWNER: owner})

    def _holders(self, classes: Sequence[str], seed: int) -> Ints:
        """The client of each class: the classes of either side in random order, in groups of like size."""
        holder = np.zeros(len(classes), dtype=np.int64)
        positive = {classes.index(c) if isinstance(c, str) else int(c) for c in self._positive(classes, seed)}
        for side in (0, 1):
            own = np.array([c for c in range(len(classes)) if (c in positive) == bool(side)])
            if self.clients > len(own):
                remedy = f"only {len(own)} classes are {('negative', 'positive')[side]}, and every client needs one; "
                raise BadInput("clients", self.clients, f"{remedy}use at most {len(own)}, or disjoint = false")
            order = generator(seed, PLAN, 1 + side).permutation(own)
            for client, group in enumerate(np.array_split(order, self.clients)):
                holder[group] = client
        return holder

    def _thinned(self, train: Table, seed: int) -> Table:
        """Positives left out at random, client by client."""
        rng, keep = generator(seed, DROP), train.y == 0
        for client in range(self.clients):
            own = train.columns[OWNER] == client
            positives, negatives = np.flatnonzero(own & (train.y == 1)), int((own & (train.y == 0)).sum())
            wanted = max(1, round(self.imratio / (1 - self.imratio) * negatives))
            if wanted > len(positives):
                share = len(positives) / max(1, len(positives) + negatives)
                remedy = f"client {client} has {share:.1%} positives before any is left out; use a smaller share"
                raise BadInput("imratio", self.imratio, remedy)
            keep[rng.permutation(positives)[:wanted]] = True
        return _rows(train, np.flatnonzero(keep))


def _held_out(table: Table, share: float, seed: int) -> tuple[Table, Table]:
    """A share of the rows of every class, at least one and never all."""
    rng, held = generator(seed, HELD), np.zeros(len(table), dtype=bool)
    for rows in rows_by_code(table.y, len(table.classes)):
        count = min(max(1, round(share * len(rows))), len(rows) - 1)
        held[rng.permutation(rows)[: max(0, count)]] = True
    return _rows(table, np.flatnonzero(~held)), _rows(table, np.flatnonzero(held))


def _rows(table: Table, at: Ints) -> Table:
    columns = {name: values[at] for name, values in table.columns.items()}
    return replace(table, x=table.x[at], y=table.y[at], columns=columns)
