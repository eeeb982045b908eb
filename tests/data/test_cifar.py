"""CIFAR: the binary format on made-up files, and exact counts on the real ones."""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsaddle.data.sets import pictures as cifar
from fedsaddle.data.sets.pictures import (
    CIFAR10_CLASSES,
    COARSE,
    FINE,
    HUNDRED,
    TEN,
    PictureFiles,
    cifar10,
    cifar100,
    parse_records,
)
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput, MissingData


def _bytes(labels: list[list[int]]) -> bytes:
    """One record for each entry; the red, green and blue of picture i are 10 i, 10 i + 1 and 10 i + 2."""
    colours = [bytes(np.repeat(np.arange(3) + 10 * i, 1024).astype(np.uint8)) for i in range(len(labels))]
    return b"".join(bytes(label) + pixels for label, pixels in zip(labels, colours, strict=True))


BATCHES = {"data_batch_1.bin": [[0], [3], [9]], "data_batch_2.bin": [[1], [0]], "test_batch.bin": [[2], [0]]}


def _made(layout: PictureFiles, contents: dict[str, bytes]) -> PictureFiles:
    """The layout with the sums of made-up files."""

    def own(name: str, sha256: str) -> tuple[str, str]:
        return name, hashlib.sha256(contents[name]).hexdigest() if name in contents else sha256

    ways = tuple(tuple(own(*file) for file in way) for way in layout.train)
    return replace(layout, train=ways, test=own(*layout.test))


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two training batches of 3 and 2 pictures and a test batch of 2, packed, in the folder that the archive makes."""
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    contents = {name: _bytes(labels) for name, labels in BATCHES.items()}
    folder = tmp_path / "cifar10" / "cifar-10-batches-bin"
    folder.mkdir(parents=True)
    for name, data in contents.items():
        (folder / f"{name}.xz").write_bytes(lzma.compress(data))
    monkeypatch.setattr(cifar, "TEN", _made(TEN, contents))
    return folder


def _both(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    assert data.test is not None
    data.check()
    return data.train.x, data.test.x


@pytest.mark.usefixtures("small")
def test_the_batches_that_are_there_are_read_in_order() -> None:
    data = cifar10(images=True, normalise=False)
    train, test = _both(data)
    assert data.train.y.tolist() == [0, 3, 9, 1, 0]
    assert data.test is not None
    assert data.test.y.tolist() == [2, 0]
    assert (train.shape, test.shape) == ((5, 3, 32, 32), (2, 3, 32, 32))
    colours = [[0, 1, 2], [10, 11, 12], [20, 21, 22], [0, 1, 2], [10, 11, 12]]
    np.testing.assert_allclose(train[:, :, 7, 5] * 255, colours, rtol=1e-5)
    assert "first 5 of the 50,000 training pictures" in data.source
    assert data.train.classes == CIFAR10_CLASSES
    assert (cifar10(normalise=False).train.x == train.reshape(5, 3072)).all()


@pytest.mark.usefixtures("small")
def test_scalings() -> None:
    plain = cifar10(images=True, normalise=False).train.x
    np.testing.assert_allclose(cifar10(images=True, normalise="symmetric").train.x, 2 * plain - 1, atol=1e-6)
    green = cifar10(images=True).train.x[:, 1]
    np.testing.assert_allclose(green, (plain[:, 1] - 0.4822) / 0.2435, rtol=1e-5)


def test_side_averages_blocks() -> None:
    pictures = np.random.default_rng(0).integers(0, 256, (2, 3, 32, 32)).astype(np.uint8)
    x = cifar.scaled(pictures, TEN, False, 16)
    assert x.shape == (2, 3, 16, 16)
    assert x[1, 2, 5, 0] * 255 == pytest.approx(pictures[1, 2, 10:12, 0:2].mean(), rel=1e-5)


@pytest.mark.usefixtures("small")
def test_first_pins_the_pictures() -> None:
    assert cifar10(first=4).train.y.tolist() == [0, 3, 9, 1]
    assert cifar10(first=2).train.y.tolist() == [0, 3]
    with pytest.raises(MissingData, match=r"data_batch_3\.bin .* 162 MB"):
        cifar10(first=6)
    with pytest.raises(BadInput, match="first = 0"):
        cifar10(first=0)


def test_a_missing_batch_ends_the_training_pictures(small: Path) -> None:
    (small / "data_batch_1.bin.xz").unlink()
    with pytest.raises(MissingData, match=r"data_batch_1\.bin .*cs\.toronto\.edu/~kriz/cifar\.html"):
        cifar10()


def test_a_damaged_file_is_refused(small: Path) -> None:
    packed = small / "data_batch_2.bin.xz"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(BadInput, match="damaged xz"):
        cifar10()
    with pytest.raises(BadInput, match=r"6145 bytes.*records of 3073 bytes"):
        parse_records(b"\0" * 6145, TEN)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("positive", [[0, 9], ["airplane", "truck"], ["truck", 0, 0]])
def test_some_classes_against_the_rest(positive: list[int | str]) -> None:
    data = cifar10(positive=positive)
    data.check()
    assert data.train.y.tolist() == [1, 0, 1, 0, 1]
    assert data.train.classes == ("rest", "airplane or truck")
    assert data.train.columns["class"].tolist() == ["airplane", "cat", "truck", "automobile", "airplane"]
    assert data.test is not None
    assert data.test.columns["class"].tolist() == ["bird", "airplane"]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positive": ["plane"]}, "positive = 'plane': is none of the classes 0 to 9: airplane"),
        ({"positive": [10]}, "positive = 10"),
        ({"positive": [True]}, "positive = True"),
        ({"positive": []}, "at least one"),
        ({"positive": list(range(10))}, "not all"),
        ({"normalise": "half"}, "normalise = 'half'"),
        ({"side": 10}, "side = 10"),
    ],
)
def test_bad_options(options: dict[str, object], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        cifar10(**options)  # type: ignore[arg-type]


def test_cifar100_takes_the_whole_file_or_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    labels = [[0, 4], [19, 99], [8, 3]]
    contents = {"train.bin": _bytes(labels), "train_first10000.bin": _bytes(labels[:2]), "test.bin": _bytes(labels[1:])}
    monkeypatch.setattr(cifar, "HUNDRED", _made(HUNDRED, contents))
    folder = tmp_path / "cifar100"
    folder.mkdir()
    with pytest.raises(MissingData, match=r"train\.bin "):
        cifar100()
    for name in ("test.bin", "train_first10000.bin"):
        (folder / name).write_bytes(contents[name])
    assert cifar100().train.y.tolist() == [4, 99]
    with pytest.raises(MissingData, match=r"train\.bin .*cifar-100-binary.tar.gz"):
        cifar100(first=3)
    (folder / "train.bin").write_bytes(contents["train.bin"])
    assert cifar100(first=3).train.y.tolist() == [4, 99, 3]
    coarse = cifar100(labels="coarse").train
    assert coarse.y.tolist() == [0, 19, 8]
    assert (len(coarse.classes), coarse.classes[8]) == (20, "large_carnivores")
    with pytest.raises(BadInput, match="labels = 'rough'"):
        cifar100(labels="rough")  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
def test_cifar10() -> None:
    data = cifar10(first=10_000, positive=["airplane"])
    train, test = _both(data)
    assert train.shape == test.shape == (10_000, 3072)
    assert np.bincount(data.train.y).tolist() == [8995, 1005]
    names, counts = np.unique(data.train.columns["class"], return_counts=True)
    assert tuple(names) == CIFAR10_CLASSES
    assert counts.tolist() == [1005, 974, 1032, 1016, 999, 937, 1030, 1001, 1025, 981]
    assert train.mean(dtype=np.float64) == pytest.approx(0, abs=0.02)
    assert train.std(dtype=np.float64) == pytest.approx(1, abs=0.02)


@pytest.mark.data
@pytest.mark.usefixtures("real_data")
@pytest.mark.slow
def test_cifar100() -> None:
    sets: list[Callable[[], Dataset]] = [lambda: cifar100(first=10_000), lambda: cifar100("coarse", first=10_000)]
    fine, coarse = (make() for make in sets)
    assert fine.test is not None
    assert coarse.test is not None
    assert np.bincount(fine.test.y).tolist() == [100] * 100
    assert np.bincount(coarse.test.y).tolist() == [500] * 20
    assert fine.train.x.shape == (10_000, 3072)
    made_of: dict[str, set[str]] = {}
    for f, c in zip(fine.train.y, coarse.train.y, strict=True):
        made_of.setdefault(COARSE[c], set()).add(FINE[f])
    assert all(len(names) == 5 for names in made_of.values())
    assert made_of["people"] == {"baby", "boy", "girl", "man", "woman"}
    assert made_of["insects"] == {"bee", "beetle", "butterfly", "caterpillar", "cockroach"}
