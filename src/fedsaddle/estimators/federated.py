"""What the classifier and the regressor share: their parameters, training, scores of later rows, files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from fedsaddle.arguments import whole
from fedsaddle.data.files.later_rows import Encoder
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.estimators import saved
from fedsaddle.estimators.recipe import privacy_section
from fedsaddle.estimators.rows import Rows
from fedsaddle.estimators.training import Trained, scores_of, scoring, train
from fedsaddle.estimators.value_errors import value_errors
from fedsaddle.privacy.settings import Privacy

Floats = NDArray[np.float64]


class Federated(BaseEstimator):  # type: ignore[misc]
    """An estimator that is trained by a federated algorithm; see `FederatedClassifier`."""

    def __init__(
        self,
        algorithm: str = "FedAvgM",
        model: str | Mapping[str, Any] = "linear",
        *,
        problem: str | Mapping[str, Any] | None = None,
        rounds: int = 100,
        local_steps: int = 8,
        batch_size: int = 64,
        primal_step: Any = "auto",
        options: Mapping[str, Any] | None = None,
        site: str | None = None,
        clients: int = 1,
        site_intercept: bool = True,
        hinges: int = 0,
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        validation_share: float | str = "auto",
        select: str = "auto",
        patience: int | None = None,
        privacy: Privacy | Mapping[str, Any] | None = None,
        random_state: Any = 0,
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
            given = self.get_params(deep=False) | {"privacy": privacy_section(self.privacy)}
            parameters = {key: saved.plain(key, value) for key, value in given.items()}
            content = {"kind": type(self).__name__, "parameters": parameters, "fitted": self._fitted()}
            return saved.write(path, content, self.module_)

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """The fitted estimator that `save` wrote; its predictions are the same bit for bit.

        Raises:
            BadInput: if the file holds something else, or is damaged.
            MissingData: if there is no such file.
        """
        with value_errors():
            content, tensors = saved.read(path, cls.__name__)
            try:
                parameters: dict[str, Any] = dict(content["parameters"])
                parameters |= {key: tuple(parameters[key]) for key in ("numeric", "categorical")}
                found = cls(**parameters)
                network = content["fitted"]["network"]
                found._set_fitted(content["fitted"])
                _check_widths(found.encoder_, found.columns_, network["arguments"]["inputs"])
            except (BadInput, KeyError, TypeError, ValueError, AttributeError, IndexError):
                raise BadInput("path", str(path), saved.DAMAGED) from None
            found.module_ = scoring(saved.rebuilt(path, network, tensors))
            return found

    def _train(self, rows: Rows, labels: Array, classes: Sequence[str], patients: ArrayLike | None) -> Trained:
        """Train, and set what both kinds of estimators have afterwards."""
        if not isinstance(self.verbose, bool | np.bool_):
            whole("verbose", self.verbose, least=0)
        found = train(self.get_params(deep=False), rows, labels, classes, patients)
        self.module_, self.network_, self.encoder_ = found.module, found.network, found.encoder
        self.columns_, self.notes_ = rows.names, found.notes
        self.sites_ = () if rows.sites is None else found.data.names
        self.n_iter_ = int(found.result.summary["rounds"])
        self.selected_round_ = found.result.summary.get("selected_round")
        self.history_ = found.result.history
        self.config_ = found.config.model_dump(include={"model", "problem", "algorithm", "run"})
        mixture = found.result.mixture
        self.mixture_ = None if mixture is None else np.asarray(mixture.double().numpy())
        self.privacy_ = found.result.summary.get("privacy")
        return found

    def _scores(self, X: Any, sites: ArrayLike | None) -> Floats:
        """The model's scores of later rows, (n, k)."""
        check_is_fitted(self)
        rows = Rows.of(self, X, sites, self.site, training=False)
        return scores_of(self.module_, self.encoder_.encode(rows.cells, rows.names, rows.sites))

    def _fitted(self) -> dict[str, Any]:
        """What training has found, but the weights, as plain JSON."""
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
            "history": saved.plain("history", _finite(self.history_)),
            "config": saved.plain("config", self.config_),
            "mixture": mixture,
            "privacy": saved.plain("privacy", self.privacy_),
        }

    def _set_fitted(self, given: dict[str, Any]) -> None:
        """Set what `_fitted` wrote."""
        self.network_ = dict(given["network"])
        self.encoder_ = Encoder.from_dict(given["encoder"])
        self.columns_, self.sites_ = tuple(given["columns"]), tuple(given["sites"])
        self.notes_, self.n_features_in_ = tuple(given["notes"]), int(given["features"])
        if given["feature_names"] is not None:
            self.feature_names_in_ = np.array(given["feature_names"], dtype=object)
        self.n_iter_, self.selected_round_ = given["rounds"], given["selected_round"]
        self.history_, self.config_ = given["history"], given["config"]
        self.mixture_ = None if given["mixture"] is None else np.array(given["mixture"])
        self.privacy_ = given.get("privacy")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def _check_widths(encoder: Encoder, columns: Sequence[str], inputs: int) -> None:
    """Refuse a file whose model takes other features than it makes, or other columns than it names."""
    if len(encoder.encoding) != inputs or not {column.name for column in encoder.columns} <= set(columns):
        raise ValueError("other features than inputs")


def _finite(value: Any) -> Any:
    """The records with None for figures that are no numbers, which JSON has no word for."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not np.isfinite(value) else value
