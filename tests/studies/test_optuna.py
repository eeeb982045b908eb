"""Searches by Optuna: proposals, the journal, and going on after an interruption."""

from __future__ import annotations

import builtins

import pytest

import fedsaddle as fs
from fedsaddle.errors import MissingData
from fedsaddle.studies.pool import Interrupted

CONFIG = {
    "data": {"name": "iris", "validation_share": 0.2},
    "split": {"name": "iid", "clients": 3},
    "model": {"name": "logistic"},
    "algorithm": {"name": "FedAvg", "local_steps": 2, "batch_size": 10},
    "run": {"rounds": 1},
}
VALUES = {
    "algorithm.primal_step": "0.001..1:log",
    "algorithm.local_steps": "1..3",
    "algorithm.weighting": ["size", "uniform"],
}


def search(**options):
    return fs.sweep(CONFIG, VALUES, seeds=1, workers=1, trials=3, by="mean loss", **options)


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    monkeypatch.setattr("fedsaddle.studies.sweep_output.save", lambda figure, path: path)


def test_a_search_is_the_same_after_an_interruption(tmp_path):
    pytest.importorskip("optuna")
    whole, out, seen = search(), tmp_path / "cut", []
    with pytest.raises(Interrupted):
        search(out=out, tell=lambda job, done: seen.append(job), stop=lambda: len(seen) >= 2)
    resumed = search(out=out, resume=True)
    assert [cell["values"] for cell in resumed.cells] == [cell["values"] for cell in whole.cells]
    assert [cell["mean"] for cell in resumed.cells] == [cell["mean"] for cell in whole.cells]
    for cell in whole.cells:
        assert 0.001 <= cell["values"]["algorithm.primal_step"] <= 1
        assert cell["values"]["algorithm.local_steps"] in (1, 2, 3)
        assert cell["values"]["algorithm.weighting"] in ("size", "uniform")
    assert whole.best == min(whole.cells, key=lambda cell: cell["mean"])["values"]
    assert len({str(cell["values"]) for cell in whole.cells}) == 3
    assert (out / "optuna.jsonl").read_text().startswith("{")


def test_without_optuna_a_plain_error(monkeypatch):
    load = builtins.__import__

    def without(name, *rest):
        if name == "optuna":
            raise ImportError
        return load(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingData, match=r'pip install "\.\[optuna\]"'):
        search()
