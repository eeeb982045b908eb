"""`fs.run`: run an algorithm on data."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from fedsaddle import arguments
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.arguments import flag, function, hint_keywords, instance, number, whole
from fedsaddle.config.measures import MeasureSpec, build_measures
from fedsaddle.config.privacy_schema import refuse_robust
from fedsaddle.config.schema import MAX_ROUNDS
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.data.table import Dataset
from fedsaddle.engines.device import CPU
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.metrics.selection import Selection
from fedsaddle.metrics.target import Target
from fedsaddle.privacy.settings import Privacy
from fedsaddle.robust.attacks import Attack
from fedsaddle.robust.settings import Robust
from fedsaddle.runs.accounting import made_private
from fedsaddle.runs.closing import with_classes, write_report, write_split
from fedsaddle.runs.code_files import note_code
from fedsaddle.runs.compatibility import Rows, check_algorithm, check_rows
from fedsaddle.runs.engine_choice import EngineChoice, Task, opened
from fedsaddle.runs.evaluation import LocalEvaluator
from fedsaddle.runs.fingerprint import Identity
from fedsaddle.runs.folder import Record, RunFolder
from fedsaddle.runs.lock import only_writer, require_unused
from fedsaddle.runs.loop import Loop, Watch
from fedsaddle.runs.parameters import parameters_of
from fedsaddle.runs.result import Result
from fedsaddle.runs.settings import Settings
from fedsaddle.tracking.callbacks import Callback
from fedsaddle.tracking.told import Told, checked_callbacks
from fedsaddle.writable import make_folder

ROBUST = 'give fs.Robust(aggregation="trimmed-mean"), or None'
ATTACK = 'give fs.Attack(name="sign-flip", clients=2), or None'


@hint_keywords
def run(
    algorithm: Algorithm[Any],
    data: FederatedData | Rows,
    rounds: int = 100,
    *,
    seed: int = 0,
    engine: str | Clients = "vectorised",
    chunk: int | None = None,
    workers: int | None = None,
    address: str | None = None,
    factory: str | Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "full",
    deterministic: bool = False,
    evaluate_every: int = 1,
    evaluate_train: bool = False,
    measures: Sequence[MeasureSpec] = (),
    target: str | None = None,
    select: str | None = None,
    patience: int | None = None,
    lost_replies: float = 0.0,
    robust: Robust | None = None,
    attack: Attack | None = None,
    secure_aggregation: bool = False,
    privacy: Privacy | None = None,
    out: str | Path | None = None,
    resume: bool = False,
    checkpoint_every: int = 10,
    report: bool = True,
    watch: Watch | None = None,
    stop: Callable[[], bool] | None = None,
    begun: Callable[[], None] | None = None,
    extend: Callable[[Result], Record] | None = None,
    name: str | None = None,
    callbacks: Sequence[Callback] = (),
    warn: Callable[[str], None] = warnings.warn,
) -> Result:
    """Run `algorithm` on `data` for some rounds.

    The same seed gives the same draws on every engine. With the same chunk, machine and torch version, the trajectory
    is the same bit for bit for any number of workers from 2 on; otherwise it differs by rounding.

    Ctrl-C saves the finished rounds to `out` and raises KeyboardInterrupt.

    Args:
        algorithm: such as `Drfa(problem=...)`.
        data: the result of `load` or `federate`, or your own `Stacked` or `Lazy` rows.
        rounds: number of rounds.
        seed: keys every draw.
        engine: "vectorised"; "processes", on this machine; "ray", on many; "serial", the slow reference; or your own
            engine, an `fs.Clients`.
        chunk: clients that take a step together; chosen from the model by default.
        workers: threads of the vectorised engine, chosen from the model by default; processes, by default one for each
            core, or each GPU; workers on Ray, by default one for each CPU, or GPU, of the cluster.
        address: of a Ray cluster: "auto", one that runs here, else a new one; "local", a new one; or "host:port".
        factory: how workers make their own algorithm and rows: "module:function", which returns the algorithm and the
            data, or a config as a dictionary. Ray needs it; processes on Linux share those of this process without it.
        device: where clients' tasks run: "cpu", "auto", "cuda", "cuda:1" or "mps"; with processes and Ray, "cuda" is
            every GPU, one for each worker.
        precision: "full", or "bf16": the network's layers compute in bfloat16.
        deterministic: refuse operations of torch whose bits may differ from run to run.
        evaluate_every: rounds between evaluations: on the validation rows if the data have any, else on the test rows.
        evaluate_train: evaluate on the training rows as well (the summary always includes them).
        measures: more measures for each evaluation, such as "squared_gradient_of_phi" or `fs.measures.DualityGap()`.
        target: condition for early stopping, such as "worst accuracy >= 0.5".
        select: the measure of the validation rows that chooses the round whose model is kept, such as "auroc" or
            "worst loss"; by default the last round. Of equal rounds the earliest.
        patience: evaluations without a better one, after which the run ends.
        lost_replies: probability that a reply is lost.
        robust: bounds on replies and robust aggregation, such as `fs.Robust(aggregation="median")`; None is the mean.
        attack: hostile clients, such as `fs.Attack(name="sign-flip", clients=2)`, to try out what `robust` holds.
        secure_aggregation: sum averaged fields in fixed point behind masks, as real sites do with this setting; needs
            at least three clients in each sum, and the package `cryptography`.
        privacy: differential privacy, such as `fs.Privacy(epsilon=8)`; the summary says how much was spent.
        out: folder for metrics, model and checkpoints; None writes nothing. One process at a time may write to it.
        resume: continue from the newest checkpoint in `out`.
        checkpoint_every: rounds between checkpoints.
        report: write report.html to `out` at the end, a page about the run for people.
        watch: called after each round with its number and its evaluation record, or None.
        stop: called after each round; True saves and ends the run.
        begun: called before the first round, when all arguments are checked and `out` exists.
        extend: called with the result at the end; returns more entries for the summary.
        name: the algorithm's name in the summary; by default its class name.
        callbacks: told of each evaluation and of the end, such as `fs.trackers.TensorBoard()`; one that fails is
            left out with a warning.
        warn: called with each warning.

    Raises:
        BadInput: if an argument is invalid; names it and the remedy.
        Diverged: if no reply of an exchange or no client's loss is finite; a single one is left out with a warning.
        NobodyAnswered: if no client answers in 20 rounds in a row.
        BadCheckpoint: if `out` contains another run, or only damaged checkpoints.
        CannotWrite: if the disk is full or fails; the run can be resumed.
        FedSaddleError: if workers cannot begin, or too many are lost; the run can be resumed.

    Example:
        >>> import fedsaddle as fs
        >>> data = fs.load("iris", split="iid", clients=5)
        >>> result = fs.run(fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))), data, rounds=3)
        >>> len(result.history)
        3
    """
    check_algorithm(algorithm)
    rounds = whole("rounds", rounds, most=MAX_ROUNDS)
    folder = _folder(out, resume)
    algorithm, planned = made_private(algorithm, privacy, rounds, folder if resume else None)
    settings = Settings(
        rounds=rounds,
        seed=whole("seed", seed, least=0, most=2**64 - 1),
        evaluate_every=whole("evaluate_every", evaluate_every),
        evaluate_train=flag("evaluate_train", evaluate_train),
        checkpoint_every=whole("checkpoint_every", checkpoint_every),
        target=None if target is None else Target.parse(target),
        lost_replies=number("lost_replies", lost_replies, least=0, below=1),
        select=None if select is None else Selection.parse(select),
        patience=None if patience is None else whole("patience", patience),
        robust=None if robust is None else instance("robust", robust, Robust, ROBUST),
        attack=None if attack is None else instance("attack", attack, Attack, ATTACK),
        secure_aggregation=flag("secure_aggregation", secure_aggregation),
        privacy=planned,
    )
    if secure_aggregation and robust is not None:
        refuse_robust(robust.aggregation, robust.bounds)
    extra_measures = build_measures(measures)
    _check_functions(watch, stop, begun, extend, warn)
    arguments.optional(arguments.text, "name", name)
    told = checked_callbacks(callbacks)
    train, validation, test = _rows(data)
    train = check_rows(algorithm, train, test, validation)
    reports = flag("report", report) and folder is not None
    if folder is not None:
        folder.prepare(resume)
        require_unused(folder.path)
    more = None if extend is None else _checked(extend)
    held_out = {} if folder is None else {"validation": validation, "test": test}  # compared on resume alone
    identity = Identity.of(algorithm, train, held_out, settings.seed, settings.lost_replies)
    work = Task(algorithm, train, attack, settings.seed, settings.lost_replies, identity.fingerprint)
    choice = EngineChoice(engine, chunk, workers, address, factory, device, precision, deterministic)
    with opened(choice, work, warn) as clients:
        loop = Loop(
            algorithm,
            clients,
            LocalEvaluator(algorithm.problem, train, test, extra_measures, warn, validation, choice.here() or CPU),
            settings,
            identity,
            type(algorithm).__name__ if name is None else name,
            folder,
            watch,
            stop or (lambda: False),
            with_classes(data, more) if reports else more,
            warn,
            Told(told, warn) if told else None,
            data.test_names if isinstance(data, FederatedData) else (),
            parameters_of(algorithm, settings) if told else {},
        )
        if folder is None:
            return _go(loop, begun)
        make_folder("out", folder.path)
        with only_writer(folder.path):
            _begin_in(folder, loop, resume)
            for reason in note_code(folder, algorithm, *extra_measures):
                warn(reason)
            if reports:
                write_split(folder, data)
            result = _go(loop, begun)
            if reports:
                write_report(folder, warn)
            return result


def _begin_in(folder: RunFolder, loop: Loop, resume: bool) -> None:
    """Begin in a folder, or go on from its newest checkpoint."""
    folder.prepare(resume)
    loop.resumed = resume and folder.holds_run
    for reason in loop.resume() if resume else ():
        loop.warn(reason)
    if not resume:
        folder.begin([])


def _go(loop: Loop, begun: Callable[[], None] | None) -> Result:
    if begun is not None:
        begun()
    return loop.go()


def _check_functions(watch: object, stop: object, begun: object, extend: object, warn: object) -> None:
    """Validate what the run calls back, and with how many arguments."""
    for key, call, takes in (("watch", watch, 2), ("stop", stop, 0), ("begun", begun, 0), ("extend", extend, 1)):
        if call is not None:
            function(key, call, takes)
    function("warn", warn, 1)


def _checked(extend: Callable[[Result], Record]) -> Callable[[Result], Record]:
    """The same function, refused where it gives no dictionary."""

    def extended(result: Result) -> Record:
        found: object = extend(result)
        if not isinstance(found, dict):
            raise BadInput("extend", type(found).__name__, "must give a dictionary for the summary")
        return found

    return extended


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
