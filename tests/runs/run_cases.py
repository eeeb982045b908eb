"""Small runs for the tests of the loop, and what must be equal of two of them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.config.build import load
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import NobodyAnswered
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.result import Result


@cache
def iris(clients: int = 4) -> FederatedData:
    return load("iris", split="iid", clients=clients)


def problem() -> Supervised:
    return Supervised(logistic_regression(4, 3))


def drfa(**options: Any) -> Drfa:
    return Drfa(problem=problem(), **{"sampled_clients": 2, "local_steps": 3, "batch_size": 8, **options})


def fedavg(**options: Any) -> FedAvg:
    return FedAvg(problem=problem(), **{"local_steps": 2, "batch_size": 8, **options})


def story(out: Path) -> list[dict[str, Any]]:
    """The records of a run, but for the time they took."""
    return timeless(RunFiles(out).history())


def timeless(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**record, "seconds": None} for record in history]


def same_end(a: Path, b: Path) -> bool:
    model = "model.safetensors"
    return (a / model).read_bytes() == (b / model).read_bytes() and story(a) == story(b)


def same_result(a: Result, b: Result) -> bool:
    mixtures = (a.mixture is None and b.mixture is None) or torch.equal(a.mixture, b.mixture)
    return torch.equal(a.model, b.model) and mixtures and timeless(a.history) == timeless(b.history)


def files(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in out.rglob("*") if p.is_file()}


def unequal(sizes: tuple[int, ...] = (3, 9, 1, 5)) -> Stacked:
    """Rows of three classes; clients of unequal size."""
    g = torch.Generator().manual_seed(0)
    total = sum(sizes)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Stacked(torch.randn(total, 4, generator=g), torch.randint(3, (total,), generator=g), offsets)


class Silent:
    """An algorithm whose clients do not answer in the rounds that `silent` picks; it counts the others."""

    def __init__(self, inner: Any, silent: Any) -> None:
        self.inner, self.silent, self.asked = inner, silent, 0
        self.problem, self.local_steps = inner.problem, inner.local_steps
        self.start, self.model = inner.start, inner.model

    def round(self, server: Any, clients: Any, rng: Any) -> Any:
        after = self.inner.round(server, clients, rng)
        self.asked += 1
        if self.silent(self.asked):
            raise NobodyAnswered("nobody is at home")
        return after
