"""What every algorithm must do on every engine. The table of algorithms is in every_algorithm.py."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from every_algorithm import BY_NAME, EVERYWHERE, ONCE, algorithm
from torch import nn
from wrappers import Hurried, Notebook, Only, Weighing, Witness, copied

from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.randomness import ClientKeys, server_generator
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Lossy, Metered
from fedsaddle.runs.checkpoints import Checkpoints, RunIdentity, restore_record
from small import alike, loopback, play, relabelled, serial, vectorised

everywhere = pytest.mark.parametrize(("case", "world"), EVERYWHERE)
once = pytest.mark.parametrize(("case", "world"), ONCE)
by_name = pytest.mark.parametrize(("case", "world"), BY_NAME)
engines = pytest.mark.parametrize("engine", [serial, vectorised])


def near(a, b, atol=1e-10):
    """Two states, field by field."""
    assert type(a) is type(b)
    for f in fields(a):
        u, v = getattr(a, f.name), getattr(b, f.name)
        if isinstance(u, torch.Tensor):
            torch.testing.assert_close(u, v, rtol=0, atol=atol)
        elif isinstance(u, float):
            assert u == pytest.approx(v, abs=atol)
        else:
            assert u == v, f.name


def lossy_run(alg, clients, rounds):
    """A run in which some replies are lost, but never all of an exchange."""
    for seed in range(50):
        witness = Witness(Lossy(clients(), share=0.3, seed=seed))
        try:
            states = play(alg, witness, rounds)
        except NobodyAnswered:
            continue
        if sum(len(c) for c in witness.answered) < sum(len(np.unique(c)) for c in witness.asked):
            return states, witness
    raise AssertionError("no seed loses some but not all")


@everywhere
def test_a_whole_chunk_at_once_is_one_client_after_the_other(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    expected = play(alg, SerialEngine(rows), 2)
    assert not torch.equal(alg.model(expected[-1]), alg.model(expected[0]))
    for chunk, workers in ((1, 1), (3, 1), (3, 2), (rows.count, 1)):
        for a, b in zip(play(alg, VectorisedEngine(rows, chunk=chunk, workers=workers), 2), expected, strict=True):
            near(a, b)


@by_name
def test_the_state_counts_its_rounds(case, world):
    """By which schedules of steps, checkpoints and keyed draws go."""
    states = play(algorithm(case, world), vectorised(world.rows()), 3)
    names = {f.name for f in fields(states[0])}
    if "rounds" in names and "stage" not in names:  # of stages it is the round within
        assert [state.rounds for state in states] == [0, 1, 2, 3]


@once
def test_the_number_of_threads_does_not_matter(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    two, three = (play(alg, VectorisedEngine(rows, chunk=2, workers=w), 2)[-1] for w in (2, 3))
    assert same(two, three)


@once
def test_workers_have_the_bits_of_threads(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    threads, workers = VectorisedEngine(rows, chunk=2, workers=2), loopback(algorithm(case, world), world.rows())
    for a, b in zip(play(alg, workers, 3), play(alg, threads, 3), strict=True):
        assert same(a, b)
    assert workers.samples == threads.samples > 0
    kept, others = threads.memory.kept, workers.memory.kept
    assert kept.keys() == others.keys()
    assert all(same(kept[i], others[i]) for i in kept)


@once
def test_the_order_in_which_threads_finish_does_not_matter(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    runs = [play(alg, Hurried(VectorisedEngine(rows, chunk=2, workers=2), late), 2)[-1] for late in (0, 1)]
    assert same(*runs)


@once
@engines
def test_lost_replies_are_not_counted(case, world, engine):
    rows, alg = world.rows(), algorithm(case, world)
    states, lossy = lossy_run(alg, lambda: engine(rows), 4)
    filtered = Only(engine(rows), lossy.answered)
    for a, b in zip(states, play(alg, filtered, 4), strict=True):
        near(a, b)
    kept, only = lossy.inner.inner.memory.kept, filtered.inner.memory.kept
    assert kept.keys() == only.keys()
    assert all(same(kept[i], only[i]) for i in kept)


@once
@engines
def test_inputs_are_left_alone(case, world, engine):
    rows, alg = world.rows(), algorithm(case, world)
    before = (rows.x.clone(), rows.y.clone(), rows.offsets.copy())
    model = getattr(alg.problem, "model", None) or nn.Module()
    parameters = [p.detach().clone() for p in model.parameters()]
    clients = Witness(engine(rows))
    state = play(alg, clients, 2)[-1]
    untouched = copied(state)
    remembered = {i: copied(r) for i, r in clients.inner.memory.kept.items()}
    clients.begin(2)
    alg.round(state, clients, server_generator(0, 2))
    assert same(state, untouched)
    assert all(same(sent, copy) for sent, copy in clients.sent)
    assert all(same(record, remembered[i]) for i, record in clients.inner.memory.kept.items())
    assert torch.equal(rows.x, before[0])
    assert torch.equal(rows.y, before[1])
    assert np.array_equal(rows.offsets, before[2])
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), parameters, strict=True))


@once
@engines
def test_resuming_is_not_stopping(case, world, engine, tmp_path):
    """Each round in a new world, from the files that the one before has left."""
    whole = play(algorithm(case, world), engine(world.rows()), 6)
    folder = Checkpoints(tmp_path, RunIdentity("contract"), keep=1)
    for r in range(6):
        alg, clients = algorithm(case, world), engine(world.rows())
        state = alg.start(clients)
        if r:
            found, _ = folder.newest()
            state = restore_record(state, found.server)
            clients.memory.restore(alg, lambda i, rows=clients.rows: LocalSite.alone(rows, i), found.memory)
        state = play(alg, clients, 1, state=state, first=r)[-1]
        assert same(state, whole[r + 1])
        folder.save(r, state, clients.memory.kept, {})


@by_name
@engines
def test_a_round_that_was_not_committed_can_be_played_again(case, world, engine):
    rows, alg = world.rows(), algorithm(case, world)
    clean = play(alg, engine(rows), 3)
    clients = engine(rows)
    play(alg, clients, 2)
    clients.begin(2)
    alg.round(clean[1], clients, server_generator(99, 2))  # never committed
    assert same(play(alg, clients, 1, state=clean[2], first=2)[-1], clean[3])


@by_name
@engines
def test_the_seed_decides(case, world, engine):
    rows, alg = world.rows(), algorithm(case, world)

    def last(seed, server_seed):
        return play(alg, engine(rows, seed=seed), 2, seed=server_seed)[-1]

    first = last(1, 1)
    assert same(last(1, 1), first)
    assert not same(last(2, 2), first)
    assert same(last(2, 1), first) != case.draws_rows, "clients must draw from their own seed"


@by_name
@engines
def test_relabelling_the_clients_relabels_the_result(case, world, engine):
    rows, alg = alike(world.rows()), algorithm(case, world)
    order = np.array([3, 5, 0, 1, 4, 2])  # new client i is old client order[i]
    rename = np.argsort(order)  # old client j is new client rename[j]
    twin = alg
    if getattr(getattr(alg, "regulariser", None), "prior", None) is not None:  # a prior names clients too
        twin = replace(alg, regulariser=replace(alg.regulariser, prior=alg.regulariser.prior[order]))
    old, new = engine(rows), engine(relabelled(rows, order))
    new.draw = lambda seed, round, exchange, clients: ClientKeys.of(seed, round, exchange, order[clients])
    a, b = alg.start(old), twin.start(new)
    for r in range(4):
        old.begin(r), new.begin(r)
        notes = Notebook(server_generator(0, r))
        a = alg.round(a, old, notes)
        b = twin.round(b, new, Notebook(replay=notes.draws, rename=rename))
        old.commit(), new.commit()
    for f in fields(a):
        u, v = getattr(a, f.name), getattr(b, f.name)
        if isinstance(u, torch.Tensor):
            u = u[torch.from_numpy(order)] if len(u) == rows.count else u
            u = u[:, torch.from_numpy(order)] if u.shape == (rows.count, rows.count) else u  # pairs of clients
            torch.testing.assert_close(u, v, rtol=0, atol=1e-10, msg=f.name)


@by_name
@engines
def test_the_ledger_is_right(case, world, engine):
    rows, alg = world.rows(), algorithm(case, world)
    metered, weighing = Metered(engine(rows)), Weighing(serial(rows))
    for a, b in zip(play(alg, metered, 3), play(alg, weighing, 3), strict=True):
        near(a, b)
    ledger = metered.ledger
    assert (ledger.exchanges, ledger.bytes_down, ledger.bytes_up) == (weighing.exchanges, weighing.down, weighing.up)
    assert (ledger.asked, ledger.answered, ledger.samples) == (weighing.runs, weighing.runs, weighing.samples)
    shown = {name for name, how in ledger.fields.items() if how != "averaged"}
    assert shown == weighing.shown == set(case.shows)


@by_name
def test_the_ledger_knows_who_did_not_answer(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    _, witness = lossy_run(alg, lambda: SerialEngine(rows), 3)
    metered = Metered(Lossy(SerialEngine(rows), share=0.3, seed=witness.inner.seed))
    play(alg, metered, 3)
    assert metered.ledger.asked == sum(len(np.unique(c)) for c in witness.asked)
    assert metered.ledger.answered == sum(len(c) for c in witness.answered)
    assert metered.ledger.samples == witness.inner.inner.samples > 0


@once
def test_hyper_parameters_are_frozen(case, world):
    alg = algorithm(case, world)
    with pytest.raises(AttributeError):
        alg.sampled_clients = 1


@once
def test_the_solution_is_one_vector_of_the_problem(case, world):
    alg = algorithm(case, world)
    state = play(alg, SerialEngine(world.rows()), 3)[-1]
    start = alg.problem.initial()
    assert alg.model(state).shape == (start[0] if isinstance(start, tuple) else start).shape
    assert torch.isfinite(alg.model(state)).all()
