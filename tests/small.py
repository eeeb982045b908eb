"""Small federations and models for the tests, in float64, and the loop that runs an algorithm on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from fedsaddle.data.store import Stacked
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.engines.workers import Distributed, Loopback, Worker
from fedsaddle.federation.randomness import server_generator

SIZES = (7, 3, 11, 5, 2, 8)  # unequal on purpose


def rows_of(xs: Sequence[Tensor], ys: Sequence[Tensor]) -> Stacked:
    """Client i owns `xs[i], ys[i]`."""
    offsets = np.concatenate([[0], np.cumsum([len(x) for x in xs])]).astype(np.int64)
    return Stacked(torch.cat(list(xs)), torch.cat(list(ys)), offsets)


def classes(sizes: Sequence[int] = SIZES, features: int = 4, classes: int = 3, seed: int = 0) -> Stacked:
    """Classification: every client has a mean and a mixture of classes of its own."""
    g = torch.Generator().manual_seed(seed)
    xs, ys = [], []
    for n in sizes:
        mean = torch.randn(features, generator=g, dtype=torch.float64)
        xs.append(mean + torch.randn(n, features, generator=g, dtype=torch.float64))
        ys.append(torch.randint(classes, (n,), generator=g))
    return rows_of(xs, ys)


def text(sizes: Sequence[int] = SIZES, characters: int = 6, length: int = 4, seed: int = 0) -> Stacked:
    """Next-character prediction: `(length,)` codes in, `(length,)` codes out."""
    g = torch.Generator().manual_seed(seed)
    lines = [torch.randint(characters, (n, length + 1), generator=g) for n in sizes]
    return rows_of([x[:, :-1] for x in lines], [x[:, 1:] for x in lines])


def alike(rows: Stacked) -> Stacked:
    """Each client's first row in place of all its rows, so that it does not matter which rows are drawn."""
    pairs = [rows.client(i) for i in range(rows.count)]
    xs = [x[:1].expand(x.shape).contiguous() for x, _ in pairs]
    ys = [y[:1].expand(y.shape).contiguous() for _, y in pairs]
    return rows_of(xs, ys)


def relabelled(rows: Stacked, order: Sequence[int]) -> Stacked:
    """The clients in another order: new client i is old client `order[i]`."""
    found = rows_of([rows.client(i)[0] for i in order], [rows.client(i)[1] for i in order])
    if rows.units is None:
        return found
    own = [rows.units[rows.offsets[i] : rows.offsets[i + 1]] for i in order]
    return replace(found, units=np.concatenate(own))


def seeded(make: Callable[[], nn.Module], seed: int = 1) -> nn.Module:
    """The same random parameters every time, in float64, without disturbing torch's own generator."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        module = make().double()
        for p in module.parameters():
            nn.init.normal_(p, std=0.4)
    return module


def near(a: Any, b: Any, atol: float = 1e-10) -> None:
    """Two states agree up to rounding."""
    for f in fields(a):
        u, v = getattr(a, f.name), getattr(b, f.name)
        if isinstance(u, Tensor):
            torch.testing.assert_close(u, v, rtol=0, atol=atol)


def serial(rows: Any, seed: int = 0) -> SerialEngine:
    return SerialEngine(rows, seed=seed)


def vectorised(rows: Any, seed: int = 0) -> VectorisedEngine:
    return VectorisedEngine(rows, seed=seed, chunk=3)


def loopback(alg: Any, rows: Any, seed: int = 0, chunk: int = 2, change: Any = lambda task: task) -> Distributed:
    """Two workers that are asked through bytes, in this process."""
    workers = [Worker(alg, rows, change) for _ in range(2)]
    return Distributed(rows, seed, carrier=Loopback(workers), name="loopback", chunk=chunk)


def play(algorithm: Any, clients: Any, rounds: int, seed: int = 0, state: Any = None, first: int = 0) -> list[Any]:
    """The states before round `first` and after each round."""
    states = [algorithm.start(clients) if state is None else state]
    for r in range(first, first + rounds):
        clients.begin(r)
        states.append(algorithm.round(states[-1], clients, server_generator(seed, r)))
        clients.commit()
    return states
