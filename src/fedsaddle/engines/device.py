"""The device that tasks run on: which there are, how records get there and back, and a task's view of rows there."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property, partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import did_you_mean
from fedsaddle.array_types import Ints
from fedsaddle.data.store import ClientRows, Stacked
from fedsaddle.engines.site import EVERYTHING_STREAM, NEGATIVES_STREAM, LocalSite, positives_in
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.federation.randomness import ClientKeys, DeviceKeys

CPU = torch.device("cpu")
DEVICES = ("auto", "cpu", "cuda", "mps")
ROOM = 0.5  # share of a device's free memory that rows may take; the rest is for models and batches
T = TypeVar("T")


def available_devices() -> list[str]:
    """The names of this machine's devices, the one that "auto" takes first."""
    devices = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*devices, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


def device_name(name: object) -> str:
    """The name of a device, if it is a text."""
    if not isinstance(name, str):
        raise BadInput("device", name, 'give a name, such as "auto", "cpu", "cuda", "cuda:1" or "mps"')
    return name


def find_device(given: object) -> torch.device:
    """The device of that name; "auto" is the first of `available_devices`."""
    if (name := device_name(given)) == "auto":
        return torch.device(available_devices()[0])
    try:
        device = torch.device(name)
    except (RuntimeError, ValueError):
        hint = did_you_mean(name, DEVICES)
        raise BadInput("device", name, f"{hint}choose one of auto, cpu, cuda, cuda:1 or mps") from None
    try:
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError, NotImplementedError, ValueError) as reason:
        there = ", ".join(available_devices())
        first = str(reason).strip().partition("\n")[0].partition(". ")[0]
        raise BadInput("device", name, f"cannot be used here ({first}); this machine has {there}") from None
    return device


def shared_out(name: str) -> list[str]:
    """The devices of worker processes: the k-th worker has the k-th, modulo their number; "cuda" is every GPU."""
    device = find_device(name)
    if name in ("auto", "cuda") and device.type == "cuda":
        return [f"cuda:{i}" for i in range(torch.cuda.device_count())]
    return [str(device)]


def be_deterministic() -> None:
    """Make torch refuse operations whose bits may differ from run to run, in this process from now on."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
    torch.use_deterministic_algorithms(True)


@contextmanager
def deterministic_algorithms(wanted: bool) -> Iterator[None]:
    """Make torch refuse operations whose bits may differ from run to run, within this context."""
    if not wanted:
        yield
        return
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    be_deterministic()
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])


def moved(value: T, device: torch.device) -> T:
    """A record, or a tensor, with its tensors on the device; itself if they are there already."""
    if isinstance(value, Tensor):
        return value.to(device)  # type: ignore[return-value]
    if not is_dataclass(value) or isinstance(value, type):
        return value
    own = {f.name: getattr(value, f.name) for f in fields(value)}
    changed = {name: moved(v, device) for name, v in own.items()}
    return value if all(changed[name] is own[name] for name in own) else type(value)(**changed)


def free_bytes(device: torch.device) -> int | None:
    """Free memory of the device; None where it is not known, as on the CPU."""
    return int(torch.cuda.mem_get_info(device)[0]) if device.type == "cuda" else None


def fits(rows: Stacked, device: torch.device) -> bool:
    """Whether the rows fit into the device's memory beside models and batches."""
    free = free_bytes(device)
    size = rows.x.numel() * rows.x.element_size() + rows.y.numel() * rows.y.element_size()
    return free is None or size <= ROOM * free


@dataclass(frozen=True)
class ResidentRows:
    """The rows of all clients on a device, with what is needed to find them there."""

    rows: Stacked
    device: torch.device
    alone: bool = False  # the rows are of one client, whatever its number

    def first(self, clients: Ints) -> Ints:
        """Where the rows of each client begin."""
        return np.zeros_like(clients) if self.alone else self.rows.offsets[clients]

    @cached_property
    def x(self) -> Tensor:
        """Features on the device."""
        return self.rows.x.to(self.device)

    @cached_property
    def y(self) -> Tensor:
        """Targets on the device."""
        return self.rows.y.to(self.device)

    @cached_property
    def _numbers(self) -> dict[int, Tensor]:
        return {}

    def numbers(self, label: int, numbers: Ints) -> Tensor:
        """The row numbers of one label on the device, sent once."""
        if label not in self._numbers:
            self._numbers[label] = torch.as_tensor(numbers, device=self.device)
        return self._numbers[label]


def resident(rows: ClientRows, device: torch.device) -> ResidentRows | None:
    """The rows on that device; None on the CPU, for lazily loaded rows, and for rows that do not fit."""
    if device.type == "cpu" or not isinstance(rows, Stacked) or not fits(rows, device):
        return None
    return ResidentRows(rows, device)


@dataclass
class StreamedSite(LocalSite):
    """Draws and gathers in this process's memory, and sends each batch to the device."""

    on: torch.device = field(kw_only=True)

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.on

    @property
    def sizes(self) -> Tensor:
        """Rows per client, (C,)."""
        return super().sizes.to(self.on)

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches, sent as one."""
        x, batches = super().minibatches(step, draws)
        x, y = x.to(self.on), torch.cat([b.y for b in batches], 1).to(self.on)
        sizes = [size for size, _, _ in draws]
        parts = zip(torch.split(x, sizes, 1), torch.split(y, sizes, 1), batches, strict=True)
        return x, [b._replace(x=xs, y=ys, weight=self._sent(b.weight), rows=self._sent(b.rows)) for xs, ys, b in parts]

    def everything(self) -> Batch:
        """All rows, sent at once."""
        whole = super().everything()
        return whole._replace(x=whole.x.to(self.on), y=whole.y.to(self.on), weight=self._sent(whole.weight))

    def _units(self) -> Tensor | None:
        return self._sent(super()._units())

    def labelled(self, label: int) -> Tensor:
        """The number of rows with that label, (C,)."""
        return super().labelled(label).to(self.on)

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """Numbers uniform on [0, 1) for each client."""
        return super().uniforms(step, size, stream).to(self.on)

    def _keys(self, step: int, stream: int) -> Tensor:
        return super()._keys(step, stream).to(self.on)

    def _sent(self, value: Tensor | None) -> Tensor | None:
        return None if value is None else value.to(self.on)


@dataclass(frozen=True)
class _LabelledRows:
    """The rows of one label on the device: see `data.store.Labelled`."""

    starts: Tensor
    counts: Tensor
    numbers: Tensor
    everyone: bool  # whether every client has some

    def pick(self, places: Tensor) -> Tensor:
        """The row numbers at `places (C, B)` among them; row 0 for clients that have none."""
        if not len(self.numbers):
            return torch.zeros_like(places)
        picked = self.numbers[(self.starts[:, None] + places).clamp(max=len(self.numbers) - 1)]
        return torch.where(self.counts[:, None] > 0, picked, 0)


@dataclass
class ResidentSite(LocalSite):
    """Draws and gathers on the device: a step sends nothing to it, an exchange a few numbers a client."""

    on: ResidentRows = field(kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        first = self.on.first(self.clients)
        sent = np.stack([self.keys.keys.view(np.int64), first, self._sizes])
        keys, self._first, self._counts = torch.from_numpy(sent).to(self.device).unbind(0)
        self._drawn, self._labels = DeviceKeys(keys), dict[int, _LabelledRows]()

    @property
    def device(self) -> torch.device:
        """Where its tensors are."""
        return self.on.device

    @property
    def sizes(self) -> Tensor:
        """Rows per client, (C,)."""
        return self._counts

    def minibatches(self, step: int, draws: Sequence[tuple[int, int, int | None]]) -> tuple[Tensor, list[Batch]]:
        """Several minibatches, gathered in one pass."""
        picks = [self._picked(step, *draw) for draw in draws]
        sizes = [size for size, _, _ in draws]
        self.samples += sum(sizes) * len(self.clients)
        x, y = self._gather(picks[0][0] if len(picks) == 1 else torch.cat([rows for rows, _ in picks], 1))
        parts = zip(torch.split(x, sizes, 1), torch.split(y, sizes, 1), picks, draws, strict=True)
        return x, [
            Batch(xs, ys, None if weight is None else weight.to(_weights(x)), rows, partial(self._keys, step, stream))
            for xs, ys, (rows, weight), (_, stream, _) in parts
        ]

    def everything(self) -> Batch:
        """All rows; smaller clients repeat their last row with weight 0."""
        self.samples += int(self._sizes.sum())
        longest = int(self._sizes.max())
        at = torch.arange(longest, device=self.device)
        x, y = self._gather(torch.minimum(at, self._counts[:, None] - 1))
        keys = partial(self._keys, 0, EVERYTHING_STREAM)
        if (self._sizes == longest).all():
            return Batch(x, y, keys=keys, units=self._units)
        real = (at < self._counts[:, None]).to(_weights(x))
        return Batch(x, y, real, keys=keys, sizes=self._sizes.tolist(), units=self._units)

    def _units(self) -> Tensor | None:
        units = super()._units()
        return None if units is None else units.to(self.device)

    def labelled(self, label: int) -> Tensor:
        """The number of rows with that label, (C,)."""
        return self._labelled_rows(label).counts

    def uniforms(self, step: int, size: int, stream: int = 0) -> Tensor:
        """Numbers uniform on [0, 1) for each client."""
        return self._drawn.uniforms(step, size, stream)

    def _keys(self, step: int, stream: int) -> Tensor:
        return self._drawn.inner(step, stream)

    def _gather(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        at, (x, y) = (self._first[:, None] + rows).flatten(), (self.on.x, self.on.y)
        return x[at].view(*rows.shape, *x.shape[1:]), y[at].view(*rows.shape, *y.shape[1:])

    def _picked(self, step: int, size: int, stream: int, label: int | None) -> tuple[Tensor, Tensor | None]:
        """Row numbers within each client, (C, B), and weights if rows have different ones."""
        if label is not None:
            return self._labelled_picks(step, size, stream, label)
        if self.rows.positives is not None:
            return self._balanced_picks(step, size, stream, self.rows.positives)
        return self._drawn.rows(self._counts, step, size, stream), None

    def _labelled_picks(self, step: int, size: int, stream: int, label: int) -> tuple[Tensor, Tensor | None]:
        labelled = self._labelled_rows(label)
        rows = labelled.pick(self._drawn.rows(labelled.counts.clamp(min=1), step, size, stream))
        return rows, None if labelled.everyone else (labelled.counts > 0)[:, None].expand(-1, size)

    def _balanced_picks(self, step: int, size: int, stream: int, share: float) -> tuple[Tensor, Tensor | None]:
        ups = positives_in(size, share)
        negatives = self._labelled_picks(step, size - ups, stream + NEGATIVES_STREAM, 0)
        sides = (self._labelled_picks(step, ups, stream, 1), negatives)
        own = (self._labelled_rows(1).counts / self._counts.double())[:, None]
        parts = (own / ups).expand(-1, ups), ((1 - own) / (size - ups)).expand(-1, size - ups)
        return torch.cat([rows for rows, _ in sides], 1), torch.cat(parts, 1) * size

    def _labelled_rows(self, label: int) -> _LabelledRows:
        """Looked up in this process, and sent once for each exchange."""
        if label not in self._labels:
            rows = self.rows.labelled(self.clients, label)
            starts, counts = torch.from_numpy(np.stack([rows.starts, rows.counts])).to(self.device).unbind(0)
            numbers = self.on.numbers(label, rows.numbers)
            self._labels[label] = _LabelledRows(starts, counts, numbers, bool(rows.counts.all()))
        return self._labels[label]


def site_on(
    device: torch.device, rows: ClientRows, clients: Ints, keys: ClientKeys, there: ResidentRows | None
) -> LocalSite:
    """The task's view of its clients on a device; `there` are the rows stored on it, if any."""
    if device.type == "cpu":
        return LocalSite(rows, clients, keys)
    return (
        StreamedSite(rows, clients, keys, on=device) if there is None else ResidentSite(rows, clients, keys, on=there)
    )


def _weights(x: Tensor) -> torch.dtype:
    return x.dtype if x.is_floating_point() else torch.get_default_dtype()
