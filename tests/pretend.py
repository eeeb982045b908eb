"""A device made in Python, "pretend": its tensors hold CPU data, so that every value is that of the CPU, bit for bit.

It has what a GPU has for a program: factories, copies to and fro, autograd and vmap; and like a GPU it refuses any mix
with tensors of the CPU, but for numbers without an axis. So what runs here names the device of every tensor. Copies are
counted: `TRANSFERS.down` to the device, `TRANSFERS.up` from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend


class _Module(_DummyBackendModule):
    """What torch asks of `torch.pretend`; the device has no generator of its own."""

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        return


_setup_privateuseone_for_python_backend("pretend", backend_module=_Module())
PRETEND, CPU = torch.device("pretend", 0), torch.device("cpu")
_ATEN = torch.ops.aten
_CROSSES = {
    _ATEN._to_copy.default,
    _ATEN.copy_.default,
    _ATEN._copy_from.default,
    _ATEN._local_scalar_dense.default,
}


@dataclass
class Transfers:
    """Copies between the CPU and the device since `reset`."""

    down: int = 0
    up: int = 0

    def reset(self) -> None:
        self.down = self.up = 0


TRANSFERS = Transfers()


class Pretended(Tensor):
    """A tensor of the device, with its values in `raw`."""

    raw: Tensor

    @staticmethod
    def __new__(cls, raw: Tensor) -> Pretended:
        return torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=PRETEND,
            requires_grad=False,
        )

    def __init__(self, raw: Tensor) -> None:
        self.raw = raw

    def __repr__(self) -> str:  # type: ignore[override]
        return f"Pretended({self.raw})"

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})


def _run(op: Any, args: Any, kwargs: Any) -> Any:
    """The operation on the values; its results are of the device, unless it asks for another one."""
    given = tree_flatten((args, kwargs))[0]
    tensors = [a for a in given if isinstance(a, Tensor)]
    ours = [a for a in tensors if isinstance(a, Pretended)]
    if ours and op not in _CROSSES and any(not isinstance(a, Pretended) and a.ndim for a in tensors):
        raise RuntimeError(f"{op}: expected all tensors on the same device, found pretend:0 and cpu")
    wanted = next((a for a in given if isinstance(a, torch.device)), None)
    stays = bool(ours) if wanted is None else wanted.type == "pretend"
    if op is _ATEN.copy_.default:
        stays = isinstance(args[0], Pretended)
        _count(isinstance(args[1], Pretended), stays)
    elif op is _ATEN._to_copy.default:
        _count(bool(ours), stays)
    elif op is _ATEN._local_scalar_dense.default:
        TRANSFERS.up += 1
    known = {id(a.raw): a for a in ours}
    out = op(*tree_map(_raw, args), **tree_map(_raw, kwargs))
    return tree_map(lambda v: _wrapped(v, known, stays), out)


def _raw(value: Any) -> Any:
    if isinstance(value, torch.device):
        return CPU
    return value.raw if isinstance(value, Pretended) else value


def _wrapped(value: Any, known: dict[int, Pretended], stays: bool) -> Any:
    if id(value) in known:
        return known[id(value)]
    return Pretended(value) if isinstance(value, Tensor) and stays else value


def _count(was: bool, stays: bool) -> None:
    TRANSFERS.down += stays and not was
    TRANSFERS.up += was and not stays


_LIBRARY = torch.library.Library("aten", "IMPL")


def _register_factories() -> None:
    """Every operation that makes a tensor from a device and no tensor, such as zeros and arange."""
    for full in torch._C._dispatch_get_all_op_names():
        if not full.startswith("aten::"):
            continue
        name, _, overload = full[6:].partition(".")
        try:
            op = getattr(getattr(_ATEN, name), overload or "default")
        except (AttributeError, RuntimeError):
            continue
        schema = op._schema
        makes = len(schema.returns) == 1 and "Tensor" in str(schema.returns[0].type)
        takes = any("Tensor" in str(a.type) for a in schema.arguments)
        if makes and not takes and any(a.name == "device" for a in schema.arguments):
            try:
                _LIBRARY.impl(full[6:], _factory(op), "PrivateUse1")
            except RuntimeError:
                continue


def _factory(op: Any) -> Any:
    return lambda *args, **kwargs: Pretended(op(*args, **{**kwargs, "device": CPU}))


def _copy_from(source: Tensor, into: Tensor, non_blocking: bool = False) -> Tensor:
    _count(isinstance(source, Pretended), isinstance(into, Pretended))
    _raw(into).copy_(_raw(source))
    return into


_register_factories()
_LIBRARY.impl("_copy_from", _copy_from, "PrivateUse1")


def _silu_backward(slope: Tensor, x: Tensor) -> Any:
    """The CPU's own; torch would compose it from other operations, which round differently."""
    return Pretended(_ATEN.silu_backward.default(_raw(slope), _raw(x)))


_LIBRARY.impl("silu_backward", _silu_backward, "PrivateUse1")
