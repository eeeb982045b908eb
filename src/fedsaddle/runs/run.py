"""`fs.run`: an algorithm, data and how to run it, checked and put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from fedsaddle.config.build import MeasureSpec, build_measures
from fedsaddle.data.federated import FederatedData
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadInput
from fedsaddle.runs.compatibility import fitted
from fedsaddle.runs.evaluation import Measures
from fedsaddle.runs.folder import Output, RunFolder
from fedsaddle.runs.loop import Loop, Rows, Watch
from fedsaddle.runs.result import Result
from fedsaddle.runs.target import Target


def run(
    algorithm: Any,
    data: FederatedData | Rows,
    rounds: int = 100,
    *,
    seed: int = 0,
    engine: str = "vectorised",
    chunk: int | None = None,
    workers: int | None = None,
    evaluate_every: int = 1,
    evaluate_train: bool = False,
    measures: Sequence[MeasureSpec] = (),
    target: str | None = None,
    lost_replies: float = 0.0,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    watch: Watch | None = None,
    begun: Callable[[], None] | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Result:
    """Run `algorithm` on `data` for some rounds.

    Args:
        algorithm: such as `Drfa(problem=...)`.
        data: what `load` gives, or client rows of your own.
        rounds: how many.
        seed: keys every draw; the same seed gives the same run on every engine.
        engine: "vectorised", or "serial", the slow and obvious one.
        chunk: clients a step on the vectorised engine; by default a rule chooses.
        workers: threads of the vectorised engine; by default a rule chooses.
        evaluate_every: rounds between evaluations on the test rows.
        evaluate_train: evaluate on the training rows as well (they are always measured at the end).
        measures: more figures for each evaluation, such as "squared_gradient_of_phi" or `fs.measures.DualityGap()`.
        target: stop early, for example "worst accuracy >= 0.5".
        lost_replies: share of replies lost on the way.
        out: folder for metrics, model and checkpoints; None writes nothing.
        resume: go on from the newest checkpoint in `out`.
        checkpoint_every: rounds between checkpoints.
        watch: called after each round with its number and, where it was evaluated, its record.
        begun: called once all is checked and `out` exists.
        warn: called with what the user should know but need not stop for.
    """
    _whole("rounds", rounds)
    _whole("evaluate_every", evaluate_every)
    _whole("checkpoint_every", checkpoint_every)
    _whole("seed", seed, least=0)
    if not 0 <= lost_replies < 1:
        raise BadInput("lost_replies", lost_replies, "must be at least 0 and below 1")
    train, test = (data.train, data.test) if isinstance(data, FederatedData) else (data, None)
    train = fitted(algorithm, train, test)
    machine = make_engine(engine, algorithm.problem, train, seed, chunk, workers)
    loop = Loop(
        algorithm=algorithm,
        engine=machine,
        train=train,
        test=test,
        rounds=rounds,
        seed=seed,
        evaluate_every=evaluate_every,
        evaluate_train=evaluate_train or test is None,
        measures=Measures(build_measures(measures), warn),
        target=None if target is None else Target.parse(target),
        lost_replies=lost_replies,
        watch=watch,
    )
    folder = None if out is None else RunFolder(Path(out), loop.fingerprint, checkpoint_every)
    output = Output.to(folder, resume)
    loop.resume(output)
    for reason in output.refused:
        warn(f"{reason}; the checkpoint before it is used")
    if begun is not None:
        begun()
    return loop.go(output)


def _whole(key: str, value: Any, least: int = 1) -> None:
    if not isinstance(value, Integral) or not least <= int(value) < 2**64:
        raise BadInput(key, value, f"must be a whole number of at least {least}, and below 2**64")
