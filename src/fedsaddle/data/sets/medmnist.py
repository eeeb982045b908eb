"""PneumoniaMNIST and BreastMNIST of MedMNIST v2: grey medical pictures of 28x28 pixels, healthy or not."""

from __future__ import annotations

import io

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import flag
from fedsaddle.data.sets.locate import PublicFile
from fedsaddle.data.table import Array, Dataset, Table

_SOURCE = "medmnist.com (Yang et al., Scientific Data 2023)"
_SHA256 = {
    "pneumoniamnist.npz": "e1792d3f03751cb101e99f19a63b3c1941436c988665f47853417b05be250cd8",
    "breastmnist.npz": "3a22d2a4625e7dd8903f0f59030e81a3d0c222bece2e5e10927456cb50efdec1",
}


def pneumoniamnist(images: bool = False, validation: bool = False) -> Dataset:
    """4,708 + 624 chest X-rays of children; class 1 has pneumonia (74 % of the training rows).

    Pixels / 255; 524 validation pictures. Test: the official one.

    Args:
        images: Rows of `(1, 28, 28)` in place of `(784,)`.
        validation: The official validation pictures are training rows too.
    """
    return _dataset("pneumoniamnist", ("normal", "pneumonia"), images, validation, turned=False)


def breastmnist(images: bool = False, validation: bool = False) -> Dataset:
    """546 + 156 breast ultrasounds (with `validation` 78 more); class 1 is malignant (27 % of the training rows).

    The file has the classes the other way round; here the illness is class 1, as in the other medical sets.

    Args:
        images: Rows of `(1, 28, 28)` in place of `(784,)`.
        validation: The official validation pictures are training rows too.
    """
    return _dataset("breastmnist", ("normal or benign", "malignant"), images, validation, turned=True)


def _dataset(name: str, classes: tuple[str, str], images: bool, validation: bool, turned: bool) -> Dataset:
    flag("images", images)
    flag("validation", validation)
    file = f"{name}.npz"
    content = PublicFile("medmnist", file, _SHA256[file], _SOURCE).read()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        parts = [_part(arrays, part, images, turned) for part in ("train", "val", "test")]
    (x, y), (more_x, more_y), test = parts
    if validation:
        x, y = np.concatenate([x, more_x]), np.concatenate([y, more_y])
    tables = [Table(rows, labels, classes=classes) for rows, labels in ((x, y), test)]
    return Dataset(name, tables[0], tables[1], f"{_SOURCE}, {file}", "CC BY 4.0; not for clinical use")


def _part(arrays: dict[str, Array], part: str, images: bool, turned: bool) -> tuple[Array, NDArray[np.int64]]:
    x = arrays[f"{part}_images"].astype(np.float32) / 255
    y = arrays[f"{part}_labels"].ravel().astype(np.int64)
    return x.reshape(-1, 1, 28, 28) if images else x.reshape(len(y), -1), 1 - y if turned else y
