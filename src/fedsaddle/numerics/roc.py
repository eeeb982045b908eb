"""The ROC curve of scores and labels 1 and 0, and areas under it, exactly: rows with equal scores are one step.

The whole area, the partial area and the average precision are those of scikit-learn, which the tests compare with; the
areas within limits of both rates, and under the staircases that bound a curve between known points, it has not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.arguments import number
from fedsaddle.array_types import Bools, Floats
from fedsaddle.errors import BadInput, NotFinite


def ranking_measures(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """The figures of a binary task: how well the scores rank positives above negatives.

    AUROC; partial AUROC up to false positive rates of .3 and .5 (McClish's scale, as scikit-learn's `max_fpr`); two-way
    partial AUROC (rates of at most .5 and at least .5); average precision. Empty where a class is missing. Raises
    `BadInput` for scores that are not finite.
    """
    up, down = _steps(*checked_rows(scores.detach(), labels))  # once: the sort is what takes time
    if (curve := _curve(up, down)) is None:
        return {}
    return {
        "auroc": _area(*curve),
        "partial_auroc_30": standardised(under_line(*curve, 0.3, 0.0), 0.3),
        "partial_auroc_50": standardised(under_line(*curve, 0.5, 0.0), 0.5),
        "two_way_partial_auroc": under_line(*curve, 0.5, 0.5) / 0.25,
        "average_precision": _average_precision(up, down),
    }


def roc_curve(scores: ArrayLike, labels: ArrayLike, weights: Floats | None = None) -> tuple[Floats, Floats] | None:
    """False and true positive rates from (0, 0) to (1, 1); None where one class is missing.

    Args:
        scores: (n,), higher for rows that are taken for positive.
        labels: (n,), above 0 for a positive row.
        weights: (n,), of the rows; None: all count alike.

    Examples:
        >>> roc_curve([0.9, 0.8, 0.1], [1, 0, 1])
        (array([0., 0., 1., 1.]), array([0. , 0.5, 0.5, 1. ]))
    """
    return _curve(*_steps(*checked_rows(scores, labels), weights))


def auroc(scores: ArrayLike, labels: ArrayLike, weights: Floats | None = None) -> float | None:
    """The area under the ROC curve: the share of pairs (positive, negative) in the right order, ties counted one half.

    None where one class is missing.

    Examples:
        >>> auroc([0.9, 0.8, 0.1], [1, 0, 1])
        0.5
    """
    curve = roc_curve(scores, labels, weights)
    return None if curve is None else _area(*curve)


def partial_auroc(
    scores: ArrayLike, labels: ArrayLike, max_fpr: float, *, standardise: bool = True, weights: Floats | None = None
) -> float | None:
    """The area up to a false positive rate: McClish-standardised as `roc_auc_score(max_fpr=...)`, or as it is.

    None where one class is missing.

    Examples:
        >>> partial_auroc([0.9, 0.8, 0.1], [1, 0, 1], 0.5, standardise=False)
        0.25
    """
    curve = roc_curve(scores, labels, weights)
    if curve is None:
        return None
    area = under_line(*curve, max_fpr, 0.0)
    return standardised(area, max_fpr) if standardise else area


def two_way_partial_auroc(scores: ArrayLike, labels: ArrayLike, max_fpr: float, min_tpr: float) -> float | None:
    """The area with a false positive rate of at most one and a true positive rate of at least the other.

    As a share of `max_fpr (1 - min_tpr)`: the AUROC of the hardest negatives against the hardest positives. None where
    one class is missing.
    """
    curve = roc_curve(scores, labels)
    return None if curve is None else under_line(*curve, max_fpr, min_tpr) / (max_fpr * (1 - min_tpr))


def average_precision(scores: ArrayLike, labels: ArrayLike, weights: Floats | None = None) -> float | None:
    """The mean precision over the positives, scikit-learn's `average_precision_score`; None without a positive.

    Examples:
        >>> average_precision([0.9, 0.8, 0.1], [1, 0, 0])
        1.0
    """
    up, down = _steps(*checked_rows(scores, labels), weights)
    return _average_precision(up, down) if up[-1] > 0 else None


def checked_rows(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Bools]:
    """Scores in double precision, and which rows are positive (labels above 0); refuses what has no order."""
    s, positive = np.asarray(scores, dtype=np.float64).ravel(), positives(labels).ravel()
    if s.shape != positive.shape:
        raise BadInput("labels.shape", positive.shape, f"give one label for each of the {len(s)} scores")
    if not np.isfinite(s).all():
        raise NotFinite("scores", "not finite", "a model that diverged has no ROC curve; try a smaller step")
    return s, positive


def positives(labels: ArrayLike) -> Bools:
    """Which rows are positive (labels above 0); a label that is missing or not a number is refused.

    Examples:
        >>> positives([1, 0, True]).tolist()
        [True, False, True]
    """
    given = np.asarray(labels)
    if given.dtype.kind in "iub":
        return np.asarray(given > 0)
    try:
        numbers = given.astype(np.float64)
    except (TypeError, ValueError):
        raise BadInput("labels", str(given.dtype), "must be numbers, above 0 for a positive row") from None
    if np.isnan(numbers).any():
        at = int(np.argmax(np.isnan(numbers)))
        raise BadInput(f"labels[{at}]", None, "the label is missing; leave the row out")
    return np.asarray(numbers > 0)


def under_line(fpr: Floats, tpr: Floats, max_fpr: float, min_tpr: float) -> float:
    """The area between the height `min_tpr` and the polygon through the points, up to `max_fpr`."""
    _check(max_fpr, min_tpr)
    # The polygon may cross the height between two points: add the point where it does.
    k = int(np.searchsorted(tpr, min_tpr))
    if k > 0 and tpr[k] > min_tpr:
        share = (min_tpr - tpr[k - 1]) / (tpr[k] - tpr[k - 1])
        crossing = fpr[k - 1] + share * (fpr[k] - fpr[k - 1])
        fpr, tpr = np.insert(fpr, k, crossing), np.insert(tpr, k, min_tpr)
    stop = int(np.searchsorted(fpr, max_fpr, side="right"))
    end = tpr[-1] if stop == len(fpr) else np.interp(max_fpr, fpr[stop - 1 : stop + 1], tpr[stop - 1 : stop + 1])
    x, height = np.append(fpr[:stop], max_fpr), np.maximum(np.append(tpr[:stop], end) - min_tpr, 0)
    return float(np.diff(x) @ (height[1:] + height[:-1]) / 2)


def under_steps(fpr: Floats, heights: Floats, max_fpr: float, min_tpr: float) -> float:
    """The same area under a staircase that is `heights[k]` high between `fpr[k]` and `fpr[k + 1]`."""
    _check(max_fpr, min_tpr)
    return float(np.diff(np.minimum(fpr, max_fpr)) @ np.maximum(heights - min_tpr, 0))


def standardised(area: float, max_fpr: float) -> float:
    """A partial area on McClish's scale: 0.5 for chance, 1 for the best."""
    least = max_fpr**2 / 2
    return 0.5 * (1 + (area - least) / (max_fpr - least))


def _steps(s: Floats, positive: Bools, weights: Floats | None = None) -> tuple[Floats, Floats]:
    """The weight of positives and of negatives among the highest scores, from 0 up; equal scores are one step."""
    order = np.argsort(-s, kind="stable")
    w = np.ones(len(s)) if weights is None else weights[order]
    last = np.append(np.flatnonzero(np.diff(s[order])), len(s) - 1) if len(s) else np.zeros(0, dtype=np.int64)
    up, down = (np.concatenate([[0.0], np.cumsum(w * side)[last]]) for side in (positive[order], ~positive[order]))
    return up, down


def _curve(up: Floats, down: Floats) -> tuple[Floats, Floats] | None:
    return None if up[-1] <= 0 or down[-1] <= 0 else (down / down[-1], up / up[-1])


def _area(fpr: Floats, tpr: Floats) -> float:
    return float((np.diff(fpr) * (tpr[1:] + tpr[:-1]) / 2.0).sum())


def _average_precision(up: Floats, down: Floats) -> float:
    """The sum, in scikit-learn's order, over falling recalls."""
    there = up[1:] + down[1:]
    precision = np.divide(up[1:], there, out=np.zeros_like(there), where=there > 0)
    recall = np.append(up[:0:-1] / up[-1], 0.0)
    return float(max(0.0, -np.sum(np.diff(recall) * precision[::-1])))


def _check(max_fpr: float, min_tpr: float) -> None:
    number("max_fpr", max_fpr, above=0, most=1)
    number("min_tpr", min_tpr, least=0, below=1)
