"""The rows of a client in a private task: Poisson samples, each with its noise, and where the noise comes from."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import NoReturn, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Site
from fedsaddle.federation.randomness import Words
from fedsaddle.federation.tasks import Release, Releases
from fedsaddle.federation.wrappers import SiteWrapper

NOISE_STREAM = 64  # offset of the stream that seeds noise; algorithms use lower ones


class Normals(Protocol):
    """Standard normal numbers for the clients of a site."""

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """`(C, size)` numbers; other arguments give independent ones."""
        ...


@dataclass(frozen=True)
class SeededNormals:
    """From one seed a client, for simulations: the same on every engine. Not secret: the seed determines the noise."""

    seeds: Floats  # (C,), uniform on [0, 1)

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """By torch's generator, seeded for each client and call."""
        normal, generator = torch.empty(len(self.seeds), size, dtype=like.dtype), torch.Generator()
        for own, seed in zip(normal.unbind(), self.seeds.tolist(), strict=True):
            own.normal_(generator=generator.manual_seed(_seed(int(seed * 2.0**53), call)))
        return normal.to(like.device)


def _seed(word: int, call: int) -> int:
    """A 32-bit seed, all that torch's generator uses; large odd multipliers separate the calls of a word."""
    return ((word * 0x9E3779B97F4A7C15 + call * 0xBF58476D1CE4E5B9) >> 29) & 0xFFFFFFFF


@dataclass(frozen=True)
class SecretKeys:
    """The draws of rows and noise at a site, derived from its secret and the input of the task.

    SHAKE-256 of the secret, a digest of the task's input and the draw's number: without the secret they are
    indistinguishable from random. A repeated input gives the same reply, which reveals nothing new; another input has
    fresh noise.
    """

    secret: bytes
    given: bytes  # digest of all that the reply depends on, besides the rows
    clients: int = 1

    def _stream(self, name: str, step: int, stream: int, call: int, words: int) -> Words:
        context = f"{name} {step} {stream} {call}".encode()
        content = hashlib.shake_256(self.secret + self.given + context).digest(8 * words)
        return np.frombuffer(content, dtype="<u8").astype(np.uint64).reshape(self.clients, -1)

    def words(self, step: int, size: int, stream: int = 0) -> Words:
        """`(C, size)` independent 64-bit words."""
        return self._stream("rows", step, stream, 0, self.clients * size)

    def uniforms(self, step: int = 0, size: int = 1, stream: int = 0) -> Floats:
        """`(C, size)` numbers uniform on [0, 1)."""
        return (self.words(step, size, stream) >> np.uint64(11)).astype(np.float64) * 2.0**-53

    def __call__(self, step: int, stream: int, call: int, size: int, like: Tensor) -> Tensor:
        """Normal numbers, by the method of Box and Muller."""
        pairs = -(-size // 2)
        words = self._stream("noise", step, stream, call, 2 * self.clients * pairs)
        shares = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53  # above 0 and below 1
        length, angle = np.sqrt(-2 * np.log(shares[:, :pairs])), 2 * math.pi * shares[:, pairs:]
        normal = np.concatenate([length * np.cos(angle), length * np.sin(angle)], 1)[:, :size]
        return torch.from_numpy(normal.copy()).to(like.dtype).to(like.device)


def digest_of(*given: object) -> bytes:
    """A digest of records, tensors, arrays and plain values."""
    digest = hashlib.sha256()

    def add(thing: object) -> None:
        if isinstance(thing, np.ndarray):
            thing = torch.from_numpy(np.ascontiguousarray(thing))
        if isinstance(thing, Tensor):
            whole = thing.detach().cpu().clone(memory_format=torch.contiguous_format)
            digest.update(f"tensor {whole.dtype} {tuple(whole.shape)} ".encode())
            digest.update(whole.flatten().view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        elif is_dataclass(thing) and not isinstance(thing, type):
            digest.update(f"record {type(thing).__name__} ".encode())
            for one in fields(thing):
                digest.update(f"{one.name} ".encode())
                add(getattr(thing, one.name))
        elif isinstance(thing, Mapping):
            digest.update(f"table {len(thing)} ".encode())
            for key in sorted(thing):
                add(str(key))
                add(thing[key])
        else:
            text = repr(thing).encode()
            digest.update(f"{len(text)} ".encode() + text)

    for thing in given:
        add(thing)
    return digest.digest()


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


@runtime_checkable
class UnitRows(Protocol):
    """Rows of clients by their units, such as patients."""

    @property
    def count(self) -> int:
        """Number of clients N."""
        ...

    def gather(self, clients: Ints, rows: Ints) -> tuple[Tensor, Tensor]:
        """Features and targets of `rows[c]` of `clients[c]`."""
        ...

    def unit_rows(self, client: int) -> list[Ints]:
        """The rows of each unit of a client."""
        ...


class CheckedRows(Protocol):
    """Rows of clients; those of the first client are used to check that the model can be private."""

    @property
    def positives(self) -> float | None:
        """The share of label 1 in every minibatch; None: as they come."""
        ...

    def client(self, i: int) -> tuple[Tensor, Tensor]:
        """All rows of a client."""
        ...


class RowsSite(Site, Protocol):
    """A site that holds the rows itself, as those of the engines do."""

    rows: UnitRows
    samples: int


class PrivateSite(SiteWrapper):
    """A site whose batches are Poisson samples of rows or patients, with noise for their sums."""

    def __init__(self, site: RowsSite, multiplier_of: Callable[[int], float], patients: bool) -> None:
        super().__init__(site)
        self._site, self._patients = site, patients
        self._units = _unit_counts(site) if patients else np.asarray(site.sizes.cpu().numpy(), dtype=np.int64)
        self._multipliers = torch.tensor([multiplier_of(int(n)) for n in self._units], dtype=torch.float64)
        self.drawn: list[SampleNoise] = []

    def minibatch(self, step: int, size: int, stream: int = 0, label: int | None = None) -> Batch:
        """Each row, or patient, with probability `size / n`; padded with weight 0."""
        if label is not None:
            raise BadInput("label", label, "batches of one label have no private form")
        rates = np.minimum(1.0, size / self._units)
        chosen = self._poisson(step, stream, rates)
        rows, weight = self._rows_of(chosen)
        return self._batch(rows, weight, step, stream, size, rates * self._units)

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> NoReturn:
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

    def _poisson(self, step: int, stream: int, rates: Floats) -> list[Ints]:
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

    def _batch(self, rows: Ints, weight: Tensor, step: int, stream: int, size: int | None, expected: Floats) -> Batch:
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


def _padded(rows: Sequence[Ints], weights: Sequence[Floats]) -> tuple[Ints, Tensor]:
    """Lists of different lengths as `(C, B)`; padding is row 0 with weight 0, and B at least 1."""
    longest = max(1, *(len(own) for own in rows))
    at, counted = np.zeros((len(rows), longest), dtype=np.int64), np.zeros((len(rows), longest))
    for c, (own, weight) in enumerate(zip(rows, weights, strict=True)):
        at[c, : len(own)], counted[c, : len(own)] = own, weight
    return at, torch.from_numpy(counted)


def _unit_counts(site: RowsSite) -> Ints:
    """Patients of each client."""
    return np.array([len(site.rows.unit_rows(client)) for client in site.clients.tolist()], dtype=np.int64)
