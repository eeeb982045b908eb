"""`fs.FederatedSurvival`: Cox regression across sites in scikit-learn's and scikit-survival's form."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from fedsaddle.arguments import number, whole
from fedsaddle.array_types import Floats
from fedsaddle.data.table import Array
from fedsaddle.errors import BadInput
from fedsaddle.estimators.federated import Federated, value_errors
from fedsaddle.estimators.training import InputRows
from fedsaddle.files import JsonObject
from fedsaddle.metrics.survival import BaselineHazard, concordance

if TYPE_CHECKING:
    from fedsaddle.estimators.training import TableLike

ROUNDS = 30  # of Newton, which needs 6 to 9


@dataclass(frozen=True, eq=False)
class SurvivalFunction:
    """The probability of no event by a time, as scikit-survival's `StepFunction`: `f(t)`, `f.x` and `f.y`."""

    x: Floats
    y: Floats
    risk: float
    baseline: BaselineHazard

    def __call__(self, time: ArrayLike) -> Floats:
        """The probability at one or several times.

        Args:
            time: Not negative.
        """
        times = np.atleast_1d(np.asarray(time, dtype=np.float64))
        found: Floats = np.exp(-self.baseline.cumulative(times) * np.exp(self.risk))
        return found if np.ndim(time) else np.asarray(found[0])


class FederatedSurvival(Federated):
    """Cox's proportional hazards with a baseline for each site, exact by Newton's method on sums from the sites.

    Columns are preprocessed as by `FederatedClassifier`. Predictions of survival take one baseline, the average of the
    sites, constant between agreed times.

    Args:
        alpha: the penalty `alpha / 2` on the sum of squared coefficients per standard deviation, beside the partial
            likelihood of all rows.
        intervals: between whose ends the baseline hazard is constant.
        site: the column of `X`, a DataFrame, that names the site of each row; it is no feature.
        hinges: hinges of each number column, so that the log hazard can bend.
        numeric: columns to treat as numeric; cells that cannot be parsed become missing.
        categorical: columns to treat as categorical, even if they look numeric.
        random_state: random seed; nothing is drawn unless rows are assigned to clients.

    Attributes:
        coef_: the coefficients of the encoded columns.
        baseline_: the average baseline hazard.

    Raises:
        BadInput: for parameters and rows that cannot be used, as a ValueError; names key, value and remedy.

    Examples:
        >>> import numpy as np
        >>> import fedsaddle as fs
        >>> rng = np.random.default_rng(0)
        >>> X = rng.normal(size=(300, 2))
        >>> time = rng.exponential(np.exp(-X[:, 0]))
        >>> y = np.array([(True, t) for t in time], dtype=[("event", bool), ("time", float)])
        >>> model = fs.FederatedSurvival().fit(X, y, sites=np.arange(300) % 3)
        >>> bool(model.score(X, y) > 0.65)
        True
    """

    algorithm = "Newton"  # these are parameters of the other estimators
    model = "linear"
    problem = None
    rounds = ROUNDS
    local_steps = batch_size = clients = 1
    primal_step = select = "auto"
    options = patience = privacy = None
    site_intercept = verbose = False
    validation_share = 0.0

    def __init__(
        self,
        alpha: float = 1.0,
        *,
        intervals: int = 20,
        site: str | None = None,
        hinges: int = 0,
        numeric: Sequence[str] = (),
        categorical: Sequence[str] = (),
        random_state: int | np.random.RandomState | None = 0,
    ) -> None:
        self.alpha = alpha
        self.intervals = intervals
        self.site = site
        self.hinges = hinges
        self.numeric = numeric
        self.categorical = categorical
        self.random_state = random_state

    def fit(
        self, X: TableLike, y: ArrayLike, sites: ArrayLike | None = None, patients: ArrayLike | None = None
    ) -> Self:
        """Train on rows.

        Args:
            X: the features: an array, or a DataFrame that may have text and missing cells.
            y: scikit-survival's structured array of an event (a truth value) and a time, or two columns in that order.
            sites: the site of each row, text or whole numbers; None: see `site`.
            patients: whom each row belongs to.

        Raises:
            BadInput: for parameters and rows that cannot be used, as a ValueError.
        """
        with value_errors():
            number("alpha", self.alpha, least=0)
            whole("intervals", self.intervals)
            rows = InputRows.of(self, X, sites, self.site, training=True)
            event, time = events_and_times(y, len(rows))
            self.problem = {"name": "cox", "l2": self.alpha / len(rows)}
            found = self._train(rows, np.stack([time, event], 1).astype(np.float32), (), patients)
            layer = next(part for part in self.module_.modules() if isinstance(part, nn.Linear))
            layer.bias = nn.Parameter(torch.zeros(1, dtype=layer.weight.dtype), requires_grad=False)
            self.coef_ = layer.weight[0].double().numpy().copy()
            x, (times, events) = found.data.train.x.double().numpy(), found.data.train.y.double().numpy().T
            self.baseline_ = BaselineHazard.fit(x @ self.coef_, times, events, self.intervals)
            self.event_times_ = np.unique(times[events > 0])
        return self

    def predict(self, X: TableLike, sites: ArrayLike | None = None) -> Floats:
        """The log hazard ratio of each row, higher for earlier events.

        Args:
            X: rows as in `fit`.
            sites: the site of each row, which does not matter.
        """
        with value_errors():
            return self._scores(X, sites)[:, 0]

    def predict_survival_function(
        self, X: TableLike, sites: ArrayLike | None = None, return_array: bool = False
    ) -> NDArray[np.object_] | Floats:
        """The probability of no event over time, for each row.

        Args:
            X: rows as in `fit`.
            sites: the site of each row, which does not matter.
            return_array: whether to return the probabilities at `event_times_`, `(n, times)`, in place of functions.
        """
        risk, times = self.predict(X, sites), self.event_times_
        values = np.exp(-np.exp(risk)[:, None] * self.baseline_.cumulative(times))
        if return_array:
            return np.asarray(values)
        functions = [SurvivalFunction(times, v, float(r), self.baseline_) for v, r in zip(values, risk, strict=True)]
        return np.array(functions, dtype=object)

    def score(self, X: TableLike, y: ArrayLike, sites: ArrayLike | None = None) -> float:
        """Harrell's concordance.

        Args:
            X: rows as in `fit`.
            y: as in `fit`.
            sites: the site of each row, which does not matter.

        Raises:
            BadInput: if no two rows can be compared.
        """
        risk = self.predict(X, sites)
        with value_errors():
            event, time = events_and_times(y, len(risk), some=False)
            found = concordance(risk, time, event)
            if found is None:
                raise BadInput("y", "no pair of rows", "needs an event before the time of another row")
        return found.value

    def _fitted(self) -> JsonObject:
        own = {"coef": self.coef_.tolist(), "event_times": self.event_times_.tolist()}
        return {**super()._fitted(), **own, "baseline": [list(self.baseline_.times), list(self.baseline_.rates)]}

    def _set_fitted(self, given: JsonObject) -> None:
        super()._set_fitted(given)
        self.coef_, self.event_times_ = np.array(given["coef"]), np.array(given["event_times"])
        self.baseline_ = BaselineHazard(*(tuple(map(float, part)) for part in given["baseline"]))


def events_and_times(y: ArrayLike, rows: int, some: bool = True) -> tuple[Floats, Floats]:
    """Events and times from scikit-survival's structured array, or from two columns.

    Args:
        y: The targets.
        rows: How many there must be.
        some: Whether there must be an event.

    Raises:
        BadInput: for another shape, an event that is no truth value, a negative time, or no event.
    """
    given: Array = np.asarray(y)
    if given.dtype.names is not None and len(given.dtype.names) == 2:
        event, time = (given[name].astype(np.float64) for name in given.dtype.names)
    elif given.ndim == 2 and given.shape[1] == 2 and given.dtype.kind in "fiub":
        event, time = given.astype(np.float64).T
    else:
        raise BadInput("y", given.shape, "must be a structured array of an event and a time, or two columns of numbers")
    if len(event) != rows:
        raise BadInput("len(y)", len(event), f"X has {rows} rows; give one entry for each row")
    if not np.isin(event, (0, 1)).all():
        raise BadInput("y", "an event", "must be true or false, in the first of the two columns")
    if not (np.isfinite(time) & (time >= 0)).all():
        worst = float(time[~(np.isfinite(time) & (time >= 0))][0])
        raise BadInput("y", worst, "is no time; times are finite and not negative")
    if some and not event.any():
        raise BadInput("y", "no event", "at least one row must have had the event")
    return event, time
