"""Whether vmap runs a module, found by a try."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def same_gradients(
    at: Tensor, alone: Callable[[], Tensor], together: Callable[[], Tensor], also: Sequence[Callable[[], Tensor]]
) -> bool:
    """Whether clients together have the gradients in `at` that they have alone, and `also` can be run.

    A warning, such as that of a slow way of torch's, counts as no.
    """
    with torch.enable_grad(), warnings.catch_warnings():
        expected = _gradient(alone(), at)
        warnings.simplefilter("error")
        try:
            same = torch.allclose(_gradient(together(), at), expected, rtol=1e-3, atol=1e-4)
            for run in also:
                _gradient(run(), at)
                with torch.no_grad():
                    run()
        except Exception:  # torch has many kinds
            return False
    return same


def _gradient(z: Tensor, at: Tensor) -> Tensor:
    """Of the scores, with slopes that differ."""
    slopes = torch.arange(z.numel(), device=z.device).to(z.dtype).cos().view(z.shape)
    return torch.autograd.grad(z, at, slopes)[0]
