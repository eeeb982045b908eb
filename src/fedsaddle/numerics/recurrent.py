"""LSTM, GRU and RNN for several clients at once: one loop over the time steps, forward and backward by hand.

`torch.func.vmap` cannot batch torch's own recurrent layers. While an `Unrolled` is active they are made of matrix
products over all clients: one for the inputs of all time steps, one for the states of each, and a backward pass that
forms the gradients of the weights by one product each. The layer of torch, one client at a time, is its oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

Saved = tuple[Tensor, ...]
_sigmoid_back, _tanh_back = torch.ops.aten.sigmoid_backward, torch.ops.aten.tanh_backward


class _Passed(NamedTuple):
    """What a pass back through time gives."""

    inputs: Tensor  # slopes in the inputs' part of the gates, (C, T, B, G)
    states: Tensor  # in the states' part of them
    h: Tensor  # in the first state, (C, B, H)
    c: Tensor | None = None  # in the first cell


# --- one time step after the other ------------------------------------------------------------------------------------
# Gates are (C, T, B, G), states and cells (C, T + 1, B, H): the first is the one before the first step.


def _lstm(gates: Tensor, h: Tensor, c: Tensor | None, weight: Tensor, bias: Tensor | None) -> Saved:
    assert c is not None
    states, cells, H = _begin(gates, h), _begin(gates, c), h.shape[-1]
    for t in range(gates.shape[1]):
        z = torch.baddbmm(gates[:, t], h, weight.mT)
        z[..., : 2 * H].sigmoid_()
        z[..., 2 * H : 3 * H].tanh_()
        z[..., 3 * H :].sigmoid_()
        i, f, g, o = z.chunk(4, -1)
        c = torch.mul(f, c).addcmul_(i, g)
        h = torch.tanh(c).mul_(o)
        gates[:, t], cells[:, t + 1], states[:, t + 1] = z, c, h
    return states, cells, gates


def _lstm_back(saved: Saved, weight: Tensor, dh: Tensor, dc: Tensor | None) -> _Passed:
    states, cells, gates = saved
    slopes = torch.empty_like(gates, memory_format=torch.contiguous_format)
    H = states.shape[-1]
    h, c = dh[:, -1], torch.zeros_like(dh[:, -1]) if dc is None else dc[:, -1].clone()
    for t in range(gates.shape[1] - 1, -1, -1):
        i, f, g, o = gates[:, t].chunk(4, -1)
        tanh = cells[:, t + 1].tanh()
        d = slopes[:, t]
        _sigmoid_back(h * tanh, o, grad_input=d[..., 3 * H :])
        c.add_(_tanh_back(h * o, tanh))
        _sigmoid_back(c * g, i, grad_input=d[..., :H])
        _sigmoid_back(c * cells[:, t], f, grad_input=d[..., H : 2 * H])
        _tanh_back(c * i, g, grad_input=d[..., 2 * H : 3 * H])
        c = c.mul_(f) if dc is None else torch.addcmul(dc[:, t], c, f)
        h = torch.baddbmm(dh[:, t], d, weight)
    return _Passed(slopes, slopes, h, c)


def _gru(gates: Tensor, h: Tensor, c: None, weight: Tensor, bias: Tensor | None) -> Saved:
    states, H = _begin(gates, h), h.shape[-1]
    inner = gates.new_empty(*gates.shape[:3], H)  # what the reset gate is multiplied with
    for t in range(gates.shape[1]):
        z = gates[:, t]
        own = torch.bmm(h, weight.mT) if bias is None else torch.baddbmm(bias[:, None], h, weight.mT)
        both = z[..., : 2 * H].add_(own[..., : 2 * H]).sigmoid_()
        new = z[..., 2 * H :].addcmul_(both[..., :H], own[..., 2 * H :]).tanh_()
        h = torch.lerp(new, h, both[..., H:])
        inner[:, t], states[:, t + 1] = own[..., 2 * H :], h
    return states, gates, inner


def _gru_back(saved: Saved, weight: Tensor, dh: Tensor, dc: None) -> _Passed:
    states, gates, inner = saved
    r, u, new = gates.chunk(3, -1)
    to_new = (1 - u) * (1 - new * new)
    slopes = torch.cat([to_new * inner * r * (1 - r), (states[:, :-1] - new) * u * (1 - u), to_new * r], -1)
    by_gate = slopes.view(*slopes.shape[:3], 3, -1)
    h = dh[:, -1]
    for t in range(gates.shape[1] - 1, -1, -1):
        by_gate[:, t].mul_(h.unsqueeze(2))
        to_new[:, t].mul_(h)
        h = torch.addcmul(dh[:, t], h, u[:, t]).baddbmm_(slopes[:, t], weight)
    return _Passed(torch.cat([slopes[..., : -new.shape[-1]], to_new], -1), slopes, h)


def _plain(activate_: Callable[[Tensor], Tensor]) -> Callable[..., Saved]:
    def forward(gates: Tensor, h: Tensor, c: None, weight: Tensor, bias: Tensor | None) -> Saved:
        states = _begin(gates, h)
        for t in range(gates.shape[1]):
            states[:, t + 1] = activate_(gates[:, t].baddbmm_(states[:, t], weight.mT))
        return (states,)

    return forward


def _plain_back(slope: Callable[[Tensor], Tensor]) -> Callable[..., _Passed]:
    def backward(saved: Saved, weight: Tensor, dh: Tensor, dc: None) -> _Passed:
        slopes, h = slope(saved[0][:, 1:]), dh[:, -1]
        for t in range(slopes.shape[1] - 1, -1, -1):
            h = torch.baddbmm(dh[:, t], slopes[:, t].mul_(h), weight)
        return _Passed(slopes, slopes, h)

    return backward


def _begin(gates: Tensor, first: Tensor) -> Tensor:
    states = gates.new_empty(gates.shape[0], gates.shape[1] + 1, *first.shape[1:])
    states[:, 0] = first
    return states


class _Kind(NamedTuple):
    forward: Callable[..., Saved]
    backward: Callable[..., _Passed]
    adds_bias: bool = True  # whether the bias of the states is one more bias of the inputs


_KINDS = {
    "lstm": _Kind(_lstm, _lstm_back),
    "gru": _Kind(_gru, _gru_back, adds_bias=False),
    "rnn_tanh": _Kind(_plain(torch.Tensor.tanh_), _plain_back(lambda h: 1 - h * h)),
    "rnn_relu": _Kind(_plain(torch.Tensor.relu_), _plain_back(lambda h: (h > 0).to(h.dtype))),
}


# --- a layer in one direction -----------------------------------------------------------------------------------------


class _Context(Protocol):
    """What autograd hands from the forward to the backward pass."""

    kind: str
    biases: bool
    needs_input_grad: tuple[bool, ...]

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]: ...
    def save_for_backward(self, *tensors: Tensor) -> None: ...
    def mark_non_differentiable(self, *tensors: Tensor) -> None: ...
    def set_materialize_grads(self, value: bool) -> None: ...


class _Mapped(Protocol):
    """The axis that vmap hides."""

    batch_size: int


class _Layer(torch.autograd.Function):
    """States, with the one before the first step; LSTM's cells; then what the backward pass wants.

    Takes `x (C, T, B, F)`, h and c `(C, B, H)`, and a weight or bias of each client.
    """

    generate_vmap_rule = False

    @staticmethod
    def forward(
        kind: str,
        x: Tensor,
        h: Tensor,
        c: Tensor | None,
        w_x: Tensor,
        w_h: Tensor,
        b_x: Tensor | None,
        b_h: Tensor | None,
    ) -> Saved:
        way = _KINDS[kind]
        bias = b_x if b_x is None or b_h is None or not way.adds_bias else b_x + b_h
        return way.forward(_products(x, w_x, bias), h, c, w_h, b_h)

    @staticmethod
    def setup_context(ctx: _Context, inputs: tuple[Any, ...], output: Saved) -> None:
        kind, x, _, _, w_x, w_h, b_x, _ = inputs
        ctx.kind, ctx.biases = kind, b_x is not None
        ctx.save_for_backward(x, w_x, w_h, *output)
        ctx.mark_non_differentiable(*output[2 if kind == "lstm" else 1 :])
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: _Context, dh: Tensor | None, *rest: Tensor | None) -> tuple[Tensor | None, ...]:
        x, w_x, w_h, *saved = ctx.saved_tensors
        dc = rest[0] if ctx.kind == "lstm" else None
        dh = torch.zeros_like(saved[0]) if dh is None else dh
        passed = _KINDS[ctx.kind].backward(tuple(saved), w_h, dh, dc)
        to_x, to_h = passed.inputs.flatten(1, 2), passed.states.flatten(1, 2)
        wanted = ctx.needs_input_grad
        dx = torch.bmm(to_x, w_x).view(*passed.inputs.shape[:3], -1) if wanted[1] else None
        dw_x = torch.bmm(to_x.mT, x.flatten(1, 2)) if wanted[4] else None
        dw_h = torch.bmm(to_h.mT, saved[0][:, :-1].flatten(1, 2)) if wanted[5] else None
        db_x, db_h = (to_x.sum(1), to_h.sum(1)) if ctx.biases else (None, None)
        return None, dx, passed.h, passed.c, dw_x, dw_h, db_x, db_h

    @staticmethod
    def vmap(
        info: _Mapped, in_dims: tuple[int | None, ...], kind: str, *given: Tensor | None
    ) -> tuple[Saved, tuple[int, ...]]:
        """Fold the axis into that of clients."""
        size = info.batch_size
        merged = [None if v is None else _merged(v, at, size) for v, at in zip(given, in_dims[1:], strict=True)]
        outputs = _Layer.apply(kind, *merged)  # type: ignore[no-untyped-call]
        return tuple(v.unflatten(0, (size, -1)) for v in outputs), (0,) * len(outputs)


def _merged(v: Tensor, at: int | None, size: int) -> Tensor:
    return (v.expand(size, *v.shape) if at is None else v.movedim(at, 0)).flatten(0, 1)


def _products(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """The inputs' part of the gates of all time steps, (C, T, B, G); written to later, so always new."""
    turned = x.transpose(1, 2)
    rows = turned if turned.is_contiguous() else x  # as they lie in memory
    flat = rows.flatten(1, 2)
    z = torch.bmm(flat, weight.mT) if bias is None else torch.baddbmm(bias[:, None], flat, weight.mT)
    z = z.view(*rows.shape[:3], -1)
    return z if rows is x else z.transpose(1, 2)


# --- all layers -------------------------------------------------------------------------------------------------------


class Unrolled(TorchFunctionMode):
    """Runs `torch.lstm` and its kin inside vmap; packed sequences and projections are left to torch."""

    def __torch_function__(
        self,
        func: Callable[..., Saved],
        types: Sequence[type],
        args: Any = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> Saved:
        kind = _FUNCTIONS.get(func)
        if kind is None or not isinstance(args[2], list):  # packed sequences have sizes before the states
            return func(*args, **(kwargs or {}))
        biases, layers, bidirectional = args[3], args[4], args[7]
        if len(args[2]) != (4 if biases else 2) * layers * (2 if bidirectional else 1):  # projections
            return func(*args, **(kwargs or {}))
        return _layers(kind, *args)


def is_batched(v: Tensor) -> bool:
    """Whether vmap hides an axis of it."""
    return bool(torch._C._functorch.is_batchedtensor(v))


def _layers(
    kind: str, x: Tensor, hx: Tensor | Sequence[Tensor], weights: list[Tensor], biases: bool, layers: int, p: float,
    train: bool, bidirectional: bool, batch_first: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Of one client, as vmap shows it; dropout between layers is torch's, which keyed draws replace."""
    first = hx if isinstance(hx, tuple | list) else (hx,)
    each, ways, last = 4 if biases else 2, 2 if bidirectional else 1, []
    for k in range(layers):
        if k and p and train:
            x = torch.dropout(x, p, train)
        outputs = []
        for way in range(ways):
            n = k * ways + way
            own = weights[n * each : (n + 1) * each]
            out, *end = _one_way(kind, x, [s[n] for s in first], own, way == 1, batch_first)
            outputs.append(out)
            last.append(end)
        x = outputs[0] if ways == 1 else torch.cat(outputs, -1)
    return (x, *(torch.stack(part) for part in zip(*last, strict=True)))


def _one_way(
    kind: str, x: Tensor, first: list[Tensor], weights: list[Tensor], backwards: bool, batch_first: bool
) -> list[Tensor]:
    """The outputs of a layer in one direction, and its last state and cell."""
    steps = (x.transpose(0, 1) if batch_first else x).to(weights[0].dtype)
    if backwards:
        steps = steps.flip(0)
    h, c = (s[None].to(steps.dtype) for s in first) if len(first) == 2 else (first[0][None].to(steps.dtype), None)
    w_x, w_h, b_x, b_h = [v[None] for v in weights] + [None] * (4 - len(weights))
    with torch.autocast(steps.device.type, enabled=False):
        outputs = _Layer.apply(kind, steps[None], h, c, w_x, w_h, b_x, b_h)  # type: ignore[no-untyped-call]
    out = outputs[0][0, 1:]
    out = out.flip(0) if backwards else out
    ends = [v[0, -1] for v in outputs[: len(first)]]
    return [out.transpose(0, 1) if batch_first else out, *ends]


_FUNCTIONS = {getattr(torch, name): name for name in _KINDS}
