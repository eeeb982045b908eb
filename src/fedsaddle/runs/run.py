"""`fs.run`: an algorithm, data and how to run it, checked and put together."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.arguments import flag, number, whole
from fedsaddle.config.build import MeasureSpec, build_measures
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.engines.choose import make_engine
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.metrics.target import Target
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem
from fedsaddle.runs.compatibility import Rows, check_algorithm, check_rows
from fedsaddle.runs.evaluation import LocalEvaluator
from fedsaddle.runs.fingerprint import fingerprint
from fedsaddle.runs.folder import Record, RunFolder
from fedsaddle.runs.loop import Loop, Settings, Watch
from fedsaddle.runs.result import Result

MAX_ROUNDS = 1_000_000_000


def run(
    algorithm: Algorithm[Any],
    data: FederatedData | Rows,
    rounds: int = 100,
    *,
    seed: int = 0,
    engine: str | Clients = "vectorised",
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
    stop: Callable[[], bool] | None = None,
    begun: Callable[[], None] | None = None,
    extend: Callable[[Result], Record] | None = None,
    name: str | None = None,
    warn: Callable[[str], None] = warnings.warn,
) -> Result:
    """Run `algorithm` on `data` for some rounds.

    The same seed gives the same draws on every engine. The trajectory has the same bits for the same engine, chunk and
    workers on the same machine and torch; between engines, chunks or numbers of threads it differs by rounding.

    Ctrl-C raises KeyboardInterrupt, as ever, after the rounds that are done were saved to `out`.

    Args:
        algorithm: such as `Drfa(problem=...)`.
        data: what `load` gives, or client rows of your own.
        rounds: how many.
        seed: keys every draw.
        engine: "vectorised", or "serial", the slow and obvious one; or an engine of your own, an `fs.Clients`.
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
        stop: called after each round; True ends the run there, with its work saved.
        begun: called once all is checked and `out` exists.
        extend: called with the result at the end; what it gives goes into the summary too.
        name: the algorithm's name in the summary; by default its class.
        warn: called with what the user should know but need not stop for.

    Raises:
        BadInput: for an argument that cannot be, with its name and the remedy.
        Diverged: where a reply or a loss is not finite.
        NobodyAnswered: where no client has answered in many rounds in a row.
        BadCheckpoint: where `out` holds another run, or damaged checkpoints only.

    Example:
        >>> import fedsaddle as fs
        >>> data = fs.load("iris", split="iid", clients=5)
        >>> result = fs.run(fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))), data, rounds=3)
        >>> len(result.history)
        3
    """
    check_algorithm(algorithm)
    settings = Settings(
        rounds=whole("rounds", rounds, most=MAX_ROUNDS),
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        evaluate_every=whole("evaluate_every", evaluate_every),
        evaluate_train=flag("evaluate_train", evaluate_train),
        checkpoint_every=whole("checkpoint_every", checkpoint_every),
        target=None if target is None else Target.parse(target),
        lost_replies=number("lost_replies", lost_replies, least=0, below=1),
    )
    taken = build_measures(measures)
    for key, call in (("watch", watch), ("stop", stop), ("begun", begun), ("extend", extend), ("warn", warn)):
        if call is not None and not callable(call):
            raise BadInput(key, call, "must be a function")
    train, test = _rows(data)
    train = check_rows(algorithm, train, test)
    folder = _folder(out, resume)
    loop = Loop(
        algorithm,
        _engine(engine, algorithm, train, settings.seed, chunk, workers),
        LocalEvaluator(algorithm.problem, train, test, taken, warn),
        settings,
        fingerprint(algorithm, train, settings.seed, settings.lost_replies),
        type(algorithm).__name__ if name is None else name,
        folder,
        watch,
        stop or (lambda: False),
        extend,
    )
    if folder is not None:
        folder.prepare(resume)
        for reason in loop.resume() if resume else ():
            warn(f"{reason}; the checkpoint before it is used")
        if not resume:
            folder.begin([])
    if begun is not None:
        begun()
    return loop.go()


def _rows(data: object) -> tuple[Rows, Stacked | None]:
    """Training rows and test rows."""
    if isinstance(data, FederatedData):
        return data.train, data.test
    if isinstance(data, Stacked | Lazy):
        return data, None
    raise BadInput("data", type(data).__name__, "give what fs.load or fs.federate gives, fs.Stacked or fs.Lazy")


def _folder(out: object, resume: object) -> RunFolder | None:
    if out is not None and not isinstance(out, str | Path):
        raise BadInput("out", out, "give the path of a folder")
    if flag("resume", resume) and out is None:
        raise BadInput("resume", True, "say with `out` which folder to resume")
    return None if out is None else RunFolder(Path(out))


def _engine(
    engine: object, algorithm: Algorithm[Any], train: Rows, seed: int, chunk: int | None, workers: int | None
) -> Clients:
    """An engine by name, or one of the user's own."""
    problem = algorithm.problem
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)  # checked before
    if isinstance(engine, str):
        return make_engine(engine, problem, train, seed, chunk, workers)
    if isinstance(engine, type) or not isinstance(engine, Clients):
        kind = engine.__name__ if isinstance(engine, type) else type(engine).__name__
        raise BadInput("engine", kind, 'give "vectorised", "serial", or an object that inherits from fs.Clients')
    for key, value in (("chunk", chunk), ("workers", workers)):
        if value is not None:
            raise BadInput(f"engine.{key}", value, "is for the vectorised engine; leave it out")
    if engine.count != train.count:
        raise BadInput("engine", f"{engine.count} clients", f"the data have {train.count}")
    return engine
