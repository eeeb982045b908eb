"""Train the model of an estimator: rows to clients, a config to an algorithm, and `fs.run`."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from torch import Tensor, nn

from fedsaddle.arguments import number, optional, text, whole
from fedsaddle.config.build import build_algorithm
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.config.schema import Config
from fedsaddle.data.federated import FederatedData, federate
from fedsaddle.data.files.arrays import SITE, rows_dataset
from fedsaddle.data.files.later_rows import Encoder
from fedsaddle.data.files.table_features import TableFeatures
from fedsaddle.data.files.tables import treatment
from fedsaddle.data.splits import Iid, Natural
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.estimators.recipe import Wanted, is_auto, named, selection_for
from fedsaddle.estimators.rows import Rows
from fedsaddle.runs.result import Result
from fedsaddle.runs.run import run

Floats = NDArray[np.float64]
EVALUATIONS = 25  # of a run that chooses its round, or that is watched
VALIDATION_SHARE = 0.16  # of models that overfit, as in tables of the command line
BLOCK = 4096  # rows that are scored at once


@dataclass(frozen=True, eq=False)
class Trained:
    """What came of training."""

    network: dict[str, Any]  # the name of the model and its arguments
    module: nn.Module
    encoder: Encoder
    data: FederatedData
    config: Config
    result: Result
    notes: tuple[str, ...]


def train(
    parameters: dict[str, Any], rows: Rows, labels: Array, classes: Sequence[str], patients: ArrayLike | None
) -> Trained:
    """Train on these rows; `labels` are codes of the classes, or targets if there are none."""
    seed = seed_of(parameters["random_state"])
    data, pending, notes = client_rows(parameters, rows, labels, classes, patients, seed)
    config = config_of(parameters, len(classes), len(data.train.y), seed)
    known, options = ALGORITHMS[config.algorithm.name], config.algorithm.options()
    if {**options, **known.fixed}.get("centralised"):
        data = data.in_one_place()
    with torch.random.fork_rng(devices=[]):
        algorithm, model = build_algorithm(config, data)
    select = _selection(parameters["select"], config, data)
    watched = data.validation is not None or parameters["verbose"]
    rounds = config.run.rounds
    result = run(
        algorithm,
        data,
        rounds,
        seed=seed,
        evaluate_every=max(1, rounds // EVALUATIONS) if watched else rounds,
        select=select,
        patience=parameters["patience"] if select else None,
        watch=_tell if parameters["verbose"] else None,
        name=config.algorithm.name,
        privacy=config.privacy.of_clients(rounds),
        secure_aggregation=config.privacy.secure_aggregation,
    )
    network = {"name": config.model.name, "arguments": model.arguments}
    encoder = Encoder.of(data.encoding, pending, parameters["numeric"])
    return Trained(network, scoring(result.module()), encoder, data, config, result, notes)


def client_rows(
    parameters: dict[str, Any],
    rows: Rows,
    labels: Array,
    classes: Sequence[str],
    patients: ArrayLike | None,
    seed: int,
) -> tuple[FederatedData, TableFeatures, tuple[str, ...]]:
    """The rows of each client, encoded by what the training rows say."""
    columns, notes = rows.columns(parameters["numeric"], parameters["categorical"])
    several = rows.sites is not None and len(np.unique(rows.sites)) > 1
    how = treatment(True, parameters["hinges"], parameters["site_intercept"])
    if how.site_intercept and not several:
        how = treatment(True, parameters["hinges"], False)
    clients = whole("clients", parameters["clients"])
    share = validation_share(parameters["validation_share"], parameters["model"])
    if parameters["privacy"] is not None and is_auto(parameters["validation_share"]):
        share = 0.0  # what is chosen by validation rows is not covered by the budget
    pending = TableFeatures(columns, how, SITE)
    dataset = rows_dataset(pending, len(rows), labels, classes, rows.sites, patients, notes)
    split = Iid(clients) if rows.sites is None else Natural(SITE)
    data = federate(dataset, split, seed, 0.0, bool(classes) and share > 0, share)
    if classes and share and (lost := np.setdiff1d(np.arange(len(classes)), data.train.y.numpy())).size:
        if not is_auto(parameters["validation_share"]):
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


def _selection(given: object, config: Config, data: FederatedData) -> str | None:
    """The measure that chooses the round; None: the last one, also where validation rows of one class cannot tell."""
    select = optional(text, "select", given)
    if data.validation is None or not is_auto(select):
        return None if data.validation is None else select
    found = selection_for(config)
    return None if found == "auroc" and len(np.unique(data.validation.y.numpy())) < 2 else found


def config_of(parameters: dict[str, Any], classes: int, rows: int, seed: int) -> Config:
    """The config of the run."""
    keys = ("algorithm", "model", "problem", "rounds", "local_steps", "batch_size", "primal_step", "options", "privacy")
    return Wanted(**{key: parameters[key] for key in keys}, classes=classes, rows=rows, seed=seed).config()


def seed_of(random_state: Any) -> int:
    """A whole number as it is; of anything else that scikit-learn takes, a number that is drawn from it."""
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


def _tell(done: int, record: dict[str, Any] | None) -> None:
    """Print an evaluation in a line."""
    if record is None:
        return
    part = next((p for p in ("validation", "test", "train") if p in record), None)
    figures = {} if part is None else {k: v["mean"] for k, v in record[part].items()}
    pooled = {} if part is None else record.get(f"pooled_{part}", {})
    shown = ", ".join(f"{name} {value:.4f}" for name, value in {**figures, **pooled}.items())
    print(f"round {done}: {part or 'done'} {shown}".rstrip())
