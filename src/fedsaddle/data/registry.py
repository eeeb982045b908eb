"""The data sets and splits by name, as plain tables: reading them imports nothing heavy."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    """Where a thing is defined ("module:name"), what it is, and for data its source and licence."""

    target: str
    about: str
    source: str = ""


_SKLEARN = "fedsaddle.data.sklearn_sets"
_UCI = "UCI, shipped with scikit-learn; CC BY 4.0"

DATASETS: dict[str, Entry] = {
    "digits": Entry(f"{_SKLEARN}:digits", "1,797 handwritten digits, 8x8 pixels, 10 classes", _UCI),
    "scanned-digits": Entry(
        f"{_SKLEARN}:scanned_digits", "the digits from 10 sites, one of which scans them upside down; column site", _UCI
    ),
    "breast-cancer": Entry(f"{_SKLEARN}:breast_cancer", "569 tumours, 30 features, 2 classes", _UCI),
    "wine": Entry(f"{_SKLEARN}:wine", "178 wines, 13 features, 3 classes", _UCI),
    "iris": Entry(f"{_SKLEARN}:iris", "150 irises, 4 features, 3 classes", _UCI),
    "diabetes": Entry(
        f"{_SKLEARN}:diabetes",
        "442 patients, 10 features, regression",
        "Efron et al. 2004, shipped with scikit-learn; no licence stated",
    ),
    "fashion-mnist": Entry(
        "fedsaddle.data.fashion_mnist:fashion_mnist",
        "60,000 + 10,000 pictures of clothes, 28x28 pixels, 10 classes",
        "github.com/zalandoresearch/fashion-mnist; MIT",
    ),
    "cifar10": Entry(
        "fedsaddle.data.cifar:cifar10",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 10 classes; a part of them will do",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "cifar100": Entry(
        "fedsaddle.data.cifar:cifar100",
        "50,000 + 10,000 colour pictures, 32x32 pixels, 100 fine or 20 coarse classes; a part of them will do",
        "www.cs.toronto.edu/~kriz/cifar.html; no licence stated",
    ),
    "pneumoniamnist": Entry(
        "fedsaddle.data.medmnist:pneumoniamnist",
        "4,708 + 624 chest X-rays of children, 28x28 pixels, with pneumonia or without",
        "medmnist.com; CC BY 4.0",
    ),
    "breastmnist": Entry(
        "fedsaddle.data.medmnist:breastmnist",
        "546 + 156 breast ultrasounds, 28x28 pixels, malignant or not",
        "medmnist.com; CC BY 4.0",
    ),
    "adult": Entry(
        "fedsaddle.data.adult:adult",
        "32,561 + 16,281 people of the 1994 US census, income above 50,000 dollars, with sex and race",
        "UCI dataset 2 'Adult'; CC BY 4.0",
    ),
    "shakespeare": Entry(
        "fedsaddle.data.shakespeare:shakespeare",
        "Shakespeare's plays by speaker, next-character prediction, 86 characters",
        "MIT edition, github.com/TheMITTech/shakespeare; public domain",
    ),
    "nonconvex-pl": Entry(
        "fedsaddle.data.synthetic:nonconvex_pl_table",
        "FedSGDA's simulation: 500 clients of 100 rows (a, b, c) in 100 dimensions; column client",
        "made up by a seed",
    ),
    "file": Entry(
        "fedsaddle.data.files:from_file",
        "your own CSV, Parquet or NumPy .npz file with a target and a client",
        "yours",
    ),
    "pictures": Entry(
        "fedsaddle.data.pictures:pictures",
        "your own folder of pictures with a table that names file, label and site",
        "yours",
    ),
}

SPLITS: dict[str, Entry] = {
    "iid": Entry("fedsaddle.data.splits:Iid", "rows dealt out at random, as evenly as possible"),
    "by-class": Entry("fedsaddle.data.splits:ByClass", "one class per client, or a few"),
    "dirichlet": Entry("fedsaddle.data.splits:Dirichlet", "shares of each class drawn from Dirichlet(alpha)"),
    "imbalanced": Entry(
        "fedsaddle.data.imbalanced:Imbalanced", "two classes of many, none at two clients, few positives (CODASCA)"
    ),
    "sorted": Entry("fedsaddle.data.sorted_split:Sorted", "a share of the rows sorted by class, the rest at random"),
    "by-column": Entry("fedsaddle.data.splits:ByColumn", "each client holds one value of a column, such as sex"),
    "natural": Entry("fedsaddle.data.splits:Natural", "one client per value of a column, such as the hospital"),
}
