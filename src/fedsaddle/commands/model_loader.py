"""Write load_model.py, which loads the trained model in plain PyTorch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedsaddle.atomic import write_atomically, write_json
from fedsaddle.config.problem import NamedModel
from fedsaddle.config.registry import MODELS, entry
from fedsaddle.data.federated import FederatedData

WITHOUT_ARGUMENTS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)  # layers without constructor arguments
HEAD = '"""The trained model in plain PyTorch{needs}: `model(rows)` gives the scores."""\n\n'
LOAD = """\
model.load_state_dict(load_file(Path(__file__).with_name("model.safetensors")))
model.eval().requires_grad_(False)
"""
ENCODED = '''

def encoded(row: dict) -> torch.Tensor:
    """Encode a row of the file, {column: cell}, for the model; `model(encoded(row))` is its score."""
    return torch.tensor([
        [
            (float(row[f["column"]]) - f["mean"]) / f["std"] if f["category"] is None
            else float(str(row[f["column"]]) == f["category"])
            for f in json.loads(Path(__file__).with_name("features.json").read_text())
        ]
    ], dtype=next(model.parameters()).dtype)
'''


def write_loader(model: NamedModel, data: FederatedData, module: nn.Module, out: Path) -> None:
    """Write load_model.py and, for tables, features.json."""
    tabular = bool(data.encoding) and data.train.x.ndim == 2
    if data.encoding:
        write_json(out / "features.json", [asdict(feature) for feature in data.encoding])
    source = loader_source(module, entry(MODELS, "model.name", model.section.name).target, model.arguments, tabular)
    write_atomically(out / "load_model.py", source.encode())


def loader_source(module: nn.Module, target: str, arguments: dict[str, Any], tabular: bool) -> str:
    """The source of load_model.py; it imports `target` ("module:name") if the model needs more than plain layers."""
    code, extra, needs = as_code(module), "", ""
    if code is None:
        place, _, name = target.partition(":")
        needs = f", with the class {name} of FedSaddle"
        extra = f"from {place} import {name}\n"
        code = f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
    if next(module.parameters()).dtype == torch.float64:
        code += ".double()"
    imports = ["from pathlib import Path", "", "from safetensors.torch import load_file"]
    if tabular:
        imports = ["import json", *imports[:2], "import torch", *imports[2:]]
    if "nn." in code:
        imports.append("from torch import nn")
    body = f"\n\nmodel = {code}\n" if not extra else f"\n\n{extra}\nmodel = {code}\n"
    return HEAD.format(needs=needs) + "\n".join(imports) + body + LOAD + (ENCODED if tabular else "")


def as_code(module: nn.Module) -> str | None:
    """The Python expression for a chain of plain layers; None for any other module."""
    if type(module) is nn.Sequential:
        parts = [as_code(part) for part in module]
        return None if None in parts else f"nn.Sequential({', '.join(part for part in parts if part)})"
    if type(module) is nn.Linear:
        bias = "" if module.bias is not None else ", bias=False"
        return f"nn.Linear({module.in_features}, {module.out_features}{bias})"
    if type(module) is nn.Flatten and (module.start_dim, module.end_dim) == (1, -1):
        return "nn.Flatten()"
    return f"nn.{type(module).__name__}()" if type(module) in WITHOUT_ARGUMENTS else None
