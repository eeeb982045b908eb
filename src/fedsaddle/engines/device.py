"""The device that tasks run on: which there are, how a record gets there and back, and rows that live there."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import did_you_mean
from fedsaddle.data.store import ClientRows, Ints, Stacked
from fedsaddle.errors import BadInput

CPU = torch.device("cpu")
DEVICES = ("auto", "cpu", "cuda", "mps")
ROOM = 0.5  # share of a device's free memory that rows may take; the rest is for models and batches
T = TypeVar("T")


def available_devices() -> list[str]:
    """The names of this machine's devices, the one that "auto" takes first."""
    found = [f"cuda:{i}" for i in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    return [*found, *(["mps"] if torch.backends.mps.is_available() else []), "cpu"]


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
    """A record, or a tensor, with its tensors on the device; itself where they are there already."""
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

    def numbers(self, label: int, found: Ints) -> Tensor:
        """The row numbers of one label on the device, sent once."""
        if label not in self._numbers:
            self._numbers[label] = torch.as_tensor(found, device=self.device)
        return self._numbers[label]


def resident(rows: ClientRows, device: torch.device) -> ResidentRows | None:
    """The rows on that device; None for the CPU, for rows that are fetched client by client, and for too many."""
    if device.type == "cpu" or not isinstance(rows, Stacked) or not fits(rows, device):
        return None
    return ResidentRows(rows, device)
