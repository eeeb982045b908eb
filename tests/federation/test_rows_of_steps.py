"""Rows of several steps at once are those of each step by itself, in whatever order steps are asked for."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.data.store import Stacked
from fedsaddle.engines import site as sites
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.randomness import ClientKeys

CLIENTS = np.array([4, 0, 2])
SIZES = np.array([7, 1, 1000])


@pytest.mark.parametrize("stream", [0, 3, 130])
def test_the_same_numbers(stream):
    keys = ClientKeys.of(5, 2, 1, CLIENTS)
    together = keys.rows_of_steps(SIZES, 3, 6, 10, stream)
    assert together.dtype == np.int64
    for k in range(6):
        np.testing.assert_array_equal(together[k], keys.rows(SIZES, 3 + k, 10, stream))


@pytest.mark.parametrize("most", [1, 40, 10**6])
def test_a_site_draws_the_same_however_it_is_asked(most, monkeypatch):
    """Steps in a row, again, skipped, backwards, and with other sizes and streams in between."""
    monkeypatch.setattr(sites, "AHEAD_ROWS", most)
    rows = Stacked(torch.arange(50.0)[:, None], torch.arange(50), np.arange(0, 51, 10))
    site = LocalSite(rows, CLIENTS, ClientKeys.of(1, 0, 0, CLIENTS))
    asked = [(k, 4, 0) for k in (*range(40), 3, 4, 5, 90, 91, 7)]
    asked += [(k, b, s) for k in range(5) for b in (4, 2) for s in (0, 1)]
    for step, size, stream in asked:
        batch = site.minibatch(step, size, stream)
        expected = site.keys.rows(np.full(3, 10), step, size, stream)
        np.testing.assert_array_equal(batch.rows.numpy(), expected)
        np.testing.assert_array_equal(batch.y.numpy(), expected + 10 * CLIENTS[:, None])
