"""Every algorithm on a device of Python's making, in every world: the bits of the CPU, and few transfers."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

import numpy as np
import pytest
import torch
from every_algorithm import EVERY_NAME, ONE_A_KIND, algorithm
from worlds import GRU, PATIENTS

from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.newton import Newton
from fedsaddle.data.store import Lazy
from fedsaddle.engines.simulated import DeviceEngine, VectorisedEngine
from fedsaddle.federation.randomness import ClientKeys, DeviceKeys
from fedsaddle.federation.records import same
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.problems.losses import CrossEntropy
from fedsaddle.problems.models.networks import mlp
from fedsaddle.problems.supervised import Supervised
from fedsaddle.robust.reduction import Guarded
from fedsaddle.robust.settings import Robust
from pretend import PRETEND, TRANSFERS
from small import classes, play, seeded

every_name = pytest.mark.parametrize(("case", "world"), EVERY_NAME)
one_a_kind = pytest.mark.parametrize(("case", "world"), ONE_A_KIND)


def test_the_device_refuses_tensors_of_the_cpu():
    """Else what runs there would prove nothing."""
    there = torch.arange(3.0, device=PRETEND)
    for mix in (
        lambda: there + torch.ones(3),
        lambda: there[torch.tensor([0])],
        lambda: torch.cat([there, there.cpu()]),
    ):
        with pytest.raises(RuntimeError, match="same device"):
            mix()


def test_draws_on_a_device_are_those_of_the_cpu():
    here = ClientKeys.of(5, 7, 2, np.array([0, 3, 17, 999_999]))
    there = DeviceKeys(torch.from_numpy(here.keys.view(np.int64)).to(PRETEND))
    sizes = np.array([5, 1, 100, 2**31 - 1])
    for step, stream in ((0, 0), (3, 1), (999_999, 200)):
        assert np.array_equal(here.words(step, 9, stream).view(np.int64), there.words(step, 9, stream).cpu().numpy())
        rows = there.rows(torch.from_numpy(sizes).to(PRETEND), step, 9, stream)
        assert np.array_equal(here.rows(sizes, step, 9, stream), rows.cpu().numpy())
        assert np.array_equal(here.uniforms(step, 9, stream), there.uniforms(step, 9, stream).cpu().numpy())


@every_name
def test_a_device_gives_the_bits_of_the_cpu(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    chunk = 6 if world is GRU else 3  # torch has a GRU of its own for a single client on a device, not on this one
    here, there = VectorisedEngine(rows, chunk=chunk), DeviceEngine(rows, device=PRETEND, chunk=chunk)
    for a, b in zip(play(alg, here, 2), play(alg, there, 2), strict=True):
        assert same(a, b)
    assert here.samples == there.samples
    kept = there.state().records
    assert kept.keys() == here.memory.kept.keys()
    assert all(same(kept[i], here.memory.kept[i]) for i in kept)


@one_a_kind
def test_rows_that_do_not_fit_are_sent_batch_by_batch(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    streamed = DeviceEngine(rows, device=PRETEND, chunk=3)
    streamed._resident = None
    expected = play(alg, VectorisedEngine(rows, chunk=3), 2)
    for a, b in zip(expected, play(alg, streamed, 2), strict=True):
        assert same(a, b)


@pytest.mark.parametrize("resident", [True, False])
def test_patients_are_known_on_a_device(resident):
    alg = Newton(problem=PATIENTS.problem(), sandwich=True)
    engine = DeviceEngine(PATIENTS.rows(), device=PRETEND, chunk=3)
    if not resident:
        engine._resident = None
    expected, found = (play(alg, each, 10)[-1] for each in (VectorisedEngine(PATIENTS.rows(), chunk=3), engine))
    assert expected.products is not None
    assert expected.units < expected.rows
    assert same(expected, found)


@one_a_kind
def test_an_exchange_costs_few_transfers_whatever_its_steps(case, world):
    """To the device: the message, and a few numbers for each block. From it: the reply, and whether it is finite."""
    engine = Exchanges(DeviceEngine(world.rows(), device=PRETEND, chunk=3))
    alg = algorithm(case, world)
    first = play(alg, engine, 1)  # rows are sent, labels are found
    engine.counts.clear()
    play(alg, engine, 1, first=1, state=first[-1])
    assert engine.counts
    for down, up, sent, replied, blocks in engine.counts:
        assert down <= sent + 8 * blocks
        assert up <= replied + 1 + 2 * blocks


def deep(record):
    """How many tensors a record has, with those of the records in it."""
    inner = [getattr(record, f.name) for f in fields(record)] if is_dataclass(record) else []
    return isinstance(record, torch.Tensor) + sum(map(deep, inner))


class Exchanges(Wrapper):
    """Counts transfers in every exchange."""

    def __init__(self, inner):
        super().__init__(inner)
        self.counts = []

    def ask(self, cohort, task, sent, *, weights=None):
        TRANSFERS.reset()
        answered, reply = self.inner.ask(cohort, task, sent, weights=weights)
        blocks = -(-len(answered) // self.inner.chunk)
        self.counts.append((TRANSFERS.down, TRANSFERS.up, deep(sent), deep(reply), blocks))
        return answered, reply


def test_a_reply_that_is_not_finite_is_left_out_as_on_the_cpu():
    rows = classes()
    poisoned = replace(rows, x=rows.x.clone())
    poisoned.x[rows.offsets[2] : rows.offsets[3]] = 1e200
    alg = FedAvg(
        problem=Supervised(seeded(lambda: mlp(4, [5], 3)), loss=CrossEntropy()), local_steps=2, primal_step=1e200
    )
    here, there = VectorisedEngine(poisoned, chunk=3), DeviceEngine(poisoned, device=PRETEND, chunk=3)
    ends = [play(alg, clients, 1)[-1] for clients in (here, there)]
    assert same(*ends)
    assert here.report() == there.report()
    assert "2" in there.report()["left_out"]
    assert here.samples == there.samples


@pytest.mark.parametrize("robust", [Robust(bounds=True), Robust(aggregation="median")], ids=["bounds", "median"])
def test_robust_aggregation_on_a_device_is_that_of_the_cpu(robust):
    rows, alg = classes(), FedAvg(problem=Supervised(seeded(lambda: mlp(4, [5], 3))), local_steps=2)
    engines = (VectorisedEngine(rows, chunk=3), DeviceEngine(rows, device=PRETEND, chunk=3))
    assert same(*(play(alg, Guarded(engine, robust), 3)[-1] for engine in engines))


def test_lazy_rows_run_on_a_device():
    rows = classes()
    lazy = Lazy(rows.sizes, rows.client)
    alg = FedAvg(problem=Supervised(seeded(lambda: mlp(4, [5], 3))), local_steps=2)
    assert same(
        *(play(alg, e, 2)[-1] for e in (VectorisedEngine(lazy, chunk=3), DeviceEngine(lazy, device=PRETEND, chunk=3)))
    )
