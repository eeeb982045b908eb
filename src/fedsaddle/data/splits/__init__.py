"""Who holds which rows: every split, and the protocols that a split of your own follows."""

from fedsaddle.data.splits.by_label import ByClass, Dirichlet
from fedsaddle.data.splits.imbalanced import Imbalanced
from fedsaddle.data.splits.protocols import PreparesData, Split
from fedsaddle.data.splits.rules import ByColumn, Iid, Natural
from fedsaddle.data.splits.sorted import Sorted

__all__ = ["ByClass", "ByColumn", "Dirichlet", "Iid", "Imbalanced", "Natural", "PreparesData", "Sorted", "Split"]
