"""`fs.FederatedRegressor`: a scikit-learn regressor that federated algorithms train."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import r2_score
from sklearn.utils.validation import column_or_1d

from fedsaddle.array_types import Floats
from fedsaddle.data.table import is_constant
from fedsaddle.errors import BadInput
from fedsaddle.estimators.federated import BadValue, Federated, value_errors
from fedsaddle.estimators.training import InputRows
from fedsaddle.files import JsonObject

if TYPE_CHECKING:
    from fedsaddle.estimators.training import TableLike


class FederatedRegressor(RegressorMixin, Federated):  # type: ignore[misc]
    """A scikit-learn regressor whose rows stay at their sites while it is trained: squared error, or its worst mixture.

    Columns are preprocessed as by `FederatedClassifier`. Targets are standardised by the mean and the standard
    deviation of the rows given to `fit`.

    Args:
        algorithm: one of `fedsaddle list algorithms`: "FedAvgM" for the mean loss, "DRFA" for the worst site,
            "q-FedAvg" for powers of the losses.
        model: "linear", "mlp", or a dictionary such as `{"name": "mlp", "hidden": [32]}`.
        problem: the objective, by name or as a dictionary in the form of a config: `{"l2": 0.01}`; None: squared error.
        rounds: rounds of communication.
        local_steps: local steps of a site in a round.
        batch_size: rows of a mini-batch.
        primal_step: the learning rate: a number, "auto", or a schedule in the form of a config: `{"name": "cosine",
            "first": 0.3, "rounds": 100}`.
        options: more arguments of the algorithm, such as `{"dual_step": 0.01}`.
        site: the column of `X`, a DataFrame, that names the site of each row; it is no feature.
        clients: number of clients to which rows are assigned at random, if no sites are given.
        site_intercept: a 0/1 feature for each site; a new site has the mean.
        hinges: hinges of each number column, so that a linear model can bend.
        numeric: columns to treat as numeric; cells that cannot be parsed become missing.
        categorical: columns to treat as categorical, even if they look numeric.
        validation_share: the share of each site's rows that is held out to choose the best round; "auto": none for
            linear models, which learn from all rows, and 0.16 for others, which overfit.
        select: the measure of the validation rows by which the best round is chosen; "auto": by the problem.
        patience: evaluations without a better one after which training ends.
        privacy: differential privacy: `fs.Privacy(epsilon=8)`, or a dictionary such as `{"epsilon": 8, "unit":
            "patient"}`, with the patients given to `fit`. Not covered: how columns are treated (means, scales,
            categories), and validation rows, of which there are none by default.
        random_state: random seed, also of the noise with `privacy`: keep it secret then: `secrets.randbits(60)`.
        verbose: print evaluations.

    Attributes:
        target_mean_: the mean of the targets.
        target_scale_: their standard deviation.

    Raises:
        BadInput: for parameters and rows that cannot be used, as a ValueError; names key, value and remedy.

    Examples:
        >>> import fedsaddle as fs
        >>> from sklearn.datasets import load_diabetes
        >>> X, y = load_diabetes(return_X_y=True)
        >>> model = fs.FederatedRegressor(rounds=20).fit(X, y, sites=[i % 4 for i in range(len(y))])
        >>> bool(model.score(X, y) > 0.45)
        True
    """

    def fit(
        self,
        X: TableLike,
        y: ArrayLike,
        sites: ArrayLike | None = None,
        patients: ArrayLike | None = None,
    ) -> Self:
        """Train on rows.

        Args:
            X: the features: an array, or a DataFrame that may have text and missing cells.
            y: the target of each row.
            sites: the site of each row, text or whole numbers; None: see `site` and `clients`.
            patients: whom each row belongs to; a patient's rows are all trained on or all held out.

        Raises:
            BadInput: for parameters and rows that cannot be used, as a ValueError.
            Diverged: if the model is not finite; try a smaller step.
        """
        with value_errors():
            rows = InputRows.of(self, X, sites, self.site, training=True)
            targets = _targets(y, len(rows))
            self.target_mean_ = float(targets.mean())
            spread = float(targets.std())
            self.target_scale_ = 1.0 if is_constant(self.target_mean_, spread) else spread
            self._train(rows, (targets - self.target_mean_) / self.target_scale_, (), patients)
        return self

    def predict(self, X: TableLike, sites: ArrayLike | None = None) -> Floats:
        """The target of each row.

        Args:
            X: rows as in `fit`.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        with value_errors():
            scores = self._scores(X, sites)
        return scores[:, 0] * self.target_scale_ + self.target_mean_

    def score(
        self,
        X: TableLike,
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
        sites: ArrayLike | None = None,
    ) -> float:
        """R², the share of the variance that is explained.

        Args:
            X: rows as in `fit`.
            y: the target of each row.
            sample_weight: the weight of each row; None: all count alike.
            sites: the site of each row; a new site, or None, has the mean intercept.
        """
        return float(r2_score(y, self.predict(X, sites), sample_weight=sample_weight))

    def _fitted(self) -> JsonObject:
        return {**super()._fitted(), "mean": self.target_mean_, "scale": self.target_scale_}

    def _set_fitted(self, given: JsonObject) -> None:
        super()._set_fitted(given)
        self.target_mean_, self.target_scale_ = float(given["mean"]), float(given["scale"])


def _targets(y: ArrayLike | None, rows: int) -> Floats:
    """The targets as finite numbers."""
    if y is None:
        raise BadValue("y", None, "requires y to be passed, but the target y is None; give the target of each row")
    given = column_or_1d(y, warn=True)
    try:
        targets = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise BadInput("y", str(given[0])[:60], "must be numbers; for classes use fs.FederatedClassifier") from None
    if len(targets) != rows:
        raise BadInput("len(y)", len(targets), f"X has {rows} rows; give one target for each row")
    if not np.isfinite(targets).all():
        at = int(np.argmin(np.isfinite(targets)))
        raise BadInput(f"y[{at}]", float(targets[at]), "is NaN or infinity (inf); drop the row")
    return targets
