"""Code outside of the library, written to a folder: what users write, in a few lines each."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedsaddle import own_code as code_module

ALGORITHMS = '''
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import fedsaddle as fs


@dataclass(frozen=True)
class Sent:
    w: Tensor


@dataclass(frozen=True)
class Reply:
    w: fs.Averaged


@dataclass(frozen=True)
class State:
    w: Tensor


@dataclass(frozen=True, kw_only=True)
class FedProx:
    """FedAvg with a pull back to the server's model."""

    problem: fs.MinimisationProblem
    sampled_clients: int | None = None
    local_steps: int = 2
    batch_size: int = 4
    primal_step: float = 0.1
    pull: float = 0.0

    def start(self, clients):
        return State(self.problem.initial())

    def round(self, server, clients, rng):
        cohort = fs.draw_cohort(rng, clients.count, fs.cohort_size(self.sampled_clients, clients))
        _, reply = clients.ask(cohort, self.local, Sent(server.w))
        return State(reply.w)

    def local(self, own, sent, site):
        w = start = site.broadcast(sent.w)
        for k in range(self.local_steps):
            g = self.problem.gradient(w, site.minibatch(k, self.batch_size))
            w = w - self.primal_step * (g + self.pull * (w - start))
        return None, Reply(w)

    def model(self, server):
        return server.w


class Said(FedProx):
    problem: object
    kind = "minimisation"


class Silent(FedProx):
    problem: "Nobody"


class Wrong(FedProx):
    problem: object
    kind = "maximisation"


class Other(FedProx):
    kind = "an option of its own"


@dataclass(frozen=True, kw_only=True)
class Fails(FedProx):
    def __post_init__(self):
        raise RuntimeError("no luck today")


class NotOne:
    def start(self, clients): ...


def function():
    return None


number = 3
'''
PARTS = '''
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

import fedsaddle as fs


class Net(nn.Module):
    """Two layers."""

    def __init__(self, inputs: int, outputs: int, width: int = 3):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))

    def forward(self, x):
        return self.layers(x)


def net(shape: tuple, classes: int, **more: float) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[0], classes))


class Picture(nn.Module):
    def __init__(self, channels: int, side: int, outputs: int):
        super().__init__()


class Odd(nn.Module):
    """Names and types that are hard to check: a method of pydantic's, a hidden one, and a type that nobody knows."""

    def __init__(self, outputs: int, copy: int = 1, model_size: "Nowhere.At" = 2, _hidden: int = 3):
        super().__init__()
        self.layer = nn.Linear(4, outputs)
        self.given = (copy, model_size, _hidden)

    def forward(self, x):
        return self.layer(x)


def no_annotation(inputs):
    return nn.Linear(inputs, 1)


def lies(inputs: int) -> nn.Module:
    return 3


def table(rows: int = 24, wrong: bool = False) -> fs.Dataset:
    if wrong:
        return rows
    x = np.random.default_rng(0).normal(size=(rows, 3)).astype("float32")
    made = fs.Table.of(x, (x[:, 0] > 0).astype(int), {}, ("no", "yes"), ("a", "b", "c"))
    return fs.Dataset("mine", made, None, "made up", "none")


@dataclass(frozen=True)
class Halves(fs.splits.Split):
    parts: int = 2

    def assign(self, train, test, seed):
        def cut(t):
            return [np.flatnonzero(np.arange(len(t.y)) % self.parts == k) for k in range(self.parts)]

        return cut(train), None if test is None else cut(test)

    def names(self, train):
        return tuple(f"part {k}" for k in range(self.parts))


@dataclass(frozen=True)
class Huber(fs.losses.Logistic):
    name: ClassVar[str] = "own"


@dataclass(frozen=True)
class Ones:
    """The number one."""

    times: float = 1.0
    name = "ones"

    def __call__(self, at):
        return self.times


class Broken(nn.Module):
    def __init__(self, inputs: int):
        super().__init__()
        self.layer = nn.Linear(inputs, "three")


@dataclass(frozen=True)
class Quantile(fs.MinimisationProblem):
    features: int
    level: float = 0.9

    def initial(self) -> Tensor:
        return torch.zeros(self.features)

    def value(self, w, batch):
        return (self._loss(w, batch.x, batch.y) * fs.shares(batch.y, batch)).sum(1)

    def gradient(self, w, batch):
        r = batch.y - (batch.x @ w[..., None]).squeeze(-1)
        slope = ((r <= 0).to(w.dtype) - self.level) * fs.shares(batch.y, batch)
        return (slope[:, None] @ batch.x).squeeze(1)

    def row_measures(self, w, x, y, dual=None):
        return {"loss": self._loss(w[None], x[None], y[None])[0]}

    def _loss(self, w, x, y):
        r = y - (x @ w[..., None]).squeeze(-1)
        return torch.maximum(self.level * r, (self.level - 1) * r)


class OverModel(fs.Supervised):
    """Supervised, made by its own rule."""

    @classmethod
    def from_data(cls, facts, model_for, *, sharpness: float = 1.0):
        return cls(model_for(len(facts.classes)))


@dataclass(frozen=True)
class Halving:
    first: float = 0.1

    def at(self, t):
        return self.first / (1 + t)
'''


@contextmanager
def own_code(folder: Path, **modules: str) -> Iterator[Path]:
    """These modules in a folder of a config; Python forgets them afterwards."""
    path, places, known = list(sys.path), list(code_module._FOLDERS), set(sys.modules)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)
    code_module.search_in(folder)
    code_module.forget()
    try:
        yield folder
    finally:
        sys.path[:], code_module._FOLDERS[:] = path, places
        for name in set(sys.modules) - known:
            if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(folder)):
                del sys.modules[name]
        importlib.invalidate_caches()
        code_module.forget()
