"""DORO's trimming: the largest losses of a cohort are left out, as they may be of wrong labels or of a lying client."""

from __future__ import annotations

from torch import Tensor

from fedsaddle.federation.clients import Ints


def without_outliers(clients: Ints, losses: Tensor, share: float) -> tuple[Ints, Tensor]:
    """The clients and their losses without the `floor(share m)` largest ones, in the same order; one at least stays.

    >>> import numpy as np, torch
    >>> without_outliers(np.array([4, 7, 9]), torch.tensor([1.0, 5.0, 2.0]), 0.34)
    (array([4, 9]), tensor([1., 2.]))
    """
    gone = min(int(share * len(clients)), len(clients) - 1)
    if gone == 0:
        return clients, losses
    kept = losses.argsort(descending=True, stable=True)[gone:].sort().values
    return clients[kept.cpu().numpy()], losses[kept]
