"""The rows of every client: to train on, for validation and for the test."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import did_you_mean, flag, instance, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.data.hold_out import HeldOutParts, check_shares, hold_out
from fedsaddle.data.splits.partition import Parts, PreparesData, Split
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import GROUP, ROW, Array, Dataset, Encoded, FittedFeatures, PendingFeatures, Seen, Table
from fedsaddle.errors import BadInput


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training, validation and test rows client by client.

    A client may have no validation or test rows. The first clients of `test` are those of `train`; clients that are
    for the test only follow.

    The row numbers are those in the data set's training table, or in its test table for rows of an official test set;
    `validation_units` and `test_units` give the unit of each row, such as its patient, if the data set has one;
    `train_groups`, `validation_groups` and `test_groups` give the subgroup of each row by column, if metrics by
    subgroup are reported; `with_groups` makes training rows whose targets name it, as `fs.GroupFair` needs.

    Args:
        name: Of the data set.
        train: Training rows of each client.
        test: Test rows of each client; None: nobody has any.
        names: Of the clients that train, in order.
        classes: Names of the classes; empty for regression.
        features: Names of the features; may be empty.
        source: Where the rows come from, for reports.
        licence: Of the rows, for reports.
        encoding: How each feature is computed from a column of the file; empty if not from columns.
        validation: Validation rows of each client; None (default): nobody has any.
        test_names: Names of the clients in `test`; empty (default): those in `names`.
        train_rows: Row numbers of the training rows in the data set; None where they are unknown.
        validation_rows: Row numbers of the validation rows.
        test_rows: Row numbers of the test rows.
        validation_units: Unit, such as the patient, of each validation row; None: each row is its own.
        test_units: Unit of each test row.
        train_groups: Subgroup of each training row, by column.
        validation_groups: Subgroup of each validation row, by column.
        test_groups: Subgroup of each test row, by column.
        seen: Values and columns of the training rows, which later rows are checked against.
        group_names: Names of the groups that the second column of training targets numbers; empty: there is none.
    """

    name: str
    train: Stacked
    test: Stacked | None
    names: tuple[str, ...]
    classes: tuple[str, ...]
    features: tuple[str, ...]
    source: str = ""
    licence: str = ""
    encoding: tuple[Encoded, ...] = ()  # how each feature came from a column of the file
    validation: Stacked | None = None
    test_names: tuple[str, ...] = ()  # empty: `names`
    train_rows: Ints | None = None
    validation_rows: Ints | None = None
    test_rows: Ints | None = None
    validation_units: Array | None = None
    test_units: Array | None = None
    train_groups: Mapping[str, Array] = field(default_factory=dict)
    validation_groups: Mapping[str, Array] = field(default_factory=dict)
    test_groups: Mapping[str, Array] = field(default_factory=dict)
    seen: Seen = Seen()
    group_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.test_names:
            object.__setattr__(self, "test_names", self.names)

    @property
    def count(self) -> int:
        """Number of clients to train on."""
        return self.train.count

    def pooled(self) -> FederatedData:
        """All rows pooled at a single client, for centralised references."""

        def one(rows: Stacked) -> Stacked:
            return replace(rows, offsets=np.array([0, len(rows.x)], dtype=np.int64))

        test = None if self.test is None else one(self.test)
        validation = None if self.validation is None else one(self.validation)
        name = ("all rows",)
        return replace(self, train=one(self.train), validation=validation, test=test, names=name, test_names=name)

    def with_features(self, keep: Sequence[bool]) -> FederatedData:
        """The same rows with some of their features, in the same order."""
        if len(keep) != len(self.encoding) or self.train.x.ndim != 2:
            raise BadInput("len(keep)", len(keep), f"the rows have {len(self.encoding)} encoded features")
        if all(keep):
            return self
        at, first = torch.from_numpy(np.flatnonzero(keep)), sum(keep)

        def some(rows: Stacked | None) -> Stacked | None:
            if rows is None:
                return None
            return replace(rows, x=rows.x[:, :first] if all(keep[:first]) else rows.x.index_select(1, at))

        train = some(self.train)
        assert train is not None
        return replace(
            self,
            train=train,
            validation=some(self.validation),
            test=some(self.test),
            features=tuple(name for name, chosen in zip(self.features, keep, strict=True) if chosen),
            encoding=tuple(feature for feature, chosen in zip(self.encoding, keep, strict=True) if chosen),
        )

    def without_test(self) -> FederatedData:
        """The same data without the test rows."""
        return replace(self, test=None, test_rows=None, test_units=None, test_groups={}, test_names=self.names)

    def with_groups(self, columns: Sequence[str] = ()) -> FederatedData:
        """The same data, whose training targets are pairs (label, group): the columns' groups, crossed.

        Args:
            columns: Names of columns of groups; empty: all of them.

        Raises:
            BadInput: if a column has no groups, or there is one group only.
        """
        columns = tuple(columns) or tuple(self.train_groups)
        if not columns:
            raise BadInput(
                "groups", [], "name columns whose values are groups, such as the sex, where the data are read"
            )
        if self.group_names or self.train.y.ndim > 1 or self.train.y.is_floating_point():
            raise BadInput("groups", list(columns), "are for rows with one class each")
        for column in columns:
            if column not in self.train_groups:
                there = ", ".join(self.train_groups) or "none"
                raise BadInput(
                    "groups", column, f"is no column of groups; name it where the data are read (there: {there})"
                )
        names, code = np.unique(crossed(self.train_groups, columns), return_inverse=True)
        if len(names) < 2:
            raise BadInput(
                "groups", list(columns), f"all training rows are of one group, {names[0]!r}; name other columns"
            )
        y = torch.stack([self.train.y, torch.from_numpy(code.astype(np.int64))], 1)
        return replace(self, train=replace(self.train, y=y), group_names=tuple(map(str, names)))

    def balanced(self, positives_per_batch: float) -> FederatedData:
        """The same data, sampled with a given share of positives in every minibatch of training rows.

        Rows are reweighted, so that every client's objective is unchanged: only the gradient noise changes.
        """
        if len(self.classes) != 2:
            remedy = f"needs data of two classes, these have {len(self.classes)}"
            raise BadInput("positives_per_batch", positives_per_batch, remedy)
        number("positives_per_batch", positives_per_batch, above=0, below=1)
        return replace(self, train=replace(self.train, positives=positives_per_batch))


def crossed(groups: Mapping[str, Array], columns: Sequence[str]) -> Array:
    """The name of each row's group, such as "sex=F, age=up to 51"; of one column it is the value alone."""
    if len(columns) == 1:
        return groups[columns[0]].astype(str)
    words = zip(*(groups[column] for column in columns), strict=True)
    return np.array([", ".join(f"{c}={v}" for c, v in zip(columns, row, strict=True)) for row in words], dtype=str)


def federate(
    dataset: Dataset,
    split: Split,
    seed: int = 0,
    test_share: float = 0.2,
    stratify: bool = False,
    validation_share: float = 0.0,
    test_clients: Sequence[str] = (),
) -> FederatedData:
    """Split a data set among clients, and each client's rows into training, validation and test.

    An official test table is partitioned by the same split, and `test_share` is not used. Without one, each
    client holds out `test_share` of its own rows at random: at least one if it has two, never all. With `stratify`
    it holds out that share of each of its classes, rounded up or down at random. Rows of one
    group (column `Dataset.together`, such as the patient) are held out together, also if several clients have them.

    Args:
        dataset: The rows.
        split: How rows are partitioned among clients, such as `Dirichlet(clients=10, alpha=0.3)`.
        seed: Random seed of the partition and of the held-out rows.
        test_share: Share of each client's rows that is held out for the test, from 0 to less than 1.
        stratify: Whether that share is held out of each class; by default rows are drawn whatever their class.
        validation_share: Share of each client's rows that is held out for validation, to choose the best round and to
            stop early; 0 (default): none. With an official test table it is a share of the training table's rows.
        test_clients: Names of clients that do not train: all of their rows are test rows.

    Raises:
        BadInput: if an argument is invalid, or the rows cannot be split this way.

    Examples:
        >>> from fedsaddle.data.splits import Iid
        >>> table = Table.of(np.eye(10), np.arange(10) % 2, classes=("no", "yes"))
        >>> data = federate(Dataset("ten", table, None, "made up", "none"), Iid(2), seed=0)
        >>> data.names, data.train.sizes.tolist(), data.test.sizes.tolist()
        (('client 0', 'client 1'), [4, 4], [1, 1])
    """
    instance("dataset", dataset, Dataset, "must be a Dataset, such as a loader or from_file gives")
    given: object = split
    if isinstance(given, type) or not isinstance(given, Split):
        raise BadInput("split", split, "must be a split, such as Iid(clients=10), with assign and names")
    whole("seed", seed, least=0)
    check_shares(test_share, validation_share)
    flag("stratify", stratify)
    dataset.check()
    prepared = isinstance(split, PreparesData)
    if isinstance(split, PreparesData):  # it looks at the features of all rows
        dataset = split.prepare(_numbered(dataset.fit_transform()), seed, test_share)
    parts, test_parts = split.assign(dataset.train, dataset.test, seed)
    names = split.names(dataset.train)
    order, stay = _order(test_clients, names)
    names, parts = tuple(names[i] for i in order), [parts[i] for i in order]
    own_test = dataset.test is None or test_parts is None
    if dataset.test is None or test_parts is None:
        held = _held_out(dataset, parts, stay, test_share, validation_share, stratify, seed)
        test_parts = held.test
    else:
        if stay < len(parts):
            remedy = "these data have test rows of their own; leave it out, or load the rows without a test set"
            raise BadInput("test_clients", list(test_clients), remedy)
        held = _held_out(dataset, parts, stay, 0.0, validation_share, stratify, seed)
    _check_training(held.train[:stay], names, dataset.together, test_clients)
    fitted = None if dataset.pending is None else dataset.pending.fit(held.train[:stay], names[:stay])
    own = _Source(dataset.train, fitted, dataset.pending, prepared)
    official = (
        own if dataset.test is None or own_test else replace(own, table=dataset.test, pending=dataset.pending_test)
    )
    train = own.part(held.train[:stay], names, dataset.together, allow_empty=False)
    validation = own.part(held.validation[:stay], names, dataset.together)
    test = official.part(test_parts, names, dataset.together)
    return FederatedData(
        name=dataset.name,
        train=train.with_units(),
        test=test.stacked if test else None,
        names=names[:stay],
        classes=dataset.train.classes,
        features=dataset.train.features if fitted is None else fitted.names,
        source=dataset.source,
        licence=dataset.licence,
        encoding=dataset.encoding if fitted is None else fitted.encoding,
        seen=dataset.seen if fitted is None else fitted.seen,
        validation=validation.stacked if validation else None,
        test_names=names,
        train_rows=train.rows,
        validation_rows=validation.rows if validation else None,
        test_rows=test.rows if test else None,
        validation_units=validation.units if validation else None,
        test_units=test.units if test else None,
        train_groups=train.groups,
        validation_groups=validation.groups if validation else {},
        test_groups=test.groups if test else {},
    )


def _order(test_clients: object, names: tuple[str, ...]) -> tuple[list[int], int]:
    """The clients' places, those for the test only at the end, and how many are to train on."""
    if isinstance(test_clients, str) or not isinstance(test_clients, Sequence):
        raise BadInput("test_clients", test_clients, 'must be a list of names, such as ["lake"]')
    for name in test_clients:
        if name not in names:
            some = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
            raise BadInput("test_clients", name, f"is no client; {did_you_mean(name, names)}the clients are {some}")
    apart = set(test_clients)
    stay = [i for i, name in enumerate(names) if name not in apart]
    if not stay:
        raise BadInput("test_clients", list(test_clients), "leaves no client to train on; name fewer")
    return [*stay, *(i for i, name in enumerate(names) if name in apart)], len(stay)


def _held_out(
    dataset: Dataset, parts: Parts, stay: int, test_share: float, validation_share: float, stratify: bool, seed: int
) -> HeldOutParts:
    """The rows of each client in three parts; the clients from `stay` on have test rows only.

    Rows of a patient who was at such a client as well are test rows everywhere.
    """
    if stratify and (test_share or validation_share) and (not dataset.train.classes or dataset.train.y.ndim > 1):
        raise BadInput("stratify", True, "needs data with one class a row; leave it out")
    labels = dataset.train.y if stratify else None
    together = dataset.train.columns[dataset.together] if dataset.together else None
    tested = None if together is None or stay == len(parts) else together[np.concatenate(parts[stay:])]
    held = hold_out(parts[:stay], test_share, seed, labels, together, validation_share, tested)
    return held._replace(test=[*held.test, *parts[stay:]])


def _check_training(parts: Parts, names: tuple[str, ...], together: str, test_clients: Sequence[str]) -> None:
    for name, part in zip(names, parts, strict=False):
        if not len(part) and len(test_clients):
            remedy = f"leaves {name!r} no rows to train on: each has a {together!r} who is at a test client too"
            raise BadInput("test_clients", list(test_clients), remedy)


class _Part(NamedTuple):
    """One part of the rows: client by client, with row numbers, units and groups."""

    stacked: Stacked
    rows: Ints | None
    units: Array | None
    groups: dict[str, Array]

    def with_units(self) -> Stacked:
        """The rows, with the number of each row's unit, if the data set has it."""
        if self.units is None:
            return self.stacked
        return replace(self.stacked, units=np.unique(self.units, return_inverse=True)[1].astype(np.int64))

    def __bool__(self) -> bool:
        return len(self.stacked.x) > 0


@dataclass(frozen=True, eq=False)
class _Source:
    """A table, and its features if they are fitted after the split."""

    table: Table
    fitted: FittedFeatures[PendingFeatures] | None
    pending: PendingFeatures | None
    prepared: bool  # by the split: row numbers stand in a column, if at all

    def part(self, parts: Parts, names: Sequence[str], together: str, allow_empty: bool = True) -> _Part:
        """Rows of each client, with row numbers, units and groups."""
        at, table = np.concatenate(parts), self.table
        numbers = table.columns.get(ROW)
        if numbers is None and not self.prepared:
            numbers = np.arange(len(table))
        units = table.columns.get(together)
        stacked = self._stacked(at, parts, names, allow_empty)
        groups = {k.removeprefix(GROUP): v[at] for k, v in table.columns.items() if k.startswith(GROUP)}
        return _Part(stacked, None if numbers is None else numbers[at], None if units is None else units[at], groups)

    def _stacked(self, at: Ints, parts: Parts, names: Sequence[str], allow_empty: bool) -> Stacked:
        if self.fitted is None or self.pending is None:
            return Stacked.of(_tensor(self.table.x), _tensor(self.table.y), parts, allow_empty)
        x, y = self.fitted.apply(self.pending, parts, names[: len(parts)]), self.table.y[at]
        if len(at):
            replace(self.table, x=x, y=y, columns={}, features=self.fitted.names).check()
        ends = np.concatenate([[0], np.cumsum([len(part) for part in parts])]).astype(np.int64)
        return Stacked(_tensor(x), _tensor(y), ends, allow_empty)


def _numbered(dataset: Dataset) -> Dataset:
    """The data set with the row numbers in a column, for a split that leaves rows out."""

    def numbered(table: Table) -> Table:
        return replace(table, columns={ROW: np.arange(len(table)), **table.columns})

    test = None if dataset.test is None else numbered(dataset.test)
    return replace(dataset, train=numbered(dataset.train), test=test)


def _tensor(array: Array) -> Tensor:
    # Torch warns of arrays that it may not write to, such as views of a file.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
