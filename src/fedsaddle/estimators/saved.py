"""A fitted estimator as one safetensors file: the weights as tensors, all else as JSON in its header; no pickle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from fedsaddle import __version__
from fedsaddle.arguments import path as file_path
from fedsaddle.atomic import write_atomically
from fedsaddle.config.lookup import find
from fedsaddle.config.registry import MODELS
from fedsaddle.errors import BadInput, FedSaddleError, MissingData
from fedsaddle.writable import make_folder

FORMAT = 1
KEY = "fedsaddle"  # of the header
LARGEST = 1 << 28  # characters of the header
DAMAGED = "is no estimator that `save` wrote, or is damaged; save it again"


def write(path: object, content: dict[str, Any], module: nn.Module) -> Path:
    """Write a file, atomically."""
    target = file_path("path", path)
    if target.is_dir():
        raise BadInput("path", str(target), "is a folder; name a file in it, such as model.safetensors")
    make_folder("path", target.parent)
    state = module.state_dict().items()
    tensors = {k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in state}
    head = {"format": FORMAT, "version": __version__, **content}
    write_atomically(target, save(tensors, {KEY: json.dumps(head, ensure_ascii=False, allow_nan=False)}))
    return target


def read(path: object, kind: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The content of a file that `write` wrote for an estimator of this kind, and the weights."""
    source = file_path("path", path)
    if not source.exists():
        raise MissingData(f"{source} does not exist; check the path of the saved estimator")
    if not source.is_file():
        raise BadInput("path", str(source), "is no file; name the file that `save` wrote")
    try:
        with safe_open(str(source), framework="pt") as file:
            head = (file.metadata() or {}).get(KEY, "")
            content = json.loads(head) if len(head) <= LARGEST else None
            if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
                raise BadInput("path", str(source), DAMAGED)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError):
        raise BadInput("path", str(source), DAMAGED) from None
    if content.get("format") != FORMAT:
        remedy = f"has the format {content.get('format')!r}, this version reads {FORMAT}; use the version that wrote it"
        raise BadInput("path", str(source), remedy)
    if content["kind"] != kind:
        raise BadInput("path", str(source), f"holds a {content['kind']!r}; load it with that class")
    return content, tensors


def rebuilt(path: object, network: dict[str, Any], tensors: dict[str, Tensor]) -> nn.Module:
    """The model that a file names, with the weights of the file; nothing is allocated before they fit."""
    try:
        with torch.device("meta"):
            module: nn.Module = find(MODELS, "model", network["name"])(**network["arguments"])
        module.load_state_dict(tensors, strict=True, assign=True)
    except (FedSaddleError, RuntimeError, TypeError, KeyError, ValueError):
        raise BadInput("path", str(path), DAMAGED) from None
    return module


def plain(key: str, value: Any) -> Any:
    """The value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(k): plain(f"{key}.{k}", v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(key, v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise BadInput(key, value, "cannot be saved; write it as a number, text or dictionary, as in a config")


def array_to_dict(key: str, array: Any) -> dict[str, Any]:
    """An array of labels or names."""
    if array.dtype.kind not in "OUiufb":
        raise BadInput(key, str(array.dtype), "cannot be saved; use numbers or text")
    return {"dtype": array.dtype.str, "values": plain(key, array.tolist())}


def array_from_dict(given: dict[str, Any]) -> Any:
    """The array that `array_to_dict` wrote."""
    dtype = np.dtype(given["dtype"])
    if dtype.kind not in "OUiufb":
        raise ValueError("no labels")
    return np.array(given["values"], dtype=dtype)
