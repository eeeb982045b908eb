"""Build the objects that a config describes; make an algorithm by its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from fedsaddle.algorithms.personal import Personal
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.config.data import build_data
from fedsaddle.config.lookup import entry, refuse_keys_of_others
from fedsaddle.config.measures import build_measures
from fedsaddle.config.own_code import told_in_one_line
from fedsaddle.config.parts import arguments_of
from fedsaddle.config.problem import NamedModel, build_problem
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure
from fedsaddle.problems.protocols import Problem

LOCAL_LAYERS = "local_layers"  # a key of every algorithm that averages models


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


def build_algorithm(
    config: Config, data: FederatedData, counts: Sequence[int] | None = None
) -> tuple[Algorithm[Any], NamedModel]:
    """Build the model, the problem and the algorithm; `counts` are rows of each class, or None: of `data`."""
    name = config.algorithm.name
    known = entry(ALGORITHMS, "algorithm.name", name)
    torch.manual_seed(config.run.seed)
    problem, model = build_problem(config, data, counts)
    given = config.algorithm.options()
    layers = given.pop(LOCAL_LAYERS, None)
    options, make = known.bind("algorithm", name, given), known.load()
    refuse_keys_of_others("algorithm", name, given)
    with within("algorithm"), told_in_one_line("algorithm.name", name, known.own):
        algorithm: Algorithm[Any] = make(
            problem=problem, **arguments_of("algorithm", make, options, built=("problem",))
        )
        return private(config, with_local_layers(algorithm, layers)), model


def algorithm(name: str, *, problem: Problem, **options: Any) -> Algorithm[Any]:
    """An algorithm by name, with the arguments that the name fixes: AFL is DRFA with one local step.

    Args:
        name: one of `fedsaddle list algorithms`, or a class of your own as "module:name".
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
    layers = options.pop(LOCAL_LAYERS, None)
    given = known.bind("options", name, options)
    refuse_keys_of_others("options", name, options)
    with told_in_one_line("name", name, known.own):
        found: Algorithm[Any] = make(problem=problem, **arguments_of("options", make, given, built=("problem",)))
    return with_local_layers(found, layers)


def with_local_layers(algorithm: Algorithm[Any], layers: Any) -> Algorithm[Any]:
    """The algorithm, with layers that stay at the clients if some are named."""
    if layers is None:
        return algorithm
    try:
        return Personal(algorithm=algorithm, layers=layers)
    except BadInput as reason:
        raise reason if reason.key != "layers" else BadInput(LOCAL_LAYERS, reason.value, reason.remedy) from None


def private(config: Config, algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The algorithm, made private by its clients if [privacy] says so; for whole clients the server does it."""
    settings = config.privacy.settings(config.run.rounds)
    if settings is None or settings.unit == "client":
        return algorithm
    from fedsaddle.privacy.private import Private

    if config.data.positives_per_batch is not None:
        remedy = "draws rows by their label, which tells it; leave it out with [privacy]"
        raise BadInput("data.positives_per_batch", config.data.positives_per_batch, remedy)
    return Private(algorithm=algorithm, privacy=settings)


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
    validation, test = (None if rows is None else cast_rows(rows, dtype) for rows in (data.validation, data.test))
    return replace(data, train=cast_rows(data.train, dtype), validation=validation, test=test)


def cast_rows(rows: Stacked, dtype: str) -> Stacked:
    """Cast features and real targets of some rows."""
    kind = getattr(torch, dtype)
    x, y = (t.to(kind) if t.is_floating_point() else t for t in (rows.x, rows.y))
    return replace(rows, x=x, y=y)
