"""Networks of medical imaging, from MONAI: the optional extra `medical`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import nn

from fedsaddle.arguments import whole
from fedsaddle.errors import MissingData, install
from fedsaddle.problems.models.papers import MOST_PIXELS, check_units

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
