"""Clients whose rows are fetched when they are asked: the same runs, and a million clients for nothing."""

from __future__ import annotations

import time

import numpy as np
import pytest
import torch
from run_cases import drfa, fedavg, iris, problem, timeless

from fedsaddle.algorithms.drfa import DrfaGa
from fedsaddle.algorithms.qfedavg import QFedAvg
from fedsaddle.data.store import Lazy
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.federation.randomness import server_generator
from fedsaddle.runs.run import run

MILLION = 1_000_000


def counted(sizes):
    """Rows that are made up on the spot, and the list of those who were asked for them."""
    asked = []

    def load(i):
        asked.append(i)
        g = torch.Generator().manual_seed(i)
        n = int(sizes[i])
        return torch.randn(n, 4, generator=g), torch.randint(3, (n,), generator=g)

    return Lazy(sizes, load), asked


@pytest.mark.parametrize("engine", ["vectorised", "serial"])
@pytest.mark.parametrize("name", ["FedAvg", "q-FedAvg", "DRFA", "DRFA-GA"])
def test_the_same_results_as_stacked_rows(name, engine):
    make = {
        "FedAvg": fedavg,
        "q-FedAvg": lambda: QFedAvg(problem=problem(), local_steps=2),
        "DRFA": drfa,
        "DRFA-GA": lambda: DrfaGa(problem=problem(), local_steps=2),
    }[name]
    stacked = iris(7).train
    lazy = Lazy(stacked.sizes, stacked.client, keep=3)
    a, b = (run(make(), rows, 3, engine=engine) for rows in (stacked, lazy))
    torch.testing.assert_close(a.model, b.model, rtol=0, atol=1e-6)
    assert a.summary["ledger"] == b.summary["ledger"]
    for u, v in zip(timeless(a.history), timeless(b.history), strict=True):
        assert u["train"]["loss"] == pytest.approx(v["train"]["loss"], abs=1e-6)


def test_a_million_clients_cost_a_table_of_sizes():
    rng = np.random.default_rng(0)
    rows, asked = counted(rng.integers(1, 30, MILLION))
    algorithm = fedavg(sampled_clients=10)
    run(algorithm, rows, 1)  # whatever is slow the first time
    asked.clear()
    rows._kept.clear()
    clients = make_engine("vectorised", problem(), rows, 0)
    server = algorithm.start(clients)
    asked.clear()
    drawn = set()
    began = time.process_time()
    for r in range(3):
        clients.begin(r)
        server = algorithm.round(server, clients, server_generator(0, r))
        drawn |= set(server_generator(0, r).choice(MILLION, 10, replace=False).tolist())
        clients.commit()
    assert (time.process_time() - began) / 3 < 1.0
    assert set(asked) <= drawn
    assert len(asked) == len(drawn) == 30
    assert torch.isfinite(server.w).all()


def test_a_run_of_a_million_clients_judges_the_first_thousand(tmp_path):
    rows, asked = counted(np.full(MILLION, 2))
    result = run(drfa(sampled_clients=10), rows, 2, evaluate_every=2, out=tmp_path)
    assert len(set(asked)) <= 1000 + 2 * 20
    assert result.summary["ledger"]["asked"] <= 40
    record = result.history[-1]
    assert record["clients"] == {}
    assert "mixture" not in record
    resumed = run(drfa(sampled_clients=10), rows, 3, evaluate_every=2, out=tmp_path, resume=True)
    again = run(drfa(sampled_clients=10), counted(np.full(MILLION, 2))[0], 3, evaluate_every=2)
    assert torch.equal(resumed.model, again.model)
    assert torch.equal(resumed.mixture, again.mixture)


def test_only_so_many_clients_stay_in_memory():
    rows, asked = counted(np.full(9, 2))
    small = Lazy(rows.sizes, rows.load, keep=2)
    for i in (0, 1, 0, 2, 0, 1):
        small.client(i)
    assert asked == [0, 1, 2, 1]
    assert list(small._kept) == [0, 1]


def test_rows_that_do_not_match_their_sizes():
    lying = Lazy(np.array([2, 3]), lambda i: (torch.zeros(2, 4), torch.zeros(2, dtype=torch.int64)))
    with pytest.raises(BadInput, match=r"sizes\[1\] = 3: load\(1\) gave 2 rows of x and 2 of y"):
        run(fedavg(), lying, 1)


def test_other_sizes_are_another_run(tmp_path):
    run(fedavg(), counted(np.full(4, 2))[0], 1, out=tmp_path)
    with pytest.raises(BadCheckpoint, match="belongs to another run"):
        run(fedavg(), counted(np.full(4, 3))[0], 2, out=tmp_path, resume=True)


def test_other_rows_are_another_run(tmp_path):
    def lazy(shift):
        return Lazy(np.full(20, 3), lambda i: (torch.full((3, 4), i / 20 + shift), torch.tensor([0, 1, 2])))

    run(fedavg(), lazy(0.0), 1, out=tmp_path)
    with pytest.raises(BadCheckpoint, match=r"different: training features\)"):
        run(fedavg(), lazy(0.5), 2, out=tmp_path, resume=True)
