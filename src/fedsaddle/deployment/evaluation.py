"""Evaluation at the sites: each evaluates the model on its own rows, and the server merges the figures.

A site sends means, figures of its own, and score counts, never the figures of single rows. With secure aggregation the
counts are added up behind masks, if three sites or more have rows of both classes; otherwise each site merges
neighbouring bins until none has a small count, and figures over all sites have bounds.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence, Set
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch

from fedsaddle.array_types import Ints
from fedsaddle.deployment.agreed_groups import figures_of_groups
from fedsaddle.deployment.masked_sums import MaskedReplies, ask_masked
from fedsaddle.deployment.messages import Fault, FaultKind
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.deployment.score_summary import SHOWN, SiteScores, cut_of, tell_group
from fedsaddle.deployment.secure_clients import SecureClients
from fedsaddle.deployment.site_measures import (
    are_groups,
    counted_histogram,
    histogram_of,
    is_count,
    is_histogram,
    read_own,
)
from fedsaddle.errors import BadMessage, NobodyAnswered, TooFewAnswered
from fedsaddle.metrics.calibration import Platt, Threshold
from fedsaddle.metrics.evaluation import Measured
from fedsaddle.metrics.histograms import MergedHistogram, PooledHistogram, ScoreHistogram
from fedsaddle.metrics.own_figures import OwnFigures
from fedsaddle.metrics.score_sums import BINS, BinCounts, SpreadQuestion, SquareSums
from fedsaddle.metrics.sum_decisions import LOWER, platt_of_counts, threshold_of_counts
from fedsaddle.metrics.sum_figures import SummedScores
from fedsaddle.problems.protocols import KnowsClasses, Problem, Ranks
from fedsaddle.runs.evaluation import Solution, parts_of, pooled_key

log = logging.getLogger("fedsaddle.server")
PLAIN_CUTS = tuple(cut_of(share) for share in SHOWN)


@dataclass(frozen=True, eq=False)
class PartAnswers:
    """What the sites answered about a model's rows of one part.

    Args:
        replies: By client, without what was masked.
        cuts: The thresholds that they were asked for.
        summed: The score counts over the sites `among`, where they were masked.
        among: These sites.
    """

    replies: dict[int, dict[str, Any]]
    cuts: list[int]
    summed: ScoreHistogram | None = None
    among: tuple[int, ...] = ()

    @property
    def own(self) -> dict[int, OwnFigures]:
        """Each site's own figures."""
        rows = {i: int(reply["scored"]) for i, reply in self.replies.items() if "own" in reply}
        return {i: read_own(self.replies[i]["own"], rows[i], len(self.cuts)) for i in sorted(rows)}

    @property
    def merged(self) -> dict[int, MergedHistogram]:
        """The counts of each site that are not masked."""
        found = {i: histogram_of(reply) for i, reply in sorted(self.replies.items())}
        return {i: own for i, own in found.items() if own is not None}

    @property
    def least(self) -> int:
        """The least count that any site's policy lets be shown."""
        return max([int(reply.get("least", 1)) for reply in self.replies.values()], default=1)


@dataclass
class RemoteEvaluator:
    """Evaluates at the sites: one request per evaluated round and part."""

    problem: Problem
    clients: RemoteClients
    test_sizes: Ints  # test rows per site
    validation_sizes: Ints
    private: bool = False  # sites do not measure training rows: that is no part of their budget
    patients: bool = False  # rows of one patient belong together
    groups: Sequence[tuple[str, str]] = ()  # that all sites agreed on: column and value
    _at: Solution | None = None
    _last: int = 0  # the last round of the run so far; the best one may be earlier
    _answers: dict[str, PartAnswers] = field(default_factory=dict)  # of the last model, by part
    _in_the_open: set[str] = field(default_factory=set)  # parts of which too few sites have both classes for a sum

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
        replies = {i: reply for i, reply in self._ask(part, at).replies.items() if reply["rows"]}
        if not replies and any(reply["rows"] == 0 for reply in self._ask(part, at).replies.values()):
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
        """Pooled figures from score counts, with error bounds, and the spread of the sites' own."""
        figures = self._scores(part, self._ask(part, at)).pooled()
        return {pooled_key(part): figures} if figures else {}

    def probabilities(self) -> dict[str, Any]:
        """From scores to probabilities and to a threshold, by the counts of validation rows of the last evaluation.

        In a bin its middle stands for the rows, in merged bins that of the middle one; the threshold is the lower edge
        of a bin, where counts are exact if none were merged. Groups that are too wide give neither.
        """
        fitted = self._fitted()
        return {} if fitted is None else {"probabilities": fitted[0].to_dict(), "threshold": asdict(fitted[1])}

    def _fitted(self) -> tuple[Platt, Threshold] | None:
        """How scores become probabilities, and the chosen threshold, which is a lower edge of a bin."""
        answers = self._answers.get("validation")
        together = None if answers is None else _together(answers)
        if together is None:
            return None
        platt = platt_of_counts(together)
        return platt, threshold_of_counts(together, platt)[1]

    def _cuts(self, part: str) -> list[int]:
        """The thresholds of a part: of test rows by the probabilities that validation rows gave, the chosen one first.

        Without those, scores are taken as log odds.
        """
        fitted = self._fitted() if part == "test" else None
        if fitted is None or fitted[0].slope <= 0:
            return list(PLAIN_CUTS)
        chance = fitted[0].probability(LOWER)
        wanted = (fitted[1].probability, *SHOWN)
        return list(dict.fromkeys(int(np.argmin(np.abs(chance - p))) for p in wanted))

    def scores(self) -> dict[str, Any]:
        """The scores of the last evaluation, for the summary: on test rows, else validation, else training rows.

        They are those of the model that the run keeps: the summary asks for its figures last. Where no site shares
        counts of test rows, those of training rows do not stand in for them.
        """
        part = next((p for p in ("test", "validation", "train") if p in self._answers and self._with_rows(p)), None)
        if part is None or not (self._ranks() or self._answers[part].merged):
            return {}
        answers = self._answers[part]
        stated = self._scores(part, answers, self._spread(part, answers))
        found = stated.to_dict()
        if stated.summed is not None and (sums := self._groups(part, answers)):
            chosen = answers.cuts[0] if part == "test" and self._fitted() is not None else None
            made = figures_of_groups(stated.summed, [self.groups[k] for k in sums], list(sums.values()), chosen)
            found["scores"]["groups"] = {one.column: [tell_group(own) for own in one.groups] for one in made}
        clients = self.clients
        return found | clients.seen.to_dict() if isinstance(clients, SecureClients) else found

    def _groups(self, part: str, answers: PartAnswers) -> dict[int, SummedScores]:
        """The score counts of the agreed groups of which as many sites have both classes as a sum must be of.

        Where patients may have several rows, with sums of squares over them.
        """
        at, clients, among = self._at, self.clients, answers.among
        if not self.groups or part != "test" or at is None or not isinstance(clients, SecureClients):
            return {}
        there = np.zeros((len(among), len(self.groups), 2), dtype=bool)
        for at_site, i in enumerate(among):
            present = answers.replies[i].get("present", [])
            there[at_site] = present if len(present) == len(self.groups) else False
        asked = np.flatnonzero((there.sum(axis=0) >= clients.least).all(axis=1)).tolist()
        if not asked:
            return {}
        like, payload = BinCounts.empty(len(asked)), self._payload(part, at, answers.cuts) | {"groups": asked}
        try:
            found = ask_masked(clients, "measure", payload, among, among, like, lambda client, reply: reply, self._last)
            if set(found.masked) != set(among):
                raise NobodyAnswered("not all sites of the sum answered")
            counts = BinCounts.of_mean(found.sum(clients, like), len(among))
        except (NobodyAnswered, TooFewAnswered) as reason:
            log.warning("there are no figures of groups: %s", reason)
            return {}
        sums = {}
        for line, k in enumerate(asked, 1):
            own = counts.histogram(line)
            spread = self._spread(part, answers, (k, own)) if self.patients else None
            if spread is not None or not self.patients:
                sums[k] = SummedScores((own,), answers.least, *(spread or (None, None)))
        return sums

    def _scores(
        self, part: str, answers: PartAnswers, spread: tuple[SpreadQuestion, SquareSums] | None = None
    ) -> SiteScores:
        names, summed, merged, fitted = self.clients.courier.names, None, answers.merged, self._fitted()
        if answers.summed is not None:
            counted = set(answers.among)
            summed = SummedScores((answers.summed,), answers.least, *(spread or (None, None)))
        else:
            counted = set(merged)
        return SiteScores(
            part,
            {names[i]: own for i, own in answers.own.items()},
            {} if summed is not None else {names[i]: own for i, own in merged.items()},
            summed,
            [name for name in self._with_rows(part) if name not in {names[i] for i in counted}],
            answers.cuts,
            answers.least,
            self.patients,
            fitted[0] if fitted is not None else None,
        )

    def _spread(
        self, part: str, answers: PartAnswers, group: tuple[int, ScoreHistogram] | None = None
    ) -> tuple[SpreadQuestion, SquareSums] | None:
        """Sums of squares over patients, or over rows; None if a site of the sum does not answer."""
        at, clients = self._at, self.clients
        counts = answers.summed if group is None else group[1]
        if counts is None or at is None or not isinstance(clients, SecureClients):
            return None
        if min(counts.sides) < max(answers.least, 1):
            return None
        question = SpreadQuestion.of([counts], [answers.cuts], answers.least)
        like, sites = SquareSums.empty(question), list(answers.among)
        payload = self._payload(part, at, answers.cuts) | {
            "positives": torch.from_numpy(question.positives), "negatives": torch.from_numpy(question.negatives),
            "group": None if group is None else group[0],
        }  # fmt: skip
        try:
            found = ask_masked(clients, "spread", payload, sites, sites, like, _nothing_else, self._last)
            if set(found.masked) != set(sites):
                raise NobodyAnswered("not all sites of the sum answered")
            return question, SquareSums.of_mean(found.sum(clients, like), len(sites))
        except (NobodyAnswered, TooFewAnswered) as reason:
            log.warning("intervals take each row as its own patient: %s", reason)
            return None

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

    def _payload(self, part: str, at: Solution, cuts: list[int]) -> dict[str, Any]:
        return {"w": at.model, "dual": at.dual, "part": part, "rounds": at.rounds, "cuts": cuts}

    def _ask(self, part: str, at: Solution) -> PartAnswers:
        if self._at is None or self._at.rounds != at.rounds:
            self._at, self._answers, self._last = at, {}, max(self._last, at.rounds)
        if part not in self._answers:
            self._answers[part] = self._measured(part, at)
        return self._answers[part]

    def _measured(self, part: str, at: Solution) -> PartAnswers:
        """The checked replies of the sites, with score counts summed behind masks if that hides every site."""
        names, sizes, clients = set(self.row_measures(at)), self._sizes(part), self.clients
        cuts = self._cuts(part)

        def check(client: int, reply: object) -> dict[str, Any] | Fault:
            return check_measurements(client, reply, names, int(sizes[client]), len(cuts))

        there = np.flatnonzero(sizes > 0).tolist()
        payload = self._payload(part, at, cuts)
        if (
            isinstance(clients, SecureClients) and part not in self._in_the_open and len(there) >= clients.least
            and self._ranks()
        ):  # fmt: skip
            like = BinCounts.empty()
            found = ask_masked(clients, "measure", payload, range(clients.count), there, like, check, self._last)
            summed = self._summed(part, clients, found, cuts)
            if summed is not None:
                return summed
        replies = clients.courier.request(
            "measure", clients.run, payload, fingerprint=clients.fingerprint, round=self._last,
            check=lambda client, answer, reply: check(client, reply),
        )  # fmt: skip
        return PartAnswers(replies, cuts)

    def _summed(self, part: str, clients: SecureClients, found: MaskedReplies, cuts: list[int]) -> PartAnswers | None:
        """The answers with the sum; None where it would not hide every site, or cannot be had."""
        among = tuple(found.masked)
        own = PartAnswers(found.replies, cuts).own
        for side, name in enumerate(("positives", "negatives")):
            if (having := sum(own[i].has_both[side] for i in among if i in own)) < clients.least:
                log.warning(
                    "%s: only %d sites have %s; score counts are not summed, and have bounds", part, having, name
                )
                self._in_the_open.add(part)
                return None
        try:
            counts = BinCounts.of_mean(found.sum(clients, BinCounts.empty()), len(among))
        except NobodyAnswered as reason:
            log.warning("%s: score counts are not summed: %s", part, reason)
            return None
        total = counted_histogram(counts, int(self._sizes(part)[list(among)].sum()))
        if total is None:
            log.warning("%s: the summed score counts are not those of the sites' rows; they are not used", part)
            return None
        return PartAnswers(found.replies, cuts, total, among)

    def _sizes(self, part: str) -> Ints:
        """Rows of a part at each site, as its facts say."""
        return {"train": self.clients.sizes, "validation": self.validation_sizes, "test": self.test_sizes}[part]


def _together(answers: PartAnswers) -> ScoreHistogram | None:
    """The counts of all sites that say enough to choose a threshold by; None where they do not."""
    if answers.summed is not None:
        return answers.summed if min(answers.summed.sides) >= max(answers.least, 1) else None
    if not answers.merged or (pooled := PooledHistogram(tuple(answers.merged.values()))).wide:
        return None
    return pooled.middle


def _nothing_else(client: int, reply: dict[str, Any]) -> dict[str, Any]:
    if reply:
        raise BadMessage(f"the reply has an unknown {sorted(reply)[0]!r:.40}")
    return reply


def check_measurements(client: int, reply: object, names: Set[str], rows: int, cuts: int = 0) -> dict[str, Any] | Fault:
    """Check a reply: means of these names over at most so many rows; return it or a fault, or raise `BadMessage`."""
    if not isinstance(reply, dict) or not is_count(reply.get("rows")):
        raise BadMessage("the reply has no number of rows")
    if reply["rows"] > rows:  # a loss over pairs counts those of one label only
        raise BadMessage(f"the reply is of {reply['rows']} rows; the site's facts say {rows}")
    if unknown := reply.keys() - {"rows", "means", "scores", "groups", "own", "least", "present"}:
        raise BadMessage(f"the reply has an unknown {sorted(unknown)[0]!r:.40}")
    if "least" in reply and not (is_count(reply["least"]) and 0 < reply["least"] <= 10**12):
        raise BadMessage("the reply's least count is not a number of at least 1")
    if "present" in reply and not _is_presence(reply["present"]):
        raise BadMessage("the reply does not say which groups it has")
    if "own" in reply:
        read_own(reply["own"], rows, cuts)
        reply = {**reply, "scored": rows}
    if not reply["rows"]:
        if reply.keys() & {"means", "scores", "groups"}:
            raise BadMessage("the reply has means or counts of no rows")
        return reply
    means = reply.get("means")
    if not isinstance(means, dict) or means.keys() != names or not all(isinstance(v, float) for v in means.values()):
        raise BadMessage(f"the reply lacks the means of {', '.join(sorted(names))}")
    for name, value in means.items():
        if not math.isfinite(value):
            return Fault(FaultKind.NOT_FINITE, client, name)
    if "scores" in reply and not is_histogram(reply["scores"]):
        raise BadMessage(f"the reply's score counts are not two lists of {BINS} whole numbers")
    if "scores" in reply and sum(map(sum, reply["scores"])) != rows:
        raise BadMessage(f"the reply's score counts do not sum up to the {rows} rows")
    if "groups" in reply and not are_groups(reply["groups"], reply.get("scores")):
        raise BadMessage("the reply's groups of score bins do not fit its counts")
    return reply


def _is_presence(given: object) -> bool:
    """Whether these are pairs of flags."""
    return isinstance(given, list) and all(
        isinstance(one, list) and len(one) == 2 and all(isinstance(flag, bool) for flag in one) for one in given
    )
