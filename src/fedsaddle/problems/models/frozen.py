"""Parameters that are not trained: they stay at every client as they are, and do not travel."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase

from torch import Tensor, nn

from fedsaddle.arguments import instance
from fedsaddle.errors import BadInput
from fedsaddle.numerics.module_kinds import running_statistics


def freeze_(model: nn.Module, *patterns: str) -> nn.Module:
    """Freeze the parameters whose name, or the name of a module around them, matches a pattern; returns the model.

    Frozen BatchNorm layers are set to evaluation mode: they normalise by the statistics that they have.

    Args:
        model: The network; its parameters are marked in place by `requires_grad_(False)`.
        *patterns: Names with `*` and `?`, such as "features.*" or "features".

    Raises:
        BadInput: if a pattern matches no parameter.

    Example:
        >>> import torch, fedsaddle as fs
        >>> model = torch.nn.Sequential(torch.nn.Linear(30, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        >>> fs.Supervised(fs.freeze_(model, "0"), loss=fs.losses.Logistic()).dimension
        17
    """
    instance("model", model, nn.Module, "give a torch.nn.Module")
    parameters = dict(model.named_parameters())
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise BadInput("frozen", pattern, 'must be a list of names of parameters or modules: ["features.*"]')
        found = [name for name in parameters if _matches(name, pattern)]
        if not found:
            raise BadInput("frozen", pattern, f"matches no parameter; {_near(pattern, model)}")
        for name in found:
            parameters[name].requires_grad_(False)
        for name, part in model.named_modules():
            last = any(one.rpartition(".")[0] == name for one in found) and not _trained(part)
            if getattr(part, "track_running_stats", False) and (last or _matches(name, pattern)):
                part.eval()
    return model


def _trained(part: nn.Module) -> bool:
    return any(p.requires_grad for p in part.parameters())


def fixed_tensors(module: nn.Module) -> dict[str, Tensor]:
    """What a model has beside its trained vector: frozen parameters, and buffers that no step moves."""
    moving = running_statistics(module).keys()
    parts: dict[str, Tensor] = {name: p for name, p in module.named_parameters() if not p.requires_grad}
    buffers = {n: b for n, b in module.named_buffers() if n not in moving and not n.endswith("num_batches_tracked")}
    return parts | buffers


def _matches(name: str, pattern: str) -> bool:
    """Whether the pattern fits the name, or that of a module around it."""
    parts = name.split(".")
    return any(fnmatchcase(".".join(parts[:k]), pattern) for k in range(1, len(parts) + 1))


def _near(pattern: str, model: nn.Module) -> str:
    names = [name for name, _ in model.named_modules() if name] + [name for name, _ in model.named_parameters()]
    near = get_close_matches(pattern.rstrip(".*"), names, 3, 0.4) or names[:3]
    return f"names of this model are {', '.join(repr(n) for n in near)}, ..."
