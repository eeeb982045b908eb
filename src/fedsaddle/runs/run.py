"""`fs.run`: run an algorithm on data, after checking that the algorithm, its problem and the rows fit together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from pathlib import Path
from typing import get_type_hints

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from fedsaddle import arguments
from fedsaddle.algorithms.local_steps import REMEDIES
from fedsaddle.algorithms.protocols import Algorithm, AnyAlgorithm
from fedsaddle.arguments import MAX_ROUNDS, flag, hint_keywords, instance, number, whole
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Lazy, Rows, Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput, FedSaddleError
from fedsaddle.federation.clients import Batch, Clients
from fedsaddle.files import make_folder
from fedsaddle.metrics.measures import MeasureSpec, measures_of
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.privacy.settings import Privacy
from fedsaddle.problems.groups import GroupFair
from fedsaddle.problems.protocols import (
    KnowsClasses,
    MinimaxProblem,
    MinimisationProblem,
    Problem,
)
from fedsaddle.robust.attacks import Attack
from fedsaddle.robust.settings import Robust, require_sums
from fedsaddle.runs.callbacks import Callback, CallbackRunner, check_callbacks
from fedsaddle.runs.checkpoints import RunIdentity, note_code
from fedsaddle.runs.closing import ClassFigures, write_report, write_split
from fedsaddle.runs.engines import EngineJob, EngineSettings, engine_settings
from fedsaddle.runs.evaluation import LocalEvaluator
from fedsaddle.runs.folder import RunFolder, only_writer, require_unused
from fedsaddle.runs.loop import Loop, apply_privacy
from fedsaddle.runs.result import Result, State
from fedsaddle.runs.settings import RunOptions, Settings, parameters_of

ROBUST = 'give fs.Robust(aggregation="trimmed-mean"), or None'
ATTACK = 'give fs.Attack(name="sign-flip", clients=2), or None'


OPTIONS = "give fs.RunOptions(report=False), or None"
MOVED = {  # keywords of earlier versions
    **{
        key: f"is an option of the engine: give engine=fs.Vectorised({key}=...), or another engine's settings"
        for key in ("chunk", "workers", "device", "precision", "deterministic")
    },
    "factory": "is an option of the engine: give engine=fs.Processes(factory=...), or fs.Ray(factory=...)",
    "address": "is an option of the engine: give engine=fs.Ray(address=...)",
    **{
        key: f"is one of the options: give options=fs.RunOptions({key}=...)"
        for key in ("evaluate_train", "checkpoint_every", "report", "name")
    },
    "secure_aggregation": "is a part of privacy: give privacy=fs.Privacy(secure_aggregation=True)",
    **{
        old: f"is a callback now: give callbacks=[fs.LambdaCallback({new}=...)]"
        for old, new in (
            ("watch", "on_round"),
            ("stop", "on_round"),
            ("begun", "on_begin"),
            ("extend", "on_result"),
            ("warn", "on_warning"),
        )
    },
}


@partial(hint_keywords, moved=MOVED)
def run(
    algorithm: Algorithm[State],
    data: FederatedData | Rows,
    rounds: int = 100,
    *,
    seed: int = 0,
    engine: str | EngineSettings | Clients = "vectorised",
    evaluate_every: int = 1,
    measures: Sequence[MeasureSpec] = (),
    target: str | None = None,
    select: str | None = None,
    patience: int | None = None,
    lost_replies: float = 0.0,
    robust: Robust | None = None,
    attack: Attack | None = None,
    privacy: Privacy | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    options: RunOptions | None = None,
) -> Result[State]:
    """Run `algorithm` on `data` for some rounds.

    The same seed gives the same draws on every engine. With the same chunk, machine and torch version, the trajectory
    is the same bit for bit for any number of workers from 2 on; otherwise it differs by rounding.

    Ctrl-C saves the finished rounds to `out` and raises KeyboardInterrupt.

    Args:
        algorithm: such as `Drfa(problem=...)`.
        data: the result of `load` or `federate`, or your own `Stacked` or `Lazy` rows.
        rounds: number of rounds.
        seed: keys every draw.
        engine: where clients' tasks run, with its chunk, workers and device: `fs.Vectorised()`, the default;
            `fs.Processes()`, on this machine; `fs.Ray(factory=...)`, on many; `fs.Serial()`, the slow reference; one of
            their names in lower case; or your own engine, an `fs.Clients`.
        evaluate_every: rounds between evaluations: on the validation rows if the data have any, else on the test rows.
        measures: more measures for each evaluation, such as "squared_gradient_of_phi" or `fs.measures.DualityGap()`.
        target: condition for early stopping, such as "worst accuracy >= 0.5".
        select: the measure of the validation rows that chooses the round whose model is kept, such as "auroc" or
            "worst loss"; by default the last round. Of equal rounds the earliest.
        patience: evaluations without a better one, after which the run ends.
        lost_replies: probability that a reply is lost.
        robust: bounds on replies and robust aggregation, such as `fs.Robust(aggregation="median")`; None is the mean.
        attack: hostile clients, such as `fs.Attack(name="sign-flip", clients=2)`, to try out what `robust` holds.
        privacy: differential privacy, such as `fs.Privacy(epsilon=8)`, whose cost is in the summary, and secure
            aggregation, `fs.Privacy(secure_aggregation=True)`.
        out: folder for metrics, model and checkpoints; None writes nothing. One process at a time may write to it.
        resume: continue from the newest checkpoint in `out`.
        callbacks: called at the beginning, after each round, with warnings and at the end, such as
            `fs.trackers.TensorBoard()` or `fs.LambdaCallback(on_round=...)`, which can end the run.
        options: `fs.RunOptions`: the name in the summary, evaluations of the training rows, how often a checkpoint is
            written, and whether report.html is.

    Raises:
        BadInput: if an argument is invalid; names it and the remedy.
        Diverged: if no reply of an exchange or no client's loss is finite; a single one is left out with a warning.
        NobodyAnswered: if no client answers in 20 rounds in a row.
        BadCheckpoint: if `out` contains another run, or only damaged checkpoints.
        CannotWrite: if the disk is full or fails; the run can be resumed.
        FedSaddleError: if workers cannot begin, or too many are lost; the run can be resumed.

    Examples:
        >>> import fedsaddle as fs
        >>> data = fs.load("iris", split="iid", clients=5)
        >>> result = fs.run(fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))), data, rounds=3)
        >>> len(result.history)
        3
    """
    check_algorithm(algorithm)
    rounds = whole("rounds", rounds, most=MAX_ROUNDS)
    folder = _folder(out, resume)
    options = RunOptions() if options is None else instance("options", options, RunOptions, OPTIONS)
    algorithm, planned = apply_privacy(algorithm, privacy, rounds, folder if resume else None)
    settings = Settings(
        rounds=rounds,
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        evaluate_every=whole("evaluate_every", evaluate_every),
        evaluate_train=bool(options.evaluate_train),
        checkpoint_every=int(options.checkpoint_every),
        target=None if target is None else Target.parse(target),
        lost_replies=number("lost_replies", lost_replies, least=0, below=1),
        select=None if select is None else Selection.parse(select),
        patience=None if patience is None else whole("patience", patience),
        robust=None if robust is None else instance("robust", robust, Robust, ROBUST),
        attack=None if attack is None else instance("attack", attack, Attack, ATTACK),
        secure_aggregation=privacy is not None and bool(privacy.secure_aggregation),
        privacy=planned,
    )
    if settings.secure_aggregation and robust is not None:
        require_sums(robust.aggregation, robust.bounds)
    extra_measures = measures_of(measures)
    chosen = engine_settings(engine)
    given = check_callbacks(callbacks)
    train, validation, test = _rows(data)
    train = check_rows(algorithm, train, test, validation)
    reports = options.report and folder is not None
    if folder is not None:
        folder.prepare(resume)
        require_unused(folder.path)
    runner = CallbackRunner([ClassFigures(data), *given] if reports else given)
    held_out = {} if folder is None else {"validation": validation, "test": test}  # compared on resume alone
    identity = RunIdentity.of(algorithm, train, held_out, settings.seed, settings.lost_replies)
    job = EngineJob(algorithm, train, attack, settings.seed, settings.lost_replies, identity.fingerprint)
    with chosen.open(job, runner.warn) as clients:
        device = chosen.evaluation_device()
        loop = Loop(
            algorithm,
            clients,
            LocalEvaluator(algorithm.problem, train, test, extra_measures, runner.warn, validation, device),
            settings,
            identity,
            type(algorithm).__name__ if options.name is None else options.name,
            folder,
            runner,
            data.test_names if isinstance(data, FederatedData) else (),
            data.features if isinstance(data, FederatedData) else (),
            parameters_of(algorithm, settings) if given else {},
        )
        if folder is None:
            return loop.run()
        make_folder("out", folder.path)
        with only_writer(folder.path):
            _begin_in(folder, loop, resume)
            for reason in note_code(folder, algorithm, *extra_measures):
                runner.warn(reason)
            if reports:
                write_split(folder, data)
            result = loop.run()
            if reports:
                write_report(folder, runner.warn)
            return result


def _begin_in(folder: RunFolder, loop: Loop, resume: bool) -> None:
    """Begin in a folder, or go on from its newest checkpoint."""
    folder.prepare(resume)
    loop.resumed = resume and folder.holds_run
    for reason in loop.resume() if resume else ():
        loop.callbacks.warn(reason)
    if not resume:
        folder.begin([])


def _rows(data: object) -> tuple[Rows, Stacked | None, Stacked | None]:
    """Training, validation and test rows."""
    if isinstance(data, FederatedData):
        return data.train, data.validation, data.test
    if isinstance(data, Stacked | Lazy):
        return data, None, None
    remedy = "give the result of fs.load or fs.federate, or fs.Stacked or fs.Lazy"
    if isinstance(data, Dataset):
        remedy = "is not split among clients yet: use fs.federate(dataset, fs.splits.Natural(...))"
    elif _has_torch_datasets(data):
        remedy = "is not split among clients yet: use fs.federate(fs.from_datasets(datasets), fs.splits.Natural())"
    raise BadInput("data", type(data).__name__, remedy)


def _has_torch_datasets(data: object) -> bool:
    """Whether it is a dataset or a loader of torch, or a list or dictionary of them."""
    parts = list(data.values()) if isinstance(data, Mapping) else data if isinstance(data, list | tuple) else [data]
    return bool(parts) and all(isinstance(part, TorchDataset | DataLoader) for part in parts)


def _folder(out: object, resume: object) -> RunFolder | None:
    path = arguments.optional(arguments.path, "out", out)
    if flag("resume", resume) and path is None:
        raise BadInput("resume", True, "name the folder to resume with `out`")
    return None if path is None else RunFolder(path)


def check_rows(algorithm: AnyAlgorithm, train: Rows, test: Stacked | None, validation: Stacked | None = None) -> Rows:
    """Check the training rows: all of them now, or those of a lazy client when they are loaded."""
    problem = algorithm.problem
    check_kind(algorithm)
    x, y = train.client(0)
    if isinstance(problem, GroupFair) and y.ndim != 2:
        raise BadInput(
            "data", "rows without groups", "give data.with_groups(columns): targets are pairs (label, group)"
        )
    _evaluate_start(problem, x[:2], y[:2])
    _check_precision(algorithm, problem)
    classes = problem.known_classes(x[:2]) if isinstance(problem, KnowsClasses) else None
    if classes is None or (y.is_floating_point() and y.ndim > 1):  # not classes, or shares of classes
        return train
    ignored = getattr(getattr(problem, "loss", None), "ignored", None)
    for part, rows in (("test", test), ("validation", validation)):
        if rows is not None:
            _check_stacked(rows, classes, f"{part} label", ignored)

    def check(y: Tensor, owner: Callable[[int], int]) -> None:
        if isinstance(problem, GroupFair):
            _check_labels(y[:, 1], len(problem.groups), owner, "group", None)
            y = y[:, 0]
        _check_labels(y, classes, owner, "label", ignored)

    if isinstance(train, Stacked):
        check(train.y, _owner(train))
        return train

    def load(client: int) -> tuple[Tensor, Tensor]:
        x, y = train.load(client)
        check(y, lambda _: client)
        return x, y

    check(y, lambda _: 0)
    return replace(train, load=load)


def check_algorithm(algorithm: object) -> None:
    """Raise `BadInput` unless the object is an algorithm."""
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        name = algorithm.__name__ if isinstance(algorithm, type) else type(algorithm).__name__
        remedy = "give an object with a problem and the methods start, round and model, such as fs.Drfa(problem=...)"
        raise BadInput("algorithm", name, remedy)


def check_kind(algorithm: AnyAlgorithm) -> None:
    """Raise `BadInput` unless the problem is of the kind that the annotation of the algorithm's `problem` asks for."""
    problem = algorithm.problem
    if not isinstance(problem, Problem):
        raise BadInput(
            "problem",
            type(problem).__name__,
            "has no method row_measures; add it, so that a run can evaluate the problem",
        )
    try:
        hint = get_type_hints(type(algorithm)).get("problem")
    except (NameError, AttributeError, TypeError):  # user annotations that cannot be resolved
        hint = None
    for kind, remedy in REMEDIES.items():
        wanted = hint is kind or (isinstance(hint, type) and kind in hint.__mro__)
        if wanted and not isinstance(problem, kind):
            raise BadInput("problem", type(problem).__name__, f"is not for {type(algorithm).__name__}; {remedy}")
    if not isinstance(problem, MinimisationProblem | MinimaxProblem):
        remedy = "is of an unknown kind; inherit from fs.MinimisationProblem or fs.MinimaxProblem"
        raise BadInput("problem", type(problem).__name__, remedy)


def _check_precision(algorithm: object, problem: object) -> None:
    """Refuse hyperparameters that numbers of the problem's type cannot hold."""
    if not is_dataclass(algorithm) or not isinstance(problem, MinimisationProblem | MinimaxProblem):
        return
    start: object = problem.initial()
    first: object = start[0] if isinstance(start, tuple) and start else start
    if not isinstance(first, Tensor) or not first.is_floating_point():
        return  # the check of the problem says what is wrong
    for each in fields(algorithm):
        value = getattr(algorithm, each.name)
        if isinstance(value, float) and torch.finfo(first.dtype).max < abs(value) < float("inf"):
            raise BadInput(each.name, value, f"is too large for numbers of type {_kind(first)}")


def _evaluate_start(problem: Problem, x: Tensor, y: Tensor) -> None:
    """Evaluate the problem at its starting point on two rows of the first client."""
    batch = Batch(x[None], y[None])
    start: tuple[Tensor, ...] = ()
    try:
        with torch.no_grad():
            if isinstance(problem, MinimaxProblem):
                start = problem.initial()
                problem.value(start[0][None], start[1][None], batch)
            elif isinstance(problem, MinimisationProblem):
                start = (problem.initial(),)
                problem.value(start[0][None], batch)
    except FedSaddleError:
        raise
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as reason:
        if "out of bounds" in str(reason) and isinstance(problem, KnowsClasses):
            return  # a label; the check of all labels names it
        sizes = " and ".join(f"{len(v):,} {_kind(v)} numbers" for v in start)
        first = str(reason).strip().split("\n")[0]
        rows = f"{_kind(x)} rows of shape {tuple(x.shape[1:])} with {_kind(y)} labels"
        remedy = f"does not fit the {rows}, starting from {sizes}: {first}"
        raise BadInput("problem", type(problem).__name__, remedy) from reason


def _kind(v: Tensor) -> str:
    return str(v.dtype).removeprefix("torch.")


def _check_stacked(rows: Stacked, classes: int, key: str, ignored: int | None) -> None:
    _check_labels(rows.y, classes, _owner(rows), key, ignored)


def _owner(rows: Stacked) -> Callable[[int], int]:
    """The client of a row."""
    return lambda row: int(np.searchsorted(rows.offsets, row, side="right")) - 1


def _check_labels(y: Tensor, classes: int, owner: Callable[[int], int], key: str, ignored: int | None) -> None:
    """Raise `BadInput` unless all labels are whole numbers from 0 to `classes - 1`."""
    wrong = (y < 0) | (y >= classes) | (y != y.round() if y.is_floating_point() else False)
    if ignored is not None:
        wrong &= y != ignored
    if bool(wrong.any()):
        at = wrong.nonzero()[0]
        value = y[tuple(at)].item()
        many = "groups, so groups" if key == "group" else "classes, so labels"
        remedy = f"the problem has {classes} {many} are whole numbers from 0 to {classes - 1}"
        raise BadInput(f"{key} of client {owner(int(at[0]))}", value, remedy)
