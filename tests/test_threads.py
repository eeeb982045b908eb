"""Work on threads gives the same bits, whatever their number."""

from __future__ import annotations

import threading
from contextvars import ContextVar

import pytest
import torch

import fedsaddle as fs
from fedsaddle.processes import in_parallel, one_torch_thread, thread_budget

STATE = ContextVar("state", default="outside")


@pytest.fixture(params=[1, 2, 3], ids=str)
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def test_within_the_context_torch_has_one_thread_and_the_budget_stays(threads):
    with one_torch_thread():
        assert (torch.get_num_threads(), thread_budget()) == (1, threads)
        with one_torch_thread():
            assert thread_budget() == threads
    assert (torch.get_num_threads(), thread_budget()) == (threads, threads)


def test_pieces_are_shared_out_and_come_back_in_order(threads):
    together, seen = threading.Barrier(threads, timeout=30), set()
    token = STATE.set("inside")

    def work(piece):
        together.wait()  # as many at a time as there are threads
        seen.add((STATE.get(), torch.get_num_threads()))
        return piece * piece

    with one_torch_thread():
        assert list(in_parallel(work, range(2 * threads))) == [k * k for k in range(2 * threads)]
    STATE.reset(token)
    assert seen == {("inside", 1)}


def test_pieces_of_pieces_stay_on_their_thread(threads):
    """Otherwise the threads of the pool would wait for threads of the pool."""

    def work(piece):
        here = threading.get_ident()
        return list(in_parallel(lambda k: (k, threading.get_ident() == here), range(3)))

    with one_torch_thread():
        assert list(in_parallel(work, range(2 * threads))) == [[(k, True) for k in range(3)]] * (2 * threads)


def test_an_error_of_a_piece_is_raised(threads):
    def work(piece):
        raise ValueError(f"piece {piece}")

    with one_torch_thread(), pytest.raises(ValueError, match="piece 0"):
        list(in_parallel(work, [0, 1]))


def test_a_run_has_the_same_bits_with_any_number_of_threads():
    """Rows are wide, so that torch's own threads would round products by their number."""
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(90, 700, generator=generator), torch.randint(0, 2, (90,), generator=generator)
    data = fs.Stacked(x, y, range(0, 91, 10))
    torch.manual_seed(0)
    algorithm = fs.FedAvg(problem=fs.Supervised(fs.models.mlp(700, [300], 2)), local_steps=2, batch_size=8)
    found, before = [], torch.get_num_threads()
    for number in (1, 2, 3):
        torch.set_num_threads(number)
        result = fs.run(algorithm, data, rounds=2, seed=0)
        found.append((result.model, {k: v for k, v in result.history[-1].items() if k != "seconds"}))
    torch.set_num_threads(before)
    assert all(torch.equal(found[0][0], model) and found[0][1] == record for model, record in found[1:])
