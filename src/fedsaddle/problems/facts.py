"""What a problem and a model may know of the data before the first round: shapes, classes and counts, never rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from torch import nn

from fedsaddle.errors import BadInput

ModelMaker = Callable[[int], nn.Module]  # the model that gives so many scores a row


@dataclass(frozen=True)
class DataFacts:
    """Facts that clients can agree on by counts."""

    name: str  # of the data set
    shape: tuple[int, ...]  # of one row
    classes: tuple[str, ...]  # empty: regression
    counts: tuple[int, ...]  # training rows of each class, over all clients; empty: regression or sequences
    text: bool = False  # rows are character codes
    model: str = ""  # the model that the config names

    @property
    def features(self) -> int:
        """Numbers in one row."""
        return prod(self.shape)

    def need_classes(self, problem: str) -> None:
        """Refuse data without one class a row."""
        if not self.classes or not self.counts:
            raise BadInput("problem.name", problem, "needs data with classes")

    def need_two_classes(self, key: str, value: str, remedy: str = "") -> None:
        """Refuse data that have not exactly two classes."""
        if len(self.classes) != 2:
            raise BadInput(key, value, f"needs two classes, the data have {len(self.classes)}{remedy}")
