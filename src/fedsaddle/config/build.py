"""Build the data, model, problem, algorithm and measures of a config; load data and algorithms by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.parts import arguments_of
from fedsaddle.config.problem import NamedModel, build_problem
from fedsaddle.config.registry import ALGORITHMS, DATASETS, MEASURES, SPLITS, entry, find
from fedsaddle.config.schema import Config
from fedsaddle.config.validate import check_options
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure
from fedsaddle.problems.protocols import Problem

MeasureSpec = str | Mapping[str, Any] | Measure  # a name, a table with a name and options, or an object


@dataclass(frozen=True)
class Experiment:
    """The objects that a config describes."""

    data: FederatedData
    algorithm: Algorithm[Any]
    model: NamedModel
    measures: tuple[Measure, ...] = ()


def build(config: Config) -> Experiment:
    """Build the data, the model, the problem and the algorithm; write nothing."""
    with within("run"):
        measures = build_measures(config.run.measures, "run.measures")
    data = build_data(config)
    with precision(config.run.dtype):
        algorithm, model = build_algorithm(config, data)
        return Experiment(cast(data, config.run.dtype), algorithm, model, measures)


def build_data(config: Config) -> FederatedData:
    """Load the rows and partition them between the clients."""
    make_data = find(DATASETS, "data.name", config.data.name)
    make_split = find(SPLITS, "split.name", config.split.name)
    with within("split"):
        rule = make_split(**check_options("split", make_split, config.split.options()))
    options = config.data.options()
    if "path" in options:
        options["path"] = str(options["path"])
    with within("data"):
        dataset = make_data(**check_options("data", make_data, options))
    with within("split"):
        data = federate(dataset, rule, config.run.seed, config.data.test_share, config.data.stratify)
    with within("noise"):
        data = Noise(**config.noise.model_dump()).apply(data, config.run.seed)
    if _is_centralised(config):
        data = data.in_one_place()
    with within("data"):
        share = config.data.positives_per_batch
        return data if share is None else data.balanced(share)


def _is_centralised(config: Config) -> bool:
    """Whether the algorithm runs on all rows in one place; an unknown algorithm is reported later."""
    known = ALGORITHMS.get(config.algorithm.name)
    bound = {} if known is None else known.fixed
    return bool({**config.algorithm.options(), **bound}.get("centralised", False))


def build_algorithm(config: Config, data: FederatedData) -> tuple[Algorithm[Any], NamedModel]:
    """Build the model, the problem and the algorithm."""
    name = config.algorithm.name
    known = entry(ALGORITHMS, "algorithm.name", name)
    torch.manual_seed(config.run.seed)
    problem, model = build_problem(config, data)
    options, make = known.bind("algorithm", name, config.algorithm.options()), known.load()
    with within("algorithm"):
        algorithm: Algorithm[Any] = make(
            problem=problem, **arguments_of("algorithm", make, options, built=("problem",))
        )
    return algorithm, model


def algorithm(name: str, *, problem: Problem, **options: Any) -> Algorithm[Any]:
    """An algorithm by name, with the arguments that the name fixes: AFL is DRFA with one local step.

    Args:
        name: one of `fedsaddle list algorithms`.
        problem: the problem to solve.
        **options: arguments of the algorithm, as objects or in the form of a config.

    Raises:
        BadInput: if a name or an option is unknown, or a value is invalid.

    Example:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.algorithm("AFL", problem=problem, dual_step=0.01).local_steps
        1
    """
    known = entry(ALGORITHMS, "name", name)
    make = known.load()
    given = known.bind("options", name, options)
    found: Algorithm[Any] = make(problem=problem, **arguments_of("options", make, given, built=("problem",)))
    return found


def build_measures(given: Sequence[MeasureSpec], key: str = "measures") -> tuple[Measure, ...]:
    """Build the measures of a run, each name once; errors name `key`."""
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        raise BadInput("measures", given, f"give a list of measures: {', '.join(MEASURES)}")
    found = tuple(_measure(one, key) for one in given)
    names = [measure.name for measure in found]
    for name in names:
        if names.count(name) > 1:
            raise BadInput("measures", name, "is listed twice; keep one")
    return found


def _measure(given: MeasureSpec, key: str) -> Measure:
    if not isinstance(given, str | Mapping):
        if isinstance(given, type) or not isinstance(given, Measure) or not callable(given):
            raise BadInput("measures", given, "your own measure needs a name and __call__(position)")
        return given
    table = {"name": given} if isinstance(given, str) else dict(given)
    if not isinstance(table.get("name"), str):
        raise BadInput("measures", given, f"write a name, or a table with a name; names are {', '.join(MEASURES)}")
    make = find(MEASURES, key, table.pop("name"))
    options = check_options(f"{key}.{make.name}", make, table)
    with within(f"{key}.{make.name}"):
        measure: Measure = make(**options)
    return measure


def load(
    name: str, *, split: str = "iid", seed: int = 0, test_share: float = 0.2, options: dict[str, Any] | None = None,
    noise: Noise | None = None, stratify: bool = False, **split_options: Any,
) -> FederatedData:  # fmt: skip
    """A data set by name, partitioned between clients.

    Args:
        name: the data set, one of `fedsaddle list datasets`.
        split: how to partition the rows, one of `fedsaddle list splits`.
        seed: keys the split, the held-out rows and the noise.
        test_share: the share of each client's rows to hold out, if the data set has no test set.
        options: arguments of the loader, such as `{"images": True}`.
        noise: noise to add to the training rows.
        stratify: hold out the same share of each class.
        **split_options: arguments of the split: `clients`, `alpha`, `column` ...

    Raises:
        BadInput: if a name or an option is unknown, or a value is invalid.
        MissingData: if the files of a public data set are not on this machine; explains how to get them.

    Example:
        >>> import fedsaddle as fs
        >>> fs.load("digits", split="dirichlet", clients=20, alpha=0.3).count
        20
    """
    make_data, make_split = find(DATASETS, "name", name), find(SPLITS, "split", split)
    if options is not None and not isinstance(options, dict):
        raise BadInput("options", options, 'give a dictionary, such as {"images": True}')
    if noise is not None and not isinstance(noise, Noise):
        raise BadInput("noise", noise, "give fs.Noise(...)")
    rule = make_split(**check_options("split", make_split, split_options))
    data = federate(make_data(**check_options("options", make_data, options or {})), rule, seed, test_share, stratify)
    return data if noise is None else noise.apply(data, seed)


@contextmanager
def precision(name: str) -> Iterator[None]:
    """Set torch's default dtype while models are built."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, name))
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def cast(data: FederatedData, dtype: str) -> FederatedData:
    """Cast features and real targets to the precision of the run."""
    test = None if data.test is None else cast_rows(data.test, dtype)
    return replace(data, train=cast_rows(data.train, dtype), test=test)


def cast_rows(rows: Stacked, dtype: str) -> Stacked:
    """Cast features and real targets of some rows."""
    kind = getattr(torch, dtype)
    x, y = (t.to(kind) if t.is_floating_point() else t for t in (rows.x, rows.y))
    return replace(rows, x=x, y=y)
