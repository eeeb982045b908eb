"""u(z): the estimate of the inner mean that a client keeps for each of its rows of S1."""

from __future__ import annotations

import math
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

    def update(self, risk: PairwiseProblem, batch: Batch, observed: Tensor, share: float) -> Tensor:
        """u of the batch's rows, moved towards what was observed; the first observation is taken as it is."""
        at, rows = self._at(batch)
        old, seen = self.u.gather(1, at), self.seen.gather(1, rows)
        new = torch.where(seen.unsqueeze(-1), risk.outer.mixed(old, observed, share), observed)
        self._keep(at, rows, new)
        return new

    def known(self, batch: Batch, observed: Tensor) -> Tensor:
        """u of the batch's first rows as it is kept, or what was observed where it was never observed before."""
        at, rows = self._at(batch, observed.shape[1])
        new = torch.where(self.seen.gather(1, rows).unsqueeze(-1), self.u.gather(1, at), observed)
        self._keep(at, rows, new)
        return new

    def _at(self, batch: Batch, size: int | None = None) -> tuple[Tensor, Tensor]:
        assert batch.rows is not None  # minibatches number their rows
        rows = batch.rows[:, :size]
        return rows.unsqueeze(-1).expand(-1, -1, self.u.shape[-1]), rows

    def _keep(self, at: Tensor, rows: Tensor, new: Tensor) -> None:
        self.u.scatter_(1, at, new)  # a row that was drawn twice has the same value twice
        self.seen.scatter_(1, rows, True)


def blank(risk: PairwiseProblem, site: Site) -> InnerMeans:
    """Nothing observed yet."""
    shape = (len(site.clients), int(site.sizes.max()))
    u = torch.zeros(*shape, risk.loss.parts, dtype=risk.initial().dtype)
    return InnerMeans(u, torch.zeros(shape, dtype=torch.bool))


@dataclass(frozen=True)
class OwnMeans(InnerMeans):
    """The same for pairs of own rows, with `scale (C,)`: the log of the mean of f over S1, where it is tracked."""

    scale: Tensor
    begun: Tensor  # (C,)

    def scaled(self, risk: PairwiseProblem, u: Tensor, share: float) -> Tensor | None:
        """The log of the mean of f, moved towards that of this batch; (C, 1)."""
        if not risk.outer.tracked:
            return None
        now = risk.outer.value(u).logsumexp(1) - math.log(u.shape[1])
        moved = now if share >= 1 else torch.logaddexp(self.scale + math.log1p(-share), now + math.log(share))
        self.scale.copy_(torch.where(self.begun, moved, now))
        self.begun.fill_(True)
        return self.scale.unsqueeze(1).clone()


def blank_own(risk: PairwiseProblem, site: Site) -> OwnMeans:
    """Nothing observed yet."""
    b = blank(risk, site)
    return OwnMeans(b.u, b.seen, b.u.new_zeros(len(b.u)), torch.zeros(len(b.u), dtype=torch.bool))
