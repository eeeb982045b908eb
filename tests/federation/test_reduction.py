"""Replies reduced as they stream in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsaddle.errors import Diverged, NobodyAnswered
from fedsaddle.federation.records import Averaged, PerClient, Pooled
from fedsaddle.federation.reduction import Reduction, first_not_finite, weighted_sum


@dataclass(frozen=True)
class Reply:
    vector: Averaged
    number: Averaged
    scores: Pooled
    loss: PerClient
    extra: Averaged | None = None


@dataclass(frozen=True)
class Unsaid:
    vector: Averaged
    secret: Tensor


CLIENTS = np.array([7, 2, 9, 4, 0])
WEIGHTS = np.array([1.0, 2.0, 0.5, 3.0, 0.25])


def replies(extra: bool = False) -> Reply:
    return Reply(
        torch.randn(5, 3), torch.randn(5), torch.randn(5, 2), torch.randn(5), torch.randn(5, 2, 2) if extra else None
    )


def part(reply: Reply, s: slice) -> Reply:
    return Reply(*(None if v is None else v[s] for v in vars(reply).values()))


def reduce(reply: Reply, cuts: list[int]) -> tuple[np.ndarray, Reply]:
    reduction = Reduction()
    for a, b in zip([0, *cuts], [*cuts, 5], strict=True):
        reduction.add(CLIENTS[a:b], WEIGHTS[a:b], part(reply, slice(a, b)))
    return reduction.answer()


@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4], [3], [1, 4]])
@pytest.mark.parametrize("extra", [True, False])
def test_every_way_of_being_seen(cuts, extra):
    reply = replies(extra)
    who, reduced = reduce(reply, cuts)
    w = torch.from_numpy(WEIGHTS) / WEIGHTS.sum()
    assert who.tolist() == CLIENTS.tolist()
    torch.testing.assert_close(reduced.vector, w @ reply.vector, rtol=0, atol=1e-14)
    torch.testing.assert_close(reduced.number, w @ reply.number, rtol=0, atol=1e-14)
    assert reduced.number.ndim == 0
    assert torch.equal(reduced.scores, reply.scores.flatten())
    assert torch.equal(reduced.loss, reply.loss)
    if extra:
        torch.testing.assert_close(reduced.extra, torch.einsum("c,cij->ij", w, reply.extra), rtol=0, atol=1e-14)
    else:
        assert reduced.extra is None


def test_pooled_rows_may_be_vectors():
    @dataclass(frozen=True)
    class Heap:
        rows: Pooled

    reduction = Reduction()
    rows = torch.randn(5, 4, 3)
    Heap.__annotations__["rows"] = Pooled
    reduction.add(CLIENTS, WEIGHTS, Heap(rows))
    assert torch.equal(reduction.answer()[1].rows, rows.flatten(0, 1))


def test_sums_are_taken_in_the_order_given():
    big = Reply(torch.tensor([[1e16], [1.0], [-1e16]]), torch.zeros(3), torch.zeros(3, 1), torch.zeros(3))

    def vector(order):
        reduction = Reduction()
        for i in order:
            reduction.add(np.array([i]), np.ones(1), part(big, slice(i, i + 1)))
        return float(reduction.answer()[1].vector)

    assert vector([0, 2, 1]) == pytest.approx(1 / 3)
    assert vector([0, 1, 2]) == 0  # the 1 is lost beside 1e16


def test_replies_are_left_alone():
    reply = replies()
    before = [v.clone() for v in vars(reply).values() if v is not None]
    reduce(reply, [1, 2, 3, 4])
    assert all(
        torch.equal(a, b) for a, b in zip(before, [v for v in vars(reply).values() if v is not None], strict=True)
    )


def test_only_sums_are_kept_of_averaged_fields():
    reduction = Reduction()
    for i in range(5):
        reduction.add(CLIENTS[i : i + 1], WEIGHTS[i : i + 1], part(replies(), slice(i, i + 1)))
    assert reduction.sums["vector"].shape == (3,)
    assert set(reduction.lists) == {"scores", "loss"}


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("field", ["vector", "number", "scores", "loss"])
@pytest.mark.parametrize("cuts", [[], [1, 2, 3, 4], [2]])
def test_a_value_that_is_not_finite_names_its_client(bad, field, cuts):
    reply = replies()
    getattr(reply, field)[3] = bad
    with pytest.raises(Diverged, match=f"client 4 sent a '{field}'") as caught:
        reduce(reply, cuts)
    assert (caught.value.client, caught.value.field, caught.value.round, caught.value.exit_code) == (4, field, None, 3)


def test_the_first_of_several_is_named():
    reply = replies()
    reply.vector[2, 1] = torch.nan
    reply.vector[4] = torch.inf
    with pytest.raises(Diverged, match="client 9"):
        reduce(reply, [])


def test_infinities_that_cancel_are_seen():
    reply = replies()
    reply.vector[1], reply.vector[2] = torch.inf, -torch.inf
    with pytest.raises(Diverged, match="client 2"):
        reduce(reply, [])


def test_a_sum_that_overflows_is_seen():
    reply = replies()
    reply.vector[:] = 1e308
    with pytest.raises(Diverged, match="'vector' that is not finite"):
        reduce(reply, [])
    assert first_not_finite(CLIENTS, reply.vector) == 7


def test_nobody():
    with pytest.raises(NobodyAnswered, match="no client answered"):
        Reduction().answer()


def test_a_field_that_does_not_say_how_it_may_be_seen():
    with pytest.raises(TypeError, match=r"Unsaid\.secret must be Averaged, Pooled or PerClient"):
        Reduction().add(CLIENTS[:1], WEIGHTS[:1], Unsaid(torch.zeros(1, 2), torch.zeros(1, 2)))


@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3)])
def test_weighted_sum(shape):
    w, v = np.array([0.5, 2.0, 0.0, 1.0]), torch.randn(shape)
    torch.testing.assert_close(weighted_sum(w, v), sum(float(a) * b for a, b in zip(w, v, strict=True)))
    torch.testing.assert_close(weighted_sum(w[1:2], v[1:2]), 2 * v[1])


def test_single_precision_stays_single():
    assert weighted_sum(np.array([0.5, 2.0]), torch.randn(2, 3, dtype=torch.float32)).dtype == torch.float32
