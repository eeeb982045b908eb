"""Replies that get lost on the way, for tests and for studies of partial answers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedsaddle.errors import BadInput, NobodyAnswered
from fedsaddle.federation.clients import Ints, R, Task, merged
from fedsaddle.federation.passing import Passing
from fedsaddle.federation.randomness import ClientKeys


@dataclass
class Lossy(Passing):
    """Each client's reply is lost with probability `share`; a lost reply leaves no trace, not even in its memory."""

    share: float
    seed: int = 0
    _round: int = field(default=0, repr=False)
    _exchange: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not 0 <= self.share < 1:
            raise BadInput("share", self.share, "give the share of lost replies, at least 0 and below 1")

    def begin(self, round: int) -> None:
        """Open a round."""
        self._round, self._exchange = round, 0
        super().begin(round)

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask those whose replies will arrive."""
        clients, each = merged(cohort, weights, self.count)
        keys = ClientKeys.of(self.seed, self._round, self._exchange, clients)
        self._exchange += 1
        arrives: np.ndarray[Any, np.dtype[np.bool_]] = keys.uniforms(stream=99)[:, 0] >= self.share
        if not arrives.any():
            raise NobodyAnswered(f"all {len(clients)} replies of the exchange were lost")
        return self.inner.ask(clients[arrives], task, sent, weights=each[arrives])
