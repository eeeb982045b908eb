"""A chain of linear layers for a whole cohort: stacked matrix products, forward and backward by hand.

Generic vmap and autograd pay for generality at every operation; for the models that most federated studies train
this is two to four times faster. The single-client path, which runs the module itself, is its oracle.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fedsaddle.numerics.passes import shrink_


@dataclass(frozen=True)
class Link:
    """One linear layer and what follows it."""

    inputs: int
    outputs: int
    bias: bool
    activation: type[nn.Module]  # ReLU, Tanh, Sigmoid or Identity


Layers = list[tuple[Link, Tensor, Tensor | None]]  # with views of weight and bias
SMALL = 1024  # entries of a weight below which one product for all clients is quicker than one into each client's part
_ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid)


@dataclass(frozen=True)
class Chain:
    """Linear layers with activations between them, over `w (C, d)` and `x (C, B, ...)`."""

    links: tuple[Link, ...]
    flattens: bool  # rows of any shape; else rows are vectors
    sizes: list[int]  # of weight, bias, weight, bias ... in the flat vector

    @classmethod
    def of(cls, module: nn.Module) -> Chain | None:
        """The chain that `module` is, or None if it is something else."""
        parts = list(module) if type(module) is nn.Sequential else [module]
        links: list[Link] = []
        flattens = False
        for k, part in enumerate(parts):
            if isinstance(part, nn.Flatten) and k == 0 and part.start_dim == 1 and part.end_dim == -1:
                flattens = True
                continue
            if type(part) is nn.Linear:
                links.append(Link(part.in_features, part.out_features, part.bias is not None, nn.Identity))
            elif type(part) in _ACTIVATIONS and links and links[-1].activation is nn.Identity:
                last = links[-1]
                links[-1] = Link(last.inputs, last.outputs, last.bias, type(part))
            elif type(part) is not nn.Identity:
                return None
        if not links or len({id(p) for p in parts if isinstance(p, nn.Linear)}) != len(links):
            return None
        sizes: list[int] = []
        for link in links:
            sizes += [link.inputs * link.outputs] + ([link.outputs] if link.bias else [])
        return cls(tuple(links), flattens, sizes)

    def fits(self, x: Tensor) -> bool:
        """Whether it can take these rows, `(C, B, ...)`."""
        return x.ndim == 3 or self.flattens

    def forward(self, w: Tensor, x: Tensor) -> list[Tensor]:
        """The input and the output of every layer; the last is the scores."""
        return self._outputs(self._parameters(w), x)

    def scores(self, w: Tensor, x: Tensor) -> Tensor:
        """The outputs alone."""
        return self.forward(w, x)[-1]

    def pullback(self, w: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The scores, and the map from their slope to the gradient in `w`."""
        layers = self._parameters(w)
        outputs = self._outputs(layers, x)

        def gradient(slope: Tensor) -> Tensor:
            g = torch.empty(w.shape, dtype=w.dtype, device=w.device)
            self._backward_(layers, self._parameters(g), outputs, slope, 0.0, 1.0)
            return g

        return outputs[-1], gradient

    def push(self, w: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor, float, float], None]]:
        """The scores, and what writes `into ← keep into + gain gradient` from their slope, without a gradient between.

        `into` may be `w` itself. The slope may be of the first rows alone.
        """
        layers = self._parameters(w)
        outputs = self._outputs(layers, x)

        def write(slope: Tensor, into: Tensor, keep: float, gain: float) -> None:
            rows = slope.shape[1]
            used = outputs if rows == x.shape[1] else [h[:, :rows] for h in outputs]
            self._backward_(layers, self._parameters(into), used, slope, keep, gain)

        return outputs[-1], write

    def descend_(self, w: Tensor, x: Tensor, slope_of: Callable[[Tensor], Tensor], step: float, keep: float) -> None:
        """`w ← keep w - step gradient`, in place, without a gradient in between; `slope_of` is the scores' slope."""
        layers = self._parameters(w)
        outputs = self._outputs(layers, x)
        self._backward_(layers, layers, outputs, slope_of(outputs[-1]), keep, -step)

    def _backward_(
        self, layers: Layers, into: Layers, outputs: list[Tensor], slope: Tensor, beta: float, alpha: float
    ) -> None:
        """`into ← beta into + alpha gradient`, from the last layer to the first."""
        d = slope
        for k in range(len(layers) - 1, -1, -1):
            link, weight, _ = layers[k]
            d = _slope(link.activation, outputs[k + 1], d)
            before = torch.bmm(d, weight) if k else d  # before the weight is written
            _, weight_into, bias_into = into[k]
            if link.inputs * link.outputs <= SMALL:
                shrink_(weight_into, beta).add_(torch.bmm(d.mT, outputs[k]), alpha=alpha)
            else:
                weight_into.baddbmm_(d.mT, outputs[k], beta=beta, alpha=alpha)  # twice as quick as bmm(out=)
            if bias_into is not None:
                shrink_(bias_into, beta).add_(d.sum(1), alpha=alpha)
            d = before

    def _outputs(self, layers: Layers, x: Tensor) -> list[Tensor]:
        outputs = [x.flatten(2) if x.ndim > 3 else x]
        for link, weight, bias in layers:
            outputs.append(_activate(link.activation, _affine(outputs[-1], weight, bias)))
        return outputs

    def _parameters(self, w: Tensor) -> Layers:
        parts = iter(w.split_with_sizes(self.sizes, -1))
        found: Layers = []
        for link in self.links:
            weight = next(parts).view(len(w), link.outputs, link.inputs)
            found.append((link, weight, next(parts) if link.bias else None))
        return found


def _affine(h: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """`h W' + b`; few outputs are quicker as `(W h')'`, and stay transposed in memory, which suits a softmax."""
    if weight.shape[1] <= 32:
        z = torch.bmm(weight, h.mT) if bias is None else torch.baddbmm(bias[:, :, None], weight, h.mT)
        return z.mT
    return torch.bmm(h, weight.mT) if bias is None else torch.baddbmm(bias[:, None], h, weight.mT)


def _activate(kind: type[nn.Module], z: Tensor) -> Tensor:
    if kind is nn.ReLU:
        return z.relu() if z.requires_grad else z.relu_()
    if kind is nn.Tanh:
        return z.tanh()
    return z.sigmoid() if kind is nn.Sigmoid else z


def _slope(kind: type[nn.Module], output: Tensor, d: Tensor) -> Tensor:
    """The slope before the activation, from its output."""
    if kind is nn.ReLU:
        return torch.ops.aten.threshold_backward(d, output, 0)  # type: ignore[no-any-return]
    if kind is nn.Tanh:
        return d * (1 - output * output)
    return d * output * (1 - output) if kind is nn.Sigmoid else d
