"""Write load_model.py beside a trained model: plain PyTorch that encodes and scores new rows."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn

from fedsaddle.config.problem import NamedModel
from fedsaddle.config.registry import MODELS, entry
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.tables import parse
from fedsaddle.data.tables.columns import MISSING, MISSING_NUMBER, NOTHING
from fedsaddle.data.tables.judge import LARGEST
from fedsaddle.files import write_atomically, write_json
from fedsaddle.metrics.calibration import Platt, Threshold

WITHOUT_ARGUMENTS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)  # layers without constructor arguments
HEAD = '"""The trained model in plain PyTorch{needs}: `model(rows)` gives the scores{more}."""\n\n'
LOAD = """\
model.load_state_dict(load_file(Path(__file__).with_name("model.safetensors")))
model.eval().requires_grad_(False)
"""
PROBABILITY = '''
SLOPE, INTERCEPT = {slope!r}, {intercept!r}  # from scores to log odds, fitted on validation rows
THRESHOLD = {threshold!r}  # {reason}


def probability(scores: torch.Tensor) -> torch.Tensor:
    """The probability of {positive} for each score."""
    return torch.sigmoid(SLOPE * scores + INTERCEPT)
'''
ENCODED = Path(__file__).with_name("encode_rows.txt")


def write_loader(
    model: NamedModel,
    data: FederatedData,
    module: nn.Module,
    out: Path,
    platt: Platt | None = None,
    threshold: Threshold | None = None,
) -> None:
    """Write load_model.py and, for tables, features.json."""
    tabular = bool(data.encoding) and data.train.x.ndim == 2
    if data.encoding:
        write_json(out / "features.json", [feature.to_dict() for feature in data.encoding])
    target = entry(MODELS, "model.name", model.section.name).target
    encoding = encoding_source(data, platt is not None and threshold is not None) if tabular else ""
    source = loader_source(module, target, model.arguments, encoding)
    if platt is not None and threshold is not None:
        positive = repr(data.classes[1]) if len(data.classes) == 2 else "the positive class"
        source += PROBABILITY.format(
            slope=platt.slope,
            intercept=platt.intercept,
            threshold=threshold.probability,
            reason=threshold.reason,
            positive=positive.encode("unicode_escape").decode().replace('"""', "'"),
        )
        if "\nimport torch\n" not in source:
            source = source.replace("from safetensors.torch import", "import torch\nfrom safetensors.torch import", 1)
    write_atomically(out / "load_model.py", source.encode())


def loader_source(module: nn.Module, target: str, arguments: dict[str, Any], encoding: str) -> str:
    """The source of load_model.py; it imports `target` ("module:name") if the model needs more than plain layers."""
    code, extra, needs = as_code(module), "", ""
    if code is None:
        place, _, name = target.partition(":")
        whose = (
            "FedSaddle"
            if place.startswith("fedsaddle.")
            else f"the module {place}, which must be installed or beside it"
        )
        needs = f", with the class {name} of {whose}"
        extra = f"from {place} import {name}\n"
        code = f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
    if next(module.parameters()).dtype == torch.float64:
        code += ".double()"
    imports = ["from pathlib import Path", "", "from safetensors.torch import load_file"]
    if encoding:
        imports = [f"import {name}" for name in ("difflib", "hashlib", "json", "math", "re", "warnings")]
        imports += ["from collections import Counter", "from datetime import date as day"]
        imports += ["from datetime import datetime, timedelta, timezone"]
        imports += ["from pathlib import Path", "", "import torch", "from safetensors.torch import load_file"]
    if "nn." in code:
        imports.append("from torch import nn")
    body = f"\n\nmodel = {code}\n" if not extra else f"\n\n{extra}\nmodel = {code}\n"
    more = "; `predict(rows)` takes rows of cells" if encoding else ""
    return HEAD.format(needs=needs, more=more) + "\n".join(imports) + body + LOAD + encoding


def encoding_source(data: FederatedData, calibrated: bool) -> str:
    """The functions that check and encode rows, with what the reader of tables goes by filled in.

    Values of category columns that are too rare for a feature are written as digests: the file may be passed on.
    """
    words: dict[str, list[str]] = {}
    rare: dict[str, list[str]] = {}
    for feature in data.encoding:
        if feature.kind in ("category", "other"):
            named = [feature.category or ""] if feature.kind == "category" else list(feature.known)
            words[feature.column] = sorted({*words.get(feature.column, ()), *named})
            rare.setdefault(feature.column, [])
    for column in words:
        pooled = any(f.kind == "other" and f.column == column for f in data.encoding)
        for value in sorted({*data.seen.values.get(column, ())} - {*words[column]}):
            rare[column].append(_digest(column, value)) if pooled else words[column].append(value)
    scores = "model(encoded(rows, strict))"
    filled = {
        "PREDICT": "The probability" if calibrated else "The scores",
        "SCORES": f"probability({scores}).flatten()" if calibrated else scores,
    }
    filled |= {
        name: ascii(value)
        for name, value in {
            "OTHERS": sorted(data.seen.others),
            "WORDS": {column: sorted(values) for column, values in words.items()},
            "RARE": {column: digests for column, digests in rare.items() if digests},
            "MISSING_NUMBER": sorted(MISSING_NUMBER),
            "MISSING": sorted(MISSING),
            "NOTHING": sorted(NOTHING),
            "PLAIN": parse.PLAIN.pattern,
            "CELL": parse.CELL.pattern,
            "POINT": parse.POINT.pattern,
            "COMMA": parse.COMMA.pattern,
            "SPELLING": parse.SPELLING,
            "UNITS": sorted(parse.UNITS),
            "DATES": [shape.pattern for shape in parse.SHAPES],
            "HOUR": parse.HOUR.pattern,
            "MONTHS": parse.MONTHS,
            "LARGEST": LARGEST,
        }.items()
    }
    return re.sub("@([A-Z_]+)@", lambda found: filled[found[1]], ENCODED.read_text(encoding="utf-8"))


def _digest(column: str, value: str) -> str:
    return hashlib.sha256(f"{column}\0{value}".encode()).hexdigest()[:16]


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
