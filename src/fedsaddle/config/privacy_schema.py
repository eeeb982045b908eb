"""The schema of `[privacy]`: differential privacy of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import BaseModel, ConfigDict, Field

from fedsaddle.errors import BadInput

if TYPE_CHECKING:
    from fedsaddle.privacy.settings import Privacy as Settings


class Privacy(BaseModel):
    """[privacy]: differential privacy; none without `epsilon`."""

    model_config = ConfigDict(extra="forbid", strict=True)
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
