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

    Parameters and treatment of columns are those of `FederatedClassifier`; the algorithm is one for a mean loss, such
    as "FedAvgM", "DRFA" or "q-FedAvg". Targets are standardised by mean and deviation of the rows given to `fit`.

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
        """R², the share of the variance that is explained."""
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
