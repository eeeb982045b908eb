"""[privacy] of a config file: secure aggregation, differential privacy, and what does not go with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedsaddle.errors import BadInput

if TYPE_CHECKING:
    from fedsaddle.config.schema import Config
    from fedsaddle.privacy.settings import Privacy as Settings

NEEDS_REPLIES = "has to see each reply, which secure aggregation hides"


class Privacy(BaseModel):
    """[privacy]: what the server may learn, and what anybody may learn of a row, a patient or a client."""

    model_config = ConfigDict(extra="forbid", strict=True)
    secure_aggregation: bool = False  # averaged fields reach the server as sums of at least three clients only
    # ε: what one unit may change in the odds of any conclusion, as a logarithm; 1 is strong, 8 usual; none: no noise
    epsilon: float | None = Field(None, gt=0, le=1000)
    delta: float = Field(1e-5, gt=0, lt=1)  # δ: the probability of a failure; well below one over the number of units
    # who is protected: each `row`; each `patient` (column `together` of the data), with all rows; or each `client`
    unit: Literal["row", "patient", "client"] = "row"
    clip: float = Field(1.0, gt=0)  # the largest norm of a row's gradient, or of a client's update
    dual_clip: float | None = Field(None, gt=0)  # of a row's gradient in the second player; none: `clip`
    loss_bound: float = Field(5.0, gt=0)  # the largest loss of a row that DRFA's clients tell
    rounds: int | None = Field(None, ge=1, le=1_000_000_000)  # that the noise is planned for; none: those of the run

    def of_clients(self, rounds: int) -> Settings | None:
        """The privacy that the server makes; None if there is none, or if clients make it themselves."""
        found = self.settings(rounds)
        return found if found is not None and found.unit == "client" else None

    def settings(self, rounds: int) -> Settings | None:
        """The privacy of a run of so many rounds; None if there is none."""
        if self.epsilon is None:
            return None
        from fedsaddle.privacy.settings import Privacy as Settings

        if self.rounds is not None and rounds > self.rounds:
            remedy = f"the budget of [privacy] is planned for {self.rounds}; raise privacy.rounds in a new run"
            raise BadInput("run.rounds", rounds, remedy)
        names = ("delta", "unit", "clip", "dual_clip", "loss_bound")
        given = {name: getattr(self, name) for name in names}
        return Settings(epsilon=self.epsilon, rounds=self.rounds or rounds, **given)


def check_privacy(config: Config) -> None:
    """Raise `BadInput` for settings that exclude each other, or that promise a privacy that is not there."""
    if config.privacy.epsilon is None:
        for name, field in Privacy.model_fields.items():
            if name not in ("secure_aggregation", "epsilon") and getattr(config.privacy, name) != field.default:
                remedy = "protects nobody without epsilon; give privacy.epsilon = 8, or leave it out"
                raise BadInput(f"privacy.{name}", getattr(config.privacy, name), remedy)
    if not config.privacy.secure_aggregation:
        return
    refuse_robust(config.robust.aggregation, config.robust.bounds)
    if config.privacy.epsilon is not None and config.privacy.unit == "client":
        remedy = "the server clips each client's update, which secure aggregation hides; use unit = 'row' or 'patient'"
        raise BadInput("privacy.unit", "client", remedy)


def refuse_robust(aggregation: str, bounds: bool | None) -> None:
    """Raise `BadInput` if robust aggregation or bounds are asked for together with secure aggregation."""
    remedy = "choose one of the two: leave it out, or privacy.secure_aggregation"
    if aggregation != "mean":
        raise BadInput("robust.aggregation", aggregation, f"{NEEDS_REPLIES}; {remedy}")
    if bounds:
        raise BadInput("robust.bounds", bounds, f"{NEEDS_REPLIES}; {remedy}")
