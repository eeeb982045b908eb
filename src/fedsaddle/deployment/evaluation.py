"""Evaluation at the sites: each evaluates the model on its own rows, and the server merges the figures.

A site sends means and score histograms, never the figures of single rows. Neighbouring bins are merged until none has
a small count; the groups are told with them, and all rows of a group stand in its first bin.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedsaddle.array_types import Ints
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.errors import BadMessage, TooFewAnswered
from fedsaddle.metrics.calibration import Platt, Threshold
from fedsaddle.metrics.evaluation import Measured, evaluate
from fedsaddle.metrics.histograms import BoundedFigure, MergedHistogram, PooledHistogram, ScoreHistogram, sigmoid_edges
from fedsaddle.metrics.ranking import rank
from fedsaddle.metrics.selection import bounds_of
from fedsaddle.problems.protocols import KnowsClasses, Problem, Ranks
from fedsaddle.runs.evaluation import Solution, parts_of, pooled_key

MOST_ROWS = 5_000_000  # more rows have no intervals
SHOWN = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.9)  # thresholds with bounds, on the scale of the bins


def kept_scores(part: str, sites: Mapping[str, MergedHistogram], without: Sequence[str] = ()) -> dict[str, Any]:
    """The summary's `scores`: figures over all sites, rows and AUROC of each site, and the sites `without` counts.

    `auroc_bounds` and `average_precision_bounds` are the lowest and the highest value that fit the counts. Counts in
    bins, values and 95 % intervals, which take rows as drawn independently, are there only where no site has merged
    bins to groups that are too wide; rows of merged bins stand in the middle one. Otherwise there are bounds of the
    sensitivity and the specificity at some thresholds.
    """
    pooled = PooledHistogram(tuple(sites.values()))
    entry: dict[str, Any] = {
        "part": part,
        "edges": "sigmoid",
        "bins": pooled.sites[0].bins,
        "widest": pooled.widest,
        "sides": list(pooled.sides),
        "without_counts": list(without),
        "pooled": _bounds(auroc=pooled.auroc(), average_precision=pooled.average_precision()),
        "sites": {name: _site(own) for name, own in sites.items()},
    }
    if pooled.wide:
        found = {share: pooled.above(share) for share in SHOWN}
        entry["thresholds"] = [
            {"score": share, "sensitivity": list(both[0]), "specificity": list(both[1])}
            for share, both in found.items()
            if both is not None
        ]
        return {"scores": entry}
    together, own = pooled.middle, [site.in_the_middle() for site in sites.values()]
    figures = _figures(list(sites), own) if sum(together.sides) <= MOST_ROWS else {}
    entry["positives"], entry["negatives"] = together.positives.tolist(), together.negatives.tolist()
    entry["pooled"] |= figures.get("pooled", {})
    entry["within_site_auroc"] = figures.get("within_site_auroc")
    for name, found_there in figures.get("sites", {}).items():
        entry["sites"][name] |= found_there
    return {"scores": entry}


def _figures(names: Sequence[str], sites: Sequence[ScoreHistogram]) -> dict[str, Any]:
    """Figures with intervals, from rows that have the numbers of their bins for scores."""
    scores, labels, sizes = [], [], []
    for own in sites:
        bins = np.arange(len(own.positives))
        scores += [np.repeat(bins, own.positives), np.repeat(bins, own.negatives)]
        labels += [np.full(own.sides[0], 1), np.full(own.sides[1], 0)]
        sizes.append(sum(own.sides))
    if 0 in np.bincount(np.concatenate(labels), minlength=2):
        return {}
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    found = rank(np.concatenate(scores), np.concatenate(labels), offsets, names).to_dict()
    wanted = ("auroc", "average_precision", "partial_auroc")
    return {
        "pooled": {k: v for k, v in found["pooled"].items() if k in wanted and v is not None},
        "within_site_auroc": found["within_site_auroc"],
        "sites": {own["name"]: {"auroc": own["auroc"]} for own in found["clients"] if own["auroc"] is not None},
    }


def _site(own: MergedHistogram) -> dict[str, Any]:
    up, down = own.sides
    area = own.auroc_bounds()
    return {"positives": up, "negatives": down} | ({} if area is None else {"auroc_bounds": list(area)})


def _bounds(**figures: BoundedFigure | None) -> dict[str, list[float]]:
    return {f"{name}_bounds": list(found.bounds) for name, found in figures.items() if found is not None}


BINS = 1000  # of score histograms
MAX_FITTED = 1 << 22  # rows to which probabilities are fitted


def measure_site(
    problem: Problem, w: Tensor, dual: Tensor | None, own: Stacked | None, least: int = 1
) -> dict[str, Any]:
    """Evaluate a model on this site's rows, where they are, on a device or here.

    Return the reply to the server, with no count below `least` but 0.
    """
    if own is None:
        return {"rows": 0}
    w, dual = w.to(own.x.device), None if dual is None else dual.to(own.x.device)
    found = evaluate(problem, w, own, dual)
    counted = int(found.sizes[0])  # a loss over pairs counts the rows of one label
    if any(0 < n < least for n in (counted, len(own.x) - counted)):
        return {"rows": 0}
    reply: dict[str, Any] = {"rows": int(found.sizes[0]), "means": {k: float(v[0]) for k, v in found.values.items()}}
    ranking = problem.ranking(w, own.x) if isinstance(problem, Ranks) else None
    if ranking is not None and math.isfinite(reply["means"]["loss"]):
        counts = ScoreHistogram.of(ranking.cpu().double().numpy(), own.y.cpu().numpy(), sigmoid_edges(BINS))
        merged = MergedHistogram.of(counts, least)
        if merged is not None:  # otherwise there are too few rows of a class to tell anything
            told = merged.placed(merged.first, merged.first)
            reply["scores"] = [told.positives.tolist(), told.negatives.tolist()]
        if merged is not None and least > 1:
            reply["groups"] = merged.ends.tolist()
    return reply


def histogram_of(reply: dict[str, Any]) -> MergedHistogram | None:
    """The histogram of a checked reply, if it has one."""
    if not reply.get("scores"):
        return None
    ends = np.asarray(reply.get("groups", range(1, BINS + 1)), dtype=np.int64)
    starts = np.concatenate([[0], ends[:-1]])
    up, down = (np.asarray(side, dtype=np.int64)[starts] for side in reply["scores"])
    return MergedHistogram(sigmoid_edges(BINS), ends, up, down)


@dataclass
class RemoteEvaluator:
    """Evaluates at the sites: one request per evaluated round and part."""

    problem: Problem
    clients: RemoteClients
    test_sizes: Ints  # test rows per site
    validation_sizes: Ints
    private: bool = False  # sites do not measure training rows: that is no part of their budget
    _round: int = -1
    _last: int = 0  # the last round of the run so far; the best one may be earlier
    _replies: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)  # part -> client -> reply

    @property
    def parts(self) -> Sequence[str]:
        """Validation rows and test rows, if any site has some, and training rows."""
        found = parts_of(bool(self.validation_sizes.any()), bool(self.test_sizes.any()))
        return found[:-1] if self.private else found

    def check(self, at: Solution) -> None:
        """Nothing to check: sites evaluate the measures of the problem only."""

    def row_measures(self, at: Solution) -> list[str]:
        """The measures of the problem, evaluated on a placeholder row; the server has no others."""
        rows = self.clients.expected.rows
        with torch.no_grad():
            return list(self.problem.row_measures(at.model, rows.x[:1], rows.y[:1], at.dual))

    def pooled_measures(self, at: Solution) -> list[str]:
        """The figures that follow from the sites' histograms."""
        first = self.parts[0]
        return list(self.pool(first, at).get(pooled_key(first), {}))

    def measure(self, part: str, at: Solution) -> Measured:
        """The means of each site; a site that did not answer counts as one without rows."""
        replies = {i: reply for i, reply in self._ask(part, at).items() if reply["rows"]}
        if not replies and any(reply["rows"] == 0 for reply in self._ask(part, at).values()):
            remedy = "hold out more rows (test_share, validation_share), or agree on a smaller minimum_cell"
            raise TooFewAnswered(f"every site that answered has too few {part} rows to share a figure; {remedy}")
        if not replies:
            raise TooFewAnswered(f"no site with {part} rows answered; start these sites and resume")
        names = list(next(iter(replies.values()))["means"])
        sizes = np.zeros(self.clients.count, dtype=np.int64)
        values = {name: np.full(self.clients.count, np.nan) for name in names}
        for i, reply in replies.items():
            sizes[i] = reply["rows"]
            for name in names:
                values[name][i] = reply["means"][name]
        return Measured(sizes, values)

    def start_loss(self, at: Solution) -> dict[str, float] | None:
        """On a placeholder row, without a request: of classes, it is near that of any row where the run begins."""
        rows = self.clients.expected.rows
        classes = self.problem.known_classes(rows.x[:1]) if isinstance(self.problem, KnowsClasses) else None
        if classes is None:
            return None
        with torch.no_grad():
            loss = float(self.problem.row_measures(at.model, rows.x[:1], rows.y[:1], at.dual)["loss"].double().mean())
        loss = max(loss, math.log(classes))  # a given model may be sure of this row
        return {"mean": loss, "global": loss} if math.isfinite(loss) else None

    def scores_vary(self, at: Solution) -> bool:
        """Not known here: sites count scores in bins."""
        return True

    def pool(self, part: str, at: Solution) -> dict[str, Any]:
        """Pooled figures from the sites' histograms, with error bounds, and their spread over the sites."""
        figures = pooled_figures(
            [h for reply in self._ask(part, at).values() if (h := histogram_of(reply)) is not None]
        )
        return {pooled_key(part): figures} if figures else {}

    def probabilities(self) -> dict[str, Any]:
        """From scores to probabilities and to a threshold, by the histograms of validation rows of the last evaluation.

        In a bin its middle stands for the rows, in merged bins that of the middle one; the threshold is the lower edge
        of a bin, where counts are exact if none were merged. Groups that are too wide give neither.
        """
        counts = [h for r in self._replies.get("validation", {}).values() if (h := histogram_of(r)) is not None]
        if not counts or (pooled := PooledHistogram(tuple(counts))).wide:
            return {}
        together = pooled.middle
        up, down = together.positives, together.negatives
        fewer = max(1, int(up.sum() + down.sum()) // MAX_FITTED)  # the sites' word for their rows costs no memory
        up, down = up // fewer, down // fewer
        share = (np.arange(BINS) + 0.5) / BINS
        middle = np.log(share) - np.log1p(-share)
        bins = np.concatenate([np.repeat(np.arange(BINS), up), np.repeat(np.arange(BINS), down)])
        labels = np.concatenate([np.ones(up.sum(), dtype=np.int64), np.zeros(down.sum(), dtype=np.int64)])
        platt = Platt.fit(middle[bins], labels)
        lower = np.concatenate([[-1e6], sigmoid_edges(BINS)])
        threshold = Threshold.default(platt.probability(lower[bins]), labels)
        return {"probabilities": platt.to_dict(), "threshold": asdict(threshold)}

    def scores(self) -> dict[str, Any]:
        """The score counts of the last evaluation, for the summary: on test rows, else validation, else training rows.

        They are those of the model that the run keeps: the summary asks for its figures last. Where no site shares
        counts of test rows, those of training rows do not stand in for them.
        """
        part = next((p for p in ("test", "validation", "train") if p in self._replies and self._with_rows(p)), None)
        if part is None:
            return {}
        found = {
            self.clients.courier.names[i]: own
            for i, reply in sorted(self._replies[part].items())
            if (own := histogram_of(reply)) is not None
        }
        without = [name for name in self._with_rows(part) if name not in found]
        if found:
            return kept_scores(part, found, without)
        return {"scores": {"part": part, "without_counts": without}} if self._ranks() else {}

    def _with_rows(self, part: str) -> list[str]:
        """The sites that have rows of a part, by their facts."""
        every = zip(self.clients.courier.names, self._sizes(part).tolist(), strict=True)
        return [name for name, rows in every if rows]

    def _ranks(self) -> bool:
        """Whether models of the problem give scores, which sites count."""
        if not isinstance(self.problem, Ranks):
            return False
        start = self.problem.initial()  # type: ignore[attr-defined]
        rows = self.clients.expected.rows
        with torch.no_grad():
            return self.problem.ranking(start[0] if isinstance(start, tuple) else start, rows.x[:1]) is not None

    def _ask(self, part: str, at: Solution) -> dict[int, dict[str, Any]]:
        if self._round != at.rounds:
            self._round, self._replies, self._last = at.rounds, {}, max(self._last, at.rounds)
        if part not in self._replies:
            names, sizes = set(self.row_measures(at)), self._sizes(part)
            self._replies[part] = self.clients.courier.request(
                "measure",
                self.clients.run,
                {"w": at.model, "dual": at.dual, "part": part, "rounds": at.rounds},
                fingerprint=self.clients.fingerprint,
                round=self._last,
                check=lambda client, answer, reply: check_measurements(client, reply, names, int(sizes[client])),
            )
        return self._replies[part]

    def _sizes(self, part: str) -> Ints:
        """Rows of a part at each site, as its facts say."""
        return {"train": self.clients.sizes, "validation": self.validation_sizes, "test": self.test_sizes}[part]


def check_measurements(client: int, reply: object, names: Set[str], rows: int) -> dict[str, Any] | Fault:
    """Check a reply: means of these names over at most so many rows; return it or a fault, or raise `BadMessage`."""
    if not isinstance(reply, dict) or not _is_count(reply.get("rows")):
        raise BadMessage("the reply has no number of rows")
    if reply["rows"] > rows:  # a loss over pairs counts those of one label only
        raise BadMessage(f"the reply is of {reply['rows']} rows; the site's facts say {rows}")
    if unknown := reply.keys() - {"rows", "means", "scores", "groups"}:
        raise BadMessage(f"the reply has an unknown {sorted(unknown)[0]!r:.40}")
    if not reply["rows"]:
        return reply
    means = reply.get("means")
    if not isinstance(means, dict) or means.keys() != names or not all(isinstance(v, float) for v in means.values()):
        raise BadMessage(f"the reply lacks the means of {', '.join(sorted(names))}")
    for name, value in means.items():
        if not math.isfinite(value):
            return Fault(FaultKind.NOT_FINITE, client, name)
    if "scores" in reply and not _is_histogram(reply["scores"]):
        raise BadMessage(f"the reply's score counts are not two lists of {BINS} whole numbers")
    if "scores" in reply and sum(map(sum, reply["scores"])) != rows:
        raise BadMessage(f"the reply's score counts do not sum up to the {rows} rows")
    if "groups" in reply and not _are_groups(reply["groups"], reply.get("scores")):
        raise BadMessage("the reply's groups of score bins do not fit its counts")
    return reply


def pooled_figures(sites: Sequence[MergedHistogram]) -> dict[str, float]:
    """The pooled figures under the same names as in a simulation, each with its error bound as `NAME_error`.

    `worst_site_auroc`, `best_site_auroc` and `std_site_auroc` are over the sites with rows of both classes. Where
    sites have merged bins to groups that are too wide, there are bounds only, as `NAME_low` and `NAME_high`.
    """
    if not sites:
        return {}
    together = PooledHistogram(tuple(sites))
    figures = {
        "auroc": together.auroc(),
        "partial_auroc_30": together.partial_auroc(0.3),
        "partial_auroc_50": together.partial_auroc(0.5),
        "two_way_partial_auroc": together.two_way_partial_auroc(0.5, 0.5),
        "average_precision": together.average_precision(),
    }
    found: dict[str, float] = {}
    areas = [area for site in sites if (area := site.auroc_bounds()) is not None]
    if together.wide:
        for name, figure in figures.items():
            if figure is not None:
                found |= bounds_of(name, figure.bounds)
        for name, extreme in (("worst_site_auroc", min), ("best_site_auroc", max)) if areas else ():
            found |= bounds_of(name, (extreme(low for low, _ in areas), extreme(high for _, high in areas)))
        return found
    for name, figure in figures.items():
        if figure is not None:
            found |= {name: figure.value, f"{name}_error": figure.error}
    if areas:
        own = [(low + high) / 2 for low, high in areas]
        found |= {
            "worst_site_auroc": min(own),
            "best_site_auroc": max(own),
            "std_site_auroc": float(np.std(own)),
        }
    return found


def _is_histogram(scores: Any) -> bool:
    both = isinstance(scores, list) and len(scores) == 2
    return both and all(isinstance(s, list) and len(s) == BINS and all(map(_is_count, s)) for s in scores)


def _are_groups(ends: Any, scores: Any) -> bool:
    """Whether the groups end in ascending bins, the last one at the end, and all counts are in their first bins."""
    if not isinstance(ends, list) or not 0 < len(ends) <= BINS or not all(map(_is_count, ends)) or scores is None:
        return False
    starts = [0, *ends[:-1]]
    ascending = all(first < end for first, end in zip(starts, ends, strict=True))
    if not ascending or ends[-1] != BINS:
        return False
    return all(sum(side) == sum(side[first] for first in starts) for side in scores)


def _is_count(n: object) -> bool:
    return isinstance(n, int) and not isinstance(n, bool) and n >= 0
