"""A module as a function of one flat vector, for one client or for a cohort.

`scores(w, x)` takes `w (C, d)` and `x (C, B, ...)`. One client runs the module itself; several run it in one pass: by
the module's own `cohort(parameters, x)` method if it has one, by stacked matrix products if it is a plain chain of
linear layers, and otherwise through `torch.func.vmap`.

Running statistics of BatchNorm, where the caller allows them, are the tail of the vector: they travel, are averaged and
are saved with the parameters. A gradient is taken in training mode and gives new statistics beside it, which `settle_`
writes into the vector after the step; everything else is in evaluation mode.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from fedsaddle.arguments import instance
from fedsaddle.errors import BadInput
from fedsaddle.numerics.chain import Chain

SlopeMap = Callable[[Tensor], Tensor]
Write = Callable[[Tensor, Tensor, float, float], None]  # slope, into, keep, gain


class Forward(NamedTuple):
    """A pass in training mode."""

    scores: Tensor  # (C, B, k)
    pull: SlopeMap  # a slope in the scores -> the gradient in w
    statistics: Tensor | None  # BatchNorm's new running statistics, (C, tail); None: the model keeps none


class InPlace(NamedTuple):
    """A pass in training mode whose gradient is written, not formed."""

    scores: Tensor  # (C, B, k)
    write_: Write  # from a slope in the scores: `into ← keep into + gain gradient`; `into` may be `w`
    statistics: Tensor | None


@runtime_checkable
class ScoresCohorts(Protocol):
    """A module with a pass of its own for several clients at once."""

    def cohort(self, parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        """The outputs `(C, B, ...)` for parameters `(C, ...)` by name and rows `(C, B, ...)`."""
        ...


class FlatModel:
    """Views of a flat vector as the parameters of `module`."""

    def __init__(self, module: nn.Module, statistics: bool = False) -> None:
        instance("model", module, nn.Module, "give a torch.nn.Module, such as fs.models.mlp(30, [16], 1)")
        self.running = running_statistics(module)
        _check_hidden_state(module, statistics)
        self.module = copy.deepcopy(module) if self.running else module  # its mode is switched to and fro
        named = dict(module.named_parameters())
        if not named:
            raise BadInput("model", type(module).__name__, "it has no parameters to train")
        self.shapes = {name: p.shape for name, p in named.items()}
        self.sizes = [p.numel() for p in named.values()]
        self.tail = sum(v.numel() for v in self.running.values())
        self.dimension = sum(self.sizes) + self.tail
        self.places = _places(module)
        self.chain = Chain.of(module)
        self._cohort = module.cohort if isinstance(module, ScoresCohorts) else None
        self.device = next(iter(named.values())).device
        self._copies = threading.local()

    def initial(self) -> Tensor:
        """The module's present parameters, and its running statistics, as one vector."""
        parts = [*self.module.parameters(), *self.running.values()]
        return torch.cat([p.detach().flatten() for p in parts]).cpu()

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Parameter name -> view of `w`; leading axes of `w` stay in front."""
        parts = torch.split(
            w[..., : self.dimension - self.tail] if self.tail else w, self.sizes, dim=-1
        )  # one split, so that its gradient is one cat
        return {name: p.view(*w.shape[:-1], *s) for p, (name, s) in zip(parts, self.shapes.items(), strict=True)}

    def scores(self, w: Tensor, x: Tensor) -> Tensor:
        """The module's output for each client's own vector and rows, in evaluation mode."""
        if self.tail:
            return self._normalised(w, x, training=False)[0]
        if len(w) == 1:
            return self._call({k: _laid(p) for k, p in self.views(w[0]).items()}, x[0])[None]
        if self._cohort is not None:
            return self._cohort(self.views(w), x)
        if self.chain is not None and self.chain.fits(x):
            return self.chain.forward(w, x)[-1]
        stacked: Tensor = torch.func.vmap(self._call, randomness="error")(self.views(w), x)
        return stacked

    def pullback(self, w: Tensor, x: Tensor) -> Forward:
        """The scores in training mode, and the map from a slope in them to the gradient in `w`."""
        if self.chain is not None and len(w) > 1 and self.chain.fits(x):
            return Forward(*self.chain.pullback(w, x), None)
        at = w.detach().requires_grad_()
        with torch.enable_grad():
            z, statistics = self._normalised(at, x, training=True) if self.tail else (self.scores(at, x), None)
        return Forward(z.detach(), lambda slope: torch.autograd.grad(z, at, slope)[0], statistics)

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0) -> InPlace:
        """The same with a gradient that is written; the last `watched` rows have scores, and no slope."""
        if self.chain is not None and len(w) > 1 and self.chain.fits(x):
            return InPlace(*self.chain.push(w, x), None)
        moving = x.shape[1] - watched
        scores, pull, statistics = self.pullback(w, x[:, :moving])
        if watched:
            with torch.no_grad():
                scores = torch.cat([scores, self.scores(w, x[:, moving:])], 1)

        def write(slope: Tensor, into: Tensor, keep: float, gain: float) -> None:
            gradient = pull(slope)  # first: it looks at `w`, which may be `into`
            into.mul_(keep).add_(gradient, alpha=gain)

        return InPlace(scores, write, statistics)

    def descend_(self, w: Tensor, x: Tensor, slope_of: SlopeMap, step: float, keep: float = 1.0) -> Tensor | None:
        """`w ← keep w - step gradient`; `slope_of` gives the slope in the scores, from the scores.

        Returns BatchNorm's new statistics, which are not in `w` yet: see `settle_`.
        """
        if self.chain is not None and len(w) > 1 and self.chain.fits(x):
            self.chain.descend_(w, x, slope_of, step, keep)
            return None
        scores, pull, statistics = self.pullback(w, x)
        gradient = pull(slope_of(scores))
        shrink_(w, keep).sub_(gradient, alpha=step)
        return statistics

    def bound(self, w: Tensor) -> Callable[[Tensor], Tensor]:
        """The module with the parameters `w (d,)`, as a function of rows."""
        return lambda x: self._call({k: _laid(p) for k, p in self.views(w).items()}, x)

    def module_with(self, w: Tensor) -> nn.Module:
        """A copy of the module whose parameters are `w (d,)`."""
        filled = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in self.views(w).items():
                filled.get_parameter(name).copy_(value)
            for name, value in self._statistics(w).items():
                filled.get_buffer(name).copy_(value)
        return filled

    def settle_(self, w: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into the tail of `w`; `w` itself where there are none."""
        if statistics is not None:
            w[..., self.dimension - self.tail : self.dimension] = statistics
        return w

    def _statistics(self, w: Tensor) -> dict[str, Tensor]:
        """Name of each running statistic -> view of the tail of `w`."""
        tail = w[..., self.dimension - self.tail : self.dimension]
        parts = torch.split(tail, [v.numel() for v in self.running.values()], dim=-1)
        return {n: p.view(*w.shape[:-1], *v.shape) for p, (n, v) in zip(parts, self.running.items(), strict=True)}

    def _normalised(self, w: Tensor, x: Tensor, training: bool) -> tuple[Tensor, Tensor | None]:
        """Scores of a module with BatchNorm and, in training, its new statistics."""
        if len(w) > 1:
            raise BadInput("chunk", len(w), "BatchNorm takes one client at a time: use chunk = 1, or nn.GroupNorm")
        for part in self._module(w.device).modules():
            if getattr(part, "track_running_stats", False):
                part.train(training)
        statistics = {name: v.detach().clone() for name, v in self._statistics(w[0]).items()}
        try:
            z = self._call({k: _laid(p) for k, p in self.views(w[0]).items()}, x[0], statistics)[None]
        except ValueError as reason:
            if "more than 1 value per channel" in str(reason):
                remedy = "cannot normalise a batch of 1 row; draw more rows, or use nn.GroupNorm"
                raise BadInput("model", "BatchNorm", remedy) from None
            raise
        return z, torch.cat([v.flatten() for v in statistics.values()])[None] if training else None

    def _call(self, parameters: dict[str, Tensor], x: Tensor, statistics: dict[str, Tensor] | None = None) -> Tensor:
        placed = {place: parameters[name] for place, name in self.places.items()}
        if statistics is not None:
            placed |= statistics  # written to in training
            placed |= {
                name.rpartition("running_")[0] + "num_batches_tracked": torch.zeros((), device=v.device)
                for name, v in statistics.items()
            }
        out: Tensor = torch.func.functional_call(self._module(x.device), placed, (x,), tie_weights=False)
        return out

    def _module(self, device: torch.device) -> nn.Module:
        """A copy for each thread, as functional_call swaps parameters in place, and for each device, for its buffers."""
        if device == self.device and threading.current_thread() is threading.main_thread():
            return self.module
        if not hasattr(self._copies, "modules"):
            self._copies.modules = {}
        copies: dict[torch.device, nn.Module] = self._copies.modules
        if device not in copies:
            copies[device] = copy.deepcopy(self.module).to(device)
        return copies[device]


def shrink_(w: Tensor, keep: float) -> Tensor:
    """`w ← keep w`; no pass over it if nothing changes."""
    return w if keep == 1 else w.mul_(keep)


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


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running means and variances of BatchNorm, by name."""
    return {
        f"{prefix}.{key}" if prefix else key: getattr(part, key)
        for prefix, part in module.named_modules()
        if getattr(part, "track_running_stats", False)
        for key in ("running_mean", "running_var")
    }


def _check_hidden_state(module: nn.Module, statistics: bool) -> None:
    for name, part in module.named_modules():
        where = name or type(part).__name__
        if getattr(part, "track_running_stats", False):
            if not statistics:
                raise BadInput("model", where, "BatchNorm keeps running statistics; use nn.GroupNorm instead")
            if getattr(part, "momentum", 0.1) is None:
                raise BadInput("model", where, "BatchNorm with momentum=None counts batches; give it a momentum")
        chance = part.p if isinstance(part, nn.modules.dropout._DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(chance, int | float) and chance > 0 and part.training:
            raise BadInput("model", where, "Dropout draws randomness of its own; set p = 0 or call .eval()")
