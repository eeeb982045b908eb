"""What a split is: a rule that gives every row to one client."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from fedsaddle.data.splits.partition import Parts
from fedsaddle.data.table import Dataset, Table


@runtime_checkable
class Split(Protocol):
    """A rule that says which client holds which rows, and names the clients.

    The same rule serves the training rows and the official test rows. Every row goes to exactly one client. Every
    client has training rows; a client may be left without test rows. A split that changes the data before it deals
    them out is a `PreparesData` too.
    """

    def assign(self, train: Table, test: Table | None, seed: int) -> tuple[Parts, Parts | None]:
        """Row numbers per client, in ascending order, of the training and, if there is one, of the test table."""
        ...

    def names(self, train: Table) -> tuple[str, ...]:
        """One name per client."""
        ...


@runtime_checkable
class PreparesData(Protocol):
    """A split that first makes the data set whose rows it then assigns: with other classes, or fewer rows."""

    def prepare(self, dataset: Dataset, seed: int, test_share: float) -> Dataset:
        """The data set to be split."""
        ...
