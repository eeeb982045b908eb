"""Cohorts, lost replies, and nobody at home."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from fedsaddle.errors import BadInput, NobodyAnswered
from fedsaddle.federation.clients import ClientsState, merge_repeats
from fedsaddle.federation.records import Averaged, PerClient
from fedsaddle.federation.wrappers import Ledger, Lossy, Metered
from small import classes, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])


@dataclass(frozen=True)
class Question:
    w: Tensor


@dataclass(frozen=True)
class Names:
    mean: Averaged
    each: PerClient


def name(own, sent, site):
    numbers = torch.from_numpy(site.clients).double()
    return None, Names(numbers, numbers)


HELLO = Question(torch.zeros(2))


def test_different_clients_stay_as_they_are():
    clients, weights = merge_repeats([4, 0, 2], None, 5)
    assert clients.tolist() == [4, 0, 2]
    assert weights.tolist() == [1, 1, 1]


def test_repeats_are_counted_in_order_of_first_appearance():
    clients, weights = merge_repeats([3, 1, 3, 0, 1, 3], None, 5)
    assert clients.tolist() == [3, 1, 0]
    assert weights.tolist() == [3, 2, 1]
    _, weights = merge_repeats([3, 1, 3], [0.5, 2.0, 0.25], 5)
    assert weights.tolist() == [0.75, 2.0]


def test_merging_leaves_its_arguments_alone():
    cohort, given = np.array([2, 2, 1]), np.array([1.0, 2.0, 3.0])
    merge_repeats(cohort, given, 5)
    assert cohort.tolist() == [2, 2, 1]
    assert given.tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("cohort", "named"), [([], "cohort"), ([[1, 2]], "cohort"), (3, "cohort = 3"), ([0, 5], "5"), ([-1, 2], "-1")]
)
def test_a_cohort_that_cannot_be(cohort, named):
    with pytest.raises(BadInput, match="cohort") as caught:
        merge_repeats(cohort, None, 5)
    assert named in str(caught.value)


def test_one_weight_for_each():
    with pytest.raises(BadInput, match=r"weights = \(2,\): give one weight for each of the 3"):
        merge_repeats([1, 2, 3], [1.0, 2.0], 5)


@engines
def test_weights_and_repeats_weigh_the_mean(engine):
    clients = engine(classes())
    who, reply = clients.ask([5, 1, 5, 2], name, HELLO, weights=[1.0, 3.0, 1.0, 0.5])
    assert who.tolist() == [5, 1, 2]
    assert reply.each.tolist() == [5, 1, 2]
    assert float(reply.mean) == pytest.approx((5 + 3 * 1 + 5 + 0.5 * 2) / 5.5)


@pytest.mark.parametrize("clients", [serial, vectorised, lambda rows: Lossy(serial(rows), 0.0)])
def test_weights_are_given_by_name(clients):
    with pytest.raises(TypeError, match="positional"):
        clients(classes()).ask([0], name, HELLO, [1.0])


@pytest.mark.parametrize("share", [-0.1, 1.0, 1.5, float("nan")])
def test_the_share_of_lost_replies(share):
    with pytest.raises(BadInput, match="share = "):
        Lossy(serial(classes()), share)


@engines
def test_nothing_is_lost_at_share_zero(engine):
    lossy = Lossy(engine(classes()), 0.0)
    lossy.begin(0)
    who, _ = lossy.ask(range(6), name, HELLO)
    lossy.commit()
    assert who.tolist() == list(range(6))
    assert (lossy.count, lossy.sizes.tolist(), lossy.samples) == (6, classes().sizes.tolist(), 0)


def test_the_share_that_is_lost():
    lossy, answered = Lossy(serial(classes([1] * 50)), 0.3, seed=4), 0
    for r in range(40):
        lossy.begin(r)
        answered += len(lossy.ask(range(50), name, HELLO)[0])
    assert answered / 2000 == pytest.approx(0.7, abs=0.04)


def test_who_is_lost_depends_on_seed_round_and_exchange():
    def answers(seed, round, exchange):
        lossy = Lossy(serial(classes([1] * 50)), 0.5, seed=seed)
        lossy.begin(round)
        for _ in range(exchange):
            lossy.ask(range(50), name, HELLO)
        return tuple(lossy.ask(range(50), name, HELLO)[0].tolist())

    cases = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
    assert len({answers(*c) for c in cases}) == 4
    assert answers(0, 1, 1) == answers(0, 1, 1)


def test_a_lost_client_is_lost_whoever_else_was_asked():
    def answers(cohort):
        lossy = Lossy(serial(classes([1] * 50)), 0.5)
        lossy.begin(3)
        return set(lossy.ask(cohort, name, HELLO)[0].tolist())

    everyone, few = answers(range(50)), answers([7, 3, 3, 20, 21, 22])
    assert few == everyone & {7, 3, 20, 21, 22}


def test_the_weights_of_the_lost_are_lost_with_them():
    lossy = Lossy(serial(classes([1] * 50)), 0.5)
    lossy.begin(0)
    weights = np.arange(1.0, 51.0)
    who, reply = lossy.ask(range(50), name, HELLO, weights=weights)
    assert float(reply.mean) == pytest.approx(float(weights[who] @ who / weights[who].sum()))


def test_nobody_answers():
    lossy = Lossy(serial(classes([1] * 2)), 0.999)
    lossy.begin(0)
    with pytest.raises(NobodyAnswered, match="all 2 replies") as caught:
        lossy.ask([0, 1], name, HELLO)
    assert caught.value.exit_code == 3


def test_wrappers_pass_the_round_on():
    inner = serial(classes())
    outer = Metered(Lossy(inner, 0.0))
    outer.begin(5)
    assert inner.round == 5
    outer.ask([1], name, HELLO)
    assert inner.exchange == 1
    outer.begin(6)
    assert inner.exchange == 0
    inner.memory.pending[0] = "diary"
    outer.commit()
    assert inner.memory.kept == {0: "diary"}
    assert (outer.count, outer.sizes.tolist()) == (6, inner.sizes.tolist())


@pytest.mark.parametrize("count", [4, 5, 6])
def test_it_says_which_clients_there_are(count):
    with pytest.raises(BadInput, match=f"cohort = 9: clients are numbered 0 to {count - 1}$"):
        merge_repeats([0, 9], None, count)


def test_a_ledger_begins_at_nothing():
    assert Ledger().to_dict() == {
        "exchanges": 0, "bytes_down": 0, "bytes_up": 0, "asked": 0, "answered": 0, "samples": 0, "fields": {}
    }  # fmt: skip


def test_before_the_first_round_replies_are_lost_as_in_round_zero():
    fresh, begun = (Lossy(serial(classes([1] * 50)), 0.5) for _ in range(2))
    begun.begin(0)
    assert fresh.ask(range(50), name, HELLO)[0].tolist() == begun.ask(range(50), name, HELLO)[0].tolist()


def test_what_a_checkpoint_holds_is_a_value():
    with pytest.raises(FrozenInstanceError):
        ClientsState().notes = {"round": 3}
