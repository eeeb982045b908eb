"""The models of the workloads for the implementations on PyTorch."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def build(name: str, weights: dict[str, np.ndarray]) -> nn.Sequential:
    """The workload's model with the weights w0, b0, w1, ... in its parameters, in order."""
    if name == "W1":
        model = nn.Sequential(nn.Linear(784, 10))
    elif name == "W2":
        model = nn.Sequential(nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU(), nn.Linear(200, 10))
    else:
        model = nn.Sequential(
            nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, 10),
        )  # fmt: skip
    with torch.no_grad():
        for key, parameter in zip(keys(model), model.parameters(), strict=True):
            parameter.copy_(torch.from_numpy(weights[key]))
    return model


def keys(model: nn.Module) -> list[str]:
    return [f"{'wb'[k % 2]}{k // 2}" for k in range(len(list(model.parameters())))]


def export(model: nn.Module) -> dict[str, np.ndarray]:
    """The parameters under the names of the npz file."""
    values = (p.detach().cpu().numpy().copy() for p in model.parameters())
    return dict(zip(keys(model), values, strict=True))
