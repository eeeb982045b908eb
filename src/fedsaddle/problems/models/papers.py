"""Ready models of the papers' runs. Any other `nn.Module` will do as well."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle.arguments import whole
from fedsaddle.errors import BadInput
from fedsaddle.memory_room import available_memory

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
    """A linear map from features to class scores, starting from zero."""
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
    """The CNN of McMahan et al. 2017: two 5x5 convolutions (32, 64), 2x2 pooling, 512 units; 1,663,370 weights."""

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
    """The CNN of FedSGDA's paper, TensorFlow's tutorial: three 3x3 convolutions (32, 64, 64), pooling, 64 units."""

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
