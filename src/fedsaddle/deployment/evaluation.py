"""Evaluation across sites: each measures the model on its own rows, and the server puts the figures together.

A site tells means, and counts of scores between agreed edges; never the figure of a row.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.data.store import Ints, Stacked
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.errors import BadMessage, TooFewAnswered
from fedsaddle.metrics.evaluation import Measured, evaluate
from fedsaddle.metrics.histograms import ScoreHistogram, merge_histograms, sigmoid_edges
from fedsaddle.problems.protocols import Problem, Ranks
from fedsaddle.runs.evaluation import Solution

BINS = 1000  # of score histograms


def measure_site(problem: Problem, w: Tensor, dual: Tensor | None, own: Stacked | None) -> dict[str, Any]:
    """The site's half: what it tells of a model."""
    if own is None:
        return {"rows": 0}
    found = evaluate(problem, w, own, dual)
    told: dict[str, Any] = {"rows": int(found.sizes[0]), "means": {k: float(v[0]) for k, v in found.values.items()}}
    ranking = problem.ranking(w, own.x) if isinstance(problem, Ranks) else None
    if ranking is not None and math.isfinite(told["means"]["loss"]):
        counts = ScoreHistogram.of(ranking.double().numpy(), own.y.numpy(), sigmoid_edges(BINS))
        told["scores"] = [counts.positives.tolist(), counts.negatives.tolist()]
    return told


@dataclass
class RemoteEvaluator:
    """The server's half: asks the sites, once after a round for each part."""

    problem: Problem
    clients: RemoteClients
    test_sizes: Ints  # rows that each site has held out
    _round: int = -1
    _told: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)  # part -> client -> what it told

    @property
    def parts(self) -> Sequence[str]:
        """Test rows, where any site has some, and training rows."""
        return ("test", "train") if self.test_sizes.any() else ("train",)

    def check(self, at: Solution) -> None:
        """Nothing beside the problem's own measures is taken at sites."""

    def row_measures(self, at: Solution) -> list[str]:
        """As measured at a placeholder row: the server has no others."""
        rows = self.clients.expected.rows
        with torch.no_grad():
            return list(self.problem.row_measures(at.model, rows.x[:1], rows.y[:1], at.dual))

    def pooled_measures(self, at: Solution) -> list[str]:
        """Those that the sites' histograms give."""
        return list(self.pool(at).get("pooled", {}))

    def measure(self, part: str, at: Solution) -> Measured:
        """Each site's means; a site that did not answer has no rows."""
        told = {i: one for i, one in self._ask(part, at).items() if one["rows"]}
        if not told:
            raise TooFewAnswered(f"none of the sites with {part} rows has answered; start them and resume")
        names = list(next(iter(told.values()))["means"])
        sizes = np.zeros(self.clients.count, dtype=np.int64)
        values = {name: np.full(self.clients.count, np.nan) for name in names}
        for i, one in told.items():
            sizes[i] = one["rows"]
            for name in names:
                values[name][i] = one["means"][name]
        return Measured(sizes, values)

    def pool(self, at: Solution) -> dict[str, Any]:
        """Figures of all rows together from the sites' histograms, how far off each may be, and their spread."""
        counts = [one["scores"] for one in self._ask(self.parts[0], at).values() if one.get("scores")]
        edges = sigmoid_edges(BINS)
        figures = pooled_figures([ScoreHistogram(edges, np.asarray(p), np.asarray(n)) for p, n in counts])
        return {"pooled": figures} if figures else {}

    def _ask(self, part: str, at: Solution) -> dict[int, dict[str, Any]]:
        if self._round != at.rounds:
            self._round, self._told = at.rounds, {}
        if part not in self._told:
            names = set(self.row_measures(at))
            self._told[part] = self.clients.courier.request(
                "measure",
                self.clients.run,
                {"w": at.model, "dual": at.dual, "part": part},
                fingerprint=self.clients.fingerprint,
                round=at.rounds,
                check=lambda client, answer, told: check_measurements(client, told, names),
            )
        return self._told[part]


def check_measurements(client: int, told: Any, names: Set[str]) -> dict[str, Any] | Fault:
    """What was told if it holds means of these names and can be used, else BadMessage or a fault."""
    if not isinstance(told, dict) or not _is_count(told.get("rows")):
        raise BadMessage("told no number of rows")
    if not told["rows"]:
        return told
    means = told.get("means")
    if not isinstance(means, dict) or means.keys() != names or not all(isinstance(v, float) for v in means.values()):
        raise BadMessage(f"told no means of {', '.join(sorted(names))}")
    for name, value in means.items():
        if not math.isfinite(value):
            return Fault(FaultKind.NOT_FINITE, client, name)
    if "scores" in told and not _is_histogram(told["scores"]):
        raise BadMessage(f"told score counts that are not twice {BINS} whole numbers")
    return told


def pooled_figures(sites: Sequence[ScoreHistogram]) -> dict[str, float]:
    """The figures of a simulation by the same names, each with the most it may be off as `NAME_error`.

    `worst_site_auroc`, `best_site_auroc` and `std_site_auroc` are over the sites that have rows of both classes.
    """
    if not sites:
        return {}
    together = merge_histograms(sites)
    figures = {
        "auroc": together.auroc(),
        "partial_auroc_30": together.partial_auroc(0.3),
        "partial_auroc_50": together.partial_auroc(0.5),
        "two_way_partial_auroc": together.two_way_partial_auroc(0.5, 0.5),
        "average_precision": together.average_precision(),
    }
    found: dict[str, float] = {}
    for name, figure in figures.items():
        if figure is not None:
            found |= {name: figure.value, f"{name}_error": figure.error}
    own = [area.value for site in sites if (area := site.auroc()) is not None]
    if own:
        found |= {
            "worst_site_auroc": min(own),
            "best_site_auroc": max(own),
            "std_site_auroc": float(np.std(own)),
        }
    return found


def _is_histogram(scores: Any) -> bool:
    both = isinstance(scores, list) and len(scores) == 2
    return both and all(isinstance(s, list) and len(s) == BINS and all(map(_is_count, s)) for s in scores)


def _is_count(n: Any) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0
