"""How well scores rank positives above negatives: the pooled figures of a binary task."""

from __future__ import annotations

from torch import Tensor

from fedsaddle.numerics.roc import average_precision, partial_auroc, two_way_partial_auroc


def ranking_measures(scores: Tensor, labels: Tensor) -> dict[str, float]:
    """AUROC; partial AUROC up to false positive rates of .3 and .5 (McClish's scale, as scikit-learn's `max_fpr`);
    two-way partial AUROC (rates of at most .5 and at least .5); average precision. Empty where a class is missing."""
    s, y = scores.double().numpy(), labels.numpy()
    whole = partial_auroc(s, y, 1.0, standardise=False)
    if whole is None:
        return {}
    found = {
        "auroc": whole,
        "partial_auroc_30": partial_auroc(s, y, 0.3),
        "partial_auroc_50": partial_auroc(s, y, 0.5),
        "two_way_partial_auroc": two_way_partial_auroc(s, y, 0.5, 0.5),
        "average_precision": average_precision(s, y),
    }
    return {name: value for name, value in found.items() if value is not None}
