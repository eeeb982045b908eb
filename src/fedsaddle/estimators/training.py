"""Train the model of an estimator: rows to clients, parameters to an experiment by `studies.recipes`, and a run."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypedDict

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn

from fedsaddle.arguments import MAX_ROUNDS, number, optional, text, whole
from fedsaddle.array_types import Floats
from fedsaddle.config.build import build_on
from fedsaddle.config.registry import ALGORITHMS, PROBLEMS, Entry, entry
from fedsaddle.config.run_config import run_config
from fedsaddle.config.schema import Experiment, validate_experiment
from fedsaddle.data.arrays import SITE, column_names, number_columns, rows_dataset, site_names
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.splits import Iid, Natural
from fedsaddle.data.table import GROUP, Array
from fedsaddle.data.tables.columns import RawColumn, require, tidy_names
from fedsaddle.data.tables.features import TableFeatures
from fedsaddle.data.tables.later_rows import Encoder
from fedsaddle.data.tables.own import treatment
from fedsaddle.data.tables.read import check_names, read_table
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, Record
from fedsaddle.numerics.schedules import Schedule
from fedsaddle.privacy.settings import Privacy
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.result import Result
from fedsaddle.studies.recipes import (
    TREES,
    VALIDATION_SHARE,
    WORST,
    default_step,
    problem_for,
    problem_section,
    stages,
    taken,
)

if TYPE_CHECKING:
    import pandas as pd
    from sklearn.base import BaseEstimator

    TableLike: TypeAlias = ArrayLike | pd.DataFrame

Step = float | str | Mapping[str, Json] | Schedule


class Parameters(Protocol):
    """The parameters of an estimator, as `FederatedClassifier` explains them."""

    algorithm: str
    model: str | Mapping[str, object]
    problem: str | Mapping[str, object] | None
    rounds: int
    local_steps: int
    batch_size: int
    primal_step: Step
    options: Mapping[str, object] | None
    clients: int
    site_intercept: bool
    hinges: int
    numeric: Sequence[str]
    categorical: Sequence[str]
    validation_share: float | str
    select: str
    patience: int | None
    privacy: Privacy | Mapping[str, object] | None
    random_state: int | np.random.RandomState | None
    verbose: bool | int


class Network(TypedDict):
    """A model by its name and its arguments."""

    name: str
    arguments: dict[str, object]


NOWHERE = ""  # the name of the site of rows whose site is not known


@dataclass(frozen=True, eq=False)
class InputRows:
    """Rows as given by the user; `sites` is None if no sites are named."""

    cells: Array | pd.DataFrame  # a matrix of numbers, or a DataFrame
    names: tuple[str, ...]  # of all columns, by their place
    sites: Array | None
    site: str | None  # the column of sites, which is no feature
    listed: bool  # whether all columns are features, as those of a matrix are
    groups: Array | None = None  # of each row, of the problem "group-fair"

    @classmethod
    def of(
        cls,
        estimator: BaseEstimator,
        X: TableLike,
        sites: ArrayLike | None,
        site: object,
        training: bool,
    ) -> InputRows:
        """Check the rows as scikit-learn does, and take the sites from where they are named."""
        if not hasattr(X, "iloc") and hasattr(X, "to_pandas"):
            X = X.to_pandas()
        framed = hasattr(X, "iloc") and hasattr(X, "columns")
        if framed:
            labels = list(getattr(X, "columns"))  # noqa: B009
            names = tuple(tidy_names(labels)[0])
            if len({isinstance(name, str) for name in labels}) > 1:
                raise BadInput("X.columns", labels[:5], "must all be text; use X.columns.astype(str)")
            validate_data(estimator, X, skip_check_array=True, reset=training)
            cells = X
        else:
            cells = validate_data(estimator, X, dtype=None, ensure_all_finite="allow-nan", reset=training)
            names = tuple(column_names(cells.shape[1]))
            if cells.dtype.kind not in "fiub":
                import pandas as pd

                cells = pd.DataFrame(cells, columns=list(names))
        if not training:
            names = tuple(estimator.columns_)
        own = _sites(cells, names, sites, site, framed, training)
        column = None if site is None else str(site)
        return cls(cells, names, own, column, not framed)

    def __len__(self) -> int:
        return len(self.cells)

    def in_groups(self, groups: ArrayLike | None) -> InputRows:
        """The rows with the group of each."""
        if groups is None:
            return self
        if isinstance(groups, str):
            raise BadInput("subgroups", groups, "must have one entry for each row, such as X[column]")
        found = np.asarray(groups)
        if found.shape != (len(self),):
            raise BadInput("subgroups", f"shape {found.shape}", f"X has {len(self)} rows; give one group for each")
        return replace(self, groups=found.astype(str))

    def columns(
        self, numeric: Sequence[str], categorical: Sequence[str]
    ) -> tuple[tuple[RawColumn, ...], tuple[str, ...]]:
        """The feature columns, and notes about them."""
        check_names("numeric", numeric)
        check_names("categorical", categorical)
        if isinstance(self.cells, np.ndarray) and not numeric and not categorical:
            return number_columns(self.cells, self.names), ()
        import pandas as pd

        frame = pd.DataFrame(self.cells) if isinstance(self.cells, np.ndarray) else self.cells
        raw = read_table(
            frame.set_axis(list(self.names), axis=1),
            roles={},
            features=list(self.names) if self.listed else None,
            numeric=list(numeric),
            categorical=list(categorical),
            ignore=() if self.site is None else (self.site,),
        )
        return raw.features, raw.notes


def _sites(
    cells: Array | pd.DataFrame,
    names: tuple[str, ...],
    sites: ArrayLike | None,
    site: object,
    framed: bool,
    training: bool,
) -> Array | None:
    """The site of each row; where it is missing, training refuses it, and later rows are from nowhere."""
    missing = None if training else NOWHERE
    if site is not None:
        if not framed:
            raise BadInput("site", site, "names a column of a DataFrame, but X is an array; give sites= to fit instead")
        if sites is not None:
            raise BadInput("sites", "given", f"the column {site!r} of X names the sites already; leave one of them out")
        place = names.index(require(text("site", site), names, "site"))
        assert not isinstance(cells, np.ndarray)
        return site_names("sites", cells.iloc[:, place], missing)
    if sites is None:
        return None
    if isinstance(sites, str):
        remedy = f"must have one entry for each row; for a column of X, make the estimator with site={sites!r}"
        raise BadInput("sites", sites, remedy)
    found = site_names("sites", sites, missing)
    if len(found) != len(cells):
        raise BadInput("len(sites)", len(found), f"X has {len(cells)} rows; give one entry for each row")
    return found


EVALUATIONS = 25  # of a run that chooses its round, or that is watched
BLOCK = 4096  # rows that are scored at once


@dataclass(frozen=True, eq=False)
class TrainedModel:
    """What came of training."""

    network: Network
    module: nn.Module
    encoder: Encoder
    data: FederatedData
    experiment: Experiment
    result: Result
    notes: tuple[str, ...]


def train(
    parameters: Parameters, rows: InputRows, labels: Array, classes: Sequence[str], patients: ArrayLike | None
) -> TrainedModel:
    """Train on these rows; `labels` are codes of the classes, or targets if there are none."""
    seed = seed_of(parameters.random_state)
    data, pending, notes = client_rows(parameters, rows, labels, classes, patients, seed)
    experiment = experiment_of(parameters, len(classes), len(data.train.y), seed)
    known, options = ALGORITHMS[experiment.algorithm.name], experiment.algorithm.options()
    if {**options, **known.fixed}.get("centralised"):
        data = data.pooled()
    with torch.random.fork_rng(devices=[]):
        setup = build_on(experiment, data)
    select = _selection(parameters.select, experiment, data)
    watched = data.validation is not None or parameters.verbose
    rounds, patience = experiment.run.rounds, optional(whole, "patience", parameters.patience)
    evaluated = {
        "evaluate_every": max(1, rounds // EVALUATIONS) if watched else rounds,
        "select": select,
        "patience": patience if select else None,
    }
    result = run_config(
        experiment.model_copy(update={"run": experiment.run.model_copy(update=evaluated)}),
        setup,
        callbacks=[LambdaCallback(on_round=_tell)] if parameters.verbose else (),
    )
    network: Network = {"name": experiment.model.name, "arguments": setup.model.arguments}
    encoder = Encoder.of(data.encoding, pending, parameters.numeric)
    return TrainedModel(network, scoring(result.module()), encoder, data, experiment, result, notes)


def client_rows(
    parameters: Parameters,
    rows: InputRows,
    labels: Array,
    classes: Sequence[str],
    patients: ArrayLike | None,
    seed: int,
) -> tuple[FederatedData, TableFeatures, tuple[str, ...]]:
    """The rows of each client, encoded with statistics of the training rows."""
    columns, notes = rows.columns(parameters.numeric, parameters.categorical)
    several = rows.sites is not None and len(np.unique(rows.sites)) > 1
    how = treatment(True, parameters.hinges, parameters.site_intercept)
    if how.site_intercept and not several:
        how = treatment(True, parameters.hinges, False)
    clients = whole("clients", parameters.clients)
    share = validation_share(parameters.validation_share, parameters.model)
    if parameters.privacy is not None and is_auto(parameters.validation_share):
        share = 0.0  # what is chosen by validation rows is not covered by the budget
    pending = TableFeatures(columns, how, SITE)
    dataset = rows_dataset(pending, len(rows), labels, classes, rows.sites, patients, notes)
    if rows.groups is not None:
        own = {**dataset.train.columns, GROUP + "group": rows.groups}
        dataset = replace(dataset, train=replace(dataset.train, columns=own))
    split = Iid(clients) if rows.sites is None else Natural(SITE)
    data = federate(dataset, split, seed, 0.0, bool(classes) and share > 0, share)
    if classes and share and (lost := np.setdiff1d(np.arange(len(classes)), data.train.y.numpy())).size:
        if not is_auto(parameters.validation_share):
            remedy = f"leaves the class {classes[lost[0]]!r} no rows to train on; use a smaller share, or 0"
            raise BadInput("validation_share", share, remedy)
        data = federate(dataset, split, seed, 0.0)
    return data, pending, notes


def validation_share(given: object, model: object) -> float:
    """The share of rows to hold out; by default none for a linear model."""
    if not is_auto(given):
        return number("validation_share", given, least=0, below=1)
    name = named("model", model, "mlp").get("name")
    return 0.0 if name in ("linear", "logistic") else VALIDATION_SHARE


def _selection(given: object, experiment: Experiment, data: FederatedData) -> str | None:
    """The measure that chooses the round; None: the last one, also if the validation rows have one class only."""
    select = optional(text, "select", given)
    if data.validation is None or not is_auto(select):
        return None if data.validation is None else select
    found = selection_for(experiment)
    return None if found == "auroc" and len(np.unique(data.validation.y.numpy())) < 2 else found


def experiment_of(parameters: Parameters, classes: int, rows: int, seed: int) -> Experiment:
    """The sections of a config that describe the run."""
    return Wanted(
        parameters.algorithm,
        parameters.model,
        parameters.problem,
        parameters.rounds,
        parameters.local_steps,
        parameters.batch_size,
        parameters.primal_step,
        parameters.options,
        classes,
        rows,
        seed,
        parameters.privacy,
    ).experiment()


def seed_of(random_state: object) -> int:
    """The random seed: a whole number itself, or one drawn from a `RandomState` or from the global state."""
    if isinstance(random_state, Integral):
        return whole("random_state", random_state, least=0, most=2**64 - 1)
    if random_state is not None and not isinstance(random_state, np.random.RandomState):
        raise BadInput("random_state", random_state, "must be a whole number, a numpy.random.RandomState, or None")
    return int(check_random_state(random_state).randint(2**31 - 1))


def scoring(module: nn.Module) -> nn.Module:
    """A copy of the model in double precision: so a row has the same score whichever rows are beside it."""
    return copy.deepcopy(module).double().eval().requires_grad_(False)


def scores_of(module: nn.Module, x: NDArray[np.float32] | Tensor) -> Floats:
    """The scores of encoded rows, (n, k)."""
    rows = torch.as_tensor(x)
    with torch.no_grad():
        parts = [module(part.double()) for part in torch.split(rows, BLOCK)]
    return np.asarray(torch.cat(parts).numpy())


def _tell(done: int, record: Record | None) -> None:
    """Print an evaluation in a line."""
    if record is None:
        return
    part = next((p for p in ("validation", "test", "train") if p in record), None)
    figures = {} if part is None else {k: v["mean"] for k, v in record[part].items()}
    pooled = {} if part is None else record.get(f"pooled_{part}", {})
    shown = ", ".join(f"{name} {value:.4f}" for name, value in {**figures, **pooled}.items())
    print(f"round {done}: {part or 'done'} {shown}".rstrip())


AUTO = "auto"
LINEAR = {"linear": "logistic"}  # what estimators may call a model besides


@dataclass(frozen=True)
class Wanted:
    """The parameters of an estimator that make the config."""

    algorithm: object
    model: object
    problem: object
    rounds: object
    local_steps: object
    batch_size: object
    primal_step: object
    options: object
    classes: int  # 0: regression
    rows: int
    seed: int
    privacy: object = None

    def experiment(self) -> Experiment:
        """The sections of a config that describe the run."""
        known = entry(ALGORITHMS, "algorithm", self.algorithm)
        rounds = whole("rounds", self.rounds, most=MAX_ROUNDS)
        problem = self._problem(known)
        return validate_experiment(
            {
                "model": self._model(),
                "problem": problem,
                "algorithm": self._algorithm(known, rounds),
                "run": {"seed": self.seed, "rounds": rounds},
                "privacy": privacy_section(self.privacy) or {},
            }
        )

    def _model(self) -> dict[str, object]:
        given = named("model", self.model, "mlp")
        if "name" not in given:
            raise BadInput("model", self.model, 'give a name, such as {"name": "mlp", "hidden": [32]}')
        if given == {"name": "mlp"}:
            given["hidden"] = [32]
        name = str(given["name"])
        if self.algorithm in TREES and given == {"name": "linear"}:
            return {"name": "forest"}
        return {**given, "name": LINEAR.get(name, name)}

    def _problem(self, known: Entry) -> dict[str, object]:
        """The section of the problem: the default for the algorithm, updated with the options of the user."""
        given = {} if self.problem is None else named("problem", self.problem, "auc")
        name = str(given.get("name", problem_for(str(self.algorithm), known)))
        fits = entry(PROBLEMS, "problem", name)
        if fits.kind != known.kind:
            named_so = [other for other, e in PROBLEMS.items() if e.kind == known.kind]
            raise BadInput("problem", name, f"does not fit {self.algorithm}; choose {' or '.join(named_so)}")
        if not self.classes and name not in ("supervised", "cox"):
            remedy = "is for classes; for a regression choose an algorithm such as 'FedAvg', 'DRFA' or 'q-FedAvg'"
            raise BadInput("algorithm", self.algorithm, remedy)
        loss = {0: "square", 2: "logistic"}.get(self.classes, "cross-entropy")
        defaults = {} if name == "cox" else problem_section(name, self.rows, loss, str(self.algorithm))
        if name == "pairwise" and ("risk" in given or "loss" in given):
            defaults = {"risk": "auc"}
        return {**defaults, **given, "name": name}

    def _algorithm(self, known: Entry, rounds: int) -> dict[str, object]:
        """The section of the algorithm."""
        if self.options is not None and not isinstance(self.options, Mapping):
            raise BadInput("options", self.options, 'give a dictionary, such as {"dual_step": 0.01}')
        name, found = str(self.algorithm), dict[str, object]()
        if "local_steps" not in known.fixed:
            found["local_steps"] = whole("local_steps", self.local_steps)
        found["batch_size"] = whole("batch_size", self.batch_size)
        step = self._step(name, known.kind, rounds)
        if step is not None:
            found["primal_step"] = step
        found |= stages(name, rounds)
        found = found if known.own else taken(known, found)
        if (privacy_section(self.privacy) or {}).get("unit") == "client" and _weighs_by_size(known):
            found["weighting"] = "uniform"  # weights by size have unbounded sensitivity
        return {"name": name, **found, **plain_section(self.options or {})}

    def _step(self, name: str, kind: str, rounds: int) -> object:
        """The step of the model; None: the algorithm's own default."""
        if not is_auto(self.primal_step):
            if isinstance(self.primal_step, str):
                raise BadInput("primal_step", self.primal_step, 'give a number, a schedule or "auto"')
            ready = isinstance(self.primal_step, Mapping) or not isinstance(self.primal_step, int | float)
            return plain(self.primal_step) if ready else number("primal_step", self.primal_step, above=0)
        return default_step(name, kind, rounds)


def privacy_section(given: object) -> dict[str, object] | None:
    """[privacy] of a config, from `fs.Privacy(...)` or a dictionary such as `{"epsilon": 8}`; None: no privacy."""
    if given is None:
        return None
    if isinstance(given, Privacy):
        return {key: value for key, value in given.to_dict().items() if value is not None}
    if not isinstance(given, Mapping) or "epsilon" not in given:
        raise BadInput("privacy", given, 'give fs.Privacy(epsilon=8), a dictionary such as {"epsilon": 8}, or None')
    return {key: float(value) if type(value) is int and key != "rounds" else value
            for key, value in plain_section(given).items()}  # fmt: skip


def _weighs_by_size(known: Entry) -> bool:
    """Whether clients of the algorithm may count by their rows, or all alike."""
    weighting = getattr(known.load(), "__dataclass_fields__", {}).get("weighting")
    return weighting is not None and weighting.default in ("size", "uniform")


def ranks_only(algorithm: object, problem: object) -> bool:
    """Whether such an estimator ranks two classes: then there can be no more, and scores are no log odds."""
    known = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if known is None:
        return False
    name = problem if isinstance(problem, str) else dict(problem).get("name") if isinstance(problem, Mapping) else None
    return (name or problem_for(str(algorithm), known)) in ("auc", "pairwise")


def selection_for(config: Experiment) -> str:
    """The measure of validation rows that chooses the round, by what the problem is about."""
    name = config.problem.name
    if name in ("auc", "pairwise"):
        return "auroc"
    if name == "class-fair":
        return "worst_class_accuracy"
    return "worst loss" if config.algorithm.name in WORST else "mean loss"


def is_auto(value: object) -> bool:
    """Whether the user leaves it to us."""
    return isinstance(value, str) and value == AUTO


def plain(value: object) -> object:
    """The value with numpy's numbers as Python's, as a grid of parameters may hold them."""
    if isinstance(value, Mapping):
        return plain_section(value)
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def plain_section(given: Mapping[str, object]) -> dict[str, object]:
    """A section with numpy's numbers as Python's."""
    return {str(key): plain(value) for key, value in given.items()}


def named(key: str, value: object, example: str) -> dict[str, object]:
    """A section from a name, or from a dictionary with a name and options."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping):
        return plain_section(value)
    raise BadInput(key, value, f'give a name, such as {example!r}, or a dictionary such as {{"name": {example!r}}}')
