"""Trained models: start from one, freeze parts of it, or give it a new head as in the CODASCA paper."""

from __future__ import annotations

from difflib import get_close_matches
from fnmatch import fnmatchcase
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsaddle.arguments import instance
from fedsaddle.documents.files import RunFiles
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.numerics.modules import running_statistics
from fedsaddle.problems.models.forest import Forest


def freeze_(model: nn.Module, *patterns: str) -> nn.Module:
    """Freeze the parameters whose name, or the name of a module around them, matches a pattern; returns the model.

    Frozen BatchNorm layers are set to evaluation mode: they normalise by the statistics that they have.

    Args:
        model: the network; its parameters are marked in place by `requires_grad_(False)`.
        *patterns: names with `*` and `?`, such as "features.*" or "features".

    Raises:
        BadInput: if a pattern matches no parameter.

    Examples:
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
        matching = [name for name in parameters if _matches(name, pattern)]
        if not matching:
            raise BadInput("frozen", pattern, f"matches no parameter; {_near(pattern, model)}")
        for name in matching:
            parameters[name].requires_grad_(False)
        for name, part in model.named_modules():
            last = any(one.rpartition(".")[0] == name for one in matching) and not _trained(part)
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


HEADS = ("auto", "fresh")


def warm_started(model: nn.Module, trained: dict[str, Tensor], head: str = "auto") -> nn.Module:
    """`model` with the tensors of a trained one of the same network.

    A forest also starts from a linear model, to which it adds trees.

    The head is its last linear layer. It is taken over where its shapes agree and stays fresh where they do not, such
    as for another number of classes; with `head="fresh"` it stays fresh in any case, for a second stage of training
    with another loss.

    Args:
        model: The network to start.
        trained: A state dict.
        head: "auto" or "fresh".

    Raises:
        BadInput: if the networks differ in another layer than the head.

    Examples:
        >>> model, trained = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> torch.equal(warm_started(model, trained.state_dict()).weight, trained.weight)
        True
    """
    if head not in HEADS:
        raise BadInput("head", head, f"choose one of {', '.join(HEADS)}")
    own = model.state_dict()
    if isinstance(model, Forest):
        trained = {**own, **model.linear_part(trained)}
    wanted = dict(own)
    top = {k for k in own if k.rpartition(".")[0] == _last_linear(model)}
    fits = all(k in trained and trained[k].shape == own[k].shape for k in top)
    if head == "fresh" and not top:
        raise BadInput("head", head, f"{type(model).__name__} has no linear layer to leave fresh; leave it out")
    if head == "fresh" or not fits:
        wanted = {k: v for k, v in own.items() if k not in top}
    for key, value in wanted.items():
        if key not in trained:
            raise BadInput("start_from", key, "is not in the trained model; use the same network")
        if trained[key].shape != value.shape:
            shapes = f"{tuple(trained[key].shape)} there, {tuple(value.shape)} here"
            raise BadInput("start_from", key, f"has another shape: {shapes}; use the same network")
    if not wanted:
        raise BadInput("start_from", sorted(top), "has other shapes and is the only layer; use the same network")
    with torch.no_grad():
        model.load_state_dict({**own, **{k: trained[k] for k in wanted}})
    return model


def _last_linear(model: nn.Module) -> str | None:
    """The name of the layer that gives the scores; it is empty for a model that is one layer, None if there is none."""
    linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    return linear[-1] if linear else None


def trained_tensors(run: str) -> dict[str, Tensor]:
    """The model of a run's output folder, or of a .safetensors file."""
    path = RunFiles(Path(run)).model if Path(run).is_dir() else Path(run)
    try:
        return load_file(path)
    except FileNotFoundError:
        raise MissingData(f"start_from = {run!r}: there is no {path}; name a finished run's folder") from None
    except (OSError, SafetensorError) as reason:
        raise BadInput("start_from", run, f"cannot be read: {reason}") from None
