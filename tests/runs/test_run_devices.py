"""Runs on a device: `fs.run(device=...)`, its evaluation, checkpoints to and fro, bfloat16 and what is refused."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.engines import device as devices
from fedsaddle.engines.choose import device_chunk
from fedsaddle.engines.device import available_devices, shared_out
from fedsaddle.engines.workers import WorkersFailed
from fedsaddle.errors import BadInput
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.models.networks import logistic_regression, mlp
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.cost_probe import Length, rehearse
from fedsaddle.runs.engines import EngineJob
from fedsaddle.runs.run import run
from pretend import PRETEND, TRANSFERS
from small import classes, seeded

THERE = str(PRETEND)


def fair():
    return Drfa(
        problem=Supervised(seeded(lambda: mlp(4, [5], 3)), l2=0.01, l2_biases=False), local_steps=2, batch_size=3
    )


def variates():
    problem = MinimaxAuc(model=seeded(lambda: mlp(4, [5], 1)), positive_share=0.4)
    return Codasca(problem=problem, local_steps=2, batch_size=3, stage_rounds=2)


def shares():
    from fedsaddle.algorithms.sgda.local_sgda import LocalSgda

    model, known = seeded(lambda: mlp(4, [5], 3)), torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    return LocalSgda(problem=ClassFair(model=model, classes=3, class_shares=known), local_steps=2, batch_size=3)


@pytest.mark.parametrize(("make", "labels"), [(fair, 3), (variates, 2), (shares, 3)], ids=["DRFA", "CODASCA", "SGDA"])
def test_a_run_on_a_device_has_the_figures_of_the_cpu(make, labels):
    rows = classes(classes=labels)
    here, there = (
        run(make(), rows, 3, engine=fs.Vectorised(chunk=3, device=device), options=fs.RunOptions(evaluate_train=True))
        for device in ("cpu", THERE)
    )
    assert torch.equal(here.model, there.model)
    for a, b in zip(here.history, there.history, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    assert there.summary["engine"] == {"name": "vectorised", "chunk": 3, "device": "pretend"}


@pytest.mark.parametrize(("first", "second"), [("cpu", THERE), (THERE, "cpu")], ids=["there", "back"])
def test_a_checkpoint_goes_on_on_another_device_with_a_warning(first, second, tmp_path):
    rows = classes(classes=2)
    whole = run(variates(), rows, 5, engine=fs.Vectorised(chunk=3))
    run(
        variates(),
        rows,
        3,
        out=tmp_path,
        engine=fs.Vectorised(chunk=3, device=first),
        options=fs.RunOptions(report=False),
    )
    told: list[str] = []
    end = run(
        variates(),
        rows,
        5,
        out=tmp_path,
        resume=True,
        engine=fs.Vectorised(chunk=3, device=second),
        callbacks=[fs.LambdaCallback(on_warning=told.append)],
        options=fs.RunOptions(report=False),
    )
    assert torch.equal(end.model, whole.model)
    assert [text for text in told if "rounded differently" in text]


def test_a_chunk_by_the_device_takes_all_clients_at_once():
    assert run(fair(), classes(), 1, engine=fs.Vectorised(device=THERE)).summary["engine"]["chunk"] == 64


def test_bfloat16_rounds_layers_and_nothing_else():
    """Of float32; torch's autocast leaves float64 alone."""
    rows = replace(classes(), x=classes().x.float())
    alg = FedAvg(problem=Supervised(seeded(lambda: mlp(4, [8], 3)).float()), local_steps=3, primal_step=0.05)
    full, half = (run(alg, rows, 3, engine=fs.Vectorised(chunk=3, precision=name)) for name in ("full", "bf16"))
    assert half.model.dtype == full.model.dtype == torch.float32
    difference = (half.model - full.model).abs().max()
    assert 1e-6 < difference < 1e-2
    assert half.summary["engine"]["precision"] == "bf16"


def test_deterministic_algorithms_are_on_during_the_run_only():
    seen = []
    run(
        fair(),
        classes(),
        1,
        engine=fs.Vectorised(deterministic=True),
        callbacks=[fs.LambdaCallback(on_round=lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()))],
    )
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        (fs.Vectorised, {"device": "gpu"}, "device = 'gpu'"),
        (fs.Vectorised, {"device": "cuda:7"}, "this machine has"),
        (fs.Vectorised, {"device": 3}, 'such as "auto"'),
        (fs.Serial, {"device": THERE}, "device = 'pretend:0': Serial has no such parameter"),
        (fs.Serial, {"precision": "bf16"}, "precision = 'bf16': Serial has no such parameter"),
        (fs.Processes, {"device": THERE}, "factory = None: workers on a device are new processes"),
        (fs.Processes, {"device": "cuda:7"}, "this machine has"),
        *(
            (fs.Ray, {"device": name, "factory": "a:b"}, "Ray hands out whole GPUs; use 'cuda' or 'cpu'")
            for name in ("auto", "mps", "cuda:1")
        ),
        (fs.Ray, {"device": 3, "factory": "a:b"}, 'such as "auto"'),
        (fs.Vectorised, {"device": THERE, "workers": 2}, "threads of the CPU"),
        (fs.Vectorised, {"precision": "fp8"}, "precision = 'fp8'"),
        (fs.Vectorised, {"deterministic": 1}, "deterministic = 1"),
    ],
    ids=str,
)
def test_invalid_engines_are_refused(kind, options, told):
    with pytest.raises(BadInput, match=re.escape(told)):
        run(FedAvg(problem=Supervised(logistic_regression(4, 3).double())), classes(), 1, engine=kind(**options))


def test_auto_is_what_there_is():
    assert available_devices()[-1] == "cpu"
    found = run(fair(), classes(), 1, engine=fs.Vectorised(device="auto")).summary["engine"].get("device", "cpu")
    assert found == torch.device(available_devices()[0]).type


def test_a_run_with_worker_processes_on_a_device():
    """New processes, which import this file, and with it the device."""
    rows, made = classes(), f"{__name__}:fair_on_classes"
    here = run(fair(), rows, 2, engine=fs.Vectorised(chunk=3, device=THERE))
    there = run(fair(), rows, 2, engine=fs.Processes(chunk=3, device=THERE, factory=made, deterministic=True))
    assert torch.equal(here.model, there.model)
    assert there.summary["engine"] == {"name": "processes", "chunk": 3, "device": "pretend"}
    assert there.summary["workers"] == {"count": 1, "lost": 0}  # one for each device


def fair_on_classes():
    return fair(), classes()


def test_every_gpu_has_a_worker_process(monkeypatch):
    """Of three GPUs: what the recipes of workers say, and how many there are."""
    monkeypatch.setattr(devices, "find_device", lambda name: torch.device("cuda:0" if name == "auto" else name))
    monkeypatch.setattr("fedsaddle.runs.engines.find_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert shared_out("cuda") == shared_out("auto") == ["cuda:0", "cuda:1", "cuda:2"]
    assert shared_out("cuda:1") == ["cuda:1"]
    assert shared_out("mps") == ["mps"]
    recipes = []
    monkeypatch.setattr("fedsaddle.engines.processes.spawner", lambda module, given: recipes.extend(given))
    job = EngineJob(fair(), classes(), None, 0, 0.0, "")
    options = {"chunk": 2, "factory": "a:b", "precision": "bf16", "deterministic": True}
    for device, workers, count in (("cuda", None, 3), ("cuda", 5, 5), ("cuda:1", None, 1), ("mps", None, 1)):
        recipes.clear()
        with fs.Processes(**options, device=device, workers=workers).open(job, print) as engine:
            assert engine.carrier.count == count
            assert engine.settings()["device"] == device.partition(":")[0]
        told = [json.loads(recipe) for recipe in recipes]
        assert [found["device"] for found in told] == shared_out(device)
        assert {(found["precision"], found["deterministic"]) for found in told} == {("bf16", True)}


def test_the_chunk_of_a_cluster_follows_the_model_where_the_driver_has_no_gpu(monkeypatch):
    """Ray: the driver says it, whichever machine a worker is on."""
    choice = fs.Ray(factory="a:b", device="cuda")
    if choice.here() is not None:
        pytest.skip("this machine has a GPU")
    monkeypatch.setattr("fedsaddle.engines.ray_workers.require_ray", lambda: None)
    with choice.open(EngineJob(fair(), classes(), None, 0, 0.0, ""), print) as engine:
        assert engine.settings() == {"name": "ray", "chunk": 64, "device": "cuda"}
        assert engine.carrier.gpus
        assert json.loads(engine.carrier.recipe)["device"] == "cuda:0"  # the one that Ray shows the actor
    large = Supervised(nn.Linear(4096, 1024))
    assert 1 < device_chunk(None, large, classes(features=4096), None) < 64


@dataclass(frozen=True, kw_only=True)
class Asks(FedAvg):
    """Refuses to work where operations need not be deterministic."""

    def local_sgd(self, own, sent, site):
        assert torch.are_deterministic_algorithms_enabled()
        return super().local_sgd(own, sent, site)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks share rows on Linux only")
def test_deterministic_algorithms_are_on_in_forks_too(capfd):
    alg = Asks(problem=Supervised(seeded(lambda: mlp(4, [5], 3))))
    run(alg, classes(), 1, engine=fs.Processes(workers=1, deterministic=True))
    with pytest.raises(WorkersFailed, match="AssertionError"):
        run(alg, classes(), 1, engine=fs.Processes(workers=1))


def test_a_rehearsal_is_on_the_runs_device():
    data = fs.load("iris", split="iid", clients=5)
    alg = FedAvg(problem=Supervised(logistic_regression(4, 3)))
    TRANSFERS.reset()
    found = rehearse(alg, data, Length(4, engine=fs.Vectorised(device=THERE, chunk=2)))
    assert TRANSFERS.down > 0
    assert "one evaluation on pretend:0" in found.note
    assert found.ledger.bytes_up == rehearse(alg, data, Length(4, engine=fs.Vectorised(chunk=2))).ledger.bytes_up
    for kind in (fs.Processes, fs.Ray):
        note = rehearse(alg, data, Length(4, engine=kind(workers=2))).note
        assert "in one process; workers share the rounds" in note


def test_evaluation_of_layers_of_ones_own_is_on_the_device():
    average = FedAvg(problem=Supervised(seeded(lambda: mlp(4, [5], 3))), local_steps=2)
    alg = fs.Personal(algorithm=average, layers=["*bias"])
    here, there = (
        run(alg, classes(), 2, engine=fs.Vectorised(chunk=2, device=name)).history for name in ("cpu", THERE)
    )
    assert [{**a, "seconds": 0} for a in here] == [{**b, "seconds": 0} for b in there]
