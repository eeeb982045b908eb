"""Engines written outside of the package, `fs.run(engine=an_object)`, and options of those with workers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from run_cases import drfa, iris

import fedsaddle as fs
from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.engines.workers import WorkersFailed
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, ClientsState, Remembers, merge_repeats
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.reduction import Reduction
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.models.networks import mlp
from fedsaddle.robust.settings import Robust
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
    ours, serial = (run(drfa(), iris(), 5, engine=engine(iris().train)) for engine in (Backwards, SerialEngine))
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
        ("fast", "engine = 'fast': choose one of vectorised, processes, ray, serial"),
        (3, "engine = 'int': give"),
        (SerialEngine, "engine = 'SerialEngine': give"),
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


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (fs.Processes, {"address": "auto"}, "address = 'auto': Processes has no such parameter"),
        (fs.Vectorised, {"factory": "a:b"}, "factory = 'a:b': Vectorised has no such parameter"),
        (fs.Ray, {}, "factory = None: the engine 'ray' needs one"),
        (fs.Ray, {"factory": "make"}, "factory = 'make': give \"module:function\""),
        (fs.Ray, {"factory": "a:b", "address": ""}, "address = ''"),
        (fs.Processes, {"factory": {3: 4}}, "factory = {3: 4}: give"),
        (fs.Processes, {"factory": {"run": {}}}, "factory.data = None: is required"),
        (fs.Processes, {"workers": 0}, "workers = 0"),
        (fs.Processes, {"chunk": 0}, "chunk = 0"),
    ],
    ids=str,
)
def test_invalid_options_of_workers(kind, options, said):
    with pytest.raises(BadInput) as caught:
        run(drfa(), iris(), 2, engine=kind(**options))
    assert said in str(caught.value)


CONFIG = {
    "data": {"name": "iris"},
    "split": {"name": "iid", "clients": 4},
    "model": {"name": "logistic"},
    "algorithm": {"name": "DRFA", "sampled_clients": 2, "local_steps": 3, "batch_size": 8},
    "attack": {"name": "flipped-labels", "clients": [1]},
}


def test_ray_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("fedsaddle.engines.ray_workers.find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r'engine = \'ray\': needs Ray; run `pip install "\.\[ray\]"`'):
        run(drfa(), iris(), 2, engine=fs.Ray(factory=CONFIG))


def test_an_algorithm_of_a_script_is_not_for_workers(monkeypatch):
    monkeypatch.setattr(type(drfa()), "__module__", "__main__")
    with pytest.raises(BadInput, match="algorithm = 'Drfa': is defined in the script that runs"):
        run(drfa(), iris(), 2, engine=fs.Processes(factory=CONFIG))


def test_a_worker_that_makes_everything_for_itself():
    """A new process that knows the config only; one client is hostile there too."""
    config = validate_config(CONFIG)
    built = build(config)
    options = {"attack": config.attack.settings(), "robust": Robust(aggregation="median")}
    there = run(built.algorithm, built.data, 3, engine=fs.Processes(workers=1, chunk=2, factory=CONFIG), **options)
    here = run(built.algorithm, built.data, 3, engine=fs.Vectorised(workers=2, chunk=2), **options)
    assert torch.equal(there.model, here.model)
    assert there.summary["workers"] == {"count": 1, "lost": 0}


@pytest.mark.slow
def test_a_worker_without_its_rows_ends_the_run():
    built = build(validate_config(CONFIG))
    other = {**CONFIG, "data": {"name": "file", "path": "gone.csv", "target": "y", "client": "c"}}
    with pytest.raises(WorkersFailed, match=r"a worker on .* cannot begin: .*gone.csv"):
        run(built.algorithm, built.data, 2, engine=fs.Processes(workers=2, factory=other))
