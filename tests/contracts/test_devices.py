"""Every algorithm on a device of Python's making, in every world: the bits of the CPU, and few transfers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from every_algorithm import EVERYWHERE, ONCE, algorithm
from pretend import PRETEND, TRANSFERS
from worlds import GRU

from fedsaddle.data.store import Lazy
from fedsaddle.engines.on_device import OnDevice
from fedsaddle.engines.vectorised import Vectorised
from fedsaddle.federation.device_randomness import DeviceKeys
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.records import same
from small import play

everywhere = pytest.mark.parametrize(("case", "world"), EVERYWHERE)
once = pytest.mark.parametrize(("case", "world"), ONCE)


def test_the_device_refuses_tensors_of_the_cpu():
    """Else what runs there would prove nothing."""
    there = torch.arange(3.0, device=PRETEND)
    for mix in (lambda: there + torch.ones(3), lambda: there[torch.tensor([0])], lambda: torch.cat([there, there.cpu()])):
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


@everywhere
def test_a_device_gives_the_bits_of_the_cpu(case, world):
    rows, alg = world.rows(), algorithm(case, world)
    chunk = 6 if world is GRU else 3  # torch has a GRU of its own for a single client on a device, not on this one
    here, there = Vectorised(rows, chunk=chunk), OnDevice(rows, device=PRETEND, chunk=chunk)
    for a, b in zip(play(alg, here, 2), play(alg, there, 2), strict=True):
        assert same(a, b)
    assert here.samples == there.samples
    kept = there.state().records
    assert kept.keys() == here.memory.kept.keys()
    assert all(same(kept[i], here.memory.kept[i]) for i in kept)
