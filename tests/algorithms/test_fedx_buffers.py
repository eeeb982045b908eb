"""Shared scores as rows of numbers, and the server's buffer of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedsaddle.algorithms.fedx.scores import Buffer, Columns, Lazy


def lazy(parts):
    g = torch.Generator().manual_seed(0)
    h, u = (torch.randn(2, 5, n, generator=g) for n in (3, parts))
    return Lazy(h, torch.ones(2, 5), torch.rand(2, 5, generator=g), u)


@pytest.mark.parametrize("parts", [0, 2])
@pytest.mark.parametrize("label", [1, None])
def test_rows_of_numbers_and_back(label, parts):
    """Labels are a column only where the set has rows of several labels."""
    columns, sent = Columns(label, parts), lazy(parts)
    rows = columns.pack(sent)
    assert rows.shape == (2, 5, 1 + (label is None) + 3 + parts)
    assert torch.equal(Columns.weight(rows), sent.weight)
    back = columns.unpack(rows)
    for name in ("h", "y", "weight", "u"):
        assert torch.equal(getattr(back, name), getattr(sent, name)), name


def test_a_buffer_keeps_the_last_rounds_that_brought_any():
    """Padding, which weighs nothing, does not come in; a round without rows does not age the others."""
    rng, start = np.random.default_rng(0), torch.zeros(0, 2)
    buffer = Buffer(start, torch.zeros(0, dtype=torch.int64), mean=3.0, mean_among_holders=2.0)
    for round in range(3):
        came = torch.tensor([[4.0, float(round)], [0.0, 9.0], [1.0, float(round)]])
        buffer = buffer.updated(came, round, 2, rng)
    assert sorted(buffer.scores[:, 1].tolist()) == [1.0, 1.0, 2.0, 2.0]
    assert sorted(buffer.scores[:, 0].tolist()) == [0.5, 0.5, 2.0, 2.0]  # |S_i| over its mean among those who have any
    assert buffer.born.tolist() == [1, 1, 2, 2]
    after = buffer.updated(torch.zeros(1, 2), 3, 2, rng)
    assert torch.equal(after.scores, buffer.scores)
