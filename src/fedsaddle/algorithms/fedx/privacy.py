"""Noise on shared scores, and what it guarantees."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsaddle.arguments import number, whole
from fedsaddle.federation.clients import Site
from fedsaddle.numerics.privacy import epsilon

DELTA = 1e-5


@dataclass(frozen=True)
class ScorePrivacy:
    """Noise on the scores that are shared, not on the model: clipped to a ball, Gaussian noise, and clipped again.

    A client shares the score of a row at most once a round. The guarantee covers the shared scores alone, for two
    data sets that differ in one row of one client, of the same label: `epsilon(rounds)` is what the scores of all
    rounds together can tell about it. Labels, the clients' counts and the averaged models are not covered.

    Example:
        >>> import fedsaddle as fs
        >>> round(fs.ScorePrivacy(bound=2.0, noise=4.0).epsilon(rounds=20), 2)
        5.53
    """

    bound: float  # scores are clipped to |h| <= bound
    noise: float  # standard deviation, as a multiple of the sensitivity 2 · bound

    def __post_init__(self) -> None:
        number("privacy.bound", self.bound, above=0)
        number("privacy.noise", self.noise, above=0)

    def epsilon(self, rounds: int, delta: float = DELTA, *, both_sets: bool = False) -> float:
        """ε at δ after that many rounds and the opening; twice the releases where a row may be in both sets."""
        whole("rounds", rounds, least=0)
        number("delta", delta, above=0, below=1)
        return epsilon((rounds + 1) * (2 if both_sets else 1), self.noise, delta)

    def hide(self, h: Tensor, site: Site, step: int, stream: int) -> Tensor:
        """The scores `(C, B, d_o)`, clipped, with noise, and clipped again: what was noised may be bounded for free."""
        size = h.shape[1] * h.shape[2]
        both = site.uniforms(step, 2 * size, stream)
        normal = (-2 * (1 - both[:, :size]).log()).sqrt() * (2 * torch.pi * both[:, size:]).cos()  # Box, Muller
        return self._clip(torch.add(self._clip(h), normal.view_as(h).to(h.dtype), alpha=2 * self.bound * self.noise))

    def _clip(self, h: Tensor) -> Tensor:
        length: Tensor = h.norm(dim=-1, keepdim=True)
        return h * (self.bound / length.clamp_min(self.bound))

    def guaranteed(self, rounds: int, both_sets: bool) -> dict[str, float | str]:
        """For the summary of a run."""
        return {
            "covers": "shared scores; one row of one client replaced by another of the same label",
            "epsilon": self.epsilon(rounds, both_sets=both_sets),
            "delta": DELTA,
            "releases": (rounds + 1) * (2 if both_sets else 1),
        }
