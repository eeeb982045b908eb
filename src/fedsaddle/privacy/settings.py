"""`fs.Privacy`: how much a run may tell about a row, a patient or a client."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from fedsaddle.arguments import choice, number, whole
from fedsaddle.errors import BadInput

UNITS = ("row", "patient", "client")
MOST_ROUNDS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy of a run: (ε, δ) for every row, patient or client.

    With `unit="row"` or `"patient"` each client clips the gradient of every row, of both players, and adds Gaussian
    noise to every sum before anything leaves: the server and the other clients need not be trusted. A patient's rows
    count as one: their mean, so that all of them together are clipped like a row. Minibatches are Poisson samples:
    every row, or patient, is drawn on its own with probability `batch_size / n`.

    With `unit="client"` the server clips what each client sends and adds noise to the mean; clients trust the server,
    and nobody else. It is for hundreds of clients or more: noise drowns what a few can learn.

    The noise is the least that keeps a client that is asked in every one of the planned rounds within ε.

    Args:
        epsilon: ε: what one row, patient or client may change in the odds of any conclusion, as a logarithm.
        delta: δ: the probability with which that may fail; well below one over the number of units.
        unit: "row", "patient" or "client".
        clip: C: the largest norm of a row's gradient in the model or, with unit "client", of a client's whole update.
        dual_clip: of a row's gradient in the second player; None is `clip`.
        loss_bound: the largest loss of a row that DRFA's clients tell; larger ones count as this.
        rounds: planned rounds; None: those of the run.

    Raises:
        BadInput: for a value that cannot be, with its name.

    Example:
        >>> import fedsaddle as fs
        >>> fs.Privacy(epsilon=8).unit
        'row'
    """

    epsilon: float
    delta: float = 1e-5
    unit: str = "row"
    clip: float = 1.0
    dual_clip: float | None = None
    loss_bound: float = 5.0
    rounds: int | None = None

    def __post_init__(self) -> None:
        if number("epsilon", self.epsilon, above=0) > 1000:
            raise BadInput("epsilon", self.epsilon, "protects nobody; give 1 to 10, or leave privacy out")
        number("delta", self.delta, above=0, below=1)
        choice("unit", self.unit, UNITS)
        number("clip", self.clip, above=0)
        if self.dual_clip is not None:
            number("dual_clip", self.dual_clip, above=0)
        number("loss_bound", self.loss_bound, above=0)
        if self.rounds is not None:
            whole("rounds", self.rounds, most=MOST_ROUNDS)

    @property
    def clip_y(self) -> float:
        """The largest norm of a row's gradient in the second player."""
        return self.clip if self.dual_clip is None else self.dual_clip

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)
