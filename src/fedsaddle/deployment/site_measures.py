"""What a site tells of a model on its own rows: means, and counts of scores between agreed edges; no row's figure."""

from __future__ import annotations

import math
from collections.abc import Set
from typing import Any

from torch import Tensor

from fedsaddle.data.store import Stacked
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.errors import BadMessage
from fedsaddle.metrics.evaluation import evaluate
from fedsaddle.metrics.histograms import ScoreHistogram, sigmoid_edges

BINS = 1000  # of score histograms


def measured(problem: Any, w: Tensor, dual: Tensor | None, own: Stacked | None) -> dict[str, Any]:
    """The site's half."""
    if own is None:
        return {"rows": 0}
    found = evaluate(problem, w, own, dual)
    told: dict[str, Any] = {"rows": int(found.sizes[0]), "means": {k: float(v[0]) for k, v in found.values.items()}}
    ranking = problem.ranking(w, own.x) if hasattr(problem, "ranking") else None
    if ranking is not None and math.isfinite(told["means"]["loss"]):
        counts = ScoreHistogram.of(ranking.double().numpy(), own.y.numpy(), sigmoid_edges(BINS))
        told["scores"] = [counts.positives.tolist(), counts.negatives.tolist()]
    return told


def proper(client: int, told: Any, names: Set[str]) -> dict[str, Any] | Fault:
    """The server's half: what was told if it holds means of that name and can be used, else BadMessage or a fault."""
    if not isinstance(told, dict) or not _whole(told.get("rows")):
        raise BadMessage("told no number of rows")
    if not told["rows"]:
        return told
    means = told.get("means")
    if not isinstance(means, dict) or means.keys() != names or not all(isinstance(v, float) for v in means.values()):
        raise BadMessage(f"told no means of {', '.join(sorted(names))}")
    for name, value in means.items():
        if not math.isfinite(value):
            return Fault(FaultKind.NOT_FINITE, client, name)
    if "scores" in told and not _counts(told["scores"]):
        raise BadMessage(f"told score counts that are not twice {BINS} whole numbers")
    return told


def _counts(scores: Any) -> bool:
    both = isinstance(scores, list) and len(scores) == 2
    return both and all(isinstance(s, list) and len(s) == BINS and all(map(_whole, s)) for s in scores)


def _whole(n: Any) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0
