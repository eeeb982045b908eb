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
from fedsaddle.config.problem import START, NamedModel, build_problem, problem_keys
from fedsaddle.config.registry import (
    ALGORITHMS,
    DATASETS,
    MEASURES,
    MODELS,
    PROBLEMS,
    RISKS,
    SPLITS,
    Entry,
    entry,
    find,
    refuse_keys_of_others,
)
from fedsaddle.config.schema import Config, Experiment, RowsConfig
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.noise import Noise
from fedsaddle.data.splits.partition import Split
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.errors import BadInput, within
from fedsaddle.metrics.measures import Measure, MeasureSpec, measures_of
from fedsaddle.own_code import user_code_errors
from fedsaddle.problems.protocols import Problem


def build_measures(given: Sequence[MeasureSpec], key: str = "measures") -> tuple[Measure, ...]:
    """Build the measures of a run, each name once; errors name `key`."""
    named = isinstance(given, Sequence) and not isinstance(given, str)
    return measures_of([_measure(one, key) for one in given] if named else given)


def _measure(given: MeasureSpec, key: str) -> MeasureSpec:
    """The measure that a name or a table describes, which may be user code; any other value unchanged."""
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
    """Raise `BadInput` for unknown names and keys, and for invalid values of [data], [split] and [algorithm]."""
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
    data = grouped(config, build_data(config))
    with precision(config.run.dtype):
        algorithm, model = build_algorithm(config, data)
        return Setup(cast(data, config.run.dtype), algorithm, model, measures)


def build_on(config: Experiment, data: FederatedData) -> Setup:
    """Build the model, the problem, the algorithm and the measures for given rows."""
    with within("run"):
        measures = build_measures(config.run.measures, "run.measures")
    data = grouped(config, data)
    with precision(config.run.dtype):
        algorithm, model = build_algorithm(config, data)
    return Setup(data, algorithm, model, measures)


GROUP_FAIR = "group-fair"  # the problem whose rows have groups


def grouped(config: Experiment, data: FederatedData) -> FederatedData:
    """The data, with the group of each training row beside its label if the problem is about groups."""
    if config.problem.name != GROUP_FAIR:
        return data
    columns = config.problem.options().get("groups", ())
    if not isinstance(columns, list | tuple) or not all(isinstance(column, str) for column in columns):
        raise BadInput("problem.groups", columns, 'must be a list of columns: groups = ["sex", "age"]')
    with within("problem"):
        return data.with_groups(columns)


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
    """The algorithm, whose clients add noise if [privacy] asks for it; noise for whole clients is the server's."""
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


def load(
    name: str,
    *,
    split: str = "iid",
    seed: int = 0,
    test_share: float = 0.2,
    options: Mapping[str, object] | None = None,
    noise: Noise | None = None,
    stratify: bool = False,
    validation_share: float = 0.0,
    test_clients: Sequence[str] = (),
    **split_options: object,
) -> FederatedData:
    """A data set by name, partitioned between clients.

    Args:
        name: the data set, one of `fedsaddle list datasets`, or a function of your own as "module:name".
        split: how to partition the rows, one of `fedsaddle list splits`, or a class of your own as "module:name".
        seed: keys the split, the held-out rows and the noise.
        test_share: the share of each client's rows to hold out, if the data set has no test set.
        options: arguments of the loader, such as `{"images": True}`.
        noise: noise to add to the training rows.
        stratify: hold out the same share of each class.
        validation_share: the share of each client's rows to hold out for validation, to choose the best round.
        test_clients: names of clients to test on only.
        **split_options: arguments of the split: `clients`, `alpha`, `column` ...

    Raises:
        BadInput: if a name or an option is unknown, or a value is invalid.
        MissingData: if the files of a public data set are not on this machine; explains how to get them.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.load("digits", split="dirichlet", clients=20, alpha=0.3).count
        20
    """
    known_data, known_split = entry(DATASETS, "name", name), entry(SPLITS, "split", split)
    if options is not None and not isinstance(options, Mapping):
        raise BadInput("options", options, 'give a dictionary, such as {"images": True}')
    if noise is not None and not isinstance(noise, Noise):
        raise BadInput("noise", noise, "give fs.Noise(...)")
    rule = _made("splits", known_split, "split", split, check_options("split", known_split.load(), split_options))
    dataset = _made("datasets", known_data, "name", name, check_options("options", known_data.load(), options or {}))
    assert isinstance(rule, Split)
    assert isinstance(dataset, Dataset)
    data = federate(dataset, rule, seed, test_share, stratify, validation_share, test_clients)
    return data if noise is None else noise.apply(data, seed)


def build_data(config: Config) -> FederatedData:
    """Load the rows of a config and partition them between the clients; in one place, where its algorithm wants it."""
    return build_rows(config, config.run.seed, pooled=_is_centralised(config))


def build_rows(config: RowsConfig, seed: int, pooled: bool = False) -> FederatedData:
    """Load rows and partition them between the clients.

    Args:
        config: [data], [split] and [noise].
        seed: keys the split, the held-out rows and the noise.
        pooled: whether all rows are in one place.
    """
    own = config.data
    known_data = entry(DATASETS, "data.name", own.name)
    known_split = entry(SPLITS, "split.name", config.split.name)
    with within("split"):
        given = check_options("split", known_split.load(), config.split.options())
        rule = _made("splits", known_split, "split.name", config.split.name, given)
    options = own.options()
    if "path" in options:
        options["path"] = str(options["path"])
    with within("data"):
        checked = check_options("data", known_data.load(), options)
        dataset = _made("datasets", known_data, "data.name", own.name, checked)
    assert isinstance(rule, Split)
    assert isinstance(dataset, Dataset)
    if own.minimum_cell > 1 and isinstance(dataset.pending, TableFeatures):
        dataset = replace(dataset, pending=dataset.pending.treated(minimum_cell=own.minimum_cell))
    with within("split"):
        data = federate(dataset, rule, seed, own.test_share, own.stratify, own.validation_share, own.test_clients)
    with within("noise"):
        data = Noise(**config.noise.model_dump()).apply(data, seed)
    if pooled:
        data = data.pooled()
    with within("data"):
        share = own.positives_per_batch
        return data if share is None else data.balanced(share)


def _made(group: str, known: Entry, key: str, name: str, options: Mapping[str, object]) -> object:
    """Make the object of a name, and check its type if it is user code."""
    if not known.own:
        made: object = known.load()(**options)
        return made
    with user_code_errors(key, name, known.own):
        made = known.load()(**options)
    require_made(group, key, name, made)
    return made


def _is_centralised(config: Config) -> bool:
    """Whether the algorithm runs on all rows in one place; an unknown algorithm is reported later."""
    known = ALGORITHMS.get(config.algorithm.name)
    bound = {} if known is None else known.fixed
    return bool({**config.algorithm.options(), **bound}.get("centralised", False))
