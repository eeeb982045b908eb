"""The rows of every client, to train on and to test on."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import flag, instance, number, whole
from fedsaddle.data.hold_out import hold_out
from fedsaddle.data.splits.protocols import PreparesData, Split
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Array, Dataset, Encoded, Table
from fedsaddle.errors import BadInput


@dataclass(frozen=True, eq=False)
class FederatedData:
    """Training and test rows client by client.

    A client may have no test rows; `test` is None if nobody has any. `classes` is empty for regression.
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

    @property
    def count(self) -> int:
        """Number of clients."""
        return self.train.count

    def in_one_place(self) -> FederatedData:
        """The same rows at a single client: for centralised references."""

        def one(rows: Stacked) -> Stacked:
            return replace(rows, offsets=np.array([0, len(rows.x)], dtype=np.int64))

        test = None if self.test is None else one(self.test)
        return replace(self, train=one(self.train), test=test, names=("all rows",))

    def balanced(self, positives_per_batch: float) -> FederatedData:
        """The same data, drawn with a given share of positives in every minibatch of training rows.

        Rows are weighed back, so that every client's objective stays what it was: only the noise changes.
        """
        if len(self.classes) != 2:
            remedy = f"needs data of two classes, these have {len(self.classes)}"
            raise BadInput("positives_per_batch", positives_per_batch, remedy)
        number("positives_per_batch", positives_per_batch, above=0, below=1)
        return replace(self, train=replace(self.train, positives=positives_per_batch))


def federate(
    dataset: Dataset, split: Split, seed: int = 0, test_share: float = 0.2, stratify: bool = False
) -> FederatedData:
    """Split a data set among clients, and each client's rows into training and test.

    An official test table is partitioned by the same split, and `test_share` is not used. Without one, each
    client holds out `test_share` of its own rows at random: at least one if it has two, never all. With `stratify`
    it holds out that share of each of its classes, so that rare positives are in both parts. Rows that the data set
    wants `together`, such as those of a patient, are held out together.

    Arguments:
        dataset: The rows.
        split: Who holds which, such as `Dirichlet(clients=10, alpha=0.3)`.
        seed: Of all that is drawn.
        test_share: From 0 to less than 1.
        stratify: Whether the share is that of each class.

    Raises:
        BadInput: for arguments of another type or range, and for rows that cannot be split so.

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
    number("test_share", test_share, least=0, below=1)
    flag("stratify", stratify)
    dataset.check()
    if isinstance(split, PreparesData):
        dataset = split.prepare(dataset, seed, test_share)
    parts, test_parts = split.assign(dataset.train, dataset.test, seed)
    x, y = _tensors(dataset.train)
    if dataset.test is not None and test_parts is not None:
        train = Stacked.of(x, y, parts)
        test = Stacked.of(*_tensors(dataset.test), test_parts, allow_empty=True)
    else:
        if stratify and (not dataset.train.classes or dataset.train.y.ndim > 1):
            raise BadInput("stratify", True, "needs data with one class a row; leave it out")
        labels = dataset.train.y if stratify else None
        together = dataset.train.columns[dataset.together] if dataset.together else None
        kept, held = hold_out(parts, test_share, seed, labels, together)
        train, test = Stacked.of(x, y, kept), Stacked.of(x, y, held, allow_empty=True)
    return FederatedData(
        name=dataset.name,
        train=train,
        test=test if len(test.x) else None,
        names=split.names(dataset.train),
        classes=dataset.train.classes,
        features=dataset.train.features,
        source=dataset.source,
        licence=dataset.licence,
        encoding=dataset.encoding,
    )


def _tensors(table: Table) -> tuple[Tensor, Tensor]:
    return _tensor(table.x), _tensor(table.y)


def _tensor(array: Array) -> Tensor:
    # Torch warns of arrays that it may not write to, such as views of a file.
    return torch.from_numpy(array if array.flags.writeable else array.copy())
