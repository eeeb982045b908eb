"""Fashion-MNIST: 28x28 grey pictures of clothes, 60,000 to train on and 10,000 to test."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import flag
from fedsaddle.data.sets.locate import PublicFile
from fedsaddle.data.table import Dataset, Table

CLASSES = (
    "T-shirt/top",
    "Trouser",
    "Pullover",
    "Dress",
    "Coat",
    "Sandal",
    "Shirt",
    "Sneaker",
    "Bag",
    "Ankle boot",
)
MEAN, STD = 0.2860, 0.3530

_SOURCE = "github.com/zalandoresearch/fashion-mnist"
_SHA256 = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}


def fashion_mnist(images: bool = False, normalise: bool = True) -> Dataset:
    """Pixels / 255, less the training mean 0.2860, over the training deviation 0.3530.

    Test: the official 10,000.

    Args:
        images: Rows of `(1, 28, 28)` in place of `(784,)`.
        normalise: Less mean, over deviation; False: pixels in [0, 1].
    """
    flag("images", images)
    flag("normalise", normalise)
    train, test = _table("train", images, normalise), _table("t10k", images, normalise)
    return Dataset("fashion-mnist", train, test, _SOURCE, "MIT, (c) 2017 Zalando SE")


def _table(part: str, images: bool, normalise: bool) -> Table:
    x = _read_idx(f"{part}-images-idx3-ubyte").astype(np.float32)
    x /= 255
    if normalise:
        x -= MEAN
        x /= STD
    y = _read_idx(f"{part}-labels-idx1-ubyte").astype(np.int64)
    return Table(x.reshape(-1, 1, 28, 28) if images else x.reshape(len(y), -1), y, classes=CLASSES)


def _read_idx(name: str) -> NDArray[np.uint8]:
    data = PublicFile("fashion-mnist", name, _SHA256[name], _SOURCE).read()
    return parse_idx(data)


def parse_idx(data: bytes) -> NDArray[np.uint8]:
    """An array of the idx format: two zeros, a type byte, the number of axes, the axes, the values."""
    axes = data[3]
    shape = np.frombuffer(data, dtype=">i4", count=axes, offset=4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)
