"""Who holds which rows: every split, and the protocols that a split of your own follows."""

from fedsaddle.data.splits.by_label import ByClass, Dirichlet, Sorted
from fedsaddle.data.splits.imbalanced import Imbalanced
from fedsaddle.data.splits.partition import PreparesData, Split
from fedsaddle.data.splits.rules import ByColumn, Iid, Natural

__all__ = ["ByClass", "ByColumn", "Dirichlet", "Iid", "Imbalanced", "Natural", "PreparesData", "Sorted", "Split"]
