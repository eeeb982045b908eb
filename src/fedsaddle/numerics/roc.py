"""The ROC curve of scores and labels 1 and 0, and areas under it, exactly: rows with equal scores are one step."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsaddle.errors import BadInput

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def counts_from_top(scores: ArrayLike, labels: ArrayLike) -> tuple[Ints, Ints]:
    """True and false positives at each distinct score, from the highest down, after a first entry of 0."""
    s, positive = np.asarray(scores, dtype=np.float64).ravel(), np.asarray(labels).ravel() > 0
    order = np.argsort(-s, kind="stable")
    s, tp = s[order], np.cumsum(positive[order])
    last = np.flatnonzero(np.append(s[1:] != s[:-1], True)) if len(s) else np.zeros(0, dtype=np.int64)
    true = np.concatenate([[0], tp[last]]).astype(np.int64)
    return true, np.concatenate([[0], last + 1]) - true


def roc_curve(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Floats] | None:
    """False and true positive rates from (0, 0) to (1, 1); None where one class is missing."""
    tp, fp = counts_from_top(scores, labels)
    return None if tp[-1] == 0 or fp[-1] == 0 else (fp / fp[-1], tp / tp[-1])


def partial_auroc(scores: ArrayLike, labels: ArrayLike, max_fpr: float, *, standardise: bool = True) -> float | None:
    """The area up to a false positive rate: McClish-standardised as `roc_auc_score(max_fpr=...)`, or as it is."""
    curve = roc_curve(scores, labels)
    if curve is None:
        return None
    area = under_line(*curve, max_fpr, 0.0)
    return standardised(area, max_fpr) if standardise else area


def two_way_partial_auroc(scores: ArrayLike, labels: ArrayLike, max_fpr: float, min_tpr: float) -> float | None:
    """The area with a false positive rate of at most one and a true positive rate of at least the other.

    As a share of `max_fpr (1 - min_tpr)`: the AUROC of the hardest negatives against the hardest positives.
    """
    curve = roc_curve(scores, labels)
    return None if curve is None else under_line(*curve, max_fpr, min_tpr) / (max_fpr * (1 - min_tpr))


def average_precision(scores: ArrayLike, labels: ArrayLike) -> float | None:
    """The mean precision over the positives, as scikit-learn's `average_precision_score`; None without a positive."""
    tp, fp = counts_from_top(scores, labels)
    if tp[-1] == 0:
        return None
    return float((np.diff(tp) * tp[1:] / (tp[1:] + fp[1:])).sum() / tp[-1])


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


def _check(max_fpr: float, min_tpr: float) -> None:
    if not 0 < max_fpr <= 1:
        raise BadInput("max_fpr", max_fpr, "must be above 0 and at most 1")
    if not 0 <= min_tpr < 1:
        raise BadInput("min_tpr", min_tpr, "must be at least 0 and below 1")
