"""What the classifier and the regressor share: their parameters, training, scores of later rows, files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import ArrayLike
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from fedsaddle import __version__
from fedsaddle.arguments import path as file_path
from fedsaddle.arguments import whole
from fedsaddle.array_types import Floats
from fedsaddle.config.registry import MODELS, find
from fedsaddle.data.table import Array
from fedsaddle.data.tables.later_rows import Encoder
from fedsaddle.errors import BadInput, FedSaddleError, MissingData
from fedsaddle.estimators.training import (
    InputRows,
    Network,
    Step,
    TrainedModel,
    privacy_section,
    scores_of,
    scoring,
    train,
)
from fedsaddle.files import Json, JsonObject, make_folder, write_atomically
from fedsaddle.privacy.settings import Privacy

if TYPE_CHECKING:
    from sklearn.utils import Tags

    from fedsaddle.estimators.training import TableLike


class BadValue(BadInput, ValueError):
    """An invalid value: names the key, the value and the remedy."""


@contextmanager
def value_errors() -> Iterator[None]:
    """Raise a `BadInput` of what is called as one that is a `ValueError` as well."""
    try:
        yield
    except BadValue:
        raise
    except BadInput as error:
        raise BadValue(error.key, error.value, error.remedy) from None


FORMAT = 1
KEY = "fedsaddle"  # of the header
LARGEST = 1 << 28  # characters of the header
DAMAGED = "is no estimator that `save` wrote, or is damaged; save it again"


def write(path: object, content: JsonObject, module: nn.Module) -> Path:
    """Write a file, atomically."""
    target = file_path("path", path)
    if target.is_dir():
        raise BadInput("path", str(target), "is a folder; name a file in it, such as model.safetensors")
    make_folder("path", target.parent)
    state = module.state_dict().items()
    tensors = {k: (v.float() if v.is_floating_point() else v).contiguous() for k, v in state}
    head = {"format": FORMAT, "version": __version__, **content}
    write_atomically(target, save(tensors, {KEY: json.dumps(head, ensure_ascii=False, allow_nan=False)}))
    return target


def read(path: object, kind: str) -> tuple[JsonObject, dict[str, Tensor]]:
    """The content of a file that `write` wrote for an estimator of this kind, and the weights."""
    source = file_path("path", path)
    if not source.exists():
        raise MissingData(f"{source} does not exist; check the path of the saved estimator")
    if not source.is_file():
        raise BadInput("path", str(source), "is no file; name the file that `save` wrote")
    try:
        with safe_open(str(source), framework="pt") as file:
            head = (file.metadata() or {}).get(KEY, "")
            content = json.loads(head) if len(head) <= LARGEST else None
            if not isinstance(content, dict) or not isinstance(content.get("kind"), str):
                raise BadInput("path", str(source), DAMAGED)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError, RecursionError):
        raise BadInput("path", str(source), DAMAGED) from None
    if content.get("format") != FORMAT:
        remedy = f"has the format {content.get('format')!r}, this version reads {FORMAT}; use the version that wrote it"
        raise BadInput("path", str(source), remedy)
    if content["kind"] != kind:
        raise BadInput("path", str(source), f"holds a {content['kind']!r}; load it with that class")
    return content, tensors


def rebuilt(path: object, network: Network, tensors: dict[str, Tensor]) -> nn.Module:
    """The model that a file names, with the weights of the file; nothing is allocated before they fit."""
    try:
        with torch.device("meta"):
            module: nn.Module = find(MODELS, "model", network["name"])(**network["arguments"])
        module.load_state_dict(tensors, strict=True, assign=True)
    except (FedSaddleError, RuntimeError, TypeError, KeyError, ValueError):
        raise BadInput("path", str(path), DAMAGED) from None
    return module


def plain(key: str, value: object) -> Json:
    """The value as JSON can hold it."""
    if isinstance(value, dict):
        return {str(k): plain(f"{key}.{k}", v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(key, v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise BadInput(key, value, "cannot be saved; write it as a number, text or dictionary, as in a config")


def array_to_dict(key: str, array: Array) -> dict[str, Json]:
    """An array of labels or names."""
    if array.dtype.kind not in "OUiufb":
        raise BadInput(key, str(array.dtype), "cannot be saved; use numbers or text")
    return {"dtype": array.dtype.str, "values": plain(key, array.tolist())}


def array_from_dict(given: JsonObject) -> Array:
    """The array that `array_to_dict` wrote."""
    dtype = np.dtype(given["dtype"])
    if dtype.kind not in "OUiufb":
        raise ValueError("no labels")
    return np.array(given["values"], dtype=dtype)


class Federated(BaseEstimator):  # type: ignore[misc]
    """An estimator that is trained by a federated algorithm; see `FederatedClassifier`."""

    def __init__(
        self,
        algorithm: str = "FedAvgM",
        model: str | Mapping[str, object] = "linear",
        *,
        problem: str | Mapping[str, object] | None = None,
        rounds: int = 100,
        local_steps: int = 8,
        batch_size: int = 64,
        primal_step: Step = "auto",
        options: Mapping[str, object] | None = None,
        site: str | None = None,
        clients: int = 1,
        site_intercept: bool = True,
        hinges: int = 0,
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        validation_share: float | str = "auto",
        select: str = "auto",
        patience: int | None = None,
        privacy: Privacy | Mapping[str, object] | None = None,
        random_state: int | np.random.RandomState | None = 0,
        verbose: bool | int = False,
    ) -> None:
        self.algorithm = algorithm
        self.model = model
        self.problem = problem
        self.rounds = rounds
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.primal_step = primal_step
        self.options = options
        self.site = site
        self.clients = clients
        self.site_intercept = site_intercept
        self.hinges = hinges
        self.numeric = numeric
        self.categorical = categorical
        self.validation_share = validation_share
        self.select = select
        self.patience = patience
        self.privacy = privacy
        self.random_state = random_state
        self.verbose = verbose

    def save(self, path: str | Path) -> Path:
        """Write the fitted estimator to one safetensors file, without pickle; `load` reads it.

        Args:
            path: the file, such as "model.safetensors".

        Raises:
            BadInput: if a parameter cannot be written as JSON, or the file cannot be written.
            NotFittedError: before `fit`.
        """
        check_is_fitted(self)
        with value_errors():
            given = self.get_params(deep=False)
            given |= {"privacy": privacy_section(self.privacy)} if "privacy" in given else {}
            parameters = {key: plain(key, value) for key, value in given.items()}
            content = {"kind": type(self).__name__, "parameters": parameters, "fitted": self._fitted()}
            return write(path, content, self.module_)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The fitted estimator that `save` wrote; its predictions are the same bit for bit.

        Args:
            path: the file.

        Raises:
            BadInput: if the file holds something else, or is damaged.
            MissingData: if there is no such file.
        """
        with value_errors():
            content, tensors = read(path, cls.__name__)
            try:
                parameters: JsonObject = dict(content["parameters"])
                parameters |= {key: tuple(parameters[key]) for key in ("numeric", "categorical")}
                found = cls(**parameters)
                network = content["fitted"]["network"]
                found._set_fitted(content["fitted"])
                _check_widths(found.encoder_, found.columns_, network["arguments"]["inputs"])
            except (BadInput, KeyError, TypeError, ValueError, AttributeError, IndexError):
                raise BadInput("path", str(path), DAMAGED) from None
            found.module_ = scoring(rebuilt(path, network, tensors))
            return found

    def _train(
        self, rows: InputRows, labels: Array, classes: Sequence[str], patients: ArrayLike | None
    ) -> TrainedModel:
        """Train, and set the fitted attributes that both kinds of estimators have."""
        if not isinstance(self.verbose, bool | np.bool_):
            whole("verbose", self.verbose, least=0)
        found = train(self, rows, labels, classes, patients)
        self.module_, self.network_, self.encoder_ = found.module, found.network, found.encoder
        self.columns_, self.notes_ = rows.names, found.notes
        self.sites_ = () if rows.sites is None else found.data.names
        self.n_iter_ = found.result.document.rounds
        self.selected_round_ = found.result.document.selected_round
        self.history_ = found.result.history
        self.config_ = found.experiment.model_dump(include={"model", "problem", "algorithm", "run"})
        mixture = found.result.mixture
        self.mixture_ = None if mixture is None else np.asarray(mixture.double().numpy())
        self.privacy_ = found.result.summary.get("privacy")
        return found

    def _scores(self, X: TableLike, sites: ArrayLike | None) -> Floats:
        """The model's scores of later rows, (n, k)."""
        check_is_fitted(self)
        rows = InputRows.of(self, X, sites, self.site, training=False)
        return scores_of(self.module_, self.encoder_.encode(rows.cells, rows.names, rows.sites))

    def _fitted(self) -> JsonObject:
        """The fitted attributes except the weights, as plain JSON."""
        names = getattr(self, "feature_names_in_", None)
        mixture = None if self.mixture_ is None else self.mixture_.tolist()
        return {
            "network": self.network_,
            "encoder": self.encoder_.to_dict(),
            "columns": list(self.columns_),
            "sites": list(self.sites_),
            "notes": list(self.notes_),
            "features": self.n_features_in_,
            "feature_names": None if names is None else names.tolist(),
            "rounds": self.n_iter_,
            "selected_round": self.selected_round_,
            "history": plain("history", _finite(self.history_)),
            "config": plain("config", self.config_),
            "mixture": mixture,
            "privacy": plain("privacy", self.privacy_),
        }

    def _set_fitted(self, given: JsonObject) -> None:
        """Set what `_fitted` wrote."""
        network: JsonObject = given["network"]
        self.network_ = Network(name=network["name"], arguments=dict(network["arguments"]))
        self.encoder_ = Encoder.from_dict(given["encoder"])
        self.columns_, self.sites_ = tuple(given["columns"]), tuple(given["sites"])
        self.notes_, self.n_features_in_ = tuple(given["notes"]), int(given["features"])
        if given["feature_names"] is not None:
            self.feature_names_in_ = np.array(given["feature_names"], dtype=object)
        self.n_iter_, self.selected_round_ = given["rounds"], given["selected_round"]
        self.history_, self.config_ = given["history"], given["config"]
        self.mixture_ = None if given["mixture"] is None else np.array(given["mixture"])
        self.privacy_ = given.get("privacy")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _check_widths(encoder: Encoder, columns: Sequence[str], inputs: int) -> None:
    """Refuse a file whose model takes other features than it makes, or other columns than it names."""
    if len(encoder.encoding) != inputs or not {column.name for column in encoder.columns} <= set(columns):
        raise ValueError("other features than inputs")


def _finite(value: object) -> object:
    """The records with None for figures that are no numbers, which JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
