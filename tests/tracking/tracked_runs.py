"""A small run to track, with clients of awkward names, that crashes where it is told to."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedsaddle.algorithms.drfa import Drfa
from fedsaddle.config.build import load
from fedsaddle.problems.models.networks import logistic_regression
from fedsaddle.problems.supervised import Supervised
from fedsaddle.runs.callbacks import LambdaCallback
from fedsaddle.runs.result import Result
from fedsaddle.runs.run import run
from fedsaddle.runs.settings import RunOptions

NAMES = ("A/B", "A B", "<script>alert(1)</script>\x1b[2J", "Zürich: 1, =2")


class Crash(Exception):
    pass


def small_run(crash_at: int | None = None, **options: Any) -> Result:
    """Eight rounds of DRFA on iris at four clients; a checkpoint every three rounds."""
    data = load("iris", split="iid", clients=4)
    data = replace(data, names=NAMES, test_names=NAMES)
    problem = Supervised(logistic_regression(4, 3))
    algorithm = Drfa(problem=problem, sampled_clients=2, local_steps=2, batch_size=8)

    def crash(done: int, record: object) -> None:
        if done == crash_at:
            raise Crash

    callbacks = [*options.pop("callbacks", ()), LambdaCallback(on_round=crash)]
    return run(algorithm, data, 8, callbacks=callbacks, options=RunOptions(report=False, checkpoint_every=3), **options)


def crashed_and_resumed(out: Path, tracker: Any) -> Result:
    """A run that ended in its seventh round, with a checkpoint after the sixth, and was resumed."""
    with suppress(Crash):
        small_run(7, out=out, callbacks=[tracker])
    return small_run(out=out, callbacks=[tracker], resume=True)
