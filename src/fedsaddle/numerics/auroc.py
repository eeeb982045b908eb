"""The area under the ROC curve from scores and labels 1 and 0; ties count one half."""

from __future__ import annotations

import numpy as np
from scipy.stats import rankdata
from torch import Tensor


def auroc(scores: Tensor, labels: Tensor) -> float:
    """The share of pairs (positive, negative) in the right order; NaN where one side is missing."""
    s, positive = scores.double().numpy(), labels.numpy() > 0
    p, n = int(positive.sum()), int((~positive).sum())
    if p == 0 or n == 0:
        return float("nan")
    ranks = np.asarray(rankdata(s))
    return float((ranks[positive].sum() - p * (p + 1) / 2) / (p * n))
