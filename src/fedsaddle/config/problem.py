"""From the [problem] and [model] sections of a config to the problem they stand for."""

from __future__ import annotations

from typing import Any

import torch

from fedsaddle.config.registry import LOSSES, MINIMAX, MODELS, PAIR_LOSSES, PAIRWISE, PROBLEMS, RISKS, find
from fedsaddle.config.schema import Config, Named
from fedsaddle.config.validate import checked
from fedsaddle.data.federated import FederatedData
from fedsaddle.errors import BadInput, within
from fedsaddle.problems.models.warm_start import trained_tensors, warm_started
from fedsaddle.problems.nonconvex_pl import NonconvexPl
from fedsaddle.problems.pairwise import PairwiseRisk
from fedsaddle.problems.supervised import Supervised

PICTURES = ("cnn", "vgg11", "densenet121", "resnet18")


def build_problem(config: Config, data: FederatedData) -> Any:
    """The problem, on a model with the shapes that the data ask for."""
    name = config.problem.name
    make = find(PROBLEMS, "problem.name", name)
    fits = _fitting(config.algorithm.name)
    if name not in fits:
        raise BadInput("problem.name", name, f"{config.algorithm.name} is for problem.name = {' or '.join(fits)}")
    if name == "supervised":
        return _supervised(config, data)
    if name == "nonconvex-pl":
        return _simulation(config, data)
    if not data.classes or data.train.y.ndim > 1:
        raise BadInput("problem.name", name, "needs data with classes")
    if name == "pairwise":
        return _pairwise(config, data)
    known = _known(name, data)
    model = build_model(config.model, data, scores_of(config, data))
    with within("problem"):
        options = checked(
            "problem", make, config.problem.options(), built=(*known, "model", "project_x", "project_y", "loss")
        )
        return make(model=model, **known, **options)


def _simulation(config: Config, data: FederatedData) -> NonconvexPl:
    """FedSGDA's simulation, whose rows are (a, b, c) and whose x is a plain vector."""
    if config.model.name != "none":
        raise BadInput("model.name", config.model.name, "nonconvex-pl has no model; say name = 'none'")
    width = data.train.x[0].numel()
    if width % 3:
        raise BadInput("data.name", data.name, f"its rows have {width} numbers, not (a, b, c); use nonconvex-pl")
    known = ("dimension", "project_x", "project_y")
    with within("problem"):
        return NonconvexPl(width // 3, **checked("problem", NonconvexPl, config.problem.options(), built=known))


def _known(name: str, data: FederatedData) -> dict[str, Any]:
    """What a min-max problem takes from the data: shapes, and shares agreed once by counts."""
    y = data.train.y
    if name == "robust":
        return {"shape": tuple(data.train.x.shape[1:])}
    if name == "auc":
        if len(data.classes) != 2:
            raise BadInput("problem.name", "auc", f"needs two classes, the data have {len(data.classes)}")
        return {"positive_share": float(y.double().mean())}
    counts = torch.bincount(y, minlength=len(data.classes)).double()
    if (counts == 0).any():
        raise BadInput("problem.name", name, f"class {data.classes[int(counts.argmin())]!r} has no training rows")
    return {"classes": len(data.classes), "class_shares": counts / counts.sum()}


def _fitting(algorithm: str) -> list[str]:
    """The problems that an algorithm is for."""
    if algorithm in PAIRWISE:
        return ["pairwise"]
    return [p for p in PROBLEMS if p not in ("supervised", "pairwise")] if algorithm in MINIMAX else ["supervised"]


def _pairwise(config: Config, data: FederatedData) -> PairwiseRisk:
    given = config.problem.options()
    name = given.pop("risk", "auc")
    make = find(RISKS, "problem.risk", name)
    outputs = given.pop("outputs", 8) if name == "metric" else 1
    if not isinstance(outputs, int) or outputs < 1:
        raise BadInput("problem.outputs", outputs, "must be a whole number of at least 1")
    if name != "metric" and len(data.classes) != 2:
        raise BadInput("problem.risk", name, f"needs two classes, the data have {len(data.classes)}")
    loss = given.pop("loss") if "loss" in given and name not in ("metric", "p-norm-push") else None
    with within("problem"):
        options = checked("problem", make, given, built=("model", "loss"))
        if loss is not None:
            options["loss"] = _pair_loss(loss)
        risk: PairwiseRisk = make(build_model(config.model, data, scores=outputs), **options)
    return risk


def _pair_loss(given: Any) -> Any:
    """`loss = "sigmoid"`, or `loss = { name = "squared-hinge", margin = 0.5 }`."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, dict) or not isinstance(table.get("name"), str):
        raise BadInput("problem.loss", given, f"choose one of {', '.join(PAIR_LOSSES)}")
    make = find(PAIR_LOSSES, "problem.loss", table["name"])
    options = {k: float(v) if type(v) is int else v for k, v in table.items() if k != "name"}
    return make(**checked("problem.loss", make, options, built=("first_is_higher",)))


def _supervised(config: Config, data: FederatedData) -> Supervised:
    given: dict[str, Any] = {"loss": "cross-entropy", "l2": 0.0}
    given |= checked("problem", _options, config.problem.options())
    name = given["loss"]
    loss = find(LOSSES, "problem.loss", name)()
    if bool(data.classes) == (name == "square"):
        fits = "cross-entropy" if data.classes else "square"
        raise BadInput("problem.loss", name, f"the data are for loss = {fits!r}")
    if name == "logistic" and len(data.classes) != 2:
        remedy = f"needs two classes, the data have {len(data.classes)}; use cross-entropy"
        raise BadInput("problem.loss", "logistic", remedy)
    model = build_model(config.model, data, scores_of(config, data))
    with within("problem"):
        return Supervised(model, loss, given["l2"], config.engine.compile)


def _options(loss: str = "cross-entropy", l2: float = 0.0) -> None:
    """The keys of the supervised problem."""


def scores_of(config: Config, data: FederatedData) -> int:
    """How many scores the model gives: one, one for each class, or as many as a metric is to have."""
    given = config.problem.options()
    if config.problem.name == "supervised":
        return len(data.classes) if given.get("loss", "cross-entropy") == "cross-entropy" else 1
    if config.problem.name == "pairwise":
        return int(given.get("outputs", 8)) if given.get("risk") == "metric" else 1
    return 1 if config.problem.name == "auc" else len(data.classes)


def model_arguments(section: Named, data: FederatedData, scores: int) -> dict[str, Any]:
    """What the model is made with: the shapes the data ask for, and the options of the section."""
    make = find(MODELS, "model.name", section.name)
    row = data.train.x.shape[1:]
    picture = {"channels": row[0], "classes": scores} if len(row) == 3 else {}
    shapes: dict[str, dict[str, int]] = {
        "logistic": {"inputs": row.numel(), "classes": scores},
        "mlp": {"inputs": row.numel(), "outputs": scores},
        "cnn": {**picture, "side": row[-1]},
        "vgg11": picture,
        "densenet121": {**picture, "side": row[-1]},
        "resnet18": {**picture, "side": row[-1]},
        "gru": {"characters": len(data.classes)},
    }
    if section.name in PICTURES and len(row) != 3:
        raise BadInput("model.name", section.name, "needs pictures; say images = true under [data]")
    if section.name == "cnn" and (row[1] != row[2] or row[2] < 4):
        remedy = f"needs square pictures of 4 x 4 pixels or more, these are {row[1]} x {row[2]}; use mlp"
        raise BadInput("model.name", "cnn", remedy)
    is_text = not data.train.x.is_floating_point()
    if (section.name == "gru") != is_text:
        raise BadInput("model.name", section.name, "gru is the model for text, and for nothing else")
    known = shapes[section.name]
    options = {k: v for k, v in section.options().items() if k != "start_from"}
    with within("model"):
        return {**known, **checked("model", make, options, built=known)}


def build_model(section: Named, data: FederatedData, scores: int) -> torch.nn.Module:
    """The model, perhaps with the weights of another run."""
    make, arguments = find(MODELS, "model.name", section.name), model_arguments(section, data, scores)
    trained = section.options().get("start_from")
    with within("model"):
        module: torch.nn.Module = make(**arguments)
        return module if trained is None else warm_started(module, trained_tensors(str(trained)))
