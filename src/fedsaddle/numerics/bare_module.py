"""A module as a function of its trained parameters and of rows: one client at a time, or inside vmap."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.numerics.cohort_recurrent import Unrolled, is_batched
from fedsaddle.numerics.keyed_draws import KeyedDraws
from fedsaddle.numerics.module_kinds import evaluation_twin

_HALF: ContextVar[bool] = ContextVar("bf16", default=False)


@contextmanager
def in_precision(name: str) -> Iterator[None]:
    """Within this context networks compute in that precision: "full", or "bf16" by `torch.autocast`."""
    token = _HALF.set(name == "bf16")
    try:
        yield
    finally:
        _HALF.reset(token)


def in_bf16() -> bool:
    """Whether networks compute in bfloat16 here."""
    return _HALF.get()


class BareModule:
    """Calls `module` with other tensors in the places of its trained parameters."""

    def __init__(self, module: nn.Module, trained: Iterable[str]) -> None:
        self._module, self._places = module, _places(module, trained)
        self._device = next(module.parameters()).device
        self._recurrent = any(isinstance(part, nn.RNNBase) for part in module.modules())
        self._copies = threading.local()

    def __call__(
        self,
        parameters: dict[str, Tensor],
        x: Tensor,
        statistics: dict[str, Tensor] | None = None,
        training: bool = True,
    ) -> Tensor:
        """The output for rows `x`; `statistics` of BatchNorm are written to in training."""
        placed = {place: parameters[name] for place, name in self._places.items()}
        if statistics is not None:
            placed |= statistics
            placed |= {
                name.rpartition("running_")[0] + "num_batches_tracked": torch.zeros((), device=x.device)
                for name in statistics
            }
        half = torch.autocast(x.device.type, torch.bfloat16) if in_bf16() else nullcontext()
        with half, Unrolled() if self._recurrent and is_batched(next(iter(parameters.values()))) else nullcontext():
            out = torch.func.functional_call(self.module(x.device, training), placed, (x,), tie_weights=False)
        if not isinstance(out, Tensor):
            remedy = "must be one tensor, of scores; wrap the model in one whose forward picks it: out[0], out.logits"
            raise BadInput("model", f"output of type {type(out).__name__}", remedy)
        return out.to(next(iter(parameters.values())).dtype) if in_bf16() else out

    def under(self, draws: KeyedDraws, parameters: dict[str, Tensor], x: Tensor, training: bool) -> Tensor:
        """The same, with random functions that ask `draws`."""
        with draws:
            return self(parameters, x, training=training)

    def module(self, device: torch.device, training: bool = True) -> nn.Module:
        """A copy for each thread, as functional_call swaps parameters in place; in evaluation mode a copy of that.

        Every device has one too, for buffers and frozen parameters; make it before vmap, which cannot.
        """
        own = self._copies.__dict__.setdefault(str(device), {})  # of this thread
        if "module" not in own:
            main = threading.current_thread() is threading.main_thread() and device == self._device
            own["module"] = self._module if main else copy.deepcopy(self._module).to(device)
        if not training and "twin" not in own:
            own["twin"] = evaluation_twin(own["module"])
        found: nn.Module = own["module" if training else "twin"]
        return found


def laid(parameter: Tensor) -> Tensor:
    """Kernels of images with the channels last: convolutions and pooling on CPUs are quicker by a third."""
    return channels_last(parameter) if parameter.ndim == 4 else parameter


def channels_last(v: Tensor) -> Tensor:
    """Pictures or kernels with the channels last in memory.

    One channel is the same in memory either way, and torch takes it for channels first, where pooling is ten times
    slower: its strides must say it.
    """
    if v.shape[1] == 1:
        return v.reshape(len(v), *v.shape[2:], 1).permute(0, 3, 1, 2)
    return v.contiguous(memory_format=torch.channels_last)


def _places(module: nn.Module, trained: Iterable[str]) -> dict[str, str]:
    """Every place of a trained parameter -> its name. Shared weights have several places, a module used twice one."""
    wanted = set(trained)
    names = {id(p): name for name, p in module.named_parameters() if name in wanted}
    return {
        f"{prefix}.{attribute}" if prefix else attribute: names[id(p)]
        for prefix, part in module.named_modules()
        for attribute, p in part._parameters.items()
        if p is not None and id(p) in names
    }
