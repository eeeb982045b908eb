"""The settings of a run: how long it is, when it is evaluated and saved, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass

from fedsaddle.algorithms.protocols import AnyAlgorithm
from fedsaddle.arguments import flag, optional, text, whole
from fedsaddle.errors import BadInput
from fedsaddle.files import Json, Record
from fedsaddle.metrics.selection import Selection, Target
from fedsaddle.privacy.settings import Privacy
from fedsaddle.robust.attacks import Attack
from fedsaddle.robust.settings import Robust
from fedsaddle.text import shortened, visible


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """Options of `fs.run` that are rarely needed.

    Args:
        name: the algorithm's name in the summary; None: its class name.
        evaluate_train: evaluate on the training rows as well (the summary always includes them).
        checkpoint_every: rounds between checkpoints.
        report: write report.html to `out` at the end, a page about the run for people.

    Raises:
        BadInput: if a value is invalid, with its name.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.RunOptions(report=False).checkpoint_every
        10
    """

    name: str | None = None
    evaluate_train: bool = False
    checkpoint_every: int = 10
    report: bool = True

    def __post_init__(self) -> None:
        optional(text, "name", self.name)
        flag("evaluate_train", self.evaluate_train)
        whole("checkpoint_every", self.checkpoint_every)
        flag("report", self.report)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Length, seed, evaluation and checkpoints of a run."""

    rounds: int
    seed: int = 0
    evaluate_every: int = 1
    evaluate_train: bool = False
    checkpoint_every: int = 10
    target: Target | None = None
    lost_replies: float = 0.0
    select: Selection | None = None  # which round's model to keep; None: the last
    patience: int | None = None  # evaluations without a better one, after which the run ends
    robust: Robust | None = None  # bounds and robust aggregation; None: the plain mean
    attack: Attack | None = None  # hostile clients of a simulated run
    secure_aggregation: bool = False  # averaged fields are summed in fixed point, behind masks
    privacy: Privacy | None = None  # of whole clients, made by the server

    def __post_init__(self) -> None:
        if self.privacy is not None and self.robust is not None and self.robust.active:
            remedy = "the server adds noise to the mean of clipped updates; leave out robust, or use unit = 'row'"
            raise BadInput("privacy.unit", "client", remedy)
        if self.patience is not None and self.select is None:
            raise BadInput("patience", self.patience, 'needs a measure to watch, such as select = "auroc"')

    def due(self, done: int) -> bool:
        """Whether to evaluate after round `done`."""
        return done % self.evaluate_every == 0 or done >= self.rounds


_PLAIN = (bool, int, float, str)


def parameters_of(algorithm: AnyAlgorithm, settings: Settings) -> Record:
    """The fields of the algorithm and of the settings, without those that are None; what is no number is text."""
    return {"algorithm": {"class": type(algorithm).__name__, **_fields(algorithm)}, "run": _fields(settings)}


def _fields(thing: object) -> Record:
    if not is_dataclass(thing):
        return {}
    found = {f.name: getattr(thing, f.name, None) for f in fields(thing) if not f.name.startswith("_")}
    return {name: _plain(value) for name, value in found.items() if value is not None}


def _plain(value: object) -> Json:
    if isinstance(value, _PLAIN):
        return value
    if is_dataclass(value) and not isinstance(value, type):
        return type(value).__name__
    return shortened(visible(value), 200) if isinstance(value, list | tuple) else type(value).__name__
