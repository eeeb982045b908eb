"""Weighted means of points that a few wrong points cannot move far: `(m, d)` points and `(m,)` weights, `(d,)` out.

All compute in double precision. Points are replies of clients; the weights are those of the mean that they replace.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

BLOCK = 1 << 16  # coordinates that are sorted at a time
CLOSE = 1e-12  # shares of the whole weight that count as equal


def trimmed_mean(points: Tensor, weights: Tensor, share: float) -> Tensor:
    """The mean of each coordinate without the lowest and the highest `share` of the weight.

    A point that lies across the edge counts with the part of its weight inside. `share = 0` is the mean.
    """

    def middle(x: Tensor, w: Tensor) -> Tensor:
        values, order = x.sort(dim=0)
        upto = w[order].cumsum(0)
        low, high = share * upto[-1], (1 - share) * upto[-1]
        kept = (torch.minimum(upto, high) - torch.maximum(upto - w[order], low)).clamp_(min=0)
        return (kept * values).sum(0) / kept.sum(0)

    return _by_coordinate(middle, points, weights)


def weighted_median(points: Tensor, weights: Tensor) -> Tensor:
    """The median of each coordinate: half of the weight on either side; between two such values the middle."""

    def halfway(x: Tensor, w: Tensor) -> Tensor:
        values, order = x.sort(dim=0)
        upto = w[order].cumsum(0)
        half, slack = upto[-1] / 2, CLOSE * upto[-1]
        lower = (upto < half - slack).sum(0, keepdim=True)
        upper = (upto <= half + slack).sum(0, keepdim=True).clamp_(max=len(x) - 1)
        return ((values.gather(0, lower) + values.gather(0, upper)) / 2)[0]

    return _by_coordinate(halfway, points, weights)


def geometric_median(points: Tensor, weights: Tensor, iterations: int = 100, tolerance: float = 1e-10) -> Tensor:
    """`argmin_v Σ_i weights_i |points_i - v|` by Weiszfeld's iteration, from the coordinate-wise median.

    A distance counts as at least `1e-10` of the median distance, so that a point that v meets does not hold it for ever
    (the smoothing of Pillutla, Kakade, Harchaoui 2022). Ends when a step is shorter than `tolerance` times that.
    """
    x, w = points.double(), weights.double()
    v = weighted_median(x, w)
    scale = float(_norms(x - v).median())
    if scale == 0:
        return v
    for _ in range(iterations):
        pull = w / _norms(x - v).clamp(min=1e-10 * scale)
        after = pull @ x / pull.sum()
        moved, v = float(_norms(after - v)), after
        if moved <= tolerance * scale:
            break
    return v


def centred_clipping(points: Tensor, weights: Tensor, centre: Tensor, radius: float, iterations: int = 3) -> Tensor:
    """`v ← v + Σ_i weights_i clip(points_i - v, radius) / Σ_i weights_i`, from `centre` (Karimireddy, He, Jaggi 2021).

    An infinite radius gives the mean.
    """
    x, w, v = points.double(), weights.double() / weights.double().sum(), centre.double()
    for _ in range(iterations):
        away = x - v
        short = (radius / _norms(away).clamp(min=1e-300)).clamp(max=1.0)
        v = v + (w * short) @ away
    return v


def _norms(x: Tensor) -> Tensor:
    found: Tensor = torch.linalg.vector_norm(x, dim=-1)
    return found


def _by_coordinate(of: Callable[[Tensor, Tensor], Tensor], points: Tensor, weights: Tensor) -> Tensor:
    """Apply a rule for each coordinate to blocks of coordinates; points of weight 0 do not count."""
    kept = weights > 0
    x, w = points[kept], weights[kept].double()
    return torch.cat([of(part.double(), w) for part in torch.split(x, BLOCK, 1)])
