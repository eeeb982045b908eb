"""From a config to the objects it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedsaddle.catalogue import ALGORITHMS, DATASETS, MODELS, PROBLEMS, PROJECTIONS, REGULARISERS, SPLITS, find
from fedsaddle.config import Config, Named
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.errors import BadInput, within
from fedsaddle.problems.minimisation import Supervised
from fedsaddle.validate import checked


@dataclass(frozen=True)
class Built:
    """A config turned into objects."""

    data: FederatedData
    algorithm: Any


def build(config: Config) -> Built:
    """Load the data, make the model, the problem and the algorithm; nothing is written."""
    data = build_data(config)
    with _precision(config.run.dtype):
        return Built(_cast(data, config.run.dtype), build_algorithm(config, data))


def build_data(config: Config) -> FederatedData:
    """The rows, dealt out."""
    make_data = find(DATASETS, "data.name", config.data.name)
    make_split = find(SPLITS, "split.name", config.split.name)
    with within("split"):
        rule = make_split(**checked("split", make_split, config.split.options()))
    options = config.data.options()
    if "path" in options:
        options["path"] = str(options["path"])
    with within("data"):
        dataset = make_data(**checked("data", make_data, options))
    with within("split"):
        return federate(dataset, rule, config.run.seed, config.data.test_share)


def build_algorithm(config: Config, data: FederatedData) -> Any:
    """Model, problem and algorithm."""
    loss = find(PROBLEMS, "problem.loss", config.problem.loss)()
    if bool(data.classes) == (config.problem.loss == "square"):
        fits = "cross-entropy" if data.classes else "square"
        raise BadInput("problem.loss", config.problem.loss, f"the data are for loss = {fits!r}")
    if config.problem.loss == "logistic" and len(data.classes) != 2:
        remedy = f"needs two classes, the data have {len(data.classes)}; use cross-entropy"
        raise BadInput("problem.loss", "logistic", remedy)
    torch.manual_seed(config.run.seed)
    model = build_model(config.model, data, scores=len(data.classes) if config.problem.loss == "cross-entropy" else 1)
    problem = Supervised(model, loss, config.problem.l2, config.engine.compile)
    make = find(ALGORITHMS, "algorithm.name", config.algorithm.name)
    options = config.algorithm.options()
    parts = {}
    for key, table in (("regulariser", REGULARISERS), ("projection", PROJECTIONS)):
        if key in options:
            parts[key] = build_part(f"algorithm.{key}", table, options.pop(key))
    if config.algorithm.name == "DRFA-Prox" and "regulariser" not in parts:
        raise BadInput("algorithm.regulariser", None, "DRFA-Prox needs one: { name = 'kl', strength = 0.1 }")
    with within("algorithm"):
        return make(problem=problem, **checked("algorithm", make, {**options, **parts}, built=("problem",)))


def build_model(section: Named, data: FederatedData, scores: int) -> torch.nn.Module:
    """The model, with the shapes the data ask for."""
    make = find(MODELS, "model.name", section.name)
    row = data.train.x.shape[1:]
    shapes: dict[str, dict[str, int]] = {
        "logistic": {"inputs": row.numel(), "classes": scores},
        "mlp": {"inputs": row.numel(), "outputs": scores},
        "cnn": {"channels": row[0], "side": row[-1], "classes": scores} if len(row) == 3 else {},
        "gru": {"characters": len(data.classes)},
    }
    if section.name == "cnn" and len(row) != 3:
        raise BadInput("model.name", "cnn", "needs pictures; say images = true under [data]")
    if section.name == "cnn" and (row[1] != row[2] or row[2] < 4):
        remedy = f"needs square pictures of 4 x 4 pixels or more, these are {row[1]} x {row[2]}; use mlp"
        raise BadInput("model.name", "cnn", remedy)
    is_text = not data.train.x.is_floating_point()
    if (section.name == "gru") != is_text:
        raise BadInput("model.name", section.name, "gru is the model for text, and for nothing else")
    known = shapes[section.name]
    with within("model"):
        module: torch.nn.Module = make(**known, **checked("model", make, section.options(), built=known))
    return module


def build_part(key: str, table: dict[str, Any], given: Any) -> Any:
    """A regulariser or a projection from its inline table."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise BadInput(key, given, f"write a table with a name, one of {', '.join(table)}")
    make = find(table, f"{key}.name", given["name"])
    with within(key):
        return make(**checked(key, make, {k: v for k, v in given.items() if k != "name"}, built=("prior",)))


class _precision:
    """The default dtype while models are made."""

    def __init__(self, name: str) -> None:
        self.dtype, self.before = getattr(torch, name), torch.get_default_dtype()

    def __enter__(self) -> None:
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self.before)


def _cast(data: FederatedData, dtype: str) -> FederatedData:
    """Features (and real targets) in the precision of the run."""
    kind = getattr(torch, dtype)

    def cast(t: torch.Tensor) -> torch.Tensor:
        return t.to(kind) if t.is_floating_point() else t

    def each(rows: Any) -> Any:
        return None if rows is None else replace(rows, x=cast(rows.x), y=cast(rows.y))

    return replace(data, train=each(data.train), test=each(data.test))
