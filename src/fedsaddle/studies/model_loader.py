"""Write load_model.py beside a trained model: plain PyTorch that encodes and scores new rows."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from fedsaddle.config.problem import NamedModel
from fedsaddle.config.registry import MODELS, entry
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.tables import encode_rows
from fedsaddle.documents.files import RunFiles
from fedsaddle.files import write_atomically, write_json
from fedsaddle.metrics.calibration import Platt, Threshold
from fedsaddle.problems.models.forest import Forest, TreeScores, leaves, reached

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
ROWS = '''

FEATURES = json.loads(Path(__file__).with_name("features.json").read_text(encoding="utf-8"))
ENCODER = RowEncoder(
    tuple(map(Encoded.from_dict, FEATURES)),
    words={words},
    rare={rare},  # digests
    others={others},
)


def predict(rows, strict: bool = True):
    """{kind} of rows: a number for a dictionary {{column: cell}}, a list for a list of them or a DataFrame.

    A cell may be text as the file writes it, a number or a date; an empty cell, None or NaN is missing and is imputed.
    Raises ValueError for a column that is unknown or not there, a cell that cannot be read and a category that was not
    seen in training. With strict=False these are warnings; such a cell counts as missing or as another category.
    """
    with torch.no_grad():
        found = {scores}.tolist()
    return found[0] if isinstance(rows, dict) else found


def encoded(rows, strict: bool = True) -> torch.Tensor:
    """Encode rows as `predict` takes them, for the model: `model(encoded(rows))` are their scores."""
    return torch.as_tensor(ENCODER.encode(rows, strict), dtype=next(model.parameters()).dtype)
'''


def write_loader(
    model: NamedModel,
    data: FederatedData,
    module: nn.Module,
    out: Path,
    platt: Platt | None = None,
    threshold: Threshold | None = None,
    prediction: str = "",
) -> None:
    """Write load_model.py and, for tables, features.json; `prediction` is the source of a function of that name."""
    tabular = bool(data.encoding) and data.train.x.ndim == 2
    if data.encoding:
        write_json(RunFiles(out).features, [feature.to_dict() for feature in data.encoding])
    target = entry(MODELS, "model.name", model.section.name).target
    chance, kind, scores = prediction, "The scores", "{}"
    if prediction:
        kind, scores = "The predictions", "prediction({})"
    elif platt is not None and threshold is not None:
        chance = probability_source(platt, threshold, data.classes)
        kind, scores = "The probability", "probability({}).flatten()"
    encoding = encoding_source(data, kind, scores) if tabular else ""
    source = loader_source(module, target, model.arguments, encoding, chance)
    write_atomically(out / "load_model.py", source.encode("ascii", "backslashreplace"))


def loader_source(
    module: nn.Module, target: str, arguments: Mapping[str, object], encoding: str = "", chance: str = ""
) -> str:
    """The source of load_model.py; it imports `target` ("module:name") if the model needs more than plain layers."""
    code, extra, needs = as_code(module), "", ""
    if isinstance(module, Forest):
        code = f"TreeScores({module.inputs}, {module.outputs}, {module.trees}, {module.depth})"
        extra = "\n\n".join(inspect.getsource(part) for part in (reached, leaves, TreeScores)) + "\n\n"
    elif code is None:
        place, _, name = target.partition(":")
        ours = place.startswith("fedsaddle.")
        whose = "FedSaddle" if ours else f"the module {place}, which must be installed or beside it"
        needs = f", with the class {name} of {whose}"
        extra = f"from {place} import {name}\n\n"
        code = f"{name}({', '.join(f'{k}={v!r}' for k, v in arguments.items())})"
    if next(module.parameters()).dtype == torch.float64:
        code += ".double()"
    imports = ["import json"] if encoding else []
    imports += ["from pathlib import Path", ""]
    imports += ["import torch"] if encoding or chance or isinstance(module, Forest) else []
    imports += ["from safetensors.torch import load_file"]
    imports += ["from torch import nn"] if "nn." in code else []
    imports += ["from torch import Tensor, nn"] if isinstance(module, Forest) else []
    head = HEAD.format(needs=needs, more="; `predict(rows)` takes rows of cells" if encoding else "")
    return head + "\n".join(imports) + f"\n\n{extra}model = {code}\n" + LOAD + chance + encoding


def probability_source(platt: Platt, threshold: Threshold, classes: Sequence[str]) -> str:
    """The function that makes probabilities of scores, and the threshold."""
    positive = repr(classes[1]) if len(classes) == 2 else "the positive class"
    return PROBABILITY.format(
        slope=platt.slope,
        intercept=platt.intercept,
        threshold=threshold.probability,
        reason=threshold.reason,
        positive=positive.encode("unicode_escape").decode().replace('"""', "'"),
    )


def encoding_source(data: FederatedData, kind: str, scores: str) -> str:
    """The functions that check and encode rows: a copy of `encode_rows`, with what it needs to know of the columns.

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
            rare[column].append(encode_rows.digest(column, value)) if pooled else words[column].append(value)
    rows = ROWS.format(
        kind=kind,
        scores=scores.format("model(encoded(rows, strict))"),
        words=ascii({column: sorted(values) for column, values in words.items()}),
        rare=ascii({column: digests for column, digests in rare.items() if digests}),
        others=ascii(sorted(data.seen.others)),
    )
    _, _, copied = Path(encode_rows.__file__).read_text(encoding="utf-8").partition('"""\n\nimport')
    return f"\n# How rows are encoded: a copy of {encode_rows.__name__}\n\nimport{copied}{rows}"


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
