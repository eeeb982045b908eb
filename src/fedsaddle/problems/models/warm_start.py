"""Starting from a trained model: to go on with it, or with a new head as in the CODASCA paper."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsaddle.errors import BadInput, MissingData

HEADS = ("auto", "fresh")


def warm_started(model: nn.Module, trained: dict[str, Tensor], head: str = "auto") -> nn.Module:
    """`model` with the tensors of a trained one of the same network.

    The head is its last linear layer. It is taken over where its shapes agree and stays fresh where they do not, such
    as for another number of classes; with `head="fresh"` it stays fresh in any case, for a second stage of training
    with another loss.

    Args:
        model: The network to start.
        trained: A state dict.
        head: "auto" or "fresh".

    Raises:
        BadInput: if the networks differ in another layer than the head.

    Example:
        >>> model, trained = nn.Linear(2, 1), nn.Linear(2, 1)
        >>> torch.equal(warm_started(model, trained.state_dict()).weight, trained.weight)
        True
    """
    if head not in HEADS:
        raise BadInput("head", head, f"choose one of {', '.join(HEADS)}")
    own = model.state_dict()
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
    path = Path(run) / "model.safetensors" if Path(run).is_dir() else Path(run)
    try:
        return load_file(path)
    except FileNotFoundError:
        raise MissingData(f"start_from = {run!r}: there is no {path}; name a finished run's folder") from None
    except (OSError, SafetensorError) as reason:
        raise BadInput("start_from", run, f"cannot be read: {reason}") from None
