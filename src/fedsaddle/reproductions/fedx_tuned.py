"""The first step and λ of every method on every task: chosen by `python -m fedsaddle.reproductions.fedx_tuning`."""

from __future__ import annotations

from typing import NamedTuple


class Tuned(NamedTuple):
    """What is tuned; λ stays 1 where the risk has none."""

    step: float
    temperature: float = 1.0


TUNED: dict[str, dict[str, Tuned]] = {
    "CIFAR-10": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.1, 1.0),
        "FedX2": Tuned(0.1, 5.0),
    },
    "CIFAR-100": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.3),
        "Local Pair": Tuned(0.1, 1.0),
        "FedX2": Tuned(0.1, 5.0),
    },
    "PneumoniaMNIST": {
        "Centralised": Tuned(0.03, 1.0),
        "Local SGD": Tuned(0.1),
        "CODASCA": Tuned(0.03),
        "Local Pair": Tuned(0.03, 1.0),
        "FedX2": Tuned(0.01, 1.0),
    },
    "CIFAR-10, flipped": {
        "Centralised": Tuned(0.3),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.3),
        "FedX1": Tuned(1.0),
    },
    "CIFAR-100, flipped": {
        "Centralised": Tuned(0.1),
        "Local SGD": Tuned(0.1),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.1),
        "FedX1": Tuned(0.1),
    },
    "PneumoniaMNIST, flipped": {
        "Centralised": Tuned(0.1),
        "Local SGD": Tuned(0.03),
        "CODASCA": Tuned(0.03),
        "Local Pair": Tuned(0.1),
        "FedX1": Tuned(0.1),
    },
    "CIFAR-10, one class": {
        "Centralised": Tuned(0.3, 5.0),
        "Local SGD": Tuned(1.0),
        "CODASCA": Tuned(0.01),
        "Local Pair": Tuned(0.01, 1.0),
        "FedX2": Tuned(0.01, 5.0),
    },
    "CIFAR-10, skewed": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.3, 5.0),
        "FedX2": Tuned(0.01, 5.0),
    },
}
