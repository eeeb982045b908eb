"""The store of what clients remember: what is stacked as it is, and what is filled in from a fresh start."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.engines.site import LocalSite, Memory
from fedsaddle.federation.randomness import ClientKeys
from small import classes


@dataclass(frozen=True)
class Note:
    v: Tensor


@dataclass
class Keeper:
    """Its clients keep a vector; `asked` are the cohorts that needed a fresh one."""

    width: int
    asked: list[list[int]] = field(default_factory=list)

    def fresh(self, site):
        self.asked.append(site.clients.tolist())
        return Note(torch.full((len(site.clients), self.width), -1.0))

    def task(self, own, sent, site):
        return own, own


def site(*clients):
    numbers = np.array(clients)
    return LocalSite(classes(), numbers, ClientKeys.of(0, 0, 0, numbers))


def test_known_clients_need_no_fresh_start():
    keeper, memory = Keeper(2), Memory({1: Note(torch.tensor([1.0, 2.0])), 4: Note(torch.tensor([3.0, 4.0]))})
    assert memory.read(keeper.task, site(4, 1)).v.tolist() == [[3, 4], [1, 2]]
    assert keeper.asked == []
    assert memory.read(keeper.task, site(4, 0)).v.tolist() == [[3, 4], [-1, -1]]
    assert keeper.asked == [[4, 0]]


def test_records_of_unequal_length_are_filled_up():
    keeper, memory = Keeper(3), Memory({1: Note(torch.tensor([1.0])), 4: Note(torch.tensor([3.0, 4.0, 5.0]))})
    assert memory.read(keeper.task, site(1, 4)).v.tolist() == [[1, -1, -1], [3, 4, 5]]
