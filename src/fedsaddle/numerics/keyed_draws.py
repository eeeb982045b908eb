"""Random functions inside a model's forward pass, drawn from a key: dropout and its kin, uniform and normal numbers.

While a `KeyedDraws` is active, torch's random functions do not ask torch's generator. Each draw is a function of (key,
number of the draw within the pass, element), by SplitMix64 (Steele, Lea, Flood 2014) in int64 arithmetic, which is the
same for one client and, under vmap, for many.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from fedsaddle.errors import BadInput

BITS = 53
Torch = Callable[..., Tensor]  # a function of torch that draws
_ALPHA = 1.7580993408473766  # of alpha dropout: minus the least value of SELU
_REFUSED = "draws random numbers that the seed does not key; draw by F.dropout, torch.rand, torch.randn or bernoulli_"
_IN_EVALUATION = "draws random numbers in evaluation mode too; draw only `if self.training`"


def _signed(word: int) -> int:
    """The int64 with the same 64 bits."""
    word &= (1 << 64) - 1
    return word - (1 << 64) if word >> 63 else word


_GAMMA, _A, _B = (_signed(c) for c in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mixed(z: Tensor) -> Tensor:
    """SplitMix64's finaliser; shifts of int64 copy the sign, so that the copies are masked away."""
    z = (z ^ ((z >> 30) & ((1 << 34) - 1))) * _A
    z = (z ^ ((z >> 27) & ((1 << 37) - 1))) * _B
    return z ^ ((z >> 31) & ((1 << 33) - 1))


class KeyedDraws(TorchFunctionMode):
    """All draws of one pass; without a key there is no dropout, and nothing else may draw."""

    def __init__(self, key: Tensor | None) -> None:
        super().__init__()
        self.key, self.calls = key, 0

    def __torch_function__(
        self,
        func: Torch,
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        instead = _INSTEAD.get(func)
        if instead is None:
            return func(*args, **(kwargs or {}))
        return instead(self, func, *args, **(kwargs or {}))

    def words(self, shape: torch.Size) -> Tensor:
        """Whole numbers, uniform on `0 .. 2^53 - 1`."""
        self.calls += 1
        assert self.key is not None
        start = _mixed(self.key + _signed(self.calls * _GAMMA))
        z = _mixed(start + torch.arange(shape.numel(), device=self.key.device) * _GAMMA)
        return ((z >> (64 - BITS)) & ((1 << BITS) - 1)).view(shape)

    def uniform(self, shape: torch.Size, dtype: torch.dtype) -> Tensor:
        """Numbers uniform on [0, 1), with as many bits as the type holds."""
        bits = BITS if dtype == torch.float64 else min(BITS, 1 - round(math.log2(torch.finfo(dtype).eps)))
        return (self.words(shape) >> (BITS - bits)).to(dtype) * 2.0**-bits

    def kept(self, shape: torch.Size, p: float, dtype: torch.dtype) -> Tensor:
        """1 with probability 1 - p, else 0."""
        return (self.words(shape) >= round(p * (1 << BITS))).to(dtype)


# --- dropout ----------------------------------------------------------------------------------------------------------


def _dropout(features: bool, alpha: bool, writes: bool) -> Torch:
    def instead(draws: KeyedDraws, func: Torch, input: Tensor, p: float, train: bool) -> Tensor:
        if not train or p == 0 or draws.key is None:
            return input
        shape = torch.Size((*input.shape[:2], *(1 for _ in input.shape[2:]))) if features else input.shape
        mask = draws.kept(shape, p, input.dtype)
        if alpha and p < 1:
            a = 1 / math.sqrt((_ALPHA**2 * p + 1) * (1 - p))
            scale, shift = mask * a, (mask - 1) * (_ALPHA * a) + _ALPHA * a * p
            return input.mul_(scale).add_(shift) if writes else input * scale + shift
        scale = mask * (1 / (1 - p) if p < 1 else 0.0)
        return input.mul_(scale) if writes else input * scale

    return instead


def _attention(
    draws: KeyedDraws,
    func: Torch,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout_p == 0 or draws.key is None:
        rest = {"scale": scale, **({"enable_gqa": True} if enable_gqa else {})}
        return func(query, key, value, attn_mask, 0.0, is_causal, **rest)
    if enable_gqa:
        repeats = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(repeats, -3), value.repeat_interleave(repeats, -3)
    z = query @ key.mT * (1 / math.sqrt(query.shape[-1]) if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).tril()
    if attn_mask is not None:
        z = z.masked_fill(~attn_mask, -math.inf) if attn_mask.dtype == torch.bool else z + attn_mask
    weights = z.softmax(-1)
    return (weights * draws.kept(weights.shape, dropout_p, weights.dtype) / (1 - dropout_p)) @ value


def _recurrent(draws: KeyedDraws, func: Callable[..., tuple[Tensor, ...]], *given: Any) -> tuple[Tensor, ...]:
    """Layers one by one, with dropout in between; packed sequences have the sizes of the batches before hx."""
    packed = not isinstance(given[2], list)
    head, (hx, weights, biases, layers, p, train, *rest) = (given[:2], given[2:]) if packed else (given[:1], given[1:])
    if p == 0 or not train or layers == 1:
        return func(*given)
    if draws.key is None:
        return func(*head, hx, weights, biases, layers, 0.0, train, *rest)
    states = hx if isinstance(hx, tuple | list) else (hx,)
    each, parts = len(weights) // layers, [s.chunk(layers) for s in states]
    x, last = head[0], []
    for k in range(layers):
        if k:
            x = x * draws.kept(x.shape, p, x.dtype) * (1 / (1 - p) if p < 1 else 0.0)
        own = tuple(part[k] for part in parts)
        hx_k = own if isinstance(hx, tuple | list) else own[0]
        x, *end = func(x, *head[1:], hx_k, weights[k * each : (k + 1) * each], biases, 1, 0.0, train, *rest)
        last.append(end)
    return (x, *(torch.cat(part) for part in zip(*last, strict=True)))


# --- plain draws ------------------------------------------------------------------------------------------------------


def _check_training(draws: KeyedDraws, func: Torch) -> None:
    if draws.key is None:
        raise BadInput("model", func.__name__, _IN_EVALUATION)


def _bernoulli_(
    draws: KeyedDraws, func: Torch, input: Tensor, p: Tensor | float = 0.5, generator: object = None
) -> Tensor:
    _check_training(draws, func)
    u = draws.uniform(input.shape, torch.float64)
    return input.copy_((u < p).to(input.dtype))


def _bernoulli(draws: KeyedDraws, func: Torch, input: Tensor, p: float | None = None, **rest: object) -> Tensor:
    _check_training(draws, func)
    return (draws.uniform(input.shape, torch.float64) < (input if p is None else p)).to(input.dtype)


def _uniform_(
    draws: KeyedDraws, func: Torch, input: Tensor, low: float = 0.0, high: float = 1.0,
    *, generator: object = None, **rest: float,
) -> Tensor:  # fmt: skip
    _check_training(draws, func)
    low, high = rest.get("from", low), rest.get("to", high)
    return input.copy_(draws.uniform(input.shape, input.dtype) * (high - low) + low)


def _normal_(
    draws: KeyedDraws, func: Torch, input: Tensor, mean: float = 0.0, std: float = 1.0, **rest: object
) -> Tensor:
    _check_training(draws, func)
    return input.copy_(_normal(draws, input.shape, input.dtype) * std + mean)


def _new(normal: bool) -> Torch:
    def instead(draws: KeyedDraws, func: Torch, *args: object, generator: object = None, **rest: object) -> Tensor:
        _check_training(draws, func)
        blank: Torch = torch.empty_like if func.__name__.endswith("_like") else torch.empty
        like = blank(*args, **rest)
        drawn = (_normal if normal else KeyedDraws.uniform)(draws, like.shape, like.dtype)
        return drawn.requires_grad_() if rest.get("requires_grad") else drawn

    return instead


def _normal(draws: KeyedDraws, shape: torch.Size, dtype: torch.dtype) -> Tensor:
    """By Box and Muller."""
    u, v = draws.uniform(shape, torch.float64), draws.uniform(shape, torch.float64)
    return ((-2 * (1 - u).log()).sqrt() * (2 * math.pi * v).cos()).to(dtype)


def _refuse(draws: KeyedDraws, func: Torch, *args: object, **rest: object) -> NoReturn:
    raise BadInput("model", func.__name__, _REFUSED)


def _refuse_in_training(
    draws: KeyedDraws, func: Torch, input: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False,
    *args: object, **rest: object,
) -> Tensor:  # fmt: skip
    if training and draws.key is not None:
        raise BadInput("model", func.__name__, _REFUSED)
    return func(input, lower, upper, False)


# --- the table --------------------------------------------------------------------------------------------------------


def _opened(function: FunctionType) -> Torch:
    """A function of `torch.nn.functional` whose inner calls are seen too: its body without the way out at the top."""
    gates = dict.fromkeys(("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), _never)
    body = FunctionType(function.__code__, {**function.__globals__, **gates}, function.__name__, function.__defaults__)
    body.__kwdefaults__ = function.__kwdefaults__

    def instead(draws: KeyedDraws, func: Torch, *args: object, **rest: object) -> Tensor:
        with draws:
            drawn: Tensor = body(*args, **rest)
        return drawn

    return instead


def _never(*args: object) -> bool:
    return False


_OPENED = ["dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"]
_OPENED += ["multi_head_attention_forward", "gumbel_softmax"]
_DROPOUTS = {"dropout": (False, False), "feature_dropout": (True, False), "alpha_dropout": (False, True)}
_DROPOUTS |= {"feature_alpha_dropout": (True, True)}
_REFUSED_NAMES = ("multinomial", "normal", "poisson", "randint", "randint_like", "randperm", "binomial")
_REFUSED_METHODS = ("exponential_", "random_", "cauchy_", "geometric_", "log_normal_", "multinomial")

_INSTEAD: dict[Callable[..., object], Callable[..., object]] = {
    **{getattr(F, name): _opened(getattr(F, name)) for name in _OPENED},
    **{getattr(torch, name): _dropout(*kind, writes=False) for name, kind in _DROPOUTS.items()},
    **{getattr(torch, name + "_"): _dropout(*kind, writes=True) for name, kind in _DROPOUTS.items()},
    **{getattr(torch, name): _recurrent for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")},
    F.scaled_dot_product_attention: _attention,
    torch.Tensor.bernoulli_: _bernoulli_,
    torch.Tensor.bernoulli: _bernoulli,
    torch.bernoulli: _bernoulli,
    torch.Tensor.uniform_: _uniform_,
    torch.Tensor.normal_: _normal_,
    torch.rand: _new(normal=False),
    torch.rand_like: _new(normal=False),
    torch.randn: _new(normal=True),
    torch.randn_like: _new(normal=True),
    **{getattr(torch, name): _refuse for name in _REFUSED_NAMES},
    **{getattr(torch.Tensor, name): _refuse for name in _REFUSED_METHODS},
    F.fractional_max_pool2d_with_indices: _refuse,
    F.fractional_max_pool3d_with_indices: _refuse,
    F.rrelu: _refuse_in_training,
}
