"""Bounds by hand, running scales, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.errors import BadInput, Diverged, NobodyAnswered
from fedsaddle.federation.records import Averaged, ExactBounds, PerClient, Pooled, UpdateOf, same
from fedsaddle.federation.reduction import Reduction
from fedsaddle.robust.reduction import Guard, Guarded, RunningScales

SIZES = np.array([7, 3, 11, 5, 2, 8])
EVERYONE = np.arange(6)


@dataclass(frozen=True)
class Sent:
    w: Tensor


@dataclass(frozen=True)
class Reply:
    final: Annotated[Averaged, UpdateOf("w")]
    slope: Averaged
    loss: PerClient
    scores: Annotated[Pooled, ExactBounds.WEIGHTS_FIRST]
    count: Annotated[Averaged, ExactBounds.COUNT]


def task(own, sent, site): ...


SENT = Sent(torch.full((4,), 100.0))


def honest(seed=0) -> Reply:
    g = torch.Generator().manual_seed(seed)
    rows = torch.randn(6, 5, 3, generator=g)
    rows[..., 0] = torch.from_numpy(SIZES)[:, None]
    return Reply(
        SENT.w + torch.randn(6, 4, generator=g), torch.randn(6, 4, generator=g), torch.rand(6, generator=g), rows,
        torch.tensor([7.0, 0, 3, 5, 1, 8]),
    )  # fmt: skip


def reduced(reply, guard=None, weights=None):
    guard = guard or Guard(fs.Robust(bounds=True), SIZES)
    reduction = guard(task, SENT)
    reduction.add(EVERYONE, np.ones(6) if weights is None else weights, reply)
    _, found = reduction.answer()
    guard.commit()
    return found, guard


def plain(reply):
    reduction = Reduction()
    reduction.add(EVERYONE, np.ones(6), reply)
    return reduction.answer()[1]


def test_honest_replies_have_the_bits_of_the_mean():
    found, guard = reduced(honest())
    assert same(found, plain(honest()))
    assert guard.report() == {"bounded": {}}


def test_an_update_that_is_too_long_is_made_as_long_as_usual():
    wrong = honest()
    usual = float((wrong.final[:5] - 100).norm(dim=1).median())
    wrong.final[5] = 100 - 1000 * torch.ones(4)
    wrong.slope[2] *= 1e6
    found, guard = reduced(wrong)
    assert guard.report() == {"bounded": {"2": {"slope": 1}, "5": {"final": 1}}}
    share = (6 * (found.final - 100) - (wrong.final[:5] - 100).sum(0)).norm()
    assert 0.5 * usual < float(share) < 2 * usual
    fine = honest()
    assert torch.equal(found.count, plain(fine).count)
    assert found.slope.norm() < 3


def test_a_loss_that_is_too_high_counts_as_the_median():
    wrong = honest()
    wrong.loss[4] = 1e9
    found, guard = reduced(wrong)
    assert float(found.loss[4]) == pytest.approx(float(np.median(wrong.loss.double().numpy())))
    assert guard.report() == {"bounded": {"4": {"loss": 1}}}
    low = honest()
    low.loss[4] = -1e9
    assert reduced(low)[1].counts == {}, "low losses give a client no weight"


def test_counts_and_weights_are_at_most_the_rows():
    wrong = honest()
    wrong.count[1], wrong.count[2] = 1e30, -5
    wrong.scores[0, :, 0] = 1e20
    wrong.scores[3, 2, 1] = 1e8
    found, guard = reduced(wrong)
    assert guard.report()["bounded"] == {"0": {"scores": 1}, "1": {"count": 1}, "2": {"count": 1}, "3": {"scores": 1}}
    assert float(found.count) == pytest.approx((7 + 3 + 0 + 5 + 1 + 8) / 6)
    weights = found.scores[:, 0].view(6, 5).mean(1)
    np.testing.assert_allclose(weights, SIZES)
    assert float(found.scores[:, 1].abs().max()) < 10


def test_labels_are_left_alone():
    reply = honest()
    reply.scores[..., 2] = torch.arange(5.0)
    reply.scores[1, :, 2] = 99
    assert same(reduced(reply)[0], plain(reply))


def test_most_clients_with_nothing_to_say():
    """An update of the few who have one is not compared with zeros."""
    reply = honest()
    reply.slope[:4] = 0
    assert same(reduced(reply)[0], plain(reply))


def test_scales_remember_what_was_usual_and_small_cohorts_are_compared_with_it():
    scales = RunningScales()
    for _ in range(6):
        scales.add("k", np.array([1.0, 2.0, 3.0]))
        scales.commit()
    assert scales.scale("k", np.array([1e6])) == 2
    assert scales.scale("k", np.array([5.0, 5.0, 5.0])) == 5, "all have grown"
    assert scales.scale("k", np.array([1e6, 1e6, 1e6])) == 6, "or the most are hostile"
    for _ in range(20):
        scales.add("k", np.array([0.01, 0.01, 0.01]))
        scales.commit()
    assert scales.running("k", np.empty(0)) == 0.01
    assert scales.scale("k", np.array([0.01, 0.01, 1.0])) == 2
    scales.add("k", np.full(3, 1e9))
    scales.begin()
    scales.commit()
    assert scales.largest["k"] == 2, "an unfinished round counts for nothing"
    assert scales.scale("new", np.zeros(3)) == 0
    again = RunningScales()
    again.restore(scales.to_dict())
    assert again == scales


@pytest.mark.parametrize("name", ["trimmed-mean", "median", "geometric-median", "centred-clipping"])
def test_huge_replies_are_finite_afterwards(name):
    """A mean of such numbers would not be."""
    wrong = honest()
    wrong.final[0], wrong.slope[1] = 3e38, -3e38
    with pytest.raises(Diverged):
        plain(Reply(wrong.final * torch.ones(1), wrong.slope, wrong.loss, wrong.scores, wrong.count * 1e38))
    for bounds in (False, True):
        found, _ = reduced(wrong, Guard(fs.Robust(aggregation=name, trim=0.3, bounds=bounds), SIZES))
        assert bool(torch.isfinite(found.final).all())
        assert (found.final - 100).norm() < 3
        assert found.slope.norm() < 3


def test_a_total_weight_of_zero_is_zero_as_before():
    found, _ = reduced(honest(), Guard(fs.Robust(aggregation="median"), SIZES), weights=np.zeros(6))
    assert found.final.tolist() == [0, 0, 0, 0]


def test_nobody_and_not_finite():
    guard = Guard(fs.Robust(bounds=True), SIZES)
    with pytest.raises(NobodyAnswered):
        guard(task, SENT).answer()
    wrong = honest()
    wrong.final[3, 1] = torch.nan
    with pytest.raises(Diverged, match="client 3 sent a 'final'"):
        guard(task, SENT).add(EVERYONE, np.ones(6), wrong)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"aggregation": "krum"}, "aggregation = 'krum'"),
        ({"trim": 0.5}, "trim = 0.5: must be below 0.5, or nothing is left; use aggregation = 'median'"),
        ({"trim": -0.1}, "trim"),
        ({"radius": 0.0}, "radius"),
        ({"iterations": 0}, "iterations"),
        ({"bounds": 1}, "bounds"),
        ({"norm_factor": 0.5}, "norm_factor"),
        ({"loss_factor": float("nan")}, "loss_factor"),
    ],
)
def test_settings_that_cannot_be(options, said):
    with pytest.raises(BadInput, match=said):
        fs.Robust(**options)


class Own(fs.Wrapper):
    """An engine of a user, that reduces by itself."""


def test_an_engine_of_ones_own_without_a_reduction():
    data = fs.load("iris", split="iid", clients=3)
    with pytest.raises(BadInput, match="engine = 'Own': reduces replies by itself"):
        Guarded(Own(fs.SerialEngine(data.train)), fs.Robust(bounds=True))


def test_resuming_with_another_setting_is_refused(tmp_path):
    data = fs.load("iris", split="iid", clients=3)
    make = lambda: fs.FedAvg(problem=fs.Supervised(nn.Linear(4, 3)))  # noqa: E731
    torch.manual_seed(0)
    algorithm = make()
    fs.run(algorithm, data, 2, out=tmp_path, robust=fs.Robust(aggregation="median"))
    with pytest.raises(BadInput, match="robust, attack = None: the run started with"):
        fs.run(algorithm, data, 3, out=tmp_path, resume=True)
    whole = fs.run(algorithm, data, 4, robust=fs.Robust(aggregation="median"))
    again = fs.run(algorithm, data, 4, out=tmp_path, resume=True, robust=fs.Robust(aggregation="median"))
    assert torch.equal(whole.model, again.model)
    assert again.summary["robust"]["aggregation"] == "median"
