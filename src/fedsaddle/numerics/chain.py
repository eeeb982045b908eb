"""Chains of layers, forward and backward by hand: linear layers for a whole cohort, image layers for one client.

Generic vmap and autograd pay for generality at every operation; for the models that most federated studies train,
stacked matrix products are two to four times faster. Of image layers, autograd keeps every output, joins all gradients
into a vector and adds that to the parameters; here a layer's gradient goes straight to its place in the vector, and its
input is freed. The channels come last. The single-client path, which runs the module itself, is the oracle of both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn

from fedsaddle.numerics.modules import channels_last
from fedsaddle.numerics.tensors import shrink_


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
        layers: Layers = []
        for link in self.links:
            weight = next(parts).view(len(w), link.outputs, link.inputs)
            layers.append((link, weight, next(parts) if link.bias else None))
        return layers


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


_ATEN = torch.ops.aten
Pair = tuple[int, int]
Two = tuple[Tensor, Tensor]
Kept = TypeVar("Kept")
Own = tuple[Tensor, ...]  # a layer's weight and bias: views of a flat vector


class Write(NamedTuple):
    """What happens to the parameters: `into ← keep into + gain gradient`."""

    keep: float
    gain: float

    def __call__(self, into: Tensor, gradient: Tensor) -> None:
        """Do it."""
        if self.keep == 0:
            into.copy_(gradient)
            if self.gain != 1:
                into.mul_(self.gain)
            return
        if self.keep != 1:
            into.mul_(self.keep)
        into.add_(gradient, alpha=self.gain)


class Layer(Protocol[Kept]):
    """One layer of the chain."""

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of its weight and bias."""
        ...

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Kept]:
        """Its output, and what `backward_` needs."""
        ...

    def backward_(self, d: Tensor, saved: Kept, into: Own, write: Write, wanted: bool) -> Tensor:
        """Write the gradient of its parameters; gives the slope in its input, if that is wanted."""
        ...


AnyLayer = Layer[Any]  # each with something else that `backward_` needs


@dataclass(frozen=True)
class Convolution:
    """nn.Conv2d with zeros around the picture."""

    shapes: tuple[tuple[int, ...], ...]
    stride: Pair
    padding: Pair
    dilation: Pair
    groups: int

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Two]:
        """The picture and the kernels are laid out first."""
        h, kernel, bias = channels_last(h), channels_last(own[0]), own[1] if len(own) > 1 else None
        wide = min(kernel.shape[2:]) >= 5 and any(self.padding)  # oneDNN is slow at the borders of these
        rows, padding = (_padded(h, self.padding), (0, 0)) if wide else (h, self.padding)
        z = _ATEN.convolution.default(
            rows, kernel, bias, self.stride, padding, self.dilation, False, (0, 0), self.groups
        )
        return z, (h, kernel)

    def backward_(self, d: Tensor, saved: Two, into: Own, write: Write, wanted: bool) -> Tensor:
        """The bias by a sum of our own, which is quicker than oneDNN's."""
        (h, kernel), d = saved, channels_last(d)
        before, weight, _ = _ATEN.convolution_backward.default(
            d, h, kernel, None, self.stride, self.padding, self.dilation, False, (0, 0), self.groups,
            (wanted, True, False),
        )  # fmt: skip
        write(into[0], weight)
        if len(into) > 1:
            write(into[1], d.sum((0, 2, 3)))
        return before if wanted else d


@dataclass(frozen=True)
class Dense:
    """nn.Linear on vectors."""

    shapes: tuple[tuple[int, ...], ...]

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Two]:
        """`h W' + b`."""
        weight = own[0]
        return torch.addmm(own[1], h, weight.t()) if len(own) > 1 else h @ weight.t(), (h, weight)

    def backward_(self, d: Tensor, saved: Two, into: Own, write: Write, wanted: bool) -> Tensor:
        """The weight's gradient is never formed."""
        h, weight = saved
        before = d @ weight if wanted else d  # before the weight is written
        into[0].addmm_(d.t(), h, beta=write.keep, alpha=write.gain)
        if len(into) > 1:
            write(into[1], d.sum(0))
        return before


@dataclass(frozen=True)
class MaxPool:
    """nn.MaxPool2d."""

    size: Pair
    stride: Pair
    padding: Pair
    dilation: Pair
    ceil: bool
    shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Two]:
        """The largest of each window, and where it was."""
        h = channels_last(h)
        out, at = _ATEN.max_pool2d_with_indices.default(
            h, self.size, self.stride, self.padding, self.dilation, self.ceil
        )
        return out, (h, at)

    def backward_(self, d: Tensor, saved: Two, into: Own, write: Write, wanted: bool) -> Tensor:
        """Of the input it needs the shape alone."""
        h, at = saved
        before: Tensor = _ATEN.max_pool2d_with_indices_backward.default(
            channels_last(d), h, self.size, self.stride, self.padding, self.dilation, self.ceil, at
        )
        return before


@dataclass(frozen=True)
class AvgPool:
    """nn.AvgPool2d."""

    options: tuple[
        Pair, Pair, Pair, bool, bool, int | None
    ]  # size, stride, padding, ceil, whether zeros around count, divisor
    shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        """The mean of each window."""
        h = channels_last(h)
        return _ATEN.avg_pool2d.default(h, *self.options), h

    def backward_(self, d: Tensor, saved: Tensor, into: Own, write: Write, wanted: bool) -> Tensor:
        """Of the input it needs the shape alone."""
        before: Tensor = _ATEN.avg_pool2d_backward.default(channels_last(d), saved, *self.options)
        return before


@dataclass(frozen=True)
class Flat:
    """nn.Flatten: pictures to vectors."""

    shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, torch.Size]:
        """In the usual order, channel by channel."""
        return h.flatten(1), h.shape

    def backward_(self, d: Tensor, saved: torch.Size, into: Own, write: Write, wanted: bool) -> Tensor:
        """Back to pictures."""
        return channels_last(d.view(saved)) if len(saved) == 4 else d


@dataclass(frozen=True)
class Activation:
    """ReLU, Tanh or Sigmoid; its slope follows from its output."""

    kind: type[nn.Module]
    inplace: bool  # nobody needs its input
    shapes: tuple[tuple[int, ...], ...] = ()

    def forward(self, h: Tensor, own: Own) -> tuple[Tensor, Tensor]:
        """Of each number."""
        f: Callable[[Tensor], Tensor] = _FUNCTIONS[self.kind][self.inplace]
        out = f(h)
        return out, out

    def backward_(self, d: Tensor, saved: Tensor, into: Own, write: Write, wanted: bool) -> Tensor:
        """From the output."""
        before: Tensor = _SLOPES[self.kind](d, saved)
        return before


_FUNCTIONS = {
    nn.ReLU: (torch.relu, torch.relu_),
    nn.Tanh: (torch.tanh, torch.tanh_),
    nn.Sigmoid: (torch.sigmoid, torch.sigmoid_),
}
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_SLOPES: dict[type[nn.Module], Callable[[Tensor, Tensor], Tensor]] = {
    nn.ReLU: lambda d, out: _ATEN.threshold_backward.default(d, out, 0),
    nn.Tanh: lambda d, out: _ATEN.tanh_backward.default(d, out),
    nn.Sigmoid: lambda d, out: _ATEN.sigmoid_backward.default(d, out),
}


@dataclass(frozen=True)
class ImageChain:
    """Convolutions, pooling, activations and then linear layers, over `w (1, d)` and `x (1, B, channels, h, w)`."""

    layers: tuple[AnyLayer, ...]
    sizes: list[int]  # of weight, bias, weight, bias ... in the flat vector
    first: int  # the first layer with parameters: no slope is needed before it

    @classmethod
    def of(cls, module: nn.Module) -> ImageChain | None:
        """The chain that `module` is, or None if it is something else, or has no convolution."""
        layers: list[AnyLayer] = []
        fresh = False  # whether the output so far may be written to
        for part in _parts(module):
            layer = None if part is None else _layer(part, fresh, flat=any(isinstance(v, Flat) for v in layers))
            if layer is None:
                return None
            if isinstance(layer, MaxPool) and layers and layers[-1] == Activation(nn.ReLU, True):
                layers.insert(-1, layer)  # of a quarter as many numbers, and the same ones
                continue
            layers.append(layer)
            fresh = not isinstance(layer, Activation) and (fresh or not isinstance(layer, Flat))
        owners = [k for k, layer in enumerate(layers) if layer.shapes]
        if not any(isinstance(layer, Convolution) for layer in layers) or _shared(module):
            return None
        sizes = [torch.Size(shape).numel() for layer in layers for shape in layer.shapes]
        return cls(tuple(layers), sizes, owners[0])

    def fits(self, w: Tensor, x: Tensor) -> bool:
        """Whether it can take these rows, `(1, B, channels, height, width)`."""
        return x.ndim == 5 and x.shape[1] > 0 and x.dtype == w.dtype and w.dtype in (torch.float32, torch.float64)

    def scores(self, w: Tensor, x: Tensor) -> Tensor:
        """The outputs, (1, B, ...), as autograd sees them too."""
        h = x[0]
        for layer, own in zip(self.layers, self._parameters(w), strict=True):
            h, _ = layer.forward(h, own)
        return h[None]

    def pullback(self, w: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """The scores, and the map from their slope to the gradient in `w`."""
        scores, write = self.push(w, x)

        def gradient(slope: Tensor) -> Tensor:
            g = torch.empty(w.shape, dtype=w.dtype, device=w.device)
            write(slope, g, 0.0, 1.0)
            return g

        return scores, gradient

    def push(self, w: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor, Tensor, float, float], None]]:
        """The scores, and what writes `into ← keep into + gain gradient` from their slope; `into` may be `w` itself."""
        scores, saved = self._forward(w, x)

        def write(slope: Tensor, into: Tensor, keep: float, gain: float) -> None:
            self._backward_(saved.copy(), into, slope, Write(keep, gain))

        return scores, write

    def descend_(self, w: Tensor, x: Tensor, slope_of: Callable[[Tensor], Tensor], step: float, keep: float) -> None:
        """`w ← keep w - step gradient`, in place, without a gradient in between; `slope_of` is the scores' slope."""
        scores, saved = self._forward(w, x)
        self._backward_(saved, w, slope_of(scores), Write(keep, -step))

    def _forward(self, w: Tensor, x: Tensor) -> tuple[Tensor, list[object]]:
        h, saved = x[0].detach(), []
        for layer, own in zip(self.layers, self._parameters(w.detach()), strict=True):
            h, needed = layer.forward(h, own)
            saved.append(needed)
        return h[None], saved

    def _backward_(self, saved: list[object], into: Tensor, slope: Tensor, write: Write) -> None:
        """Each layer's share of `kept` is let go once it is used."""
        d, places = slope[0].detach(), self._parameters(into.detach())
        for k in range(len(self.layers) - 1, self.first - 1, -1):
            d = self.layers[k].backward_(d, saved.pop(), places[k], write, k > self.first)

    def _parameters(self, w: Tensor) -> list[Own]:
        parts = iter(w[0].split_with_sizes(self.sizes))
        return [tuple(next(parts).view(shape) for shape in layer.shapes) for layer in self.layers]


def _padded(h: Tensor, margin: Pair) -> Tensor:
    """With zeros around each picture, and the channels last."""
    return channels_last(nn.functional.pad(h, (margin[1], margin[1], margin[0], margin[0])))


def _parts(module: nn.Module) -> Iterator[nn.Module | None]:
    """The layers of nested nn.Sequentials; None for what has hooks, or a pass of its own."""
    if any(getattr(module, name) for name in _HOOKS) or "forward" in vars(module):
        yield None
    elif isinstance(module, nn.Sequential):
        if type(module).forward is not nn.Sequential.forward or type(module).__call__ is not nn.Module.__call__:
            yield None
        for part in module:
            yield from _parts(part)
    elif type(module) is not nn.Identity:
        yield module


def _shared(module: nn.Module) -> bool:
    """Whether a part or a parameter stands in two places, or there is one that no layer of ours knows."""
    places = [
        p
        for part in _parts(module)
        if part is not None
        for name, p in part.named_parameters()
        if name in ("weight", "bias")
    ]
    own = {id(p) for part in module.modules() for p in part.parameters(recurse=False)}
    return len(own) != len(places) or not all(type(p) is nn.Parameter and p.requires_grad for p in places)


def _layer(part: nn.Module, fresh: bool, flat: bool) -> AnyLayer | None:
    """The layer of the chain for a part of the module; None if there is none. `flat`: its input are vectors."""
    shapes = tuple(tuple(p.shape) for p in part.parameters())
    kind = type(part)
    if kind in _FUNCTIONS:
        return Activation(kind, fresh)
    if flat:
        return Dense(shapes) if kind is nn.Linear else None
    if type(part) is nn.Conv2d and part.padding_mode == "zeros" and not isinstance(part.padding, str):
        return Convolution(shapes, _pair(part.stride), _pair(part.padding), _pair(part.dilation), part.groups)
    if type(part) is nn.MaxPool2d and not part.return_indices:
        size, stride, padding = _pair(part.kernel_size), _pair(part.stride), _pair(part.padding)
        return MaxPool(size, stride, padding, _pair(part.dilation), part.ceil_mode)
    if type(part) is nn.AvgPool2d:
        sides = _pair(part.kernel_size), _pair(part.stride), _pair(part.padding)
        return AvgPool((*sides, part.ceil_mode, part.count_include_pad, part.divisor_override))
    return Flat() if type(part) is nn.Flatten and (part.start_dim, part.end_dim) == (1, -1) else None


def _pair(side: int | tuple[int, ...]) -> Pair:
    return (side, side) if isinstance(side, int) else (side[0], side[1])
