"""Build the objects that a config describes; make an algorithm by its name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

import torch

from fedsaddle.algorithms.anderson import Anderson
from fedsaddle.algorithms.personal import Personal
from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.arguments import did_you_mean, whole
from fedsaddle.config.arguments import arguments_of, check_options
from fedsaddle.config.code_kinds import require_made
from fedsaddle.config.data import build_data
from fedsaddle.config.problem import START, NamedModel, build_problem, problem_keys
from fedsaddle.config.registry import (
    ALGORITHMS,
    DATASETS,
    MEASURES,
    MODELS,
    PROBLEMS,
    RISKS,
    SPLITS,
    entry,
    find,
    refuse_keys_of_others,
)
from fedsaddle.config.schema import Config, Experiment
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure, MeasureSpec, measures_of
from fedsaddle.own_code import user_code_errors
from fedsaddle.problems.protocols import Problem


def build_measures(given: Sequence[MeasureSpec], key: str = "measures") -> tuple[Measure, ...]:
    """Build the measures of a run, each name once; errors name `key`."""
    named = isinstance(given, Sequence) and not isinstance(given, str)
    return measures_of([_measure(one, key) for one in given] if named else given)


def _measure(given: MeasureSpec, key: str) -> MeasureSpec:
    """The measure that a name or a table means, which may be that of own code; anything else as it is."""
    table = {"name": given} if isinstance(given, str) else given
    if not isinstance(table, Mapping) or not isinstance(table.get("name"), str):
        return given
    name, options = table["name"], {option: value for option, value in table.items() if option != "name"}
    known = entry(MEASURES, key, name)
    make, section = known.load(), f"{key}.{name}"
    options = check_options(section, make, options)
    with within(section), user_code_errors(key, name, known.own):
        measure: Measure = make(**options)
    if known.own:
        require_made("measures", key, name, measure)
    return measure


PATHS = ("path", "test_path", "folder")  # of [data]; real sites have their own


def check_keys(config: Config) -> None:
    """Raise `BadInput` for a name or a key that nobody knows, and for values of [data], [split] and [algorithm]."""
    data, split = config.data, config.split
    options = {key: value for key, value in data.options().items() if key not in PATHS}
    check_options("data", find(DATASETS, "data.name", data.name), options, built=PATHS)
    check_options("split", find(SPLITS, "split.name", split.name), split.options())
    known = entry(ALGORITHMS, "algorithm.name", config.algorithm.name)
    options = config.algorithm.options()
    if "local_layers" in options:
        remedy = "is for simulated runs: real sites are measured with one model for all; leave it out"
        raise BadInput("algorithm.local_layers", options["local_layers"], remedy)
    memory = options.pop(MIXING, None)
    if memory is not None:
        whole(f"algorithm.{MIXING}", memory, least=0)
    given, make = known.bind("algorithm", config.algorithm.name, options), known.load()
    refuse_keys_of_others("algorithm", config.algorithm.name, options)
    with within("algorithm"):
        arguments_of("algorithm", make, given, built=("problem",))
    model = find(MODELS, "model.name", config.model.name)
    require_known("model", config.model.options(), [*_parameters(model), *START])
    _check_problem(config)


def _check_problem(config: Config) -> None:
    name, options = config.problem.name, config.problem.options()
    known = entry(PROBLEMS, "problem.name", name)
    if known.kind != "pairwise" or known.own:
        require_known("problem", options, problem_keys(known))
        return
    risk = find(RISKS, "problem.risk", options.get("risk", "auc"))
    names = [key for key in _parameters(risk) if key != "model"]
    require_known("problem", options, ["risk", "outputs", *names])


def require_known(section: str, given: Mapping[str, object], known: Collection[str]) -> None:
    """Refuse keys that are not known, with the nearest one that is."""
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise BadInput(f"{section}.{key}", value, f"unknown key; {hint}known keys: {', '.join(known) or 'none'}")


def _parameters(make: Callable[..., object]) -> list[str]:
    return [name for name in inspect.signature(make).parameters if name != "self"]


LOCAL_LAYERS = "local_layers"  # a key of every algorithm that averages models
MIXING = "anderson"  # a key of every algorithm whose rounds are deterministic


@dataclass(frozen=True)
class Setup:
    """The objects that a config describes."""

    data: FederatedData
    algorithm: AnyAlgorithm
    model: NamedModel
    measures: tuple[Measure, ...] = ()


def build(config: Config) -> Setup:
    """Build the data, the model, the problem and the algorithm; write nothing."""
    with within("run"):
        measures = build_measures(config.run.measures, "run.measures")
    data = build_data(config)
    with precision(config.run.dtype):
        algorithm, model = build_algorithm(config, data)
        return Setup(cast(data, config.run.dtype), algorithm, model, measures)


def build_on(config: Experiment, data: FederatedData) -> Setup:
    """Build the model, the problem, the algorithm and the measures for rows that are at hand."""
    with within("run"):
        measures = build_measures(config.run.measures, "run.measures")
    with precision(config.run.dtype):
        algorithm, model = build_algorithm(config, data)
    return Setup(data, algorithm, model, measures)


def build_algorithm(
    config: Experiment, data: FederatedData, counts: Sequence[int] | None = None
) -> tuple[AnyAlgorithm, NamedModel]:
    """Build the model, the problem and the algorithm; `counts` are rows of each class, or None: of `data`."""
    name = config.algorithm.name
    known = entry(ALGORITHMS, "algorithm.name", name)
    torch.manual_seed(config.run.seed)
    problem, model = build_problem(config, data, counts)
    given = config.algorithm.options()
    layers, memory = given.pop(LOCAL_LAYERS, None), given.pop(MIXING, None)
    options, make = known.bind("algorithm", name, given), known.load()
    refuse_keys_of_others("algorithm", name, given)
    with within("algorithm"), user_code_errors("algorithm.name", name, known.own):
        algorithm: AnyAlgorithm = make(problem=problem, **arguments_of("algorithm", make, options, built=("problem",)))
        return private(config, with_mixing(with_local_layers(algorithm, layers), memory)), model


def algorithm(
    name: str,
    *,
    problem: Problem,
    local_layers: Sequence[str] | None = None,
    anderson: int | None = None,
    **options: object,
) -> AnyAlgorithm:
    """An algorithm by name, with the arguments that the name fixes: AFL is DRFA with one local step.

    Args:
        name: one of `fedsaddle list algorithms`, or a class of your own as "module:name".
        problem: the problem to solve.
        local_layers: names of layers that stay at the clients, such as `["2.*"]`; None: all are averaged.
        anderson: memory of Anderson mixing at the server, for algorithms with deterministic rounds; None: no mixing.
        **options: arguments of the algorithm, as objects or in the form of a config.

    Raises:
        BadInput: if a name or an option is unknown, or a value is invalid.

    Examples:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.algorithm("AFL", problem=problem, dual_step=0.01).local_steps
        1
    """
    known = entry(ALGORITHMS, "name", name)
    make = known.load()
    given = known.bind("options", name, options)
    refuse_keys_of_others("options", name, options)
    with user_code_errors("name", name, known.own):
        found: AnyAlgorithm = make(problem=problem, **arguments_of("options", make, given, built=("problem",)))
    return with_mixing(with_local_layers(found, local_layers), anderson)


def with_mixing(algorithm: AnyAlgorithm, memory: int | None) -> AnyAlgorithm:
    """The algorithm, with Anderson mixing of the server's iterates if a memory is given."""
    if memory is None:
        return algorithm
    try:
        return Anderson(algorithm, memory)
    except BadInput as reason:
        raise reason if reason.key != "memory" else BadInput(MIXING, reason.value, reason.remedy) from None


def with_local_layers(algorithm: AnyAlgorithm, layers: Sequence[str] | None) -> AnyAlgorithm:
    """The algorithm, with layers that stay at the clients if some are named."""
    if layers is None:
        return algorithm
    try:
        return Personal(algorithm=algorithm, layers=layers)
    except BadInput as reason:
        raise reason if reason.key != "layers" else BadInput(LOCAL_LAYERS, reason.value, reason.remedy) from None


def private(config: Experiment, algorithm: AnyAlgorithm) -> AnyAlgorithm:
    """The algorithm, made private by its clients if [privacy] says so; for whole clients the server does it."""
    settings = config.privacy.settings(config.run.rounds)
    if settings is None or settings.unit == "client":
        return algorithm
    from fedsaddle.privacy.private import Private

    if isinstance(config, Config) and config.data.positives_per_batch is not None:
        remedy = "samples rows by label and so leaks labels; not available with [privacy]"
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
