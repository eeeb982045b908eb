"""Rows fetched client by client are asked for by several threads at once."""

from __future__ import annotations

import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from fedsaddle.data.store import Lazy
from small import classes


class Slow(OrderedDict):
    """Another thread gets its turn after every look."""

    def __contains__(self, key):
        found = super().__contains__(key)
        time.sleep(1e-4)
        return found


def test_a_small_memory_shared_by_threads():
    """What one thread drops while another looks at it must be fetched again, not missed."""
    rows = classes([3] * 4)
    lazy = Lazy(rows.sizes, rows.client, keep=2)
    object.__setattr__(lazy, "_kept", Slow())
    wanted = np.random.default_rng(0).integers(0, 4, (4, 60))

    def fetch(clients):
        return all(torch.equal(lazy.client(int(i))[0], rows.client(int(i))[0]) for i in clients)

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(fetch, wanted))
