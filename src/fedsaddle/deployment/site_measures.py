"""What a site answers about a model: means over its rows, its own figures, and score counts.

Counts leave behind masks, to be added up over sites; or, with neighbouring bins merged until none has a small count.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from fedsaddle.array_types import Bools, Floats
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.messages import SpreadAsked
from fedsaddle.errors import BadMessage
from fedsaddle.metrics.evaluation import evaluate
from fedsaddle.metrics.histograms import MergedHistogram, ScoreHistogram
from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.score_sums import BINS, EDGES, BinCounts, SpreadQuestion
from fedsaddle.problems.protocols import Problem, Ranks


@dataclass(frozen=True, eq=False)
class SiteMeasures:
    """The reply to the server, and the counts of scores that leave behind masks only."""

    reply: dict[str, Any]
    counts: BinCounts | None = None


class Cuts(NamedTuple):
    """The first bins of the rows that thresholds call positive, the most important first.

    Args:
        at: Where this site makes tables of this model.
        asked: Those that the server asks for now; a table elsewhere is not made.
    """

    at: Sequence[int] = ()
    asked: Sequence[int] = ()


def scores_of(problem: Problem, w: Tensor, own: Stacked) -> Floats | None:
    """The scores of a site's rows; None where there are none, or not all are finite."""
    ranking = problem.ranking(w.to(own.x.device), own.x) if isinstance(problem, Ranks) else None
    if ranking is None:
        return None
    scores = np.asarray(ranking.detach().cpu().double().numpy())
    return scores if np.isfinite(scores).all() else None


def measure_site(
    problem: Problem, w: Tensor, dual: Tensor | None, own: Stacked | None, least: int = 1,
    cuts: Cuts | None = None, masked: bool = False, groups: Sequence[Bools] = (),
) -> SiteMeasures:  # fmt: skip
    """Evaluate a model on this site's rows, where they are, on a device or here.

    Args:
        problem: The problem, with its measures.
        w: The model.
        dual: The dual variable.
        own: The rows; None: none of this part are measured.
        least: No count below it leaves this site, but 0.
        cuts: Where tables are made.
        masked: Whether score counts leave behind masks.
        groups: Of each agreed group, which rows are in it.
    """
    if own is None:
        return SiteMeasures({"rows": 0})
    w, dual = w.to(own.x.device), None if dual is None else dual.to(own.x.device)
    found = evaluate(problem, w, own, dual)
    counted = int(found.sizes[0])  # a loss over pairs counts the rows of one label
    small = any(0 < n < least for n in (counted, len(own.x) - counted))
    means = {k: float(v[0]) for k, v in found.values.items()}
    reply: dict[str, Any] = {"rows": 0} if small else {"rows": counted, "means": means}
    scores = scores_of(problem, w, own) if math.isfinite(means["loss"]) else None
    if scores is None:
        return SiteMeasures(reply)
    labels, units = own.y.cpu().numpy(), own.unit_numbers(0)
    reply["least"] = least
    cuts = Cuts() if cuts is None else cuts
    figures = OwnFigures.of(scores, labels, least, cuts.at, units)
    known = dict(zip(cuts.at, figures.alarms, strict=True))
    reply["own"] = tell_own(replace(figures, alarms=tuple(known.get(cut) for cut in cuts.asked)))
    counts = BinCounts.of(scores, labels, groups)
    if masked or small:
        return SiteMeasures(reply, counts)
    merged = MergedHistogram.with_cuts(counts.histogram(), least, cuts.at)
    if merged is not None:  # otherwise there are too few rows of a class to tell anything
        told = merged.placed(merged.first, merged.first)
        reply["scores"] = [told.positives.tolist(), told.negatives.tolist()]
    if merged is not None and least > 1:
        reply["groups"] = merged.ends.tolist()
    return SiteMeasures(reply, counts)


def tell_own(own: OwnFigures) -> dict[str, Any]:
    """A site's own figures, as they are sent."""
    area = None if own.auroc is None else [own.auroc.value, own.auroc.low, own.auroc.high, own.spread]
    alarms = [None if one is None else list(one) for one in own.alarms]
    return {"positives": own.positives, "negatives": own.negatives, "auroc": area, "alarms": alarms}


def read_own(given: object, rows: int, cuts: int) -> OwnFigures:
    """What `tell_own` sent, of a site with so many rows; raise `BadMessage` for anything else."""
    wrong = BadMessage("the reply's own figures are not as they should be")
    if not isinstance(given, dict) or given.keys() != {"positives", "negatives", "auroc", "alarms"}:
        raise wrong
    up, down, area, alarms = (given[key] for key in ("positives", "negatives", "auroc", "alarms"))
    for n in (up, down):
        if n is not None and not (is_count(n) and n <= rows):
            raise wrong
    if up is not None and down is not None and up + down != rows:
        raise BadMessage(f"the reply's positives and negatives do not sum up to the {rows} rows")
    interval, spread = None, None
    if area is not None:
        ok = isinstance(area, list) and len(area) == 4 and all(isinstance(x, float) for x in area)
        if not ok or not 0 <= area[1] <= area[0] + 1e-9 <= area[2] + 2e-9 <= 1 + 4e-9 or not 0 <= area[3] <= 1:
            raise wrong
        interval, spread = Interval(area[0], area[1], area[2]), area[3]
    if not isinstance(alarms, list) or len(alarms) != cuts:
        raise wrong
    told: list[tuple[int, int] | None] = []
    for one in alarms:
        if one is None:
            told.append(None)
            continue
        if up is None or down is None or not isinstance(one, list) or len(one) != 2 or not all(map(is_count, one)):
            raise wrong
        if one[0] > up or one[1] > down:
            raise BadMessage("the reply's alarms are more than its rows")
        told.append((one[0], one[1]))
    return OwnFigures(up, down, interval, spread, tuple(told))


def histogram_of(reply: dict[str, Any]) -> MergedHistogram | None:
    """The merged histogram of a checked reply, if it has one."""
    if not reply.get("scores"):
        return None
    ends = np.asarray(reply.get("groups", range(1, BINS + 1)), dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    up, down = (np.asarray(side, dtype=np.int64)[starts] for side in reply["scores"])
    return MergedHistogram(EDGES, ends, up, down)


def is_histogram(scores: object) -> bool:
    """Whether these are two lists of counts of all bins."""
    if not isinstance(scores, list) or len(scores) != 2:
        return False
    return all(isinstance(s, list) and len(s) == BINS and all(map(is_count, s)) for s in scores)


def are_groups(ends: object, scores: list[list[int]] | None) -> bool:
    """Whether the groups end in ascending bins, the last one at the end, and all counts are in their first bins."""
    if not isinstance(ends, list) or not 0 < len(ends) <= BINS or not all(map(is_count, ends)) or scores is None:
        return False
    starts = [0, *ends[:-1]]
    ascending = all(first < end for first, end in zip(starts, ends, strict=True))
    if not ascending or ends[-1] != BINS:
        return False
    return all(sum(side) == sum(side[first] for first in starts) for side in scores)


def is_count(n: object) -> bool:
    """Whether this is a whole number of at least 0."""
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0


def counted_histogram(counts: BinCounts, rows: int) -> ScoreHistogram | None:
    """The sum over sites as a histogram; None if it cannot be one of so many rows."""
    sides = (counts.positives, counts.negatives)
    if any(bool((side < -0.25).any()) for side in sides) or round(sum(float(s[0, 0].sum()) for s in sides)) != rows:
        return None
    return counts.histogram()


def spread_question(asked: SpreadAsked) -> SpreadQuestion:
    """The question about one model, as it came."""
    if tuple(asked.positives.shape) != (1, BINS) or tuple(asked.negatives.shape) != (1, BINS):
        raise BadMessage(f"counts of shape {tuple(asked.positives.shape)}, not (1, {BINS})")
    cuts = np.array([asked.cuts], dtype=np.int64).reshape(1, -1)
    return SpreadQuestion(asked.positives.numpy(), asked.negatives.numpy(), cuts)
