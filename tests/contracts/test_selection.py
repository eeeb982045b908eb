"""Every algorithm keeps its best round: through a crash, and as if the run had ended there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from every_algorithm import ONE_MODEL, algorithm

import fedsaddle as fs
from fedsaddle.data.federated import FederatedData
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.run import run

once = pytest.mark.parametrize(("case", "world"), ONE_MODEL)
ROUNDS = 7


@dataclass(frozen=True)
class Wave:
    """A figure of the model that rises and falls, so that the best round is any; it counts as an accuracy."""

    phase: float

    @property
    def name(self) -> str:
        return "wave"

    def __call__(self, at) -> float:
        assert at.test is not None, "the rows that are watched"
        assert not torch.equal(at.test.x, at.train.x)
        return float(torch.sin(300 * at.x.double().sum() + self.phase))


class Crash(Exception):
    pass


def held_out(world) -> FederatedData:
    """The world's rows, and the same with other features for validation and for the test."""
    rows = world.rows()
    other = [type(rows)(rows.x.flip(0), rows.y, rows.offsets) for _ in range(2)]
    names = tuple(f"client {i}" for i in range(rows.count))
    return FederatedData(world.name, rows, other[0], names, (), (), validation=other[1])


def without_time(history):
    return [{k: v for k, v in record.items() if k != "seconds"} for record in history]


@once
@pytest.mark.parametrize("phase", [0.0, 2.0])
def test_the_best_round_survives_a_crash_and_is_the_end_of_a_shorter_run(case, world, phase, tmp_path):
    data, measures = held_out(world), [Wave(phase)]
    options = {"measures": measures, "select": "wave", "options": fs.RunOptions(report=False, checkpoint_every=2)}
    whole = run(algorithm(case, world), data, ROUNDS, out=tmp_path / "whole", **options)

    def crash(done, record):
        if done == 5:
            raise Crash

    with pytest.raises(Crash):
        run(
            algorithm(case, world),
            data,
            ROUNDS,
            out=tmp_path / "parts",
            callbacks=[fs.LambdaCallback(on_round=crash)],
            **options,
        )
    parts = run(
        algorithm(case, world),
        data,
        ROUNDS,
        out=tmp_path / "parts",
        resume=True,
        **options,
    )
    figures = [record["pooled_validation"]["wave"] for record in whole.history]
    best = 1 + figures.index(max(figures))
    for result, folder in ((whole, "whole"), (parts, "parts")):
        assert (result.summary["selected_round"], result.summary["selected"]) == (best, max(figures))
        assert without_time(result.history) == without_time(whole.history)
        assert torch.equal(result.model, whole.model)
        assert result.summary["test"] == whole.summary["test"]
        assert RunFolder(tmp_path / folder).model.read_bytes() == RunFolder(tmp_path / "whole").model.read_bytes()
    shorter = run(algorithm(case, world), data, best)
    assert torch.equal(shorter.model, whole.model)
    assert shorter.summary["test"] == whole.summary["test"]
