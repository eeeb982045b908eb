"""From a config to the objects it stands for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from fedsaddle.algorithms.fedx.privacy import ScorePrivacy
from fedsaddle.config.problem import build_problem
from fedsaddle.config.registry import (
    ALGORITHMS,
    DATASETS,
    ESTIMATORS,
    PROJECTIONS,
    REGULARISERS,
    SCHEDULES,
    SPLITS,
    find,
)
from fedsaddle.config.schema import Config
from fedsaddle.config.validate import checked
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure
from fedsaddle.runs.evaluation import asked

PARTS = {
    "regulariser": REGULARISERS,
    "projection": PROJECTIONS,
    "primal_step": SCHEDULES,
    "dual_step": SCHEDULES,
    "local_steps": SCHEDULES,
    "stage_rounds": SCHEDULES,
    "stage_steps": SCHEDULES,
    "estimator": ESTIMATORS,
}


@dataclass(frozen=True)
class Built:
    """A config turned into objects."""

    data: FederatedData
    algorithm: Any
    measures: tuple[Measure, ...] = ()


def build(config: Config) -> Built:
    """Load the data, make the model, the problem and the algorithm; nothing is written."""
    with within("run"):
        measures = asked(config.run.measures, "run.measures")
    data = build_data(config)
    with precision(config.run.dtype):
        return Built(cast(data, config.run.dtype), build_algorithm(config, data), measures)


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
        data = federate(dataset, rule, config.run.seed, config.data.test_share, config.data.stratify)
    with within("noise"):
        data = Noise(**config.noise.model_dump()).apply(data, config.run.seed)
    if config.algorithm.name in ALGORITHMS and getattr(
        find(ALGORITHMS, "algorithm.name", config.algorithm.name), "centralised", False
    ):
        data = data.in_one_place()
    with within("data"):
        share = config.data.positives_per_batch
        return data if share is None else data.balanced(share)


def build_algorithm(config: Config, data: FederatedData) -> Any:
    """Model, problem and algorithm."""
    make = find(ALGORITHMS, "algorithm.name", config.algorithm.name)
    torch.manual_seed(config.run.seed)
    problem = build_problem(config, data)
    options = config.algorithm.options()
    for key, table in PARTS.items():
        if isinstance(options.get(key), dict) or (key in options and table is not SCHEDULES):
            options[key] = build_part(f"algorithm.{key}", table, options[key])
    if config.algorithm.name == "DRFA-Prox" and "regulariser" not in options:
        raise BadInput("algorithm.regulariser", None, "DRFA-Prox needs one: { name = 'kl', strength = 0.1 }")
    with within("algorithm"):
        if "privacy" in options:
            options["privacy"] = _privacy(options["privacy"])
        return make(problem=problem, **checked("algorithm", make, options, built=("problem",)))


def _privacy(given: Any) -> ScorePrivacy:
    """`privacy = { bound = 1.0, noise = 2.0 }`."""
    if not isinstance(given, dict):
        raise BadInput("privacy", given, "write a table: { bound = 1.0, noise = 2.0 }")
    return ScorePrivacy(**checked("algorithm.privacy", ScorePrivacy, given))


def build_part(key: str, table: dict[str, Any], given: Any) -> Any:
    """A regulariser, a projection, a schedule or an estimator from its inline table."""
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise BadInput(key, given, f"write a table with a name, one of {', '.join(table)}")
    make = find(table, f"{key}.name", given["name"])
    options = {k: v for k, v in given.items() if k != "name"}
    if isinstance(options.get("alpha"), dict):
        options["alpha"] = build_part(f"{key}.alpha", SCHEDULES, options["alpha"])
    if isinstance(options.get("stages"), list):
        options["stages"] = [tuple(stage) if isinstance(stage, list) else stage for stage in options["stages"]]
    with within(key):
        return make(**checked(key, make, options, built=("prior",)))


class precision:
    """The default dtype while models are made."""

    def __init__(self, name: str) -> None:
        self.dtype, self.before = getattr(torch, name), torch.get_default_dtype()

    def __enter__(self) -> None:
        torch.set_default_dtype(self.dtype)

    def __exit__(self, *_: object) -> None:
        torch.set_default_dtype(self.before)


def cast(data: FederatedData, dtype: str) -> FederatedData:
    """Features (and real targets) in the precision of the run."""
    test = None if data.test is None else cast_rows(data.test, dtype)
    return replace(data, train=cast_rows(data.train, dtype), test=test)


def cast_rows(rows: Stacked, dtype: str) -> Stacked:
    """The same of some clients' rows."""
    kind = getattr(torch, dtype)
    x, y = (t.to(kind) if t.is_floating_point() else t for t in (rows.x, rows.y))
    return replace(rows, x=x, y=y)
