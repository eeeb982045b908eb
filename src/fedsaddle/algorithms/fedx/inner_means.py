"""u(z): the estimate of the inner mean that a client keeps for each of its rows of S1."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fedsaddle.federation.clients import Batch, Site
from fedsaddle.federation.records import PerSample
from fedsaddle.problems.protocols import PairwiseProblem


@dataclass(frozen=True)
class InnerMeans:
    """A client's memory: `u (C, n, q)`, and whether each was ever observed, `seen (C, n)`."""

    u: PerSample
    seen: PerSample

    def update(self, risk: PairwiseProblem, z: Batch, observed: Tensor, γ: float) -> Tensor:
        """Eq. (8), `u(z) ← (1 - γ) u(z) + γ observed`, for the rows z; the first observation is taken as it is."""
        at, rows = self._at(z)
        old, seen = self.u.gather(1, at), self.seen.gather(1, rows)
        new = torch.where(seen.unsqueeze(-1), risk.outer.mixed(old, observed, γ), observed)
        self._keep(at, rows, new)
        return new

    def of(self, z: Batch, observed: Tensor) -> Tensor:
        """u(z) of the first rows as it is kept; where there is none yet, what was observed is u(z) from now on."""
        at, rows = self._at(z, observed.shape[1])
        new = torch.where(self.seen.gather(1, rows).unsqueeze(-1), self.u.gather(1, at), observed)
        self._keep(at, rows, new)
        return new

    def _at(self, z: Batch, size: int | None = None) -> tuple[Tensor, Tensor]:
        assert z.rows is not None  # minibatches number their rows
        rows = z.rows[:, :size]
        return rows.unsqueeze(-1).expand(-1, -1, self.u.shape[-1]), rows

    def _keep(self, at: Tensor, rows: Tensor, new: Tensor) -> None:
        self.u.scatter_(1, at, new)  # a row that was drawn twice has the same value twice
        self.seen.scatter_(1, rows, True)


def unobserved(risk: PairwiseProblem, site: Site) -> InnerMeans:
    """No u(z) has been observed yet."""
    shape = (len(site.clients), int(site.sizes.max()))
    u = torch.zeros(*shape, risk.loss.parts, dtype=risk.initial().dtype, device=site.device)
    return InnerMeans(u, torch.zeros(shape, dtype=torch.bool, device=site.device))
