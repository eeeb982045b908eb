"""Engines written outside of the package: `fs.run(engine=an_object)`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from run_cases import drfa, iris

import fedsaddle as fs
from fedsaddle.engines.serial import Serial
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, ClientsState, Remembers, merge_repeats
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.reduction import Reduction
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models.papers import mlp
from fedsaddle.runs.run import run


@dataclass
class Backwards(Clients):
    """Asks clients from the last to the first, and adds their replies up in cohort order."""

    rows: Any
    seed: int = 0
    kept: dict[int, Any] = field(default_factory=dict)
    pending: dict[int, Any] = field(default_factory=dict)

    @property
    def count(self):
        return self.rows.count

    @property
    def sizes(self):
        return self.rows.sizes

    def begin(self, round):
        self.round, self.exchange = round, 0
        self.pending.clear()

    def commit(self):
        self.kept |= self.pending

    def ask(self, cohort, task, sent, *, weights=None):
        clients, own_weights = merge_repeats(cohort, weights, self.count)
        replies = {i: self._one(i, task, sent) for i in reversed(clients.tolist())}
        self.exchange += 1
        reduction = Reduction()
        for c, i in enumerate(clients.tolist()):
            reduction.add(clients[c : c + 1], own_weights[c : c + 1], replies[i])
        return reduction.answer()

    def _one(self, i, task, sent):
        one = np.array([i])
        site = LocalSite(self.rows, one, ClientKeys.of(self.seed, self.round, self.exchange, one))
        algorithm = task.__self__
        own = self.pending.get(i, self.kept.get(i))
        if own is None and isinstance(algorithm, Remembers):
            own = algorithm.fresh(site)
        own, reply = task(own, sent, site)
        if own is not None:
            self.pending[i] = own
        return reply

    def state(self):
        return ClientsState(dict(self.kept), {"turns": 7})

    def restore(self, records, notes, algorithm):
        assert notes == {"turns": 7}
        kind = type(algorithm.fresh(LocalSite.alone(self.rows, 0)))
        self.kept = {i: kind(**values) for i, values in records.items()}


def codasca():
    torch.manual_seed(0)
    problem = MinimaxAuc(model=mlp(30, [4], 1), positive_share=0.6, sigmoid=True)
    return fs.Codasca(problem=problem, local_steps=2, batch_size=4, sampled_clients=3)


def tumours():
    return fs.load("breast-cancer", split="dirichlet", clients=5, alpha=1.0)


def test_an_engine_from_outside_is_asked():
    ours, serial = (run(drfa(), iris(), 5, engine=engine(iris().train)) for engine in (Backwards, Serial))
    assert torch.equal(ours.model, serial.model)
    assert torch.equal(ours.mixture, serial.mixture)
    assert [r["test"] for r in ours.history] == [r["test"] for r in serial.history]
    assert ours.summary["ledger"] == {**serial.summary["ledger"], "samples": 0}  # it does not count them


def test_what_its_clients_remember_is_saved_and_restored(tmp_path):
    whole = run(codasca(), tumours(), 6, engine=Backwards(tumours().train))
    serial = run(codasca(), tumours(), 6, engine="serial")
    assert torch.equal(whole.model, serial.model)
    run(codasca(), tumours(), 3, engine=Backwards(tumours().train), out=tmp_path)
    resumed = run(codasca(), tumours(), 6, engine=Backwards(tumours().train), out=tmp_path, resume=True)
    assert torch.equal(resumed.model, whole.model)
    assert resumed.summary["engine"] == {"name": "backwards"}


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ("fast", "engine = 'fast': choose one of serial, vectorised"),
        (3, "engine = 'int': give"),
        (Serial, "engine = 'Serial': give"),
        (None, "engine = 'NoneType': give"),
    ],
)
def test_what_is_no_engine(engine, said):
    with pytest.raises(BadInput) as caught:
        run(drfa(), iris(), 2, engine=engine)
    assert said in str(caught.value)


def test_an_engine_with_other_clients_is_refused():
    with pytest.raises(BadInput, match="engine = '5 clients': the data have 4 clients"):
        run(drfa(), iris(), 2, engine=Backwards(iris(5).train))
    with pytest.raises(BadInput, match=r"engine\.chunk = 3: is an option of the vectorised engine"):
        run(drfa(), iris(), 2, engine=Backwards(iris().train), chunk=3)
