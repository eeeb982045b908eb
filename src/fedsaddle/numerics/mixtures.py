"""Mixtures λ of clients, of whom most have the same weight: what a round changes costs as much as its cohort."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.numerics.projections import CappedSimplex, Projection, Simplex

Reals = NDArray[np.float64]

LARGE = 4096  # clients, up to which every λ_i is stored
FEW = 0.25  # and of more clients, once this share of them is listed


@dataclass(frozen=True)
class Mixture:
    """A vector over N clients in double precision: every entry, or those of a few and the one that all others share.

    Clients whose loss was never asked for have equal weights, since a projection onto the simplex subtracts the same
    threshold from all. So λ is known by the weights of the clients that differ, and one more.

    Examples:
        >>> import numpy as np, torch
        >>> λ = Mixture.uniform(1_000_000).plus(np.array([7]), torch.tensor([3e-7], dtype=torch.float64)).onto_simplex()
        >>> λ.listed.tolist(), round(1e6 * float(λ.at(np.array([7]))), 2)
        ([7, 1000000], 1.3)
    """

    table: Tensor  # (N,): every entry; or (2, k + 1): k clients, increasing, and N; their entries, and the others'

    @staticmethod
    def uniform(count: int, few: bool = True) -> Mixture:
        """Every entry 1 / N; `few` is whether it may list few clients."""
        if few and count > LARGE:
            return Mixture(torch.tensor([[count], [1 / count]], dtype=torch.float64))
        return Mixture(torch.full((count,), 1 / count, dtype=torch.float64))

    @property
    def lists_few(self) -> bool:
        """Whether only the entries of a few clients are written out."""
        return self.table.ndim == 2

    @property
    def listed(self) -> Ints:
        """The clients whose entries are written out, increasing, and N."""
        return self.table[0].numpy().astype(np.int64) if self.lists_few else np.arange(self.count + 1)

    @property
    def count(self) -> int:
        """N."""
        return int(self.table[0, -1]) if self.lists_few else len(self.table)

    def dense(self) -> Tensor:
        """All N entries."""
        if not self.lists_few:
            return self.table
        every = np.full(self.count, float(self.table[1, -1]))
        every[self.listed[:-1]] = self.table[1, :-1].numpy()
        return torch.from_numpy(every)

    def at(self, clients: Ints) -> Tensor:
        """The entries of these clients."""
        if not self.lists_few:
            return self.table[clients]
        listed, weights = self.listed, self.table[1].numpy()
        place = np.searchsorted(listed, clients)
        return torch.from_numpy(np.where(listed[place] == clients, weights[place], weights[-1]))

    def plus(self, clients: Ints, change: Tensor) -> Mixture:
        """With `change` added to the entries of these clients, who are different ones."""
        if not self.lists_few:
            every = self.table.clone()
            every[clients] += change
            return Mixture(every)
        listed, weights = self.listed, self.table[1].numpy()
        new = np.sort(clients[listed[np.searchsorted(listed, clients)] != clients])
        if len(listed) + len(new) > FEW * self.count:
            return Mixture(self.dense()).plus(clients, change)
        places = np.searchsorted(listed, new)
        listed, weights = np.insert(listed, places, new), np.insert(weights, places, weights[-1])
        weights[np.searchsorted(listed, clients)] += change.numpy()
        return _few(listed, weights)

    def onto_simplex(self, ceiling: float | None = None) -> Mixture:
        """The nearest mixture; with a ceiling c, of those without an entry above c / N."""
        high = None if ceiling is None else ceiling / self.count
        if not self.lists_few:
            return self.through(Simplex() if high is None else CappedSimplex(high))
        z, copies = self.table[1].numpy(), np.ones(self.table.shape[1])
        copies[-1] = self.count - len(z) + 1
        if high is None:
            z = z - z.max()  # the same projection, and exact for huge entries too
            weights = np.maximum(z - _threshold(z, copies), 0)
        else:
            weights = CappedSimplex(high).clipped(self.table[1], torch.from_numpy(copies)).numpy()
        differs = weights != weights[-1]  # whoever comes to the weight of the others is listed no more
        differs[-1] = True
        return _few(self.listed[differs], weights[differs])

    def through(self, project: Projection) -> Mixture:
        """What a map of all N entries gives."""
        return Mixture(project(self.dense()))

    def draw(self, rng: np.random.Generator, size: int) -> Ints:
        """`size` clients by their weights, with replacement: those of `rng.choice(N, size, p=λ)`."""
        if self.lists_few:
            return self._draw_by_gaps(rng.random(size))
        return rng.choice(self.count, size, p=self.table.numpy() / float(self.table.sum()))

    def _draw_by_gaps(self, uniform: Reals) -> Ints:
        """In the order of clients: a gap of those that are not listed, a listed one, and so on; a gap at last."""
        listed, weights = self.listed, self.table[1].numpy()
        first = np.concatenate([[0], listed[:-1] + 1])  # client of each gap
        masses = np.stack([(listed - first) * weights[-1], weights], axis=1).ravel()[:-1]
        ends = np.cumsum(masses)
        part = (ends / ends[-1]).searchsorted(uniform, side="right")
        gap, alone = part // 2, part % 2 == 1
        lone: Ints = listed[gap]
        if weights[-1] == 0:
            return lone
        steps = (uniform * ends[-1] - (ends[part] - masses[part])) / weights[-1]
        most = np.maximum(lone - first[gap] - 1, 0)
        drawn: Ints = np.where(alone, lone, first[gap] + np.clip(steps.astype(np.int64), 0, most))
        return drawn


def _threshold(values: Reals, copies: Reals) -> float:
    """Michelot's algorithm for values that occur several times: drop what falls below until nothing does."""
    while True:
        threshold = float((values @ copies - 1) / copies.sum())
        above = values > threshold
        if above.all():
            return threshold
        values, copies = values[above], copies[above]


def _few(listed: Ints, weights: Reals) -> Mixture:
    return Mixture(torch.from_numpy(np.stack([listed, weights])))
