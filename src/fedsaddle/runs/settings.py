"""The settings of a run: how long it is, when it is evaluated and saved, and what ends it."""

from __future__ import annotations

from dataclasses import dataclass

from fedsaddle.errors import BadInput
from fedsaddle.metrics.selection import Selection
from fedsaddle.metrics.target import Target
from fedsaddle.privacy.settings import Privacy
from fedsaddle.robust.attacks import Attack
from fedsaddle.robust.settings import Robust


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
