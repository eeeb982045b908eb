"""Splits by the classes of the rows: classes per client, Dirichlet shares, sorted, or CODASCA's imbalanced split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np

from fedsaddle.arguments import flag, number, optional, text, whole
from fedsaddle.arguments import share as check_share
from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.splits.partition import (
    PLAN,
    TEST,
    TRAIN,
    Parts,
    allocate,
    check_clients,
    equal_shares,
    generator,
    numbered_names,
    partition,
    partition_both,
    plain_names,
    rows_by_code,
)
from fedsaddle.data.table import Dataset, Table
from fedsaddle.errors import BadInput

DIRICHLET_TRIES = 100


@dataclass(frozen=True)
class ByClass:
    """Each client holds `classes_per_client` classes; a class's rows are shared evenly by its holders.

    With one class per client, client i holds class i modulo the number of classes. With more, the seed
    draws which classes go together; every class is held by the same number of clients, give or take one.

    Args:
        clients: How many clients.
        classes_per_client: How many classes each holds, at most as many as there are.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((4, 1)), [0, 1, 0, 1], classes=("cat", "dog"))
        >>> ByClass(2).names(table)
        ('cat', 'dog')
    """

    clients: int
    classes_per_client: int = 1

    def __post_init__(self) -> None:
        whole("clients", self.clients)
        whole("classes_per_client", self.classes_per_client)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        self._check(train)
        held = self._held(len(train.classes), seed)
        holders = [np.flatnonzero((held == c).any(axis=1)) for c in range(len(train.classes))]
        rows = np.bincount(train.y, minlength=len(holders))
        for c, who in enumerate(holders):
            if rows[c] < len(who):
                remedy = f"class '{train.classes[c]}' has {rows[c]} rows for {len(who)} clients; use fewer clients"
                raise BadInput("clients", self.clients, remedy)
        shares = [equal_shares(len(who)) for who in holders]
        return partition_both(train.y, None if test is None else test.y, holders, shares, self.clients, seed)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client: its class, or a number where it has several."""
        self._check(train)
        if self.classes_per_client > 1:
            return plain_names(self.clients)
        count = len(train.classes)
        labels = [f"class {c}" if c.isdigit() else c for c in train.classes]
        return numbered_names([labels[i % count] for i in range(self.clients)])

    def _check(self, train: Table) -> None:
        check_clients(self.clients, len(train))
        need_classes(train, "by-class")
        count, k = len(train.classes), self.classes_per_client
        if k > count:
            raise BadInput("classes_per_client", k, f"the data has {count} classes; use 1 to {count}")
        if self.clients * k < count:
            remedy = f"{k} each do not cover the {count} classes; use at least {-(-count // k)} clients"
            raise BadInput("clients", self.clients, remedy)

    def _held(self, count: int, seed: int) -> Ints:
        """The classes of each client, (clients, k): one shuffled round of all classes after the other."""
        k, slots = self.classes_per_client, self.clients * self.classes_per_client
        if k == 1:
            return np.arange(self.clients)[:, None] % count
        rng = generator(seed, PLAN)
        order: list[int] = []
        while len(order) < slots:
            fresh = rng.permutation(count).tolist()
            begun = order[len(order) - len(order) % k :]
            # A client whose classes began in the last round must not get one of them again.
            first = [c for c in fresh if c not in begun][: k - len(begun)] if begun else []
            order += first + [c for c in fresh if c not in first]
        return np.array(order[:slots]).reshape(self.clients, k)


@dataclass(frozen=True)
class Dirichlet:
    """The clients' shares of each class are drawn from Dirichlet(alpha): small alpha, unlike clients.

    Test rows follow the same shares. Shares are drawn again, up to 100 times, until every client has at
    least `min_size` training rows.

    Args:
        clients: How many clients.
        alpha: The concentration, above 0: 0.1 makes unlike clients, 100 like ones.
        min_size: The fewest training rows of a client.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
        >>> table = Table.of(np.zeros((100, 1)), np.arange(100) % 2, classes=("a", "b"))
        >>> sum(len(rows) for rows in Dirichlet(4, alpha=0.5).assign(table, None, seed=0)[0])
        100
    """

    clients: int
    alpha: float
    min_size: int = 1

    def __post_init__(self) -> None:
        whole("clients", self.clients)
        number("alpha", self.alpha, above=0)
        whole("min_size", self.min_size)

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, of the training and of the test table."""
        self._check(train)
        shares = list(self._shares(train, seed))
        holders = [np.arange(self.clients)] * len(shares)
        return partition_both(train.y, None if test is None else test.y, holders, shares, self.clients, seed)

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        check_clients(self.clients, len(train))
        return plain_names(self.clients)

    def _check(self, train: Table) -> None:
        check_clients(self.clients, len(train))
        need_classes(train, "dirichlet")
        top = len(train) // self.clients
        if self.min_size > top:
            raise BadInput("min_size", self.min_size, f"{len(train)} rows for {self.clients} clients allow 1 to {top}")

    def _shares(self, train: Table, seed: int) -> Floats:
        """Shares (classes, clients)."""
        rows = np.bincount(train.y, minlength=len(train.classes))
        for attempt in range(DIRICHLET_TRIES):
            rng = generator(seed, PLAN, attempt)
            shares = rng.dirichlet(np.full(self.clients, float(self.alpha)), size=len(rows))
            sizes = sum(allocate(int(n), share) for n, share in zip(rows, shares, strict=True))
            if np.min(sizes) >= self.min_size:
                return shares
        remedy = (
            f"{DIRICHLET_TRIES} draws left a client of {self.clients} with fewer than {self.min_size} rows; "
            "use a larger alpha, fewer clients or a smaller min_size"
        )
        raise BadInput("alpha", self.alpha, remedy)


def need_classes(train: Table, split: str) -> None:
    """Refuse a table whose rows do not have one class each."""
    if not train.classes or train.y.ndim != 1:
        kind = "a regression target" if not train.classes else "sequences of classes"
        raise BadInput("split", split, f"needs one class per row, and the data has {kind}; use iid or by-column")


@dataclass(frozen=True)
class Sorted:
    """`share` of the rows, drawn at random, are sorted by class and assigned in that order; the rest at random.

    Every client gets the same number of rows, give or take one of each kind. Share 0 is `iid`, share 1 gives every
    client neighbours in the order of classes. With `column`, the rows are sorted by its values instead: the classes
    before `positive` made two of them are the column "class".

    Args:
        clients: How many clients.
        share: The share of the rows that are sorted, from 0 to 1.
        column: The column to sort by; None: the class.

    Raises:
        BadInput: for arguments of another type or range, and for data that cannot be split so.

    Examples:
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
    """Raise `BadInput` unless it is None or a list of classes, by number or name."""
    if positive is None:
        return
    if not isinstance(positive, list | tuple):
        raise BadInput("positive", positive, "must be a list of classes, by number or name, such as [0] or ['cat']")
    for entry in positive:
        if isinstance(entry, bool) or not isinstance(entry, str | Integral):
            raise BadInput("positive", entry, "is not a class; give its number or its name")


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
