"""VGG11 for small pictures."""

from __future__ import annotations

from math import gcd
from typing import Literal

from torch import Tensor, nn

from fedsaddle.arguments import choice
from fedsaddle.problems.models.papers import check_units

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
