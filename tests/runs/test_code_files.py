"""code.json: which own code computed a run, and a warning when it has changed."""

from __future__ import annotations

import importlib
import json
import sys
import warnings

import pytest
import torch

import fedsaddle as fs
from fedsaddle.own_code import file_digest
from fedsaddle.runs.checkpoints import own_packages

NET = """
import torch


class Doubled(torch.nn.Linear):
    def forward(self, x):
        return {factor} * super().forward(x)
"""


@pytest.fixture
def net(tmp_path, monkeypatch):
    """A function that writes a module of its own and makes its network."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(factor: int) -> torch.nn.Module:
        (tmp_path / "own_net.py").write_text(NET.format(factor=factor))
        sys.modules.pop("own_net", None)
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            module = importlib.import_module("own_net")
        finally:
            sys.dont_write_bytecode = before
        torch.manual_seed(0)
        return module.Doubled(4, 3)

    yield make
    sys.modules.pop("own_net", None)


def test_a_changed_file_is_warned_of_when_a_run_is_resumed(net, tmp_path):
    data, out = fs.load("iris", split="iid", clients=3), tmp_path / "run"

    def go(rounds: int, factor: int, **options: bool) -> None:
        algorithm = fs.FedAvg(problem=fs.Supervised(net(factor)))
        fs.run(algorithm, data, rounds, out=out, options=fs.RunOptions(report=False), **options)

    go(1, 2)
    first = json.loads((out / "code.json").read_text())
    assert first == {"own_net": [file_digest(tmp_path / "own_net.py")]}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        go(2, 2, resume=True)
    with pytest.warns(
        UserWarning, match=r"own_net.py has changed since the run began; its later rounds are computed by"
    ):
        go(3, 3, resume=True)
    after = json.loads((out / "code.json").read_text())
    assert after["own_net"] == [*first["own_net"], file_digest(tmp_path / "own_net.py")], "both had a part in it"


def test_without_own_code_nothing_is_written(tmp_path):
    algorithm = fs.FedAvg(problem=fs.Supervised(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Identity())))
    assert own_packages(algorithm) == set()
    fs.run(
        algorithm, fs.load("iris", split="iid", clients=3), 1, out=tmp_path / "run", options=fs.RunOptions(report=False)
    )
    assert not (tmp_path / "run" / "code.json").exists()
