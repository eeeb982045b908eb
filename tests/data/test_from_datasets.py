"""Datasets of PyTorch as clients."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, TensorDataset

import fedsaddle as fs


def rows(n: int, *shape: int) -> TensorDataset:
    return TensorDataset(
        torch.arange(n * int(np.prod(shape)), dtype=torch.float32).view(n, *shape), torch.arange(n) % 2
    )


class Pets(Dataset):
    """As those of torchvision: labels are numbers, `classes` are their names."""

    classes = ("cat", "dog")

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, at: int) -> tuple[torch.Tensor, int]:
        return torch.full((1, 2, 2), float(at)), at % 2


@pytest.mark.parametrize("named", [True, False])
def test_one_dataset_a_client(named):
    given = {"south": rows(4, 3), "north": rows(6, 3)} if named else [rows(4, 3), rows(6, 3)]
    data = fs.federate(fs.from_datasets(given), fs.splits.Natural(), test_share=0.0)
    assert data.names == (("north", "south") if named else ("client 0", "client 1"))
    x, y = data.train.client(1 if named else 0)
    assert torch.equal(x, rows(4, 3).tensors[0])  # as they are
    assert torch.equal(y, rows(4, 3).tensors[1])


def test_one_dataset_for_all():
    clients = ["a", "b"] * 4
    data = fs.federate(fs.from_datasets(Pets(8), clients, standardise=True), fs.splits.Natural(), test_share=0.0)
    assert data.classes == ("cat", "dog")
    assert data.names == ("a", "b")
    assert abs(float(data.train.x.mean())) < 1e-6
    assert fs.federate(fs.from_datasets(Pets(8)), fs.splits.Iid(4)).count == 4


def test_it_trains():
    data = fs.federate(fs.from_datasets([rows(8, 1, 4, 4), rows(9, 1, 4, 4)], standardise=True), fs.splits.Natural())
    problem = fs.Supervised(fs.models.logistic_regression(16, 2))
    assert len(fs.run(fs.FedAvg(problem=problem), data, rounds=2).history) == 2


@pytest.mark.parametrize(
    ("datasets", "clients", "said"),
    [
        (3, None, "datasets = 'int': must be a torch.utils.data.Dataset"),
        (torch.zeros(3, 2), None, "datasets = 'Tensor': must be a torch.utils.data.Dataset"),
        ([rows(3, 2)], None, r"len\(datasets\) = 1: one client is no federation"),
        ([rows(3, 2), 4], None, r"datasets\['client 1'\] = 'int': must be"),
        ({"a": rows(3, 2), "": rows(3, 2)}, None, "every client needs a name of its own"),
        ([rows(3, 2), rows(3, 2)], ["a"], "clients = 'given': is for one dataset"),
        (rows(3, 2), ["a"], r"len\(clients\) = 1: the dataset has 3 rows"),
        (rows(3, 2), ["a"] * 3, "one client is no federation"),
        ([rows(3, 2), rows(3, 4)], None, r"row 0 of 'client 1'.shape = \(4,\): other rows"),
        (TensorDataset(torch.zeros(3, 2)), None, "row 0 = 'tuple': must be a pair"),
        (TensorDataset(torch.zeros(3, 2), torch.zeros(3, 2)), None, "label of row 0 = 'Tensor': must be one number"),
        ([rows(3, 2), TensorDataset(torch.zeros(0, 2), torch.zeros(0))], None, r"len\(datasets\['client 1'\]\) = 0"),
        (TensorDataset(torch.full((4, 2), torch.inf), torch.arange(4) % 2), None, "is not a finite number"),
    ],
)
def test_bad_datasets(datasets, clients, said):
    with pytest.raises(fs.BadInput, match=said):
        fs.from_datasets(datasets, clients)
