"""Names that other libraries and papers use: the error says what they are called here."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import fedsaddle as fs

PROBLEM = fs.Supervised(fs.models.logistic_regression(4, 3))
ROWS = TensorDataset(torch.randn(6, 4), torch.arange(6) % 3)


def run(**options: Any) -> Any:
    data = options.pop("data", None) or fs.load("iris", split="iid", clients=3)
    return fs.run(fs.FedAvg(problem=PROBLEM), data, **{"rounds": 1, **options})


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: run(engine=fs.Vectorised(device="gpu")),
            "device = 'gpu': did you mean 'cuda'? choose one of auto, cpu, cuda, cuda:1 or mps",
        ),
        (lambda: run(engine="vectorized"), "engine = 'vectorized': did you mean 'vectorised'? choose one of"),
        (lambda: run(engine="multiprocessing"), "did you mean 'processes'?"),
        (lambda: run(lr=0.1), "lr = 0.1: run has no such parameter; did you mean 'primal_step' of the algorithm?"),
        (lambda: run(num_rounds=1), "num_rounds = 1: run has no such parameter; did you mean 'rounds'?"),
        (lambda: fs.FedAvg(problem=PROBLEM, lr=1), "lr = 1: FedAvg has no such parameter; did you mean 'primal_step'?"),
        (lambda: fs.Drfa(problem=PROBLEM, local_epochs=1), "did you mean 'local_steps' (it counts minibatches)?"),
        (lambda: fs.Robust(agregation="mean"), "did you mean 'aggregation'?"),
        (lambda: fs.FederatedClassifier(learning_rate=1), "did you mean 'primal_step'?"),
        (
            lambda: fs.algorithm("FedAvg", problem=PROBLEM, lr=1),
            "options.lr = 1: unknown key; did you mean 'primal_step'?",
        ),
        (lambda: fs.algorithm("FedAvg", problem=PROBLEM, dual_step=1), "is a parameter of AFL, CODA, CODA+ and"),
        (lambda: fs.load("iris", split="iid", client=3), "split.client = 3: unknown key; did you mean 'clients'?"),
        (
            lambda: run(data=[ROWS, ROWS]),
            "data = 'list': is not split among clients yet: use fs.federate(fs.from_datas",
        ),
        (lambda: run(data={"a": ROWS}), "fs.from_datasets(datasets)"),
        (lambda: run(data=DataLoader(ROWS)), "fs.from_datasets(datasets)"),
        (lambda: run(data=fs.from_datasets([ROWS, ROWS])), "use fs.federate(dataset, fs.splits.Natural(...))"),
    ],
)
def test_arguments(call: Callable[[], Any], said: str):
    with pytest.raises(fs.BadInput) as error:
        call()
    assert said in str(error.value)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DRFA", "fs.Drfa?"),
        ("SCAFFOLD", "fs.Scaffold?"),
        ("qFedAvg", "fs.QFedAvg?"),
        ("FedProx", "fs.algorithm('FedProx', problem=...)?"),
        ("FedAdam", "fs.algorithm('FedAdam', problem=...)?"),
        ("FedAvgg", "'FedAvg'?"),
    ],
)
def test_names(name: str, said: str):
    with pytest.raises(AttributeError) as error:
        getattr(fs, name)
    assert str(error.value) == f"module 'fedsaddle' has no attribute '{name}'; did you mean {said}"


def test_other_type_errors_stay_as_they_are():
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'problem'"):
        fs.FedAvg()  # type: ignore[call-arg]
    assert pickle.loads(pickle.dumps(fs.Robust(trim=0.1))) == fs.Robust(trim=0.1)
    assert not hasattr(fs, "elephant")
