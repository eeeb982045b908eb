"""What is known of a module from its kind alone, without running it."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from fedsaddle.errors import BadInput

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
    """Whether a pass in training draws random numbers, as dropout does; None: only a pass can tell."""
    kinds = {type(part) for part in module.modules()}
    if any(part.p > 0 and part.training for part in module.modules() if type(part) in DROPOUTS):  # type: ignore[operator]
        return True
    return False if kinds <= PLAIN | DROPOUTS else None


def takes_cohorts(module: nn.Module) -> bool | None:
    """Whether `torch.func.vmap` can run it for several clients at once; None: only a pass can tell."""
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
