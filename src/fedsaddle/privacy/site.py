"""The rows of a client in a private task: Poisson samples, each with its noise."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.federation.tasks import Release, Releases
from fedsaddle.privacy.noise import NOISE_STREAM, Normals, SecretKeys, SeededNormals

ALL_STREAM = 63  # of the noise on sums over all rows
MORE = 8  # standard deviations above the mean size that are drawn at first


@dataclass
class SampleNoise:
    """The noise of one sample; every released sum draws fresh noise."""

    normals: Normals
    step: int
    stream: int
    size: int | None  # expected rows; None: all
    multipliers: Tensor  # (C,): noise in sensitivities
    expected: Tensor  # (C,): rows (or patients) of the sample in the mean, which sums are divided by
    weight: Tensor  # (C, B): at most 1; 0 for padding
    even: float | None = None  # the expected rows, if they are the same for all clients: one pass less
    fields: int = 0  # released so far

    def __call__(self) -> Tensor:
        """Refuse dropout, which needs keys."""
        raise BadInput("model", "dropout", "draws its masks for whole batches and has no private form; leave it out")

    def mean_of(self, sums: Tensor, sensitivity: float) -> Tensor:
        """The private mean of `sums (C, d)`, to which a row, or patient, contributed at most the sensitivity."""
        noise = self.normals(self.step, self.stream, self.fields, sums.shape[1], sums)
        self.fields += 1
        scale = (self.multipliers * sensitivity).to(sums.dtype)[:, None]
        if self.even is not None:
            return noise.mul_(scale / self.even).add_(sums, alpha=1 / self.even)
        return noise.mul_(scale).add_(sums).div_(self.expected.to(sums.dtype)[:, None])


class PrivateSite:
    """A site whose batches are Poisson samples of rows or patients, with noise for their sums."""

    def __init__(self, site: Any, multiplier_of: Callable[[int], float], patients: bool) -> None:
        self._site, self._patients = site, patients
        self._units = _unit_counts(site) if patients else np.asarray(site.sizes.cpu().numpy(), dtype=np.int64)
        self._multipliers = torch.tensor([multiplier_of(int(n)) for n in self._units], dtype=torch.float64)
        self.drawn: list[SampleNoise] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """Each row, or patient, with probability `size / n`; padded with weight 0."""
        if label is not None:
            raise BadInput("label", label, "batches of one label have no private form")
        rates = np.minimum(1.0, size / self._units)
        chosen = self._poisson(step, stream, rates)
        rows, weight = self._rows_of(chosen)
        return self._batch(rows, weight, step, stream, size, rates * self._units)

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> Any:
        """Not private: a gradient of several batches at once does not split by row."""
        raise BadInput("algorithm", "minibatches", "gradients of several batches together have no private form")

    def everything(self) -> Batch:
        """All rows, with noise for their sum."""
        every = [np.arange(n) for n in self._units]
        rows, weight = self._rows_of(every)
        return self._batch(rows, weight, 0, ALL_STREAM, None, self._units.astype(np.float64))

    def labelled(self, label: int) -> Tensor:
        """Not private: an exact count."""
        raise BadInput("label", label, "exact counts of a label have no private form")

    def released(self) -> Releases:
        """What the task has released so far."""
        return Counter(Release(d.size, d.fields) for d in self.drawn if d.fields)

    def _poisson(self, step: int, stream: int, rates: Any) -> list[Ints]:
        """The units of a Poisson sample of each client, by geometric gaps between them."""
        most = float((rates * self._units).max())
        size = math.ceil(most + MORE * math.sqrt(most) + MORE)
        with np.errstate(divide="ignore"):
            scale = np.log1p(-rates)  # -inf where all are drawn
        while True:
            u = 1 - self._site.uniforms(step, size, stream).cpu().numpy()  # above 0
            gaps = np.where(np.isinf(scale)[:, None], 0.0, np.floor(np.log(u) / scale[:, None]))
            at = np.cumsum(gaps + 1, 1) - 1
            if (at[:, -1] >= self._units - 1).all():
                return [row[row < n].astype(np.int64) for row, n in zip(at, self._units, strict=True)]
            size *= 2  # the same numbers again, and as many more

    def _rows_of(self, chosen: list[Ints]) -> tuple[Ints, Tensor]:
        """The rows of the units that were drawn, (C, B), and their weights."""
        if not self._patients:
            return _padded(chosen, [np.ones(len(units)) for units in chosen])
        rows, weights = [], []
        for client, units in zip(self._site.clients.tolist(), chosen, strict=True):
            of_units = self._site.rows.unit_rows(client)
            own = [of_units[u] for u in units.tolist()]
            rows.append(np.concatenate([*own, np.empty(0, dtype=np.int64)]))
            weights.append(np.concatenate([*(np.full(len(r), 1 / len(r)) for r in own), np.empty(0)]))
        return _padded(rows, weights)

    def _batch(self, rows: Ints, weight: Tensor, step: int, stream: int, size: int | None, expected: Any) -> Batch:
        site = self._site
        x, y = (v.to(site.device) for v in site.rows.gather(site.clients, rows))
        dtype = x.dtype if x.is_floating_point() else torch.get_default_dtype()
        weight = weight.to(dtype).to(site.device)
        drawn = SampleNoise(
            self._normals(step, stream),
            step,
            stream,
            size,
            self._multipliers.to(site.device),
            torch.from_numpy(expected).to(site.device),
            weight,
            float(expected[0]) if (expected == expected[0]).all() else None,
        )
        self.drawn.append(drawn)
        site.samples += math.ceil(float(expected.sum()))  # the true number is a secret of the sample
        return Batch(x, y, weight, torch.from_numpy(rows).to(site.device), drawn)

    def _normals(self, step: int, stream: int) -> Normals:
        keys = getattr(self._site, "keys", None)
        if isinstance(keys, SecretKeys):
            return keys
        return SeededNormals(self._site.uniforms(step, 1, stream + NOISE_STREAM).cpu().numpy()[:, 0])


def _padded(rows: Sequence[Ints], weights: Sequence[Any]) -> tuple[Ints, Tensor]:
    """Lists of different lengths as `(C, B)`; padding is row 0 with weight 0, and B at least 1."""
    longest = max(1, *(len(own) for own in rows))
    at, counted = np.zeros((len(rows), longest), dtype=np.int64), np.zeros((len(rows), longest))
    for c, (own, weight) in enumerate(zip(rows, weights, strict=True)):
        at[c, : len(own)], counted[c, : len(own)] = own, weight
    return at, torch.from_numpy(counted)


def _unit_counts(site: Any) -> Ints:
    """Patients of each client."""
    return np.array([len(site.rows.unit_rows(client)) for client in site.clients.tolist()], dtype=np.int64)
