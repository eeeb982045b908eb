"""Starting from a trained model with a new head: cross-entropy first, then AUC, as in the CODASCA paper."""

from __future__ import annotations

from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from fedsaddle.errors import BadInput, MissingData


def warm_started(model: nn.Module, trained: dict[str, Tensor]) -> nn.Module:
    """`model` with every trained tensor but those of its last linear layer, which stays fresh."""
    head = last_linear(model)
    wanted = {k: v for k, v in model.state_dict().items() if k.rpartition(".")[0] != head}
    for key, value in wanted.items():
        if key not in trained:
            raise BadInput("start_from", key, "is not in the trained model; use the same network")
        if trained[key].shape != value.shape:
            shapes = f"{tuple(trained[key].shape)} there, {tuple(value.shape)} here"
            raise BadInput("start_from", key, f"has another shape: {shapes}; use the same network")
    with torch.no_grad():
        model.load_state_dict({**model.state_dict(), **{k: trained[k] for k in wanted}})
    return model


def last_linear(model: nn.Module) -> str:
    """The name of the layer that gives the scores."""
    linear = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    if not linear:
        raise BadInput("start_from", type(model).__name__, "the model has no linear layer to replace")
    return str(linear[-1])


def trained_tensors(run: str) -> dict[str, Tensor]:
    """The model of a run's output folder, or of a .safetensors file."""
    path = Path(run) / "model.safetensors" if Path(run).is_dir() else Path(run)
    try:
        return load_file(path)
    except FileNotFoundError:
        raise MissingData(f"start_from = {run!r}: there is no {path}; name a finished run's folder") from None
    except (OSError, SafetensorError) as reason:
        raise BadInput("start_from", run, f"cannot be read: {reason}") from None
