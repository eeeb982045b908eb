"""BatchNorm for several clients at once: each has its own batch statistics and its own running ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from fedsaddle.errors import BadInput
from fedsaddle.numerics.bare_module import BareModule
from fedsaddle.numerics.keyed_draws import KeyedDraws

Keys = Callable[[], Tensor]
Named = dict[str, Tensor]
Pulled = tuple[Tensor, Callable[[Tensor], Tensor], Tensor | None]  # as `flat.Forward`
F = TypeVar("F", bound=Pulled)


def normalised_together(
    bare: BareModule, main: bool, parameters: Named, statistics: Named, x: Tensor, keys: Tensor | None, draws: bool
) -> Tensor:
    """The scores of all clients in one pass of vmap; in training their `statistics (C, ...)` are written to.

    `main` runs the module itself, else its twin in evaluation mode. With `draws` random functions ask the keys.
    """
    bare.module(x.device, main)  # made before vmap, which cannot
    each = torch.zeros(len(x), dtype=torch.int64, device=x.device) if keys is None else keys

    def one(own: Named, moving: Named, rows: Tensor, key: Tensor) -> Tensor:
        with drawing(None if keys is None else key, draws):
            return bare(own, rows, moving, main)

    scores: Tensor = torch.func.vmap(one, randomness="error")(parameters, statistics, x, each)
    return scores


def drawing(key: Tensor | None, draws: bool) -> KeyedDraws | nullcontext[None]:
    """Random functions ask the key, in a module that has some."""
    return KeyedDraws(key) if draws else nullcontext()


@contextmanager
def rows_enough() -> Iterator[None]:
    """Say in our words that a batch has one row."""
    try:
        yield
    except ValueError as reason:
        if "more than 1 value per channel" not in str(reason):
            raise
        remedy = "cannot normalise a batch of 1 row; draw more rows, or use nn.GroupNorm"
        raise BadInput("model", "BatchNorm", remedy) from None


def mixes_rows(module: nn.Module) -> bool:
    """Whether a row in training depends on how many others there are, running statistics apart.

    BatchNorm without these normalises by the batch; masks between recurrent layers are counted time step by time step.
    """
    return any(
        part.running_mean is None if isinstance(part, _BatchNorm) else part.dropout > 0 and not part.batch_first
        for part in module.modules()
        if isinstance(part, _BatchNorm | nn.RNNBase)
    )


def pulled_apart(
    pullback: Callable[[Tensor, Tensor, Keys | None], F], w: Tensor, x: Tensor, keys: Keys | None, sizes: Sequence[int]
) -> Pulled:
    """A pullback of clients one after the other, each with its first `sizes[c]` rows: the others are padding.

    Padding has scores of 0, and its slopes are not looked at.
    """

    def one(c: int, n: int) -> F:
        return pullback(w[c : c + 1], x[c : c + 1, :n], None if keys is None else lambda: keys()[c : c + 1])

    each = [one(c, int(n)) for c, n in enumerate(sizes)]
    scores = each[0][0].new_zeros(len(w), x.shape[1], *each[0][0].shape[2:])
    for c, (z, _, _) in enumerate(each):
        scores[c, : z.shape[1]] = z[0]

    def pull(slope: Tensor) -> Tensor:
        return torch.cat([back(slope[c : c + 1, : z.shape[1]]) for c, (z, back, _) in enumerate(each)])

    moved = [s for _, _, s in each if s is not None]
    return scores, pull, torch.cat(moved) if moved else None
