"""Pictures of public data sets: Fashion-MNIST, MedMNIST, CIFAR-10 and CIFAR-100."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from fedsaddle.arguments import choice, flag, whole
from fedsaddle.data.sets.locate import PublicFile
from fedsaddle.data.splits.by_label import check_positive, one_against_rest
from fedsaddle.data.table import Array, Dataset, Table
from fedsaddle.errors import BadInput, MissingData

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

_FASHION_SOURCE = "github.com/zalandoresearch/fashion-mnist"
_FASHION_SHA256 = {
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
    return Dataset("fashion-mnist", train, test, _FASHION_SOURCE, "MIT, (c) 2017 Zalando SE")


def _table(part: str, images: bool, normalise: bool) -> Table:
    x = _read_idx(f"{part}-images-idx3-ubyte").astype(np.float32)
    x /= 255
    if normalise:
        x -= MEAN
        x /= STD
    y = _read_idx(f"{part}-labels-idx1-ubyte").astype(np.int64)
    return Table(x.reshape(-1, 1, 28, 28) if images else x.reshape(len(y), -1), y, classes=CLASSES)


def _read_idx(name: str) -> NDArray[np.uint8]:
    data = PublicFile("fashion-mnist", name, _FASHION_SHA256[name], _FASHION_SOURCE).read()
    return parse_idx(data)


def parse_idx(data: bytes) -> NDArray[np.uint8]:
    """An array of the idx format: two zeros, a type byte, the number of axes, the axes, the values."""
    axes = data[3]
    shape = np.frombuffer(data, dtype=">i4", count=axes, offset=4)
    return np.frombuffer(data, dtype=np.uint8, offset=4 + 4 * axes).reshape(shape)


_MEDMNIST_SOURCE = "medmnist.com (Yang et al., Scientific Data 2023)"
_MEDMNIST_SHA256 = {
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
    return _medmnist("pneumoniamnist", ("normal", "pneumonia"), images, validation, turned=False)


def breastmnist(images: bool = False, validation: bool = False) -> Dataset:
    """546 + 156 breast ultrasounds (with `validation` 78 more); class 1 is malignant (27 % of the training rows).

    The file has the classes the other way round; here the illness is class 1, as in the other medical sets.

    Args:
        images: Rows of `(1, 28, 28)` in place of `(784,)`.
        validation: The official validation pictures are training rows too.
    """
    return _medmnist("breastmnist", ("normal or benign", "malignant"), images, validation, turned=True)


def _medmnist(name: str, classes: tuple[str, str], images: bool, validation: bool, turned: bool) -> Dataset:
    flag("images", images)
    flag("validation", validation)
    file = f"{name}.npz"
    content = PublicFile("medmnist", file, _MEDMNIST_SHA256[file], _MEDMNIST_SOURCE).read()
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        parts = [_part(arrays, part, images, turned) for part in ("train", "val", "test")]
    (x, y), (more_x, more_y), test = parts
    if validation:
        x, y = np.concatenate([x, more_x]), np.concatenate([y, more_y])
    tables = [Table(rows, labels, classes=classes) for rows, labels in ((x, y), test)]
    return Dataset(name, tables[0], tables[1], f"{_MEDMNIST_SOURCE}, {file}", "CC BY 4.0; not for clinical use")


def _part(arrays: dict[str, Array], part: str, images: bool, turned: bool) -> tuple[Array, NDArray[np.int64]]:
    x = arrays[f"{part}_images"].astype(np.float32) / 255
    y = arrays[f"{part}_labels"].ravel().astype(np.int64)
    return x.reshape(-1, 1, 28, 28) if images else x.reshape(len(y), -1), 1 - y if turned else y


SIDE, PIXELS, TRAINING = 32, 3 * 32 * 32, 50_000
PAGE = "https://www.cs.toronto.edu/~kriz/cifar.html"
LICENCE = "none stated; cite Krizhevsky, 'Learning Multiple Layers of Features from Tiny Images', 2009"
Scaling = bool | str  # or "symmetric"; checked below, so that the complaint names all three
Bytes = NDArray[np.uint8]

# The names of the classes, as in the archives' own lists.
CIFAR10_CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")

_FINE = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle
bowl boy bridge bus butterfly camel can castle caterpillar cattle
chair chimpanzee clock cloud cockroach couch crab crocodile cup dinosaur
dolphin elephant flatfish forest fox girl hamster house kangaroo keyboard
lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain
mouse mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree
plain plate poppy porcupine possum rabbit raccoon ray road rocket
rose sea seal shark shrew skunk skyscraper snail snake spider
squirrel streetcar sunflower sweet_pepper table tank telephone television tiger tractor
train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

_COARSE = """
aquatic_mammals fish flowers food_containers fruit_and_vegetables household_electrical_devices household_furniture
insects large_carnivores large_man-made_outdoor_things large_natural_outdoor_scenes large_omnivores_and_herbivores
medium_mammals non-insect_invertebrates people reptiles small_mammals trees vehicles_1 vehicles_2
"""

FINE, COARSE = tuple(_FINE.split()), tuple(_COARSE.split())


@dataclass(frozen=True)
class PictureFiles:
    """The files of one of the sets, and the mean and deviation of its 50,000 training pictures, colour by colour."""

    name: str
    archive: str
    inside: str  # the folder that the archive unpacks to
    label_bytes: int
    train: tuple[tuple[tuple[str, str], ...], ...]  # ways to hold the training pictures; names and SHA-256 in order
    test: tuple[str, str]
    mean: tuple[float, float, float]
    deviation: tuple[float, float, float]

    def file(self, name: str, sha256: str) -> PublicFile:
        """One of the files."""
        return PublicFile(self.name, name, sha256, f"{PAGE} ({self.archive})", self.inside)


TEN = PictureFiles(
    "cifar10",
    "cifar-10-binary.tar.gz, 162 MB",
    "cifar-10-batches-bin",
    1,
    (
        (
            ("data_batch_1.bin", "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
            ("data_batch_2.bin", "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
            ("data_batch_3.bin", "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
            ("data_batch_4.bin", "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
            ("data_batch_5.bin", "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
        ),
    ),
    ("test_batch.bin", "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
    (0.4914, 0.4822, 0.4465),
    (0.2470, 0.2435, 0.2616),
)
HUNDRED = PictureFiles(
    "cifar100",
    "cifar-100-binary.tar.gz, 161 MB",
    "cifar-100-binary",
    2,
    (
        (("train.bin", "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29"),),
        (("train_first10000.bin", "dec9f86a9b84e30f90405464a32f9c71174dbb28f1c7e723cf62779e9e6f4843"),),
    ),
    ("test.bin", "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a"),
    (0.5071, 0.4865, 0.4409),
    (0.2673, 0.2564, 0.2762),
)


def cifar10(
    images: bool = False,
    normalise: Scaling = True,
    positive: list[int | str] | None = None,
    first: int | None = None,
    side: int = SIDE,
) -> Dataset:
    """Pixels / 255, less the training mean of the colour, over its deviation.

    Test: the official 10,000.

    Args:
        images: Rows of `(3, side, side)` in place of flat ones.
        normalise: Less mean, over deviation; False: pixels in [0, 1]; `"symmetric"`: in [-1, 1].
        positive: These classes (names or numbers) against the rest; the old classes become the column "class".
        first: The first training pictures only; None: all that are found.
        side: 32, 16 or 8: blocks of pixels are averaged.
    """
    return _cifar(TEN, 0, CIFAR10_CLASSES, images, normalise, positive, first, side)


def cifar100(
    labels: Literal["fine", "coarse"] = "fine",
    images: bool = False,
    normalise: Scaling = True,
    positive: list[int | str] | None = None,
    first: int | None = None,
    side: int = SIDE,
) -> Dataset:
    """As CIFAR-10, with 100 fine classes or the 20 coarse ones that they make up.

    Args:
        labels: 100 fine or 20 coarse classes.
        images: Rows of `(3, side, side)` in place of flat ones.
        normalise: Less mean, over deviation; False: pixels in [0, 1]; `"symmetric"`: in [-1, 1].
        positive: These classes (names or numbers) against the rest; the old classes become the column "class".
        first: The first training pictures only; None: all that are found.
        side: 32, 16 or 8: blocks of pixels are averaged.
    """
    place, classes = (1, FINE) if choice("labels", labels, ("fine", "coarse")) == "fine" else (0, COARSE)
    return _cifar(HUNDRED, place, classes, images, normalise, positive, first, side)


def _cifar(
    layout: PictureFiles,
    place: int,
    classes: tuple[str, ...],
    images: bool,
    normalise: Scaling,
    positive: list[int | str] | None,
    first: int | None,
    side: int,
) -> Dataset:
    flag("images", images)
    check_positive(positive)
    if first is not None:
        first = whole("first", first, most=TRAINING)
    if not isinstance(normalise, bool) and not (isinstance(normalise, str) and normalise == "symmetric"):
        raise BadInput("normalise", normalise, "choose true, false or 'symmetric'")
    if whole("side", side) not in (32, 16, 8):
        raise BadInput("side", side, "choose 32, or 16 or 8 for blocks of pixels averaged")

    def table(records: Bytes) -> Table:
        x = scaled(records[:, layout.label_bytes :].reshape(-1, 3, SIDE, SIDE), layout, normalise, side)
        y = records[:, place].astype(np.int64)
        made = Table(x if images else x.reshape(len(y), -1), y, classes=classes)
        return made if positive is None else one_against_rest(made, positive)

    train = train_records(layout, first)
    test = parse_records(layout.file(*layout.test).read(), layout)
    part = "" if len(train) == TRAINING else f", first {len(train):,} of the {TRAINING:,} training pictures"
    return Dataset(layout.name, table(train), table(test), f"{PAGE}{part}", LICENCE)


def train_records(layout: PictureFiles, first: int | None = None) -> Bytes:
    """The records of the training pictures that are there, or the first `first`; raises `MissingData` for too few."""
    missing: list[MissingData] = []
    for way in layout.train:
        records: list[Bytes] = []
        for name, sha256 in way:
            if first is not None and sum(map(len, records)) >= first:
                break
            try:
                records.append(parse_records(layout.file(name, sha256).read(), layout))
            except MissingData as error:
                missing.append(error)
                break
        if records and (first is None or sum(map(len, records)) >= first):
            return np.concatenate(records)[:first]
    raise missing[0]


def parse_records(data: bytes, layout: PictureFiles) -> Bytes:
    """Rows of label bytes and 3,072 pixels: red, then green, then blue, each line by line."""
    width = layout.label_bytes + PIXELS
    if not data or len(data) % width:
        raise BadInput(f"{layout.name} file", f"{len(data)} bytes", f"is not made of records of {width} bytes")
    return np.frombuffer(data, dtype=np.uint8).reshape(-1, width)


def scaled(pictures: Bytes, layout: PictureFiles, normalise: Scaling, side: int) -> NDArray[np.float32]:
    """Bytes `(n, 3, 32, 32)` to float32 `(n, 3, side, side)`."""
    block = SIDE // side
    x = pictures.astype(np.float32)
    if block > 1:
        x = x.reshape(-1, 3, side, block, side, block).mean(axis=(3, 5), dtype=np.float32)
    x /= 255
    if normalise == "symmetric":
        x *= 2
        x -= 1
    elif normalise:
        x -= np.array(layout.mean, dtype=np.float32)[:, None, None]
        x /= np.array(layout.deviation, dtype=np.float32)[:, None, None]
    return x
