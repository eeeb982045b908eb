"""Standard errors, intervals and tests of the coefficients of an exact regression, from its exchanged sums."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from fedsaddle.arguments import choice, did_you_mean, flag, number
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.table import Encoded
from fedsaddle.errors import BadInput
from fedsaddle.problems.regression import Fit

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
SPREAD = 1e-8  # of a difference of log-likelihoods: below, it is rounding
ROUND_UNITS = (1, 2, 5)  # times powers of 10
TINY = 1e-4  # of a number in single precision: its rounding
ZERO_ONE = 0.02  # of p (1 - p), that the variance of a column of zeros and ones may be away from it


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

    @property
    def features(self) -> Sequence[str]:
        """The names of the columns; empty where they are unknown."""
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
        units: Of a sandwich, such as patients; as many as rows where each row is a unit.
        classes: Where there are several: those that are compared with the first one.
        level: Of the intervals.
        freedom: Degrees of freedom of Student's law; None: the normal law.
        penalised: Whether the coefficients are those of a penalised likelihood. Their covariance is then that of the
            penalised coefficients around their own expectation, which a penalty draws towards 0: intervals are too
            narrow for the true coefficients, and p-values too large or small, unless with `prior`. Fit without l2 for
            tests.
        prior: Whether the covariance allows for the penalty, as that of a normal prior.
    """

    names: tuple[str, ...]
    estimate: Floats
    covariance: Floats
    rows: int
    level: float = 0.95
    freedom: int | None = None
    penalised: bool = False
    prior: bool = False
    units: int | None = None
    classes: tuple[str, ...] = ()

    @property
    def robust(self) -> bool:
        """Whether the covariance is the sandwich."""
        return self.units is not None

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

    def combined(self, combinations: ArrayLike, names: Sequence[str]) -> Inference:
        """The same for linear combinations of the coefficients, such as differences of two.

        Args:
            combinations: A matrix with a row for each combination and a column for each coefficient.
            names: Of the combinations.

        Raises:
            BadInput: if the matrix does not fit.
        """
        L = np.atleast_2d(np.asarray(combinations, dtype=np.float64))
        if L.shape != (len(names), len(self.names)):
            want = f"a row for each of {len(names)} names and a column for each of {len(self.names)} coefficients"
            raise BadInput("combinations", L.shape, f"give {want}")
        return replace(self, names=tuple(names), estimate=L @ self.estimate, covariance=L @ self.covariance @ L.T)

    def per(self, data: FederatedData, units: Mapping[str, float] | None = None) -> Inference:
        """The effects of a table's columns in units that a person knows: "age, per 10", "smoker: yes against no".

        A number column is shown by a round unit near its standard deviation, of whole numbers at least 1, or by the one
        given, and one that was
        trained by its logarithm per doubling of 1 + the number; a category against the first one, or against the other
        one of two. Intercepts and columns with hinges have no place here.

        Args:
            data: The data that the model was trained on, with columns of a table.
            units: The unit of some number columns, such as `{"age": 10}`.

        Raises:
            BadInput: if the data have no columns, or `units` names another column.

        Examples:
            >>> import pandas as pd
            >>> import fedsaddle as fs
            >>> row = {"age": [30, 41, 52, 66, 71, 45], "smoker": ["no", "no", "yes", "yes", "no", "yes"]}
            >>> table = pd.concat([pd.DataFrame(row | {"site": site}) for site in "abcdefghij"], ignore_index=True)
            >>> table["died"] = [0, 1, 1, 1, 0] * 12
            >>> data = fs.federate(fs.from_frame(table, label="died", site="site"), fs.splits.Natural("site"))
            >>> problem = fs.Supervised(torch.nn.Linear(2, 1), fs.losses.Logistic())
            >>> result = fs.run(fs.Newton(problem=problem), data, rounds=10)
            >>> fs.inference(result).per(data).names
            ('age, per 20', 'smoker: yes against no')
        """
        return self.combined(*self.combinations_per(data, units))

    def combinations_per(
        self, data: FederatedData, units: Mapping[str, float] | None = None
    ) -> tuple[Floats, list[str]]:
        """The linear combinations of the coefficients, and their names, that `per` shows; takes the same arguments."""
        found = _contrasts(data, {} if units is None else units)
        at = {name: j for j, name in enumerate(self.names)}
        names, rows = [], []
        for one in self.classes or ("",):
            front = f"{one}: " if one else ""
            for name, parts in found:
                row = np.zeros(len(self.names))
                for feature, weight in parts:
                    if front + feature not in at:
                        raise BadInput("data", data.name, f"has a column {feature!r} that the fit has not")
                    row[at[front + feature]] = weight
                names.append(front + name)
                rows.append(row)
        return np.reshape(rows, (len(names), len(self.names))), names

    def to_pandas(self, *, ratios: bool = False) -> pd.DataFrame:
        """A table with a row for each coefficient.

        Args:
            ratios: Whether estimates and bounds are given as their exponentials: odds ratios of a logistic model and of
                several classes, rate ratios of counts, hazard ratios of times to an event.
        """
        import pandas as pd

        low, high = self.interval.T
        if ratios:
            columns = {"ratio": np.exp(self.estimate), "low": np.exp(low), "high": np.exp(high)}
            return pd.DataFrame({**columns, "p_value": self.p_value}, index=list(self.names))
        columns = {"estimate": self.estimate, "standard_error": self.standard_error, "statistic": self.statistic}
        return pd.DataFrame({**columns, "p_value": self.p_value, "low": low, "high": high}, index=list(self.names))


def _contrasts(data: FederatedData, units: Mapping[str, float]) -> list[tuple[str, list[tuple[str, float]]]]:
    """What a person compares: its words, and the features with their weights."""
    if not data.encoding:
        raise BadInput("data", data.name, "has no columns of a table; use to_pandas, or combined")
    columns: dict[str, list[Encoded]] = {}
    for feature in data.encoding:
        if feature.kind != "site":
            columns.setdefault(feature.column, []).append(feature)
    numbers = [name for name, own in columns.items() if any(f.kind == "number" for f in own)]
    for name, unit in units.items():
        if name not in numbers:
            raise BadInput("units", name, f"is no number column; {did_you_mean(name, numbers)}choose another")
        number(f"units[{name!r}]", unit, above=0)
    found: list[tuple[str, list[tuple[str, float]]]] = []
    for name, own in columns.items():
        if any(f.kind == "hinge" for f in own):
            continue
        if name in numbers:
            found += [_of_number(f, units.get(name), _whole(data, f)) for f in own]
        else:
            found += _of_categories(own, data.seen.values.get(name, ()))
    return found


def _whole(data: FederatedData, feature: Encoded) -> bool:
    """Whether all values of a number column in the training rows are whole, but for those that fill missing cells."""
    if feature.kind != "number" or feature.log:
        return False
    x = data.train.x[:, list(data.encoding).index(feature)].double()
    value = x * feature.std + feature.mean
    filled = (feature.number(np.array([np.nan]))[0] - x).abs() < TINY
    near = (value - value.round()).abs() <= TINY * (1 + value.abs())
    clipped = x.abs() >= (math.inf if feature.clip is None else feature.clip - TINY)
    return bool((near | filled | clipped).all())


def _of_number(feature: Encoded, unit: float | None, whole: bool) -> tuple[str, list[tuple[str, float]]]:
    """A unit more of a number, or a missing cell against the number that fills it."""
    if feature.kind == "missing":
        return f"{feature.column}: missing against filled", [(feature.name, 1.0)]
    if feature.log and unit is None:
        return f"{feature.column}, per doubling of 1 + it", [(feature.name, math.log(2) / feature.std)]
    if feature.log:
        remedy = "was trained by its logarithm, so that no unit has one effect; leave its unit out"
        raise BadInput("units", feature.column, remedy)
    spread = feature.mean * (1 - feature.mean)
    if unit is None and spread > 0 and abs(feature.std**2 - spread) <= ZERO_ONE * spread:
        return f"{feature.column}: 1 against 0", [(feature.name, 1 / feature.std)]
    if unit is None:
        unit = max(1.0, round_unit(feature.std)) if whole else round_unit(feature.std)
    return f"{feature.column}, per {unit:g}", [(feature.name, unit / feature.std)]


def _of_categories(own: Sequence[Encoded], seen: Sequence[str]) -> list[tuple[str, list[tuple[str, float]]]]:
    """Each value of a column against the first one, or the only one against the other."""
    words = {"missing": "missing", "other": "another value"}
    named = [(words.get(f.kind, f.category or ""), f.name) for f in own]
    if len(own) == 1:
        (word, name), others = named[0], [value for value in seen if value != named[0][0]]
        rest = others[0] if len(others) == 1 else "all others"
        return [(f"{own[0].column}: {word} against {rest}", [(name, 1.0)])]
    (first, base), *more = named
    return [(f"{own[0].column}: {word} against {first}", [(name, 1.0), (base, -1.0)]) for word, name in more]


def round_unit(spread: float) -> float:
    """The number nearest to it in ratio that is 1, 2 or 5 times a power of 10.

    Examples:
        >>> round_unit(12.3), round_unit(0.306), round_unit(700.0)
        (10.0, 0.2, 500.0)
    """
    power = math.floor(math.log10(spread))
    near = [k * 10.0**m for m in (power, power + 1) for k in ROUND_UNITS]
    return float(f"{min(near, key=lambda k: abs(math.log(k / spread))):.1g}")


def inference(
    fit: Fit | Fitted,
    *,
    columns: Iterable[str] | None = None,
    classes: Iterable[str] | None = None,
    covariance: str = "model",
    prior: bool = False,
    level: float = 0.95,
    small_sample: bool = False,
) -> Inference:
    """Standard errors of an exact regression.

    The model-based covariance is `φ H^{-1} / n` with the Hessian H of the mean negative log-likelihood and the variance
    φ of least squares, or 1; with a ridge R it is `φ (H + R)^{-1} H (H + R)^{-1} / n`. The sandwich has the sum over
    units of the outer products of their scores, by row, in place of φ H between the two inverses: take it with several
    rows a patient, for which the model-based covariance is too small. A unit is a patient where the data set has their
    column (`together`), else a row; a patient of two clients counts as two.

    Args:
        fit: The result of a run of `fs.Newton`, or `fs.Newton.fit(...)`.
        columns: The names of the columns; None: those of the run's data, else x0, x1 and so on.
        classes: The names of the classes, where there are several scores.
        covariance: "model", or "sandwich" (HC0), which wants `fs.Newton(..., sandwich=True)`.
        prior: Whether the penalty is taken as a normal prior of the coefficients: then `φ R` is added between the two
            inverses, for the model-based covariance `φ (H + R)^{-1} / n`. Such intervals allow for what the penalty
            draws away, and cover the true coefficients on average over them (Nychka 1988; Marra and Wood 2012).
        level: Of the intervals.
        small_sample: Multiply the sandwich by `g / (g - 1) (n - 1) / (n - q)` with g units, n rows and q coefficients;
            where each row is a unit that is HC1.

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
    flag("prior", prior)
    found = fit if isinstance(fit, Fit) else _fit_of(fit)
    layout, n, q = found.layout, found.rows, found.degrees
    if columns is None and isinstance(fit, Fitted) and fit.features:
        columns = fit.features
    columns, classes = _names("columns", columns, layout.inputs), _names("classes", classes, layout.outputs)
    freedom = n - q if found.estimates_variance else None
    if freedom is not None and freedom < 1:
        raise BadInput("rows", n, f"the variance of rows wants more rows than the {q} coefficients")
    variance = 1.0 if freedom is None else 2 * found.value * n / freedom
    if covariance == "sandwich":
        if found.products is None or found.units is None:
            raise BadInput("covariance", covariance, "wants outer products of scores; use fs.Newton(sandwich=True)")
        middle, units, freedom = found.products, found.units, None
        if small_sample:
            if units < 2 or n <= q:
                raise BadInput("small_sample", True, f"wants two units and more rows than the {q} coefficients")
            middle = middle * (units / (units - 1) * (n - 1) / (n - q))
    else:
        middle, units = variance * found.hessian, None
    if prior:
        middle = middle + variance * torch.diag(found.ridge)
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
        prior,
        units,
        () if contrasts is None else tuple(classes or map(str, range(layout.outputs)))[1:],
    )


def _names(key: str, given: Iterable[str] | None, wanted: int) -> list[str] | None:
    """The names as a list; None for None."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(name, str) for name in given):
        raise BadInput(key, given, f"must be a list of {wanted} names")
    names = list(given)
    if len(names) != wanted:
        raise BadInput(key, f"{len(names)} names", f"give {wanted}")
    return names


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
