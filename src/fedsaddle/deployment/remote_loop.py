"""The loop of a run whose rows lie elsewhere: the same rounds, checkpoints and records, measured by the sites."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Ints
from fedsaddle.deployment.pooled import pooled_figures
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.deployment.site_measures import BINS, proper
from fedsaddle.errors import TooFewAnswered
from fedsaddle.metrics.evaluation import Measured
from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges
from fedsaddle.runs.checkpoints import Checkpoint
from fedsaddle.runs.loop import Loop


@dataclass(frozen=True)
class RemoteRows:
    """The training or the test rows of all sites; of these the server knows the numbers only."""

    part: str
    sizes: Ints
    positives: float | None = None


class RemoteLoop(Loop):
    """One deployed run."""

    engine: RemoteClients  # type: ignore[assignment]
    measured: tuple[int, dict[str, dict[int, Any]]] = (-1, {})  # after which round, part -> what the sites told

    def _told(self, part: str) -> dict[int, dict[str, Any]]:
        """What the sites measure on the training or the test rows; asked once a round."""
        if self.measured[0] != self.done:
            self.measured = (self.done, {})
        known = self.measured[1]
        if part not in known:
            w, dual = self._solution()
            names = self._measured_at_first_row().keys()
            known[part] = self.engine.courier.request(
                "measure",
                self.engine.run,
                {"w": w, "dual": dual, "part": part},
                fingerprint=self.engine.fingerprint,
                round=self.done,
                check=lambda client, answer, told: proper(client, told, names),
            )
        return known[part]

    def _measure(self, rows: Any) -> Measured:
        told = {i: each for i, each in self._told(rows.part).items() if each["rows"]}
        if not told:
            raise TooFewAnswered(f"none of the sites with {rows.part} rows has answered; start them and resume")
        names = list(next(iter(told.values()))["means"])
        sizes = np.zeros(self.engine.count, dtype=np.int64)  # 0: a site that did not tell is left out
        values = {name: np.full(self.engine.count, np.nan) for name in names}
        for i, each in told.items():
            sizes[i] = each["rows"]
            for name in names:
                values[name][i] = each["means"][name]
        return Measured(sizes, values)

    def _pooled(self) -> dict[str, float]:
        """Figures of all rows together from the sites' score histograms, how far off each may be, and their spread."""
        rows: Any = self.train if self.test is None else self.test
        counts = [each["scores"] for each in self._told(rows.part).values() if each.get("scores")]
        edges = sigmoid_edges(BINS)
        return pooled_figures([ScoreHistogram(edges, np.asarray(p), np.asarray(n)) for p, n in counts])

    def _measured_at_first_row(self) -> dict[str, Tensor]:
        w, dual = self._solution()
        made_up = self.engine.expected.rows
        with torch.no_grad():
            found: dict[str, Tensor] = self.algorithm.problem.row_measures(w, made_up.x[:1], made_up.y[:1], dual)
        return found

    def _notes(self) -> dict[str, Any]:
        return {**super()._notes(), "deployed": self.engine.state()}

    def _saved(self) -> None:
        self.engine.versions.checkpointed()

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.engine.restore(checkpoint.notes["deployed"])

    def _summary(self, stopped: str) -> dict[str, Any]:
        return {**super()._summary(stopped), "sites": self.engine.attendance.to_dict()}
