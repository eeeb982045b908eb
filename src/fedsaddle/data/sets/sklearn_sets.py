"""Small data sets that come with scikit-learn, read from its own files: nothing is downloaded.

None has an official test set. The tables other than digits are standardised, and the mean and the
deviation are those of the whole table as shipped, before any split: they disclose to a client a little about
the rows of the others. For a study where that matters, use your own file with a test file.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import numpy as np

from fedsaddle.arguments import flag, whole
from fedsaddle.array_types import Floats
from fedsaddle.data.table import Array, Dataset, Scale, Table

_UCI = "UCI Machine Learning Repository, as shipped with scikit-learn"


def digits(images: bool = False) -> Dataset:
    """1,797 handwritten digits of 8x8 pixels, scaled from 0..16 to 0..1; 10 classes.

    Args:
        images: Rows of `(1, 8, 8)` in place of `(64,)`, for a CNN.
    """
    flag("images", images)
    rows = np.loadtxt(_digits_file(), delimiter=",")
    x, y = rows[:, :-1] / 16.0, rows[:, -1].astype(np.int64)
    names = tuple(str(c) for c in range(10))
    features = tuple(f"pixel_{i}_{j}" for i in range(8) for j in range(8))
    table = Table.of(x.reshape(-1, 1, 8, 8) if images else x, y, classes=names, features=features)
    return Dataset("digits", table, None, f"'Optical Recognition of Handwritten Digits', {_UCI}", "CC BY 4.0")


def scanned_digits(sites: int = 10, upside_down: int = 1) -> Dataset:
    """The digits as `sites` sites scan them, in column "site"; the last `upside_down` sites hold the paper wrongly.

    Rows are shuffled first, so that the sites differ by chance and by the turn alone.

    Args:
        sites: How many sites.
        upside_down: How many of them scan upside down.
    """
    plain = digits()
    sites = whole("sites", sites, least=2, most=len(plain.train))
    upside_down = whole("upside_down", upside_down, least=0, most=sites)
    site = np.random.default_rng(0).permutation(len(plain.train)) % sites
    turned = site >= sites - upside_down
    x = np.where(turned[:, None], plain.train.x[:, ::-1], plain.train.x)  # 64 pixels backwards: turned by 180 degrees
    names = np.array([f"site {i + 1:0{len(str(sites))}d}" for i in range(sites)])
    table = Table.of(x, plain.train.y, {"site": names[site]}, plain.train.classes, plain.train.features)
    return Dataset("scanned-digits", table, None, plain.source, plain.licence)


def breast_cancer() -> Dataset:
    """569 breast tumours, 30 standardised features; 2 classes, malignant (0) and benign (1)."""
    return _classes("breast-cancer", _shipped("breast_cancer"), "Breast Cancer Wisconsin (Diagnostic)")


def wine() -> Dataset:
    """178 wines, 13 standardised features; 3 classes (growers)."""
    return _classes("wine", _shipped("wine"), "Wine")


def iris() -> Dataset:
    """150 irises, 4 standardised features; 3 classes (species)."""
    return _classes("iris", _shipped("iris"), "Iris")


def diabetes(standardise_target: bool = False) -> Dataset:
    """442 patients, 10 standardised features; the target is the progress of the disease (regression).

    One can split by the columns `sex` (1 or 2; the source does not state which is which) and `decade` (of age: 10, 20,
    ...).

    Args:
        standardise_target: Target less its mean, over its deviation; False: in its own units, 25 to 346.
    """
    flag("standardise_target", standardise_target)
    shipped = _shipped("diabetes", scaled=False)
    names = tuple(str(f) for f in shipped.feature_names)
    raw = shipped.data
    columns = {
        "sex": raw[:, names.index("sex")].astype(np.int64),
        "decade": raw[:, names.index("age")].astype(np.int64) // 10 * 10,
    }
    y = shipped.target[:, None]
    target = (Scale.fit(y).apply(y) if standardise_target else y)[:, 0]
    table = Table.of(Scale.fit(raw).apply(raw), target, columns, features=names)
    source = "Efron, Hastie, Johnstone, Tibshirani, 'Least Angle Regression', 2004, as shipped with scikit-learn"
    return Dataset("diabetes", table, None, source, "none stated; published with the paper")


def _digits_file() -> Path:
    """scikit-learn's file of the digits. Its package is not imported for it, which takes longer than torch."""
    package = find_spec("sklearn")
    assert package is not None  # it is installed with this package
    assert package.origin is not None
    return Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"


class _Shipped(Protocol):
    """A data set as scikit-learn gives it."""

    data: Floats
    target: Array
    target_names: Sequence[str]
    feature_names: Sequence[str]


def _shipped(name: str, **options: object) -> _Shipped:
    """A table of `sklearn.datasets`."""
    from sklearn import datasets

    shipped: _Shipped = getattr(datasets, f"load_{name}")(**options)
    return shipped


def _classes(name: str, shipped: _Shipped, title: str) -> Dataset:
    table = Table.of(
        Scale.fit(shipped.data).apply(shipped.data),
        shipped.target,
        classes=tuple(str(c) for c in shipped.target_names),
        features=tuple(str(f) for f in shipped.feature_names),
    )
    return Dataset(name, table, None, f"'{title}', {_UCI}", "CC BY 4.0")
