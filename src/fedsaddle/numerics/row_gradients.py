"""Sums of clipped gradients of single rows: how differential privacy takes a gradient.

For a chain of linear layers no row's gradient is formed: in a linear layer it is the outer product of the slope `d` in
the layer's output and the layer's input `h`, so that its norm is `|d| |h|` (Goodfellow 2015); and the sum of shortened
gradients is the gradient of rows whose slopes are shortened. Other modules go row by row through `torch.func.vmap`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from fedsaddle.numerics.chain import Chain, _slope
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.passes import ScoresCohorts
from fedsaddle.numerics.tensors import clip_factors

RowGradients = Callable[[Tensor, Tensor, Tensor], Tensor]  # (d,), (B, ...) and slopes -> (B, d)
MOST = 1 << 24  # numbers of rows' gradients at a time


class RowSums(NamedTuple):
    """The sum of clipped rows, and what each row counted."""

    total: Tensor  # (C, d)
    factors: Tensor  # (C, B)


class Bound(NamedTuple):
    """How rows are clipped."""

    limit: float  # the largest norm of a row's gradient
    weight: Tensor  # (C, B): at most 1; 0 for padding
    more: Tensor | None = None  # (C, B): squares of what else belongs to the row's gradient

    def factors(self, squares: Tensor) -> Tensor:
        """What each row counts, from the squares of its gradient in the model."""
        return clip_factors(squares if self.more is None else squares + self.more, self.limit, self.weight)


def row_scores(flat: FlatModel, w: Tensor, x: Tensor) -> list[Tensor]:
    """The scores of each client's rows, last in a list of what `row_sums` wants to see again."""
    chain = flat.linear_chain
    with torch.no_grad():
        return chain.forward(w, x) if chain is not None and chain.fits(x) else [flat.scores(w, x)]


def row_sums(
    flat: FlatModel, w: Tensor, x: Tensor, outputs: list[Tensor], slope: Tensor, bound: Bound, more: int = 0
) -> RowSums:
    """The sum over rows of their clipped gradients; `slope (C, B, ...)` is each row's own, in its scores.

    The total has room for `more` numbers at its end, which are the caller's to fill.
    """
    chain = flat.linear_chain
    if chain is not None and chain.fits(x):
        return chain_sums(chain, w, outputs, slope, bound, more)
    found = module_sums(flat, w, x, slope, bound)
    return RowSums(torch.nn.functional.pad(found.total, (0, more)), found.factors) if more else found


def chain_sums(chain: Chain, w: Tensor, outputs: list[Tensor], slope: Tensor, bound: Bound, more: int = 0) -> RowSums:
    """The same for a chain of linear layers, from the outputs of all layers."""
    d, last = slope, len(chain.links) - 1
    slopes: list[Tensor] = [d] * (last + 1)
    squares: Tensor | None = None
    weights = [part for part in _parts(chain, w) if part.ndim == 3]
    for k in range(last, -1, -1):
        d = slopes[k] = _slope(chain.links[k].activation, outputs[k + 1], d)
        before = torch.linalg.vector_norm(outputs[k], dim=-1).square_()
        own = torch.linalg.vector_norm(d, dim=-1).square_() * (before + 1 if chain.links[k].bias else before)
        squares = own if squares is None else squares + own
        d = torch.bmm(d, weights[k]) if k else d
    assert squares is not None
    factors = bound.factors(squares)
    total = w.new_empty(len(w), w.shape[1] + more)
    own = total[:, : w.shape[1]]
    _chain_total_(own, chain, outputs, slopes, factors)
    if not torch.isfinite(own.sum()):  # 0 times infinity: rows that count nothing must not be seen, either
        here = (factors != 0).unsqueeze(-1)
        outputs, slopes = ([torch.where(here, v, 0.0) for v in values] for values in (outputs, slopes))
        _chain_total_(own, chain, outputs, slopes, factors)
    return RowSums(total, factors)


def _chain_total_(total: Tensor, chain: Chain, outputs: list[Tensor], slopes: list[Tensor], factors: Tensor) -> None:
    """Write the sum of the rows' gradients, each counted by its factor, into `total (C, d)`."""
    into = iter(_parts(chain, total))
    for k, link in enumerate(chain.links):
        counted = slopes[k] * factors.unsqueeze(-1)
        next(into).baddbmm_(counted.mT, outputs[k], beta=0)
        if link.bias:
            next(into).copy_(counted.sum(1))


def module_sums(flat: FlatModel, w: Tensor, x: Tensor, slope: Tensor, bound: Bound) -> RowSums:
    """The same for any module, client by client, through the gradients of single rows."""
    totals, factors = [], []
    for c, own in enumerate(w.detach()):
        more = None if bound.more is None else bound.more[c]
        found = _client_sums(flat, own, x[c], slope[c], Bound(bound.limit, bound.weight[c], more))
        totals.append(found.total)
        factors.append(found.factors)
    return RowSums(torch.stack(totals), torch.stack(factors))


def _client_sums(flat: FlatModel, w: Tensor, x: Tensor, slope: Tensor, bound: Bound) -> RowSums:
    """Of one client: `w (d,)`, `x (B, ...)`."""

    def score(at: Tensor, row: Tensor, weighted: Tensor) -> Tensor:
        return (flat.bound(at)(row.unsqueeze(0)).squeeze(0) * weighted).sum()

    def one_by_one(at: Tensor, rows: Tensor, weighted: Tensor) -> Tensor:
        return torch.stack([each(at, row, own) for row, own in zip(rows, weighted, strict=True)])

    def as_clients(at: Tensor, rows: Tensor, weighted: Tensor) -> Tensor:
        return flat.pullback(at.expand(len(rows), -1), rows.unsqueeze(1)).pull(weighted.unsqueeze(1))

    each = torch.func.grad(score)
    gradients: RowGradients = torch.func.vmap(each, in_dims=(None, 0, 0), randomness="error")
    if isinstance(flat.module, ScoresCohorts):  # a pass of its own for several clients, of one row each
        gradients = as_clients
    elif not flat.takes_cohorts(x[None].expand(2, *x.shape)):
        gradients = one_by_one
    total, factors = torch.zeros_like(w), []
    rows = max(1, MOST // len(w))
    for first in range(0, len(x), rows):
        part = slice(first, first + rows)
        g = gradients(w, x[part], slope[part])
        more = None if bound.more is None else bound.more[part]
        kept = Bound(bound.limit, bound.weight[part], more).factors(g.square().sum(1))
        total += kept @ torch.where(torch.isfinite(g), g, 0.0)
        factors.append(kept)
    return RowSums(total, torch.cat(factors))


def _parts(chain: Chain, w: Tensor) -> list[Tensor]:
    """Views of `w (C, d)` as weights `(C, out, in)` and biases `(C, out)`, in order."""
    parts = iter(w.split_with_sizes(chain.sizes, -1))
    found: list[Tensor] = []
    for link in chain.links:
        found.append(next(parts).view(len(w), link.outputs, link.inputs))
        if link.bias:
            found.append(next(parts))
    return found
