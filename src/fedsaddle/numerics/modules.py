"""Modules as functions of their parameters and rows: for one client, inside vmap, with BatchNorm for a cohort."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsaddle.errors import BadInput
from fedsaddle.numerics.keyed_draws import KeyedDraws
from fedsaddle.numerics.recurrent import Unrolled, is_batched

_PLAIN = (
    "Sequential ModuleList ModuleDict ParameterList ParameterDict Identity Flatten Unflatten Linear Bilinear Embedding "
    "Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d LayerNorm GroupNorm RMSNorm "
    "BatchNorm1d BatchNorm2d BatchNorm3d InstanceNorm1d InstanceNorm2d InstanceNorm3d "
    "MaxPool1d MaxPool2d AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d "
    "ReLU ReLU6 LeakyReLU PReLU ELU CELU SELU GELU SiLU Mish Softplus Softsign Tanh Sigmoid LogSigmoid Hardtanh "
    "Hardsigmoid Hardswish Tanhshrink Softmax LogSoftmax"
)
PLAIN = frozenset(getattr(nn, name) for name in _PLAIN.split() if hasattr(nn, name))  # draw nothing; vmap takes them
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
DROPOUTS = frozenset({nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout})


def draws_numbers(module: nn.Module) -> bool | None:
    """Whether a pass in training draws random numbers, as dropout does; None: known only after a pass."""
    kinds = {type(part) for part in module.modules()}
    if any(part.p > 0 and part.training for part in module.modules() if type(part) in DROPOUTS):  # type: ignore[operator]
        return True
    return False if kinds <= PLAIN | DROPOUTS else None


def takes_cohorts(module: nn.Module) -> bool | None:
    """Whether `torch.func.vmap` can run it for several clients at once; None: known only after a pass."""
    parts = list(module.modules())
    if any(isinstance(part, nn.Embedding | nn.EmbeddingBag) and _is_special(part) for part in parts):
        return False
    return True if {type(part) for part in parts} <= PLAIN | DROPOUTS else None


def quick_alone(module: nn.Module) -> bool:
    """Whether clients are no slower one after the other on a CPU.

    So are convolutions, which are bound by arithmetic, and LSTM in float32, of which oneDNN has a kernel.
    """
    return any(isinstance(part, CONVOLUTIONS) or _has_kernel(part) for part in module.modules())


def _has_kernel(part: nn.Module) -> bool:
    return isinstance(part, nn.LSTM) and next(part.parameters()).dtype != torch.float64


def step_numbers(module: nn.Module) -> int:
    """How many gates its recurrent layers have for each row and time step; 0: it has no such layer."""
    parts = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    return sum(weight.shape[0] for part in parts for name, weight in part.named_parameters() if "weight_hh" in name)


def _is_special(part: nn.Embedding | nn.EmbeddingBag) -> bool:
    """Whether its gradient is not that of a plain table: under vmap torch forgets about the padding."""
    return part.padding_idx is not None or part.max_norm is not None or part.scale_grad_by_freq


def running_statistics(module: nn.Module) -> dict[str, Tensor]:
    """The running means and variances of BatchNorm, by name; none of a layer that is frozen."""
    return {
        f"{prefix}.{key}" if prefix else key: getattr(part, key)
        for prefix, part in module.named_modules()
        if keeps_statistics(part)
        for key in ("running_mean", "running_var")
    }


def keeps_statistics(part: nn.Module) -> bool:
    """Whether it has running statistics that move; those of a frozen layer in evaluation mode do not."""
    if not getattr(part, "track_running_stats", False):
        return False
    own = [*part.parameters(recurse=False)]
    return part.training or not own or any(p.requires_grad for p in own)


def check_statistics(module: nn.Module, allowed: bool) -> None:
    """Refuse running statistics that a gradient cannot move."""
    for name, part in module.named_modules():
        where = name or type(part).__name__
        if keeps_statistics(part):
            if not allowed:
                raise BadInput("model", where, "BatchNorm keeps running statistics; use nn.GroupNorm instead")
            if getattr(part, "momentum", 0.1) is None:
                raise BadInput("model", where, "BatchNorm with momentum=None counts batches; give it a momentum")


def evaluation_twin(module: nn.Module) -> nn.Module:
    """A copy in evaluation mode that shares all tensors."""
    shared = [*module.parameters(), *module.buffers()]
    twin: nn.Module = copy.deepcopy(module, {id(v): v for v in shared})
    return twin.eval()


def trained_parameters(module: nn.Module) -> dict[str, nn.Parameter]:
    """The parameters that are trained, by name: all that require a gradient."""
    return {name: p for name, p in module.named_parameters() if p.requires_grad}


def first_rows(x: Tensor, rows: int = 2) -> Tensor:
    """A few rows of the first client, as two clients' with the same rows."""
    one = x[:1, :rows]
    return torch.cat([one, one])


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
        twin: nn.Module = own["module" if training else "twin"]
        return twin


def laid(parameter: Tensor) -> Tensor:
    """Kernels of images with the channels last: convolutions and pooling on CPUs are quicker by a third."""
    return channels_last(parameter) if parameter.ndim == 4 else parameter


def channels_last(v: Tensor) -> Tensor:
    """Pictures or kernels with the channels last in memory.

    One channel is the same in memory either way, and torch takes it for channels first, where pooling is ten times
    slower: its strides must show it.
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


Keys = Callable[[], Tensor]
Named = dict[str, Tensor]
Pulled = tuple[Tensor, Callable[[Tensor], Tensor], Tensor | None]  # as `flat.Forward`
F = TypeVar("F", bound=Pulled)


def normalised_together(
    bare: BareModule, main: bool, parameters: Named, statistics: Named, x: Tensor, keys: Tensor | None, draws: bool
) -> Tensor:
    """The scores of all clients in one pass of vmap; in training their `statistics (C, ...)` are written to.

    `main` runs the module itself, else its twin in evaluation mode. With `draws` random functions ask the keys.
    """
    bare.module(x.device, main)  # made before vmap, which cannot
    each = torch.zeros(len(x), dtype=torch.int64, device=x.device) if keys is None else keys

    def one(own: Named, moving: Named, rows: Tensor, key: Tensor) -> Tensor:
        with drawing(None if keys is None else key, draws):
            return bare(own, rows, moving, main)

    scores: Tensor = torch.func.vmap(one, randomness="error")(parameters, statistics, x, each)
    return scores


def drawing(key: Tensor | None, draws: bool) -> KeyedDraws | nullcontext[None]:
    """Random functions ask the key, in a module that has some."""
    return KeyedDraws(key) if draws else nullcontext()


@contextmanager
def rows_enough() -> Iterator[None]:
    """Say in our words that a batch has one row."""
    try:
        yield
    except ValueError as reason:
        if "more than 1 value per channel" not in str(reason):
            raise
        remedy = "cannot normalise a batch of 1 row; draw more rows, or use nn.GroupNorm"
        raise BadInput("model", "BatchNorm", remedy) from None


def mixes_rows(module: nn.Module) -> bool:
    """Whether a row in training depends on how many others there are, running statistics apart.

    BatchNorm without these normalises by the batch; masks between recurrent layers are counted time step by time step.
    """
    return any(
        part.running_mean is None if isinstance(part, _BatchNorm) else part.dropout > 0 and not part.batch_first
        for part in module.modules()
        if isinstance(part, _BatchNorm | nn.RNNBase)
    )


def pulled_apart(
    pullback: Callable[[Tensor, Tensor, Keys | None], F], w: Tensor, x: Tensor, keys: Keys | None, sizes: Sequence[int]
) -> Pulled:
    """A pullback of clients one after the other, each with its first `sizes[c]` rows: the others are padding.

    Padding has scores of 0, and its slopes are not looked at.
    """

    def one(c: int, n: int) -> F:
        return pullback(w[c : c + 1], x[c : c + 1, :n], None if keys is None else lambda: keys()[c : c + 1])

    each = [one(c, int(n)) for c, n in enumerate(sizes)]
    scores = each[0][0].new_zeros(len(w), x.shape[1], *each[0][0].shape[2:])
    for c, (z, _, _) in enumerate(each):
        scores[c, : z.shape[1]] = z[0]

    def pull(slope: Tensor) -> Tensor:
        return torch.cat([back(slope[c : c + 1, : z.shape[1]]) for c, (z, back, _) in enumerate(each)])

    moved = [s for _, _, s in each if s is not None]
    return scores, pull, torch.cat(moved) if moved else None


def same_gradients(
    at: Tensor, alone: Callable[[], Tensor], together: Callable[[], Tensor], also: Sequence[Callable[[], Tensor]]
) -> bool:
    """Whether clients together have the gradients in `at` that they have alone, and `also` can be run.

    A warning, such as that of a slow way of torch's, counts as no.
    """
    with torch.enable_grad(), warnings.catch_warnings():
        expected = _gradient(alone(), at)
        warnings.simplefilter("error")
        try:
            same = torch.allclose(_gradient(together(), at), expected, rtol=1e-3, atol=1e-4)
            for run in also:
                _gradient(run(), at)
                with torch.no_grad():
                    run()
        except Exception:  # torch has many kinds
            return False
    return same


def _gradient(z: Tensor, at: Tensor) -> Tensor:
    """Of the scores, with slopes that differ."""
    slopes = torch.arange(z.numel(), device=z.device).to(z.dtype).cos().view(z.shape)
    return torch.autograd.grad(z, at, slopes)[0]
