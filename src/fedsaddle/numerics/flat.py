"""A module as a function of one flat vector, for one client or for a cohort.

`scores(w, x)` takes `w (C, d)` and `x (C, B, ...)`. One client runs the module itself; several run it in one pass: by
the module's own `cohort(parameters, x)` method if it has one, by stacked matrix products if it is a plain chain of
linear layers, and otherwise through `torch.func.vmap`.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedsaddle.errors import BadInput
from fedsaddle.numerics.chain import Chain

Pullback = Callable[[Tensor], Tensor]


class FlatModel:
    """Views of a flat vector as the parameters of `module`."""

    def __init__(self, module: nn.Module) -> None:
        _refuse_hidden_state(module)
        self.module = module
        named = dict(module.named_parameters())
        if not named:
            raise BadInput("model", type(module).__name__, "it has no parameters to train")
        self.shapes = {name: p.shape for name, p in named.items()}
        self.sizes = [p.numel() for p in named.values()]
        self.dimension = sum(self.sizes)
        self.places = _places(module)
        self.chain = Chain.of(module)
        self._own_cohort = getattr(module, "cohort", None)
        self._copies = threading.local()

    def initial(self) -> Tensor:
        """The module's present parameters as one vector."""
        return torch.cat([p.detach().flatten() for p in self.module.parameters()])

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Parameter name -> view of `w`; leading axes of `w` stay in front."""
        parts = torch.split(w, self.sizes, dim=-1)  # one split, so that its gradient is one cat
        return {name: p.view(*w.shape[:-1], *s) for p, (name, s) in zip(parts, self.shapes.items(), strict=True)}

    def scores(self, w: Tensor, x: Tensor) -> Tensor:
        """The module's output for each client's own vector and rows."""
        if len(w) == 1:
            return self._call({k: _laid(p) for k, p in self.views(w[0]).items()}, x[0])[None]
        if self._own_cohort is not None:
            out: Tensor = self._own_cohort(self.views(w), x)
            return out
        if self.chain is not None and self.chain.fits(x):
            return self.chain.forward(w, x)[-1]
        stacked: Tensor = torch.func.vmap(self._call, randomness="error")(self.views(w), x)
        return stacked

    def pullback(self, w: Tensor, x: Tensor) -> tuple[Tensor, Pullback]:
        """The scores, and the map from a slope in the scores to the gradient in `w`."""
        if self.chain is not None and len(w) > 1 and self.chain.fits(x):
            return self.chain.pullback(w, x)
        at = w.detach().requires_grad_()
        with torch.enable_grad():
            z = self.scores(at, x)
        return z.detach(), lambda slope: torch.autograd.grad(z, at, slope)[0]

    def bound(self, w: Tensor) -> Callable[[Tensor], Tensor]:
        """The module with the parameters `w (d,)`, as a function of rows."""
        return lambda x: self._call({k: _laid(p) for k, p in self.views(w).items()}, x)

    def module_with(self, w: Tensor) -> nn.Module:
        """A copy of the module whose parameters are `w (d,)`."""
        filled = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in self.views(w).items():
                filled.get_parameter(name).copy_(value)
        return filled

    def _call(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        placed = {place: parameters[name] for place, name in self.places.items()}
        out: Tensor = torch.func.functional_call(self._module(), placed, (x,), tie_weights=False)
        return out

    def _module(self) -> nn.Module:
        """A copy for each thread: functional_call swaps parameters in place."""
        if threading.current_thread() is threading.main_thread():
            return self.module
        if not hasattr(self._copies, "module"):
            self._copies.module = copy.deepcopy(self.module)
        mine: nn.Module = self._copies.module
        return mine


def _laid(parameter: Tensor) -> Tensor:
    """Kernels of images with the channels last: convolutions and pooling on CPUs are quicker by a third."""
    return parameter.contiguous(memory_format=torch.channels_last) if parameter.ndim == 4 else parameter


def _places(module: nn.Module) -> dict[str, str]:
    """Every place of a parameter -> its name. Shared weights have several places, a module used twice has one."""
    names = {id(p): name for name, p in module.named_parameters()}
    return {
        f"{prefix}.{attribute}" if prefix else attribute: names[id(p)]
        for prefix, part in module.named_modules()
        for attribute, p in part._parameters.items()
        if p is not None
    }


def _refuse_hidden_state(module: nn.Module) -> None:
    for name, part in module.named_modules():
        where = name or type(part).__name__
        if getattr(part, "track_running_stats", False):
            raise BadInput("model", where, "BatchNorm keeps running statistics; use nn.GroupNorm instead")
        chance = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(chance, int | float) and chance > 0 and part.training:
            raise BadInput("model", where, "Dropout draws randomness of its own; set p = 0 or call .eval()")
