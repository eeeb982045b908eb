"""Client memory and pooled fields, shown on the toy algorithm: its numbers are easy to work out by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from remembering import Diary, Model, Remembering
from torch import nn
from wrappers import Witness

from fedsaddle.engines.simulated import VectorisedEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import Diverged
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.problems.supervised import Supervised
from small import SIZES, classes, play, seeded, serial, vectorised

engines = pytest.mark.parametrize(
    "engine",
    [
        serial,
        vectorised,
        lambda rows: VectorisedEngine(rows, chunk=2, workers=2),
        lambda rows: VectorisedEngine(rows, chunk=99),
    ],
    ids=["serial", "chunks", "threads", "whole"],
)


@pytest.fixture
def toy():
    return Remembering(problem=Supervised(seeded(lambda: nn.Linear(4, 3))))


def ask(toy, clients, cohort, round=0, commit=True):
    clients.begin(round)
    result = clients.ask(cohort, toy.work, Model(toy.problem.initial()))
    if commit:
        clients.commit()
    return result


@engines
def test_only_clients_that_were_asked_remember(toy, engine):
    clients = engine(classes())
    ask(toy, clients, [4, 1])
    assert set(clients.memory.kept) == {1, 4}
    ask(toy, clients, [1, 2], round=1)
    visits = {i: float(record.visits) for i, record in clients.memory.kept.items()}
    assert visits == {1: 2.0, 2: 1.0, 4: 1.0}


@engines
def test_a_client_drawn_twice_runs_once(toy, engine):
    clients = engine(classes())
    who, reply = ask(toy, clients, [4, 1, 4])
    assert who.tolist() == [4, 1]
    assert reply.visits.tolist() == [1, 1]
    assert float(clients.memory.kept[4].visits) == 1


@engines
def test_memory_is_each_clients_own(toy, engine):
    clients = engine(classes())
    ask(toy, clients, range(6))
    alone = {}
    for i in range(6):
        one = serial(classes())
        ask(toy, one, [i])
        alone |= one.memory.kept
    for i in range(6):
        for name in ("drift", "visits", "marks"):
            a, b = getattr(clients.memory.kept[i], name), getattr(alone[i], name)
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


@engines
def test_a_number_for_each_row_and_none_for_padding(toy, engine):
    clients = engine(classes())
    ask(toy, clients, range(6))
    ask(toy, clients, [2, 4, 0], round=1)
    for i, n in enumerate(SIZES):
        marks = clients.memory.kept[i].marks
        assert marks.shape == (n,)
        visited = 2 if i in (0, 2, 4) else 1
        ramp = torch.arange(n) * (1.5 if visited == 2 else 1.0)  # at / 2 + at
        torch.testing.assert_close(marks - marks[0], ramp, rtol=0, atol=1e-12)


@engines
def test_known_and_new_clients_in_one_chunk(toy, engine):
    clients = engine(classes())
    ask(toy, clients, [0])
    _, reply = ask(toy, clients, [4, 0, 2], round=1)
    assert reply.visits.tolist() == [1, 2, 1]


@engines
def test_memory_counts_only_after_commit(toy, engine):
    clients = engine(classes())
    ask(toy, clients, [0, 1])
    before = dict(clients.memory.kept)
    ask(toy, clients, [1, 2], round=1, commit=False)
    assert set(clients.memory.kept) == {0, 1}
    assert all(same(clients.memory.kept[i], before[i]) for i in before)
    _, again = ask(toy, clients, [1, 2], round=1)
    assert again.visits.tolist() == [2, 1]


@engines
def test_a_later_exchange_of_the_round_sees_what_the_earlier_one_wrote(toy, engine):
    clients = engine(classes())
    clients.begin(0)
    sent = Model(toy.problem.initial())
    clients.ask([2, 3], toy.work, sent)
    _, reply = clients.ask([2, 3, 4], toy.work, sent)
    assert reply.visits.tolist() == [2, 2, 1]


@engines
def test_what_is_kept_shares_nothing_with_the_task(toy, engine):
    clients = engine(classes())
    ask(toy, clients, [0, 1, 2])
    record = clients.memory.kept[0]
    twin = Diary(*(t.clone() for t in (record.drift, record.visits, record.marks)))
    ask(toy, clients, [0, 1, 2], round=1, commit=False)
    assert same(clients.memory.kept[0], twin)


@engines
def test_a_client_may_forget(toy, engine):
    clients = engine(classes())
    ask(toy, clients, [0, 1, 2])
    clients.begin(1)
    clients.ask([1, 2, 5], toy.forget, Model(toy.problem.initial()))
    assert set(clients.memory.kept) == {0, 1, 2}, "not before the round is committed"
    _, reply = clients.ask([1, 0], toy.work, Model(toy.problem.initial()))
    assert reply.visits.tolist() == [1, 2], "a later exchange of the round finds it forgotten"
    clients.commit()
    assert set(clients.memory.kept) == {0, 1}
    _, reply = ask(toy, clients, [2, 1], round=2)
    assert reply.visits.tolist() == [1, 2]


@engines
def test_a_client_that_knew_nothing_may_forget(toy, engine):
    clients = engine(classes())
    clients.begin(0)
    sent = Model(toy.problem.initial())
    clients.ask([1, 2], toy.work, sent)
    clients.ask([1, 3], toy.forget, sent)
    clients.commit()
    assert set(clients.memory.kept) == {2}


@engines
def test_a_lost_client_remembers_what_it_did_before(toy, engine):
    clients = engine(classes())
    ask(toy, clients, range(6))
    before = dict(clients.memory.kept)
    witness = Witness(Lossy(clients, share=0.5, seed=3))
    ask(toy, witness, range(6), round=1)
    lost = set(range(6)) - set(witness.answered[0].tolist())
    assert 0 < len(lost) < 6
    for i in range(6):
        assert same(clients.memory.kept[i], before[i]) == (i in lost)


@engines
def test_a_client_that_is_left_out_remembers_what_it_did_before(toy, engine):
    rows = classes()
    clients = engine(rows)
    ask(toy, clients, range(6))
    before = dict(clients.memory.kept)
    rows.x[rows.offsets[2] : rows.offsets[3]] = torch.nan
    answered, _ = ask(toy, clients, range(6), round=1)
    assert answered.tolist() == [0, 1, 3, 4, 5]
    for i in range(6):
        assert same(clients.memory.kept[i], before[i]) == (i == 2)


@engines
def test_a_round_that_diverges_leaves_no_memory(toy, engine):
    rows = classes()
    rows.x.fill_(torch.nan)
    clients = engine(rows)
    with pytest.raises(Diverged, match="client 0 sent a 'step'"):
        ask(toy, clients, range(6))
    clients.begin(0)
    assert clients.memory.kept == {}
    assert clients.memory.pending == {}


@engines
def test_memory_comes_back_from_a_checkpoint(toy, engine):
    rows = classes()
    clients = engine(rows)
    ask(toy, clients, [0, 2, 4])
    stored = {i: {k: v.clone() for k, v in vars(record).items()} for i, record in clients.memory.kept.items()}
    again = engine(rows)
    again.memory.pending[5] = "unfinished"
    again.memory.restore(toy, lambda i: LocalSite.alone(rows, i), stored)
    assert again.memory.pending == {}
    assert again.memory.kept.keys() == clients.memory.kept.keys()
    assert all(same(again.memory.kept[i], record) for i, record in clients.memory.kept.items())
    _, a = ask(toy, clients, [4, 1, 0], round=1)
    _, b = ask(toy, again, [4, 1, 0], round=1)
    assert same(a, b)


@engines
def test_pooled_scores_are_one_heap_in_cohort_order(toy, engine):
    clients = engine(classes())
    who, reply = ask(toy, clients, [5, 0, 3, 1])
    assert who.tolist() == [5, 0, 3, 1]
    assert reply.scores.shape == (8,)
    singles = []
    for i in who.tolist():
        _, one = ask(toy, serial(classes()), [i])
        singles.append(one.scores)
    torch.testing.assert_close(reply.scores, torch.cat(singles), rtol=0, atol=1e-12)
    torch.testing.assert_close(reply.scores[1::2], 2 * reply.scores[::2], rtol=0, atol=1e-12)


def test_a_run_is_the_same_with_memory_on_every_engine(toy):
    expected = play(toy, serial(classes()), 5)[-1]
    for clients in (vectorised(classes()), VectorisedEngine(classes(), chunk=2, workers=2)):
        found = play(toy, clients, 5)[-1]
        np.testing.assert_allclose(found.w, expected.w, rtol=0, atol=1e-10)
        assert found.marks == pytest.approx(expected.marks, abs=1e-10)
