"""release.json: what an attacker who has the model can tell about the rows that it was trained on."""

from __future__ import annotations

import hashlib
from pathlib import Path

from pydantic import Field

from fedsaddle.documents.summary import Figure, Part
from fedsaddle.errors import MissingData
from fedsaddle.text import visible

SHADOWS = 16  # models to compare with, by default
CHANCE = 0.5  # the AUROC of an attack that only guesses


class SmallestCell(Part):
    """The fewest training rows behind a feature of the model."""

    feature: str
    rows: int
    """That are not 0 there."""
    rarer: int | None = None
    """Of them, those of the class with fewer: None without classes."""


class PrivacyBound(Part):
    """Differential privacy of the run, and the largest AUROC that it allows an attack."""

    epsilon: float
    delta: float
    auroc: float


class ReleaseCheck(Part):
    """The check of a model before it is handed on."""

    model: str
    """SHA-256 of the model.safetensors that was checked."""
    members: int = Field(ge=1)
    """Rows that the model was trained on."""
    others: int = Field(ge=1)
    """Held-out rows of the same sites."""
    shadows: int = Field(ge=2)
    """Models that were trained by the same recipe on other halves of the rows."""
    loss_threshold: Figure
    """AUROC of the attack by the loss alone."""
    likelihood_ratio: Figure
    """AUROC of the attack by the likelihood ratio against the shadow models."""
    smallest_cell: SmallestCell | None = None
    privacy: PrivacyBound | None = None
    checked: str
    """When, in UTC."""
    seconds: float

    @property
    def attacks(self) -> dict[str, Figure]:
        """By their names in words."""
        return {"loss threshold": self.loss_threshold, "likelihood ratio": self.likelihood_ratio}

    @property
    def successful(self) -> list[str]:
        """The attacks whose interval lies above chance."""
        return [
            name for name, auroc in self.attacks.items() if auroc.interval is not None and auroc.interval[0] > CHANCE
        ]


def model_digest(model: Path) -> str:
    """The SHA-256 of a model's file.

    Raises:
        MissingData: if it cannot be read.
    """
    try:
        return hashlib.sha256(model.read_bytes()).hexdigest()
    except OSError as reason:
        raise MissingData(f"{visible(model)}: cannot be read ({reason.strerror}); there is no model to check") from None
