"""`fs.Privacy`: how much a run may reveal about a row, a patient or a client."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from math import inf, isinf

from fedsaddle.arguments import choice, flag, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.files import Json

UNITS = ("row", "patient", "client")
MOST_ROUNDS = 1_000_000_000


@dataclass(frozen=True, kw_only=True)
class Privacy:
    """Differential privacy of a run, (ε, δ) for every row, patient or client, and secure aggregation.

    With `unit="row"` or `"patient"` each client clips the gradient of every row, of both players, and adds Gaussian
    noise to every sum before anything leaves: the server and the other clients need not be trusted. A patient's rows
    count as one record: their mean gradient is clipped. Minibatches are Poisson samples:
    every row, or patient, is drawn independently with probability `batch_size / n`.

    With `unit="client"` the server clips what each client sends and adds noise to the mean; clients trust only the
    server. It is for hundreds of clients or more: with fewer, the noise exceeds the signal.

    The noise is the smallest that keeps a client that takes part in every planned round within ε.

    Args:
        epsilon: ε: the largest change in the log-odds of any conclusion due to one row, patient or client; 1 is strong,
            8 usual; infinity (default) adds no noise.
        delta: δ: the probability with which that bound may fail; should be well below one over the number of units.
        unit: What is protected: "row" (default), "patient" or "client".
        clip: C: the norm that per-example gradients or, with unit "client", whole updates of clients are clipped to.
        dual_clip: The same for gradients of the second player; None (default): `clip`.
        loss_bound: What the losses of rows that DRFA's clients report are clipped to.
        rounds: Number of rounds that the noise is planned for; None (default): those of the run.
        secure_aggregation: Whether averaged fields are summed in fixed point behind masks, as real sites do with this
            setting; needs at least three clients in each sum, and the package `cryptography`.

    Raises:
        BadInput: if a value is invalid; names its key.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Privacy(epsilon=8).unit
        'row'
    """

    epsilon: float = inf
    delta: float = 1e-5
    unit: str = "row"
    clip: float = 1.0
    dual_clip: float | None = None
    loss_bound: float = 5.0
    rounds: int | None = None
    secure_aggregation: bool = field(default=False, metadata={"fingerprint": False})  # an option of the run

    def __post_init__(self) -> None:
        hidden = flag("secure_aggregation", self.secure_aggregation)
        if number("epsilon", self.epsilon, above=0, infinite=hidden) > 1000 and not isinf(self.epsilon):
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
    def noisy(self) -> bool:
        """Whether there is differential privacy."""
        return not isinf(self.epsilon)

    @property
    def clip_y(self) -> float:
        """The largest norm of a row's gradient in the second player."""
        return self.clip if self.dual_clip is None else self.dual_clip

    def to_dict(self) -> dict[str, Json]:
        """The differential privacy, for JSON."""
        return {key: value for key, value in asdict(self).items() if key != "secure_aggregation"}
