"""Who holds which rows: every split, and the protocols that a split of your own follows."""

from fedsaddle.data.splits.by_label import ByClass, Dirichlet, Imbalanced, Sorted
from fedsaddle.data.splits.partition import ByColumn, Iid, Natural, PreparesData, Split

__all__ = ["ByClass", "ByColumn", "Dirichlet", "Iid", "Imbalanced", "Natural", "PreparesData", "Sorted", "Split"]
