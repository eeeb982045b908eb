"""[privacy] of a config file, and what does not go with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from fedsaddle.errors import BadInput

if TYPE_CHECKING:
    from fedsaddle.config.schema import Config

NEEDS_REPLIES = "has to see each reply, which secure aggregation hides"


class Privacy(BaseModel):
    """[privacy]: what the server may learn; see the page on privacy."""

    model_config = ConfigDict(extra="forbid", strict=True)
    secure_aggregation: bool = False  # averaged fields reach the server as sums of at least three clients only


def check_privacy(config: Config) -> None:
    """Raise `BadInput` for settings that exclude each other."""
    if config.privacy.secure_aggregation:
        refuse_robust(config.robust.aggregation, config.robust.bounds)


def refuse_robust(aggregation: str, bounds: bool | None) -> None:
    """Raise `BadInput` if robust aggregation or bounds are asked for together with secure aggregation."""
    remedy = "choose one of the two: leave it out, or privacy.secure_aggregation"
    if aggregation != "mean":
        raise BadInput("robust.aggregation", aggregation, f"{NEEDS_REPLIES}; {remedy}")
    if bounds:
        raise BadInput("robust.bounds", bounds, f"{NEEDS_REPLIES}; {remedy}")
