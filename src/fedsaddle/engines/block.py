"""A block of a cohort: its clients take every step together, and their replies become one part of the sum.

A block has `chunk` clients, the last one of a cohort fewer. Which clients are in a block does not depend on how many
threads, processes or machines work, so neither does the rounding of sums: inside of a block in cohort order, then over
the blocks in cohort order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from fedsaddle.engines.device import CPU, moved
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import Diverged
from fedsaddle.federation.clients import Floats, Ints, Task
from fedsaddle.federation.records import only, tensors
from fedsaddle.federation.reduction import Part, finite_clients, part_of


def blocks_of(count: int, size: int) -> list[slice]:
    """A cohort of `count` clients in blocks of `size`."""
    return [slice(a, a + size) for a in range(0, count, size)]


@dataclass(frozen=True)
class BlockAnswer:
    """What the clients of a block answered; those whose replies are not finite are left out of all but `left_out`."""

    clients: Ints
    sizes: Tensor
    weights: Floats
    own: Any  # their new state, stacked
    answered: Part | Any  # their replies: as one part of a sum, or stacked
    left_out: tuple[Diverged, ...]
    samples: int


def run_block(task: Task[Any], own: Any, sent: Any, site: LocalSite, weights: Floats, summed: bool) -> BlockAnswer:
    """Run the task for the block; `summed`: add the replies up, else leave each as it is.

    Raises:
        Diverged: if every reply is finite, but their sum is not.
    """
    return replied(*task(own, sent, site), site, weights, summed)


def replied(own: Any, reply: Any, site: LocalSite, weights: Floats, summed: bool) -> BlockAnswer:
    """What the clients of a block answered, from their new state and their replies, stacked."""
    clients, sizes = site.clients, site.sizes
    try:
        answered = part_of(clients, weights, reply) if summed else _all_finite(clients, reply)
        return BlockAnswer(clients, sizes, weights, own, answered, (), site.samples)
    except Diverged:
        finite = finite_clients(reply)
        if finite.all():  # only their sum is not
            raise
    here = finite.cpu()  # the replies may be on a device
    lost = tuple(Diverged(int(clients[c]), _not_finite(reply, c)) for c in (~here).nonzero()[:, 0].tolist())
    kept, sizes = here.numpy(), sizes[here]
    if not kept.any():
        return BlockAnswer(clients[kept], sizes, weights[kept], None, None, lost, site.samples)
    clients, weights, reply = clients[kept], weights[kept], only(reply, finite)
    own = None if own is None else only(own, finite)
    answered = part_of(clients, weights, reply) if summed else reply
    return BlockAnswer(clients, sizes, weights, own, answered, lost, site.samples)


def brought(own: Any, reply: Any, site: LocalSite, weights: Floats, summed: bool) -> BlockAnswer:
    """What the clients of a block answered on a device, here; replies are added up there."""
    here = LocalSite(site.rows, site.clients, site.keys, site.samples)
    if not summed:
        return replied(moved(own, CPU), moved(reply, CPU), here, weights, summed)
    part = _part_here(part_of(site.clients, weights, reply, checks=False))
    if all(bool(torch.isfinite(value).all()) for value in part.fields.values()):
        return BlockAnswer(here.clients, here.sizes, weights, moved(own, CPU), part, (), here.samples)
    answer = replied(own, reply, here, weights, summed)
    answered = None if answer.answered is None else _part_here(answer.answered)
    return replace(answer, own=moved(answer.own, CPU), answered=answered)


def _part_here(part: Part) -> Part:
    return replace(part, fields={name: value.to(CPU) for name, value in part.fields.items()})


def _all_finite(clients: Ints, reply: Any) -> Any:
    """The replies, or raise `Diverged`."""
    finite = finite_clients(reply)
    if not finite.all():
        c = int((~finite).nonzero()[0, 0])
        raise Diverged(int(clients[c]), _not_finite(reply, c))
    return reply


def _not_finite(reply: Any, c: int) -> str:
    """The first field of a client's reply that is not finite."""
    return next(name for name, value in tensors(reply) if not bool(value[c].isfinite().all()))
