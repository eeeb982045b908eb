"""Standard errors, intervals and tests of the coefficients of an exact regression, from its exchanged sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import choice, flag, number
from fedsaddle.errors import BadInput
from fedsaddle.problems.regression import Fit

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
SPREAD = 1e-8  # of a difference of log-likelihoods: below, it is rounding


class Fits(Protocol):
    """An algorithm whose solution is a maximum of a likelihood, as `fs.Newton`'s."""

    def fit(self, server: Any, /) -> Fit:
        """The likelihood at the solution."""
        ...


@runtime_checkable
class Fitted(Protocol):
    """A result of such an algorithm, as `fs.run` returns."""

    @property
    def algorithm(self) -> Any:
        """It."""
        ...

    @property
    def server(self) -> Any:
        """Its state."""
        ...


class HypothesisTest(NamedTuple):
    """A test of a hypothesis on coefficients."""

    statistic: float  # chi-square, or F where the variance is estimated
    degrees: int
    p_value: float


@dataclass(frozen=True)
class Inference:
    """Coefficients with their covariance. Intervals and tests are those of a normal law.

    Where the variance of rows is estimated (least squares) and the covariance is not robust, they are those of
    Student's law with `rows - coefficients` degrees of freedom.

    Args:
        names: Of the coefficients; of several classes their differences to the first one.
        estimate: The coefficients.
        covariance: Theirs.
        rows: Of all clients that took part.
        level: Of the intervals.
        freedom: Degrees of freedom of Student's law; None: the normal law.
        penalised: Whether the coefficients are those of a penalised likelihood. Their covariance is then that of the
            penalised coefficients around their own expectation, which a penalty draws towards 0: intervals are too
            narrow for the true coefficients, and p-values too large or small. Fit without l2 for tests.
        robust: Whether the covariance is the sandwich.
    """

    names: tuple[str, ...]
    estimate: Floats
    covariance: Floats
    rows: int
    level: float = 0.95
    freedom: int | None = None
    penalised: bool = False
    robust: bool = False

    @cached_property
    def standard_error(self) -> Floats:
        """The roots of the variances."""
        found: Floats = np.sqrt(np.diag(self.covariance))
        return found

    @cached_property
    def statistic(self) -> Floats:
        """Each coefficient over its standard error."""
        found: Floats = self.estimate / self.standard_error
        return found

    @cached_property
    def p_value(self) -> Floats:
        """Of the hypothesis that the coefficient is 0, two-sided."""
        from scipy import stats

        law = stats.norm if self.freedom is None else stats.t(self.freedom)
        found: Floats = 2 * law.sf(np.abs(self.statistic))
        return found

    @cached_property
    def interval(self) -> Floats:
        """Lower and upper bounds, `(q, 2)`."""
        from scipy import stats

        law = stats.norm if self.freedom is None else stats.t(self.freedom)
        half = law.ppf((1 + self.level) / 2) * self.standard_error
        return np.stack([self.estimate - half, self.estimate + half], 1)

    def wald(self, coefficients: Sequence[str] | ArrayLike) -> HypothesisTest:
        """The Wald test that some coefficients are 0, or that combinations of them are.

        Args:
            coefficients: Names, or a matrix with a row for each combination.

        Raises:
            BadInput: if a name is unknown, or the matrix does not fit.
        """
        from scipy import stats

        L = self._combinations(coefficients)
        value, degrees = L @ self.estimate, len(L)
        chi2 = float(value @ np.linalg.solve(L @ self.covariance @ L.T, value))
        if self.freedom is None:
            return HypothesisTest(chi2, degrees, float(stats.chi2.sf(chi2, degrees)))
        return HypothesisTest(chi2 / degrees, degrees, float(stats.f.sf(chi2 / degrees, degrees, self.freedom)))

    def _combinations(self, given: Sequence[str] | ArrayLike) -> Floats:
        names = [given] if isinstance(given, str) else given
        if isinstance(names, Sequence) and names and all(isinstance(one, str) for one in names):
            for one in names:
                if one not in self.names:
                    raise BadInput("coefficients", one, f"choose among {', '.join(self.names[:10])}")
            at = [self.names.index(str(one)) for one in names]
            found: Floats = np.eye(len(self.names))[at]
            return found
        matrix = np.atleast_2d(np.asarray(given, dtype=np.float64))
        if matrix.ndim != 2 or matrix.shape[1] != len(self.names) or np.linalg.matrix_rank(matrix) < len(matrix):
            want = f"{len(self.names)} columns and linearly independent rows"
            raise BadInput("coefficients", matrix.shape, f"give names, or a matrix with {want}")
        return matrix

    def to_pandas(self) -> pd.DataFrame:
        """A table with a row for each coefficient."""
        import pandas as pd

        low, high = self.interval.T
        columns = {"estimate": self.estimate, "standard_error": self.standard_error, "statistic": self.statistic}
        return pd.DataFrame({**columns, "p_value": self.p_value, "low": low, "high": high}, index=list(self.names))


def inference(
    fit: Fit | Fitted,
    *,
    columns: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    covariance: str = "model",
    level: float = 0.95,
    small_sample: bool = False,
) -> Inference:
    """Standard errors of an exact regression.

    The model-based covariance is `φ H^{-1} / n` with the Hessian H of the mean negative log-likelihood and the variance
    φ of least squares, or 1; with a ridge R it is `φ (H + R)^{-1} H (H + R)^{-1} / n`. The sandwich has the mean outer
    product of the rows' scores in place of φ H between the two inverses. Each row is a cluster of its own: with several
    rows a patient, both covariances are too small.

    Args:
        fit: The result of a run of `fs.Newton`, or `fs.Newton.fit(...)`.
        columns: The names of the columns; None: x0, x1 and so on.
        classes: The names of the classes, where there are several scores.
        covariance: "model", or "sandwich" (HC0), which wants `fs.Newton(..., sandwich=True)`.
        level: Of the intervals.
        small_sample: Multiply the sandwich by `n / (n - q)`, as HC1.

    Raises:
        BadInput: if the steps have not ended, the rows do not identify the coefficients, or a name is missing.

    Examples:
        >>> import fedsaddle as fs
        >>> data = fs.load("breast-cancer", split="iid", clients=4)
        >>> problem = fs.Supervised(fs.models.logistic_regression(30, 2), l2=0.01, l2_biases=False)
        >>> result = fs.run(fs.Newton(problem=problem), data, rounds=10)
        >>> fs.inference(result).to_pandas().shape
        (31, 6)
    """
    choice("covariance", covariance, ("model", "sandwich"))
    number("level", level, above=0, below=1)
    flag("small_sample", small_sample)
    found = fit if isinstance(fit, Fit) else _fit_of(fit)
    layout, n, q = found.layout, found.rows, found.degrees
    for key, given, wanted in (("columns", columns, layout.inputs), ("classes", classes, layout.outputs)):
        if given is not None and len(given) != wanted:
            raise BadInput(key, f"{len(given)} names", f"give {wanted}")
    freedom = n - q if found.estimates_variance else None
    if freedom is not None and freedom < 1:
        raise BadInput("rows", n, f"the variance of rows wants more rows than the {q} coefficients")
    variance = 1.0 if freedom is None else 2 * found.value * n / freedom
    if covariance == "sandwich":
        if found.products is None:
            raise BadInput("covariance", covariance, "wants outer products of scores; use fs.Newton(sandwich=True)")
        middle = found.products * (n / (n - q) if small_sample else 1.0)
        freedom = None
    else:
        middle = variance * found.hessian
    contrasts = layout.contrasts()
    A = torch.eye(layout.dimension, dtype=torch.float64) if contrasts is None else contrasts
    bread = A @ _inverse(found)
    names = layout.contrast_names(layout.names(columns, classes))
    return Inference(
        tuple(names),
        (A @ found.coefficients).numpy(),
        (bread @ middle @ bread.T / n).numpy(),
        n,
        level,
        freedom,
        found.penalised,
        covariance == "sandwich",
    )


def likelihood_ratio(full: Fit | Fitted, restricted: Fit | Fitted) -> HypothesisTest:
    """The likelihood-ratio test of a model within another, both fitted to the same rows without a penalty.

    Args:
        full: The result with more columns.
        restricted: The result without some of them.

    Raises:
        BadInput: if a fit has a penalty, the rows differ in number, or the first model is no larger or fits worse.
    """
    from scipy import stats

    a, b = (one if isinstance(one, Fit) else _fit_of(one) for one in (full, restricted))
    if a.penalised or b.penalised:
        raise BadInput("l2", "more than 0", "a likelihood-ratio test is for fits without a penalty")
    if a.rows != b.rows:
        raise BadInput("restricted", f"{b.rows} rows", f"fit it to the same {a.rows} rows")
    degrees, twice = a.degrees - b.degrees, 2 * (a.log_likelihood - b.log_likelihood)
    if degrees < 1 or twice < -SPREAD * (1 + abs(a.log_likelihood)):
        raise BadInput("restricted", f"{b.degrees} coefficients", f"is no part of the model of {a.degrees} of them")
    return HypothesisTest(max(twice, 0.0), degrees, float(stats.chi2.sf(max(twice, 0.0), degrees)))


def _fit_of(result: object) -> Fit:
    """From a result of a run."""
    if not isinstance(result, Fitted) or not hasattr(result.algorithm, "fit"):
        raise BadInput("fit", type(result).__name__, "give the result of a run of fs.Newton, or fs.Newton.fit(...)")
    algorithm: Fits = result.algorithm
    return algorithm.fit(result.server)


def _inverse(fit: Fit) -> torch.Tensor:
    """`(H + R)^{-1}`; directions that change no difference of scores are filled, and contrasts do not see them."""
    H = fit.hessian + torch.diag(fit.ridge)
    redundant = fit.layout.redundant(fit.ridge)
    found: torch.Tensor = torch.linalg.inv(H + float(H.diagonal().mean()) * redundant @ redundant.T)
    return found
