"""Ready models: those of the papers' runs, VGG11, networks of MONAI, and what each needs to know of the data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from importlib import import_module
from itertools import pairwise
from math import gcd
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle.arguments import choice, whole
from fedsaddle.errors import BadInput, MissingData, install
from fedsaddle.problems.protocols import DataFacts
from fedsaddle.processes import available_memory

MOST_UNITS = 10_000_000  # of a layer
MOST_PIXELS = 10_000  # on a side


def check_units(key: str, value: object) -> None:
    """Validate the width of a layer: inputs, units, channels or scores."""
    whole(key, value, most=MOST_UNITS)


def check_weights(key: str, value: object, weights: int) -> None:
    """Refuse a model that does not fit into memory, before it is made."""
    if 4 * int(weights) > available_memory():
        raise BadInput(
            key, value, f"the model would have {int(weights):.1e} weights, too many for memory; use fewer units"
        )


def logistic_regression(inputs: int, classes: int) -> nn.Module:
    """A linear map from features to class scores, starting from zero.

    Args:
        inputs: number of features.
        classes: number of classes.
    """
    check_units("inputs", inputs)
    check_units("classes", classes)
    check_weights("inputs", inputs, (inputs + 1) * classes)
    layer = nn.Linear(inputs, classes)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer)


def mlp(inputs: int, hidden: Sequence[int], outputs: int) -> nn.Module:
    """Linear layers with ReLU between them: `mlp(14, [50, 50], 2)` is the Adult network of DRFA.

    Args:
        inputs: Features.
        hidden: Units of each hidden layer, such as [50, 50].
        outputs: Scores.
    """
    check_units("inputs", inputs)
    _check_hidden(hidden)
    check_units("outputs", outputs)
    check_weights("hidden", list(hidden), sum((int(a) + 1) * int(b) for a, b in pairwise([inputs, *hidden, outputs])))
    parts: list[nn.Module] = [nn.Flatten()]
    widths = [inputs, *hidden]
    for a, b in pairwise(widths):
        parts += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(widths[-1], outputs))


def _check_hidden(hidden: object) -> None:
    """Validate the widths of hidden layers; there may be none."""
    row = hidden.ndim == 1 if isinstance(hidden, np.ndarray) else isinstance(hidden, Sequence)
    if not row or isinstance(hidden, str | bytes):
        raise BadInput("hidden", hidden, "must be a list of the layers' units, such as [50, 50]")
    assert isinstance(hidden, Sequence | np.ndarray)
    for width in hidden:
        try:
            check_units("hidden", width)
        except BadInput as error:
            remedy = f"every layer needs at least one unit; each {error.remedy}"
            raise BadInput("hidden", list(hidden), remedy) from None


class CharacterGru(nn.Module):
    """Next-character model: embedding, one GRU layer, linear scores for every position (86-50-50-86 in DRFA).

    Args:
        characters: Different characters.
        embedding: Numbers that stand for a character.
        units: Of the GRU.
    """

    def __init__(self, characters: int = 86, embedding: int = 50, units: int = 50) -> None:
        super().__init__()
        for key, value in (("characters", characters), ("embedding", embedding), ("units", units)):
            check_units(key, value)
        check_weights("units", units, characters * embedding + 3 * units * (embedding + units) + characters * units)
        self.embed = nn.Embedding(characters, embedding)
        self.gru = nn.GRU(embedding, units, batch_first=True)
        self.read = nn.Linear(units, characters)

    def forward(self, x: Tensor) -> Tensor:
        """`(B, T)` character codes to `(B, T, characters)` scores."""
        h, _ = self.gru(self.embed(x))
        out: Tensor = self.read(h)
        return out

    def cohort(self, p: dict[str, Tensor], x: Tensor) -> Tensor:
        """The same for a cohort, `(C, B, T)`: matrix products stacked over clients, one loop over the characters."""
        clients, rows, length = x.shape
        embedded = _lookup(p["embed.weight"], x)
        inputs = torch.baddbmm(
            p["gru.bias_ih_l0"][:, None], embedded.view(clients, rows * length, -1), p["gru.weight_ih_l0"].mT
        ).view(clients, rows, length, -1)
        weight, bias = p["gru.weight_hh_l0"].mT, p["gru.bias_hh_l0"][:, None]
        h = inputs.new_zeros(clients, rows, self.gru.hidden_size)
        outputs = []
        for t in range(length):
            ir, iz, inew = inputs[:, :, t].chunk(3, -1)
            hr, hz, hnew = torch.baddbmm(bias, h, weight).chunk(3, -1)
            r, z = torch.sigmoid(ir + hr), torch.sigmoid(iz + hz)
            new = torch.tanh(inew + r * hnew)
            h = new + z * (h - new)
            outputs.append(h)
        states = torch.stack(outputs, 2).flatten(1, 2)
        scores = torch.baddbmm(p["read.bias"][:, None], states, p["read.weight"].mT)
        return scores.view(clients, rows, length, -1)


def _lookup(tables: Tensor, codes: Tensor) -> Tensor:
    """Row `codes[c, ...]` of `tables[c]`."""
    clients, characters, width = tables.shape
    offset = torch.arange(clients, device=codes.device).view(-1, *(1,) * (codes.ndim - 1)) * characters
    return torch.nn.functional.embedding(codes + offset, tables.reshape(-1, width))


def _two_convolutions(
    channels: int, classes: int, side: int, filters: Sequence[int], units: int
) -> dict[str, nn.Module]:
    """The layers of a network with two 5x5 convolutions, each with 2x2 pooling, and one layer before the scores."""
    check_units("channels", channels)
    check_units("classes", classes)
    whole("side", side, least=4, most=MOST_PIXELS)
    if not isinstance(filters, list | tuple) or len(filters) != 2:
        raise BadInput("filters", filters, "give the filters of the two convolutions: [8, 16]")
    for count in filters:
        check_units("filters", count)
    check_units("units", units)
    first, second = filters
    inputs = second * (side // 4) ** 2
    check_weights("filters", filters, 25 * (channels * first + first * second) + inputs * units)
    return {
        "conv1": nn.Conv2d(channels, first, 5, padding=2),
        "relu1": nn.ReLU(),
        "pool1": nn.MaxPool2d(2),
        "conv2": nn.Conv2d(first, second, 5, padding=2),
        "relu2": nn.ReLU(),
        "pool2": nn.MaxPool2d(2),
        "flat": nn.Flatten(),
        "hidden": nn.Linear(inputs, units),
        "relu3": nn.ReLU(),
        "read": nn.Linear(units, classes),
    }


class McMahanCnn(nn.Sequential):
    """The CNN of McMahan et al. 2017: two 5x5 convolutions (32, 64), 2x2 pooling, 512 units; 1,663,370 weights.

    Args:
        channels: channels of a picture.
        classes: number of classes.
        side: height and width of a picture in pixels.
    """

    def __init__(self, channels: int = 1, classes: int = 10, side: int = 28) -> None:
        super().__init__()
        for name, layer in _two_convolutions(channels, classes, side, (32, 64), 512).items():
            self.add_module(name, layer)


class SmallCnn(nn.Sequential):
    """The CNN of McMahan et al. with fewer filters and units: for small pictures by the hundred or thousand.

    Args:
        channels: Of the pictures.
        classes: Scores.
        side: Pixels.
        filters: Of the two convolutions.
        units: Of the layer before the scores.
    """

    def __init__(
        self, channels: int = 1, classes: int = 10, side: int = 28, filters: Sequence[int] = (8, 16), units: int = 64
    ) -> None:
        super().__init__()
        for name, layer in _two_convolutions(channels, classes, side, filters, units).items():
            self.add_module(name, layer)


class TutorialCnn(nn.Sequential):
    """The CNN of FedSGDA's paper, TensorFlow's tutorial: three 3x3 convolutions (32, 64, 64), pooling, 64 units.

    Args:
        channels: channels of a picture.
        classes: number of classes.
        side: height and width of a picture in pixels.
    """

    def __init__(self, channels: int = 3, classes: int = 10, side: int = 32) -> None:
        check_units("channels", channels)
        check_units("classes", classes)
        whole("side", side, least=18, most=MOST_PIXELS)
        parts: dict[str, nn.Module] = {
            "conv1": nn.Conv2d(channels, 32, 3),
            "relu1": nn.ReLU(),
            "pool1": nn.MaxPool2d(2),
            "conv2": nn.Conv2d(32, 64, 3),
            "relu2": nn.ReLU(),
            "pool2": nn.MaxPool2d(2),
            "conv3": nn.Conv2d(64, 64, 3),
            "relu3": nn.ReLU(),
            "flatten": nn.Flatten(),
            "hidden": nn.Linear(64 * (((side - 2) // 2 - 2) // 2 - 2) ** 2, 64),
            "relu4": nn.ReLU(),
            "read": nn.Linear(64, classes),
        }
        super().__init__(OrderedDict(parts))


Normalisation = Literal["group", "none", "batch"]
PLAN = (1, "pool", 2, "pool", 4, 4, "pool", 8, 8, "pool", 8, 8, "pool")  # channels in units of `width`
GROUP = 16  # channels that GroupNorm takes together


class Vgg11(nn.Module):
    """VGG11 (Simonyan and Zisserman, configuration A) for pictures of 32x32, 28x28 or any other size.

    Eight 3x3 convolutions of 64 to 512 channels with ReLU and 2x2 pooling that keeps odd borders, the mean over what is
    left of the picture, and one linear layer: 9,225,610 weights for 3 colours and 10 classes without normalisation.
    The two layers of 4,096 units of the original, made for 224x224, are left out, as usual for small pictures.

    "batch" is BatchNorm with the statistics of the batch at hand, in training and in evaluation. Running statistics,
    which a network of your own may keep, are averaged with the weights; those of unlike clients fit together badly.

    Args:
        channels: Colours of a picture.
        classes: Scores.
        normalisation: After every convolution: GroupNorm, nothing (learns slowly from torch's usual starting values),
            or BatchNorm with the batch's own statistics.
        width: Channels of the first layer; the others are 2 to 8 times as many. 64 is VGG11.
    """

    def __init__(
        self, channels: int = 3, classes: int = 10, normalisation: Normalisation = "group", width: int = 64
    ) -> None:
        super().__init__()
        for key, value in (("channels", channels), ("classes", classes), ("width", width)):
            check_units(key, value)
        choice("normalisation", normalisation, ("group", "none", "batch"))
        parts: list[nn.Module] = []
        into = channels
        for step in PLAN:
            if isinstance(step, str):
                parts.append(nn.MaxPool2d(2, ceil_mode=True))
                continue
            out = step * width
            parts += [nn.Conv2d(into, out, 3, padding=1), *_normalised(normalisation, out), nn.ReLU()]
            into = out
        self.features = nn.Sequential(*parts)
        self.read = nn.Linear(into, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images `(B, channels, side, side)` to class scores."""
        out: Tensor = self.read(self.features(x).mean((2, 3)))
        return out


def _normalised(kind: str, channels: int) -> list[nn.Module]:
    if kind == "group":
        return [nn.GroupNorm(gcd(channels, max(1, channels // GROUP)), channels)]
    return [nn.BatchNorm2d(channels, track_running_stats=False)] if kind == "batch" else []


SMALLEST = 32  # pixels a side: five halvings leave one


def densenet121(channels: int, side: int, classes: int) -> nn.Module:
    """DenseNet121 (Huang et al. 2017) with BatchNorm, as the CODASCA paper trains it; about 7 million weights."""
    _check(channels, side, classes)
    return _padded(_nets().DenseNet121(spatial_dims=2, in_channels=channels, out_channels=classes), side)


def resnet18(channels: int, side: int, classes: int) -> nn.Module:
    """ResNet18 (He et al. 2016) with BatchNorm; about 11 million weights."""
    _check(channels, side, classes)
    return _padded(_nets().resnet18(spatial_dims=2, n_input_channels=channels, num_classes=classes), side)


def _check(channels: int, side: int, classes: int) -> None:
    check_units("channels", channels)
    whole("side", side, most=MOST_PIXELS)
    check_units("classes", classes)


def _padded(net: nn.Module, side: int) -> nn.Module:
    """Small pictures get a margin of zeros: the networks halve their input five times."""
    short = SMALLEST - side
    return net if short <= 0 else nn.Sequential(nn.ZeroPad2d((short // 2, short - short // 2) * 2), net)


def _nets() -> Any:
    try:
        return import_module("monai.networks.nets")
    except ImportError:
        raise MissingData(f"this model comes from MONAI; {install('medical')}") from None


Shapes = dict[str, int]


def linear(facts: DataFacts, scores: int) -> Shapes:
    """One linear map."""
    return {"inputs": _features(facts), "classes": scores}


def layers(facts: DataFacts, scores: int) -> Shapes:
    """Linear layers."""
    return {"inputs": _features(facts), "outputs": scores}


def picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions, for pictures of any size."""
    _features(facts)
    if len(facts.shape) != 3:
        raise BadInput("model.name", facts.model, "needs pictures; say images = true under [data]")
    return {"channels": facts.shape[0], "classes": scores}


def sized_picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions that must know the side of a picture."""
    return {**picture(facts, scores), "side": facts.shape[-1]}


def square_picture(facts: DataFacts, scores: int) -> Shapes:
    """Convolutions for square pictures that are halved twice."""
    shapes, (_, height, width) = sized_picture(facts, scores), facts.shape
    if height != width or width < 4:
        remedy = f"needs square pictures of 4 x 4 pixels or more, these are {height} x {width}; use mlp"
        raise BadInput("model.name", facts.model, remedy)
    return shapes


def text(facts: DataFacts, scores: int) -> Shapes:
    """A model of characters."""
    if not facts.text:
        raise BadInput("model.name", facts.model, "is the model for text, and for nothing else")
    return {"characters": len(facts.classes)}


def _features(facts: DataFacts) -> int:
    if facts.text:
        raise BadInput("model.name", facts.model, "these data are text: gru is the model for text")
    return facts.features
