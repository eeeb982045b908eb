"""`fs.Robust`: how the replies of clients are bounded and averaged."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from fedsaddle.arguments import choice, flag, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.files import Json

NEEDS_REPLIES = "has to see each reply, which secure aggregation hides"
AGGREGATIONS = ("mean", "trimmed-mean", "median", "geometric-median", "centred-clipping")


@dataclass(frozen=True, kw_only=True)
class Robust:
    """Bounds on what clients send, and a mean that a few hostile clients cannot move far.

    With the same weights as the mean that it replaces, `aggregation` is, of each averaged field on its own,

    - "mean": the weighted mean, as without this setting;
    - "trimmed-mean": of each coordinate, without the lowest and the highest `trim` of the weight (Yin et al. 2018);
    - "median": of each coordinate, the weighted median (Yin et al. 2018);
    - "geometric-median": `argmin_v Σ_i weight_i |v_i - v|` (Pillutla, Kakade, Harchaoui 2022);
    - "centred-clipping": `v ← v + mean of clip(v_i - v, radius)`, `iterations` times, from what was sent
      (Karimireddy, He, Jaggi 2021).

    With `bounds` an update, the difference of a reply and what was sent, that is more than `norm_factor` times as long
    as usual is made as long as usual: the running median over clients and the last rounds, or its largest value so far.
    A number that the server sees of each client, such as a loss, counts as the clients' median if it is above `median +
    loss_factor · max(MAD, usual size)`. Deployed runs have bounds unless `bounds` is false; they do nothing to honest
    runs, bit for bit, as long as no reply exceeds them. The summary of a run counts under "bounded" what did.

    Args:
        aggregation: one of the names above.
        trim: share of the weight that "trimmed-mean" drops at either end; above the share of hostile clients.
        radius: of "centred-clipping"; None is the running median of the updates' norms.
        iterations: of "centred-clipping".
        bounds: bound updates and reported numbers; None is off in simulations and on in deployed runs.
        norm_factor: largest norm of an update, as a multiple of the usual norm; for d numbers `1 + 4 / d` times that,
            for scores that clients share five times that.
        loss_factor: how far above the median a reported number may be, as above.

    Raises:
        BadInput: if a value is invalid; names its key.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Robust(aggregation="trimmed-mean", trim=0.25, bounds=True).norm_factor
        10.0
    """

    aggregation: str = "mean"
    trim: float = 0.25
    radius: float | None = None
    iterations: int = 3
    bounds: bool | None = None
    norm_factor: float = 10.0
    loss_factor: float = 10.0

    def __post_init__(self) -> None:
        choice("aggregation", self.aggregation, AGGREGATIONS)
        if number("trim", self.trim, least=0) >= 0.5:
            raise BadInput("trim", self.trim, "must be below 0.5, or nothing is left; use aggregation = 'median'")
        if self.radius is not None:
            number("radius", self.radius, above=0, infinite=True)
        whole("iterations", self.iterations, most=1000)
        if self.bounds is not None:
            flag("bounds", self.bounds)
        number("norm_factor", self.norm_factor, least=1)
        number("loss_factor", self.loss_factor, least=1)

    @property
    def active(self) -> bool:
        """Whether it has an effect; `bounds = None` counts as off."""
        return self.aggregation != "mean" or self.bounds is True

    def to_dict(self) -> dict[str, Json]:
        """For JSON."""
        return asdict(self)


def require_sums(aggregation: str, bounds: bool | None) -> None:
    """Raise `BadInput` if robust aggregation or bounds are asked for together with secure aggregation."""
    remedy = "choose one of the two: leave it out, or privacy.secure_aggregation"
    if aggregation != "mean":
        raise BadInput("robust.aggregation", aggregation, f"{NEEDS_REPLIES}; {remedy}")
    if bounds:
        raise BadInput("robust.bounds", bounds, f"{NEEDS_REPLIES}; {remedy}")
