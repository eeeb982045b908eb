"""What both engines share: sites, streams, the store behind them, and refusals."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fedsaddle import Drfa, FedAvg, QFedAvg
from fedsaddle.data.store import Lazy
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput, Diverged
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import PerClient, same
from fedsaddle.problems.supervised import Supervised
from small import SIZES, classes, play, seeded, serial, text, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])


@dataclass(frozen=True)
class Nothing:
    w: Tensor


@dataclass(frozen=True)
class Sum:
    total: PerClient


def site(clients, rows=None, round=0):
    numbers = np.array(clients)
    return LocalSite(rows or classes(), numbers, ClientKeys.of(3, round, 0, numbers))


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


@pytest.mark.parametrize(("key", "options"), [("chunk", {"chunk": 0}), ("workers", {"workers": 0})])
def test_refusals(key, options):
    with pytest.raises(BadInput, match=f"{key} = 0") as caught:
        VectorisedEngine(classes(), **options)
    assert caught.value.key == key


def test_a_minibatch_is_rows_of_the_client():
    rows = classes()
    here = site([2, 4], rows)
    batch = here.minibatch(1, 5)
    picks = ClientKeys.of(3, 0, 0, np.array([2, 4])).rows(rows.sizes[[2, 4]], 1, 5)
    assert batch.weight is None
    for c, i in enumerate([2, 4]):
        x, y = rows.client(i)
        assert torch.equal(batch.x[c], x[picks[c]])
        assert torch.equal(batch.y[c], y[picks[c]])


def test_a_stream_gives_other_rows():
    here = site([2])
    assert not torch.equal(here.minibatch(0, 20).x, here.minibatch(0, 20, stream=1).x)
    assert not torch.equal(here.minibatch(0, 20).x, here.minibatch(1, 20).x)
    assert torch.equal(here.minibatch(0, 20).x, here.minibatch(0, 20).x)


@pytest.mark.parametrize("label", [None, 0, 1])
def test_rows_drawn_steps_ahead_are_those_of_each_step(label):
    """Also where the size of a batch changes on the way, or a step is asked for again."""
    rows, numbers = classes(), np.array([0, 2])
    at, keys = site(numbers, rows), ClientKeys.of(3, 0, 0, numbers)
    sizes, among = rows.sizes[numbers], None if label is None else rows.labelled(numbers, label)
    for step, size in [(k, 5) for k in range(40)] + [(40, 0), (41, 3), (42, 3), (43, 5), (41, 3)]:
        counts = sizes if among is None else np.maximum(among.counts, 1)
        drawn = keys.rows(counts, step, size, 2)
        expected = drawn if among is None else among.pick(drawn)
        assert (at.minibatch(step, size, 2, label).rows.numpy() == expected).all()


def test_everything_is_padded_with_weight_zero():
    rows = classes()
    batch = site([4, 2, 1], rows).everything()
    assert batch.x.shape == (3, 11, 4)
    assert batch.weight.sum(1).tolist() == [SIZES[4], SIZES[2], SIZES[1]]
    for c, i in enumerate([4, 2, 1]):
        x, y = rows.client(i)
        assert torch.equal(batch.x[c, : SIZES[i]], x)
        assert torch.equal(batch.y[c, : SIZES[i]], y)
        assert (batch.weight[c, : SIZES[i]] == 1).all()
        assert (batch.x[c, SIZES[i] :] == x[-1]).all(), "padding must not show another client's rows"


def test_texts_are_padded_with_floating_weights():
    batch = site([4, 2], text()).everything()
    assert batch.x.dtype == torch.int64
    assert batch.weight.dtype == torch.float64


def test_samples_are_counted():
    here = site([4, 2])
    here.minibatch(0, 5)
    here.everything()
    assert here.samples == 2 * 5 + SIZES[4] + SIZES[2]


def test_the_same_vector_for_each_client_costs_nothing():
    v = torch.randn(4)
    each = site([4, 2, 0]).broadcast(v)
    assert each.shape == (3, 4)
    assert each.data_ptr() == v.data_ptr()
    assert site([4, 2, 0]).sizes.tolist() == [SIZES[4], SIZES[2], SIZES[0]]


@engines
def test_exchanges_of_a_round_and_rounds_draw_other_rows(engine):
    clients = engine(classes([200, 200]))

    def total(own, sent, site):
        return None, Sum(site.minibatch(0, 10).x.sum((1, 2)))

    def ask():
        return clients.ask([0, 1], total, Nothing(torch.zeros(1)))[1].total.tolist()

    clients.begin(0)
    first, second = ask(), ask()
    clients.begin(1)
    third = ask()
    clients.begin(0)
    assert len({first[0], first[1], second[0], third[0]}) == 4
    assert ask() == first


@dataclass(frozen=True)
class FirstRows(ClientKeys):
    """Draws that are always 0, 1, 2, ... and around again."""

    def rows(self, sizes, step, size, stream=0):
        return np.arange(size)[None, :] % sizes[:, None]


@pytest.mark.parametrize("engine", [SerialEngine, VectorisedEngine])
def test_draws_can_be_handed_in(engine):
    """With batches of whole clients in order, one local step is a step along the full gradient."""
    rows, asked = classes([4, 4, 4]), []

    def draw(seed, round, exchange, clients):
        asked.append((seed, round, exchange, clients.tolist()))
        return FirstRows(np.zeros(len(clients), dtype=np.uint64))

    options = {"local_steps": 1, "batch_size": 4, "primal_step": 0.5}
    clients = engine(rows, seed=9, draw=draw)
    state = play(FedAvg(problem=problem(), **options), clients, 2)[1]
    w = problem().initial()
    whole = LocalSite.alone(type(rows)(rows.x, rows.y, rows.offsets[[0, -1]]), 0).everything()
    expected = w - 0.5 * problem().gradient(w[None], whole)[0]
    torch.testing.assert_close(state.w, expected, rtol=0, atol=1e-12)
    assert {(seed, exchange) for seed, _, exchange, _ in asked} == {(9, 0)}
    assert sorted(i for _, r, _, who in asked for i in who if r == 1) == [0, 1, 2]


@engines
@pytest.mark.parametrize("make", [FedAvg, Drfa, QFedAvg])
def test_rows_fetched_client_by_client_give_the_same_run(engine, make):
    rows = classes()
    fetched = []

    def load(i):
        fetched.append(i)
        return rows.client(i)

    algorithm = make(problem=problem(), sampled_clients=3, local_steps=2, batch_size=3)
    lazy = Lazy(rows.sizes, load, keep=2)
    for a, b in zip(play(algorithm, engine(lazy), 3), play(algorithm, engine(rows), 3), strict=True):
        assert same(a, b)
    assert set(fetched) <= set(range(6))
    assert len(lazy._kept) <= 2


@engines
def test_a_step_that_is_far_too_large_names_a_client(engine):
    rows = classes()
    rows.x.mul_(1e200)
    algorithm = FedAvg(problem=problem(), primal_step=1e200, local_steps=3)
    with pytest.raises(Diverged, match=r"client [0-5] sent a 'final'"):
        play(algorithm, engine(rows), 1)


@engines
def test_a_client_whose_replies_are_not_finite_is_left_out(engine):
    rows = classes()
    rows.x[rows.offsets[3] : rows.offsets[4]] *= 1e200
    algorithm, clients = FedAvg(problem=problem(), local_steps=3), engine(rows)
    found = play(algorithm, clients, 3)
    assert clients.left_out.to_dict() == {"left_out": {"3": {"sent a 'final' that is not finite": 3}}}
    others = engine(rows)
    ask, five = others.ask, np.array([0, 1, 2, 4, 5])
    others.ask = lambda cohort, task, sent, weights: ask(five, task, sent, weights=others.sizes[five])
    for a, b in zip(found, play(algorithm, others, 3), strict=True):
        torch.testing.assert_close(a.w, b.w, rtol=0, atol=1e-12)
    assert clients.samples > others.samples, "it has worked, in vain"


def test_an_error_in_a_thread_reaches_the_caller():
    def fails(own, sent, site):
        if 5 in site.clients:
            raise RuntimeError("client five")
        return None, Sum(torch.zeros(len(site.clients)))

    with pytest.raises(RuntimeError, match="client five"):
        VectorisedEngine(classes(), chunk=2, workers=2).ask(range(6), fails, Nothing(torch.zeros(1)))


def test_blocks_follow_the_chunk_alone():
    seen = []

    def where(own, sent, site):
        seen.append((site.clients.tolist(), threading.current_thread() is threading.main_thread()))
        return None, Sum(torch.zeros(len(site.clients)))

    for workers in (1, 2, 5):
        engine = VectorisedEngine(classes(), chunk=3, workers=workers)
        engine.ask([5, 0, 2, 1], where, Nothing(torch.zeros(1)))
        assert sorted(seen) == [([1], workers == 1), ([5, 0, 2], workers == 1)]
        seen.clear()


@pytest.mark.parametrize(("sizes", "seen"), [([5, 6, 7], [1]), ([5], [2])], ids=["several", "alone"])
@pytest.mark.parametrize("workers", [1, 2], ids=str)
def test_a_block_has_one_thread_of_torch_but_a_client_that_is_alone(workers, sizes, seen):
    """Products of matrices round by the number of torch's threads."""
    found = []

    def threads(own, sent, site):
        found.append(torch.get_num_threads())
        return None, Sum(torch.zeros(len(site.clients)))

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        VectorisedEngine(classes(sizes), chunk=6, workers=workers).ask([0], threads, Nothing(torch.zeros(1)))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert found == (seen if workers == 1 else [1])


@engines
def test_single_precision_runs(engine):
    rows = classes()
    single = type(rows)(rows.x.float(), rows.y, rows.offsets)
    module = seeded(lambda: nn.Linear(4, 3)).float()
    algorithm = Drfa(problem=Supervised(module), sampled_clients=3, local_steps=2, batch_size=3)
    state = play(algorithm, engine(single), 2)[-1]
    assert state.w.dtype == torch.float32
    assert state.lam.dtype == torch.float64
    exact = play(Drfa(problem=problem(), sampled_clients=3, local_steps=2, batch_size=3), SerialEngine(rows), 2)[-1]
    torch.testing.assert_close(state.w.double(), exact.w, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", [SerialEngine, VectorisedEngine])
def test_a_new_engine_stands_before_its_first_draw(kind):
    engine = kind(classes())
    assert (engine.seed, engine.round, engine.exchange, engine.samples) == (0, 0, 0, 0)
    assert kind(classes(), 7).seed == 7


def test_several_minibatches_lie_side_by_side():
    draws = [(2, 0, None), (3, 1, None), (1, 2, 0)]
    x, batches = site([2, 0]).minibatches(4, draws)
    assert x.shape == (2, 6, 4)
    assert torch.equal(x, torch.cat([b.x for b in batches], 1))
    for (size, stream, label), batch in zip(draws, batches, strict=True):
        alone = site([2, 0]).minibatch(4, size, stream, label)
        assert torch.equal(batch.rows, alone.rows)
        assert torch.equal(batch.x, alone.x)
        assert torch.equal(batch.y, alone.y)
