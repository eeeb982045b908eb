"""Runs on a device: `fs.run(device=...)`, its evaluation, checkpoints to and fro, bfloat16 and what is refused."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
import torch

from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.engines.device import available_devices
from fedsaddle.errors import BadInput
from fedsaddle.problems.auc import MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.models.papers import logistic_regression, mlp
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.run import run
from pretend import PRETEND
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
    here, there = (run(make(), rows, 3, chunk=3, device=device, evaluate_train=True) for device in ("cpu", THERE))
    assert torch.equal(here.model, there.model)
    for a, b in zip(here.history, there.history, strict=True):
        assert {**a, "seconds": 0} == {**b, "seconds": 0}
    assert there.summary["engine"] == {"name": "vectorised", "chunk": 3, "device": "pretend"}


@pytest.mark.parametrize(("first", "second"), [("cpu", THERE), (THERE, "cpu")], ids=["there", "back"])
def test_a_checkpoint_goes_on_on_another_device_with_a_warning(first, second, tmp_path):
    rows = classes(classes=2)
    whole = run(variates(), rows, 5, chunk=3)
    run(variates(), rows, 3, chunk=3, device=first, out=tmp_path, report=False)
    told: list[str] = []
    end = run(variates(), rows, 5, chunk=3, device=second, out=tmp_path, resume=True, report=False, warn=told.append)
    assert torch.equal(end.model, whole.model)
    assert [text for text in told if "rounded differently" in text]


def test_a_chunk_by_the_device_takes_all_clients_at_once():
    assert run(fair(), classes(), 1, device=THERE).summary["engine"]["chunk"] == 64


def test_bfloat16_rounds_layers_and_nothing_else():
    """Of float32; torch's autocast leaves float64 alone."""
    rows = replace(classes(), x=classes().x.float())
    alg = FedAvg(problem=Supervised(seeded(lambda: mlp(4, [8], 3)).float()), local_steps=3, primal_step=0.05)
    full, half = (run(alg, rows, 3, chunk=3, precision=name) for name in ("full", "bf16"))
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
        deterministic=True,
        watch=lambda *_: seen.append(torch.are_deterministic_algorithms_enabled()),
    )
    assert seen == [True]
    assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"device": "gpu"}, "device = 'gpu'"),
        ({"device": "cuda:7"}, "this machine has"),
        ({"device": 3}, 'such as "auto"'),
        ({"device": THERE, "engine": "serial"}, "the engine 'vectorised' runs on devices"),
        ({"device": THERE, "workers": 2}, "threads of the CPU"),
        ({"precision": "fp8"}, "precision = 'fp8'"),
        ({"deterministic": 1}, "deterministic = 1"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused(options, told):
    with pytest.raises(BadInput, match=re.escape(told)):
        run(FedAvg(problem=Supervised(logistic_regression(4, 3).double())), classes(), 1, **options)


def test_auto_is_what_there_is():
    assert available_devices()[-1] == "cpu"
    found = run(fair(), classes(), 1, device="auto").summary["engine"].get("device", "cpu")
    assert found == torch.device(available_devices()[0]).type
