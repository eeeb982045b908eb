"""The rule that picks chunk and threads."""

from __future__ import annotations

import ctypes
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from fedsaddle import FedAvg
from fedsaddle.data.store import Lazy
from fedsaddle.engines.choose import (
    BATCH_ROWS,
    CACHE_BYTES,
    FEWEST_CLIENTS,
    MAX_CLIENTS,
    MEMORY_BYTES,
    PARAMETERS,
    chunk_and_workers,
    device_engine,
    keep_freed_memory,
    make_engine,
)
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.errors import BadInput
from fedsaddle.problems.models.networks import CharacterGru, McMahanCnn
from fedsaddle.problems.supervised import Supervised
from small import classes, play, seeded, text
from small_modules import Pick, tokens


def problem():
    return Supervised(seeded(lambda: nn.Linear(4, 3)))


def of_dimension(*sizes):
    """A problem with one variable, or with several."""
    vectors = tuple(torch.zeros(d) for d in sizes)
    return SimpleNamespace(initial=lambda: vectors if len(sizes) > 1 else vectors[0])


@contextmanager
def torch_threads(number):
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    yield
    torch.set_num_threads(before)


def test_by_name():
    rows = classes()
    assert isinstance(make_engine("serial", problem(), rows, 3), SerialEngine)
    fast = make_engine("vectorised", problem(), rows, 3)
    assert isinstance(fast, VectorisedEngine)
    assert (fast.chunk, fast.workers, fast.seed) == (*chunk_and_workers(problem(), rows), 3)
    given = make_engine("vectorised", problem(), rows, 3, chunk=2, workers=2)
    assert (given.chunk, given.workers) == (2, 2)
    for other in ("quick", "xla"):
        with pytest.raises(BadInput, match=f"engine = '{other}': choose one of vectorised, processes, ray, serial"):
            make_engine(other, problem(), rows, 3)


def test_a_chunk_of_zero_is_refused_and_not_replaced_by_the_rule():
    with pytest.raises(BadInput, match="chunk = 0"):
        make_engine("vectorised", problem(), classes(), 3, chunk=0)
    with pytest.raises(BadInput, match="workers = 0"):
        make_engine("vectorised", problem(), classes(), 3, workers=0)


@pytest.mark.parametrize("option", ["chunk", "workers"])
def test_the_serial_engine_has_neither_chunk_nor_workers(option):
    with pytest.raises(BadInput, match=f"engine.{option} = 2"):
        make_engine("serial", problem(), classes(), 3, **{option: 2})


def test_small_models_share_a_large_chunk():
    assert chunk_and_workers(problem(), classes()) == (64, 1)


def test_a_chunk_of_models_fits_the_cache():
    batch = BATCH_ROWS * 4 * 8  # rows of four numbers in float64
    of_three = (CACHE_BYTES // 3 - batch) // 8
    assert chunk_and_workers(of_dimension(of_three), classes())[0] == 3
    assert chunk_and_workers(of_dimension(of_three // 2, of_three // 2), classes())[0] == 3
    assert chunk_and_workers(of_dimension(CACHE_BYTES), classes())[0] == 1


@pytest.mark.parametrize(
    ("entries", "chunk"), [(1000, MAX_CLIENTS), (7850, 25), (PARAMETERS // 8, 8), (199_210, FEWEST_CLIENTS)], ids=str
)
def test_larger_models_come_in_smaller_chunks_so_that_all_threads_have_some(entries, chunk):
    assert chunk_and_workers(of_dimension(entries), classes())[0] == chunk


@pytest.mark.parametrize(("clients", "threads", "workers"), [(10, 4, 2), (100, 4, 4), (3, 4, 1), (100, 1, 1)], ids=str)
def test_chunks_run_on_as_many_threads_as_torch_has(clients, threads, workers):
    with torch_threads(threads):
        assert chunk_and_workers(of_dimension(100_000), classes([4] * clients)) == (5, workers)


def test_threads_do_not_pay_for_the_smallest_models():
    with torch_threads(4):
        assert chunk_and_workers(of_dimension(100), classes([4] * 200)) == (64, 1)


def test_a_chunk_of_rows_fits_the_memory():
    huge = 3 * (MEMORY_BYTES // 10) // (4 * 8)

    def load(i):
        return torch.zeros(1, 4).expand(huge, 4), torch.zeros(1, dtype=torch.int64).expand(huge)

    rows = Lazy(np.array([huge, huge]), load)
    assert chunk_and_workers(problem(), rows)[0] == 3


@pytest.mark.parametrize("sizes", [(2, 3), (3, 2), (1, 3, 2)], ids=str)
def test_the_largest_client_decides_how_many_fit_the_memory(sizes):
    """All rows of a chunk are padded to those of its largest client."""
    part = MEMORY_BYTES // 10 // (4 * 8)

    def load(i):
        return torch.zeros(1, 4).expand(sizes[i] * part, 4), torch.zeros(1, dtype=torch.int64).expand(sizes[i] * part)

    assert chunk_and_workers(problem(), Lazy(np.array(sizes) * part, load))[0] == 3


def test_convolutions_run_one_client_a_thread():
    images = Supervised(seeded(lambda: McMahanCnn(1, 2, side=4)))
    with torch_threads(3):
        assert chunk_and_workers(images, classes()) == (1, 3)
        assert chunk_and_workers(images, classes([5])) == (1, 1), "a client alone has torch's own threads"


def reader(kind, units=3):
    """A recurrent layer in float32, over five characters."""
    return Supervised(seeded(lambda: Pick(kind(4, units, batch_first=True), units, 3, embed=True)).float())


@pytest.mark.parametrize(("kind", "alone"), [(nn.LSTM, True), (nn.GRU, False), (nn.RNN, False)])
def test_recurrent_layers_of_clients_run_together_where_it_pays(kind, alone):
    """One LSTM in float32 has a kernel of its own, on the CPU."""
    assert chunk_and_workers(reader(kind), tokens(3)) == ((1, torch.get_num_threads()) if alone else (64, 1))
    assert device_engine(torch.device("cpu"), reader(kind), tokens(3), 0, None).chunk == 64
    doubled = Supervised(reader(kind).model.double())
    assert chunk_and_workers(doubled, tokens(3)) == (64, 1)


@pytest.mark.parametrize("units", [700, 750])
def test_a_chunk_of_gates_fits_the_cache(units):
    """Three of each unit, for each of five characters and each row."""
    made = reader(nn.GRU, units)
    each = made.dimension * 4 + BATCH_ROWS * 5 * 8 + BATCH_ROWS * 5 * 3 * units * 4
    assert chunk_and_workers(made, tokens(3))[0] == CACHE_BYTES // each < 5


def test_a_cohort_of_ones_own_decides_for_itself():
    assert chunk_and_workers(Supervised(CharacterGru(6, 4, 300)), text(length=500))[0] == FEWEST_CLIENTS


def test_the_rule_gives_an_engine_that_works():
    algorithm = FedAvg(problem=problem(), local_steps=2, batch_size=3)
    fast = play(algorithm, make_engine("vectorised", problem(), classes(), 0), 2)[-1]
    slow = play(algorithm, make_engine("serial", problem(), classes(), 0), 2)[-1]
    torch.testing.assert_close(fast.w, slow.w, rtol=0, atol=1e-12)


def test_glibc_keeps_freed_blocks(monkeypatch):
    """M_MMAP_THRESHOLD (-3) up to 1 GiB, and M_TRIM_THRESHOLD (-1) the largest that a C int holds."""
    told = []
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: SimpleNamespace(mallopt=lambda *option: told.append(option)))
    keep_freed_memory()
    assert told == [(-3, 2**30), (-1, 2**31 - 1)]
