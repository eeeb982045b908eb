"""The table of contracts: it holds every algorithm of the registry, and a newcomer gets a line by itself."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import test_every_algorithm as contracts
import torch
from every_algorithm import GAMES, LOCAL, PAIRED, STAGES, TABLE, automatic, without_line
from torch import Tensor
from worlds import FAIR, LOGISTIC, RANKING

from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.fedsgda import FedSgda, Storm
from fedsaddle.algorithms.fedx.fedx1 import FedX1
from fedsaddle.config.build import algorithm as by_name
from fedsaddle.config.registry import ALGORITHMS, Entry
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import Averaged, PerClient
from fedsaddle.problems.protocols import MinimisationProblem
from small import serial, vectorised


def lines_of(name):
    return [case for case in TABLE if case.covers == name]


def test_every_name_of_the_registry_has_a_line():
    missing = without_line(TABLE, ALGORITHMS)
    assert not missing, f"give lines in every_algorithm.py, with the arguments that they require, to {list(missing)}"
    one_client = {name for name in ALGORITHMS if not lines_of(name)}
    assert one_client == {"Centralised SGD", "SOX"}, "held to their contract in tests/identities"


def test_every_line_is_of_a_name():
    assert {case.covers for case in TABLE} - {"toy with memory", "Personal", "Anderson"} <= ALGORITHMS.keys()
    assert len({case.name for case in TABLE}) == len(TABLE)


@pytest.mark.parametrize("name", [name for name in ALGORITHMS if lines_of(name)])
def test_a_line_is_what_its_name_stands_for(name):
    entry = ALGORITHMS[name]
    for case in lines_of(name):
        assert case.make is entry.load()
        assert {key: case.options[key] for key in entry.fixed} == dict(entry.fixed)
        assert entry.required.keys() <= case.options.keys()
        assert case.family
    problem = lines_of(name)[0].family[0].problem()
    given = {key: lines_of(name)[0].options[key] for key in entry.required}
    meant = by_name(name, problem=problem, **given)
    for key, value in entry.defaults.items():
        if isinstance(value, dict):  # a part, such as an estimator: which one is the name's meaning
            assert all(type(case.options[key]) is type(getattr(meant, key)) for case in lines_of(name))


@dataclass(frozen=True)
class Model:
    w: Tensor


@dataclass(frozen=True)
class Mean:
    slope: Averaged


@dataclass(frozen=True)
class Shown:
    slope: Averaged
    loss: PerClient


@dataclass(frozen=True, kw_only=True)
class Newcomer:
    """Descent along the mean gradient of a cohort, `power` times a round."""

    problem: MinimisationProblem
    sampled_clients: int | None = None
    batch_size: int = 50
    primal_step: float = 0.1
    power: int = 1
    open: bool = False

    def start(self, clients):
        return Model(self.problem.initial())

    def round(self, server, clients, rng):
        S = rng.choice(clients.count, self.sampled_clients or clients.count, replace=False)
        for _ in range(self.power):
            _, mean = clients.ask(S, self.local, server)
            server = Model(server.w - self.primal_step * mean.slope)
        return server

    def local(self, own, sent, site):
        w, batch = site.broadcast(sent.w), site.minibatch(0, self.batch_size)
        slope = self.problem.gradient(w, batch)
        return None, Shown(slope, self.problem.value(w, batch)) if self.open else Mean(slope)

    def model(self, server):
        return server.w


MADE_UP = Entry(f"{__name__}:Newcomer", "made up", kind="minimisation", fixed={"power": 2})


def test_a_newcomer_gets_a_line():
    assert without_line(TABLE, ALGORITHMS | {"Newcomer": MADE_UP}) == {"Newcomer": MADE_UP}
    line = automatic("Newcomer", MADE_UP)
    assert (line.name, line.make, line.family, line.shows) == ("Newcomer", Newcomer, (LOGISTIC,), ())
    assert line.options == {key: LOCAL[key] for key in ("batch_size", "primal_step", "sampled_clients")} | {"power": 2}


@pytest.mark.parametrize("engine", [serial, vectorised])
def test_a_newcomer_keeps_the_contracts(engine, tmp_path):
    line = automatic("Newcomer", MADE_UP)
    contracts.test_a_whole_chunk_at_once_is_one_client_after_the_other(line, LOGISTIC)
    for contract in (
        contracts.test_lost_replies_are_not_counted,
        contracts.test_inputs_are_left_alone,
        contracts.test_relabelling_the_clients_relabels_the_result,
        contracts.test_the_seed_decides,
        contracts.test_the_ledger_is_right,
    ):
        contract(line, LOGISTIC, engine)
    contracts.test_resuming_is_not_stopping(line, LOGISTIC, engine, tmp_path)


def test_a_newcomer_that_shows_more_than_means_must_say_so():
    """The line claims that every reply is averaged: an algorithm that lets the server see more needs a line by hand."""
    line = automatic("Newcomer", replace(MADE_UP, fixed={"open": True}))
    with pytest.raises(AssertionError):
        contracts.test_the_ledger_is_right(line, LOGISTIC, serial)
    contracts.test_the_ledger_is_right(replace(line, shows=("Shown.loss",)), LOGISTIC, serial)


def test_what_is_required_cannot_be_made_up():
    with pytest.raises(BadInput, match=r"options.power = None: Newcomer needs a value, such as power = 3"):
        automatic("Newcomer", replace(MADE_UP, fixed={}, required={"power": "power = 3"}))


@pytest.mark.parametrize(
    ("name", "make", "world", "small"),
    [
        ("FedAvg", FedAvg, LOGISTIC, LOCAL),
        ("FedSGDA-STORM", FedSgda, FAIR, GAMES | {"estimator": Storm()}),
        ("CODASCA", Codasca, FAIR, STAGES),
        ("FedX1", FedX1, RANKING, PAIRED),
    ],
)
def test_an_automatic_line_of_each_kind(name, make, world, small):
    line = automatic(name, ALGORITHMS[name])
    assert (line.make, line.family, line.options) == (make, (world,), small)
    found = make(problem=world.problem(), **line.options)
    assert torch.is_tensor(found.model(found.start(serial(world.rows()))))
