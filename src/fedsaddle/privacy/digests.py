"""Digests of all that a reply depends on: they key its noise, so that no noise is used for two messages."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


def digest_of(*given: Any) -> bytes:
    """A digest of records, tensors, arrays and plain values."""
    found = hashlib.sha256()

    def add(thing: Any) -> None:
        if isinstance(thing, np.ndarray):
            thing = torch.from_numpy(np.ascontiguousarray(thing))
        if isinstance(thing, Tensor):
            whole = thing.detach().cpu().clone(memory_format=torch.contiguous_format)
            found.update(f"tensor {whole.dtype} {tuple(whole.shape)} ".encode())
            found.update(whole.flatten().view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        elif is_dataclass(thing) and not isinstance(thing, type):
            found.update(f"record {type(thing).__name__} ".encode())
            for one in fields(thing):
                found.update(f"{one.name} ".encode())
                add(getattr(thing, one.name))
        elif isinstance(thing, Mapping):
            found.update(f"table {len(thing)} ".encode())
            for key in sorted(thing):
                add(str(key))
                add(thing[key])
        else:
            text = repr(thing).encode()
            found.update(f"{len(text)} ".encode() + text)

    for thing in given:
        add(thing)
    return found.digest()
