"""Draws among the rows of one label, and batches with a given share of positives."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedsaddle import FedAvg, Supervised
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.problems.models.networks import logistic_regression
from small import play, rows_of, seeded

LABELS = ([1, 0, 1, 0, 0], [0, 0, 0], [1, 1], [0, 1, 0, 0])  # the second has no positive, the third no negative


def rows() -> Stacked:
    g = torch.Generator().manual_seed(0)
    ys = [torch.tensor(y) for y in LABELS]
    return rows_of([torch.randn(len(y), 3, generator=g, dtype=torch.float64) for y in ys], ys)


def lazy() -> Lazy:
    whole = rows()
    return Lazy(whole.sizes, whole.client)


def site(store, clients=(0, 1, 2, 3), round=0):
    chosen = np.array(clients)
    return LocalSite(store, chosen, ClientKeys.of(7, round, 0, chosen))


@pytest.mark.parametrize("store", [rows, lazy])
@pytest.mark.parametrize("label", [0, 1])
def test_only_rows_of_the_label_are_drawn(store, label):
    held = rows()
    batch = site(store()).minibatch(0, 40, label=label)
    for c, labels in enumerate(LABELS):
        if label not in labels:
            assert batch.weight[c].sum() == 0
            continue
        assert batch.weight is None or (batch.weight[c] == 1).all()
        assert (batch.y[c] == label).all()
        assert torch.equal(batch.x[c], held.client(c)[0][batch.rows[c]])
        assert set(batch.rows[c].tolist()) == {i for i, y in enumerate(labels) if y == label}


def test_a_chunk_draws_what_each_client_draws_alone():
    together = site(rows(), (3, 0, 2)).minibatch(2, 5, label=1)
    for c, client in enumerate((3, 0, 2)):
        alone = site(rows(), (client,)).minibatch(2, 5, label=1)
        assert torch.equal(together.rows[c], alone.rows[0])


def test_nobody_has_the_label():
    batch = site(rows()).minibatch(0, 2, label=9)
    assert batch.weight.sum() == 0


def test_rows_of_a_plain_batch_are_named():
    batch = site(rows(), (0,)).minibatch(0, 6)
    assert torch.equal(batch.x[0], rows().client(0)[0][batch.rows[0]])


def test_a_balanced_batch_has_the_share_and_keeps_the_mean():
    store = replace(rows(), positives=0.5)
    total, draws = torch.zeros(4, dtype=torch.float64), 4000
    for r in range(draws):
        batch = site(store, round=r).minibatch(0, 6)
        assert (batch.y[0] == 1).sum() == 3
        total += (batch.x[..., 0] * batch.weight / batch.weight.sum(1, keepdim=True)).sum(1)
        torch.testing.assert_close(batch.weight.sum(1), torch.full((4,), 6.0, dtype=torch.float64))
    means = torch.stack([store.client(i)[0][:, 0].mean() for i in range(4)])
    torch.testing.assert_close(total / draws, means, rtol=0, atol=0.03)


def test_every_algorithm_sees_them():
    model = seeded(lambda: logistic_regression(3, 2))
    algorithm = FedAvg(problem=Supervised(model), batch_size=4, local_steps=2)
    plain = play(algorithm, SerialEngine(rows()), 2)[-1]
    balanced = play(algorithm, SerialEngine(replace(rows(), positives=0.5)), 2)[-1]
    assert torch.isfinite(balanced.w).all()
    assert not torch.equal(plain.w, balanced.w)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_impossible_shares_are_refused(share):
    with pytest.raises(BadInput, match="positives"):
        replace(rows(), positives=share)


def test_a_batch_of_one_cannot_be_balanced():
    with pytest.raises(BadInput, match="batch_size"):
        site(replace(rows(), positives=0.5)).minibatch(0, 1)


def test_the_two_sides_of_a_balanced_batch_have_streams_of_their_own():
    """Negatives come from the stream 128 higher, above all that algorithms use."""
    here = site(replace(rows(), positives=0.5), (0,))
    both = here.minibatch(1, 6, stream=5).rows[0]
    assert torch.equal(both[:3], here.minibatch(1, 3, stream=5, label=1).rows[0])
    assert torch.equal(both[3:], here.minibatch(1, 3, stream=5 + 128, label=0).rows[0])


@pytest.mark.parametrize(("share", "positives"), [(0.01, 1), (0.3, 1), (0.6, 2), (0.99, 3)])
def test_a_balanced_batch_has_a_row_of_each_side(share, positives):
    batch = site(replace(rows(), positives=share), (0,)).minibatch(0, 4)
    assert int((batch.y[0] == 1).sum()) == positives
