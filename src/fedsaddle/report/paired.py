"""Comparison of several runs: figures of rows and of clients, and paired differences of two runs.

Losses are compared only where the problems and losses are the same: the value of a min-max problem and a log loss have
nothing in common. AUROC, average precision, Brier score and log loss of the probabilities are about rows and labels,
whatever a run minimised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import JsonValue

from fedsaddle.array_types import Floats
from fedsaddle.documents.summary import Measures, PartName, Settings
from fedsaddle.metrics.calibration import calibration_figures
from fedsaddle.metrics.intervals import GroupedRows, Interval, means, t_interval
from fedsaddle.metrics.ranking import RankingDifference, difference, rank
from fedsaddle.metrics.selection import spread
from fedsaddle.report.predictions import CHOICE
from fedsaddle.report.sections.clients import clients_of
from fedsaddle.report.sections.ranking import two_classes
from fedsaddle.report.stored_run import HeldOut, StoredRun
from fedsaddle.report.words import is_share

LEAST_ROWS = 5  # of a client that can be called the worst
ROW_FIGURES = {
    "auroc": "AUROC",
    "within_site_auroc": "AUROC within sites",
    "average_precision": "average precision",
    "brier_score": "Brier score",
    "log_loss": "log loss",
}
PENALTIES = ("l2", "l2_biases", "from_base_rate", "clip", "trimmed", "hardest")  # keys that no row's loss depends on


@dataclass(frozen=True)
class Side:
    """The figures of one run beside those of others.

    Args:
        rows: Keys of `ROW_FIGURES`.
        clients: Statistics of the measure that all runs have; None where clients have too few rows.
        tuned: Whether its step was chosen on validation rows.
    """

    rows: Mapping[str, float]
    clients: Mapping[str, float | None]
    tuned: bool


@dataclass(frozen=True)
class SideBySide:
    """Several runs side by side.

    Args:
        sides: By the name of the run.
        measure: Of clients, that can be compared; None if there is none.
        notes: For the reader.
    """

    sides: Mapping[str, Side]
    measure: str | None
    notes: tuple[str, ...] = ()


def side_by_side(runs: Mapping[str, StoredRun]) -> SideBySide:
    """What can be compared of these runs.

    Args:
        runs: By name.
    """
    measure, notes, changed = shared_measure(runs), [], False
    every = list(runs.values())
    if measure is None and all("loss" in _main(run) for run in every):
        notes.append("losses are not compared: the runs have different problems or losses")
    sides = {}
    for name, run in runs.items():
        clients = {} if measure is None else client_figures(run, measure)
        sides[name] = Side(row_figures(run), clients, run.is_search)
        changed |= measure is not None and bool(clients) and clients.get("worst") != _main(run)[measure].get("worst")
    if changed:
        notes.append(f"worst: of clients with at least {LEAST_ROWS} rows")
    if len({side.tuned for side in sides.values()}) > 1:
        notes.append(UNTUNED)
    elif len(runs) > 1 and all(run.run_summary is not None and run.run_summary.tuned is False for run in every):
        notes.append("no run is tuned: each has the step of its config, which may explain part of a difference")
    return SideBySide(sides, measure, tuple(notes))


UNTUNED = (
    "step as set: a single run is not tuned, a search tunes its step on validation rows, which may explain part of a "
    "difference"
)


def shared_measure(runs: Mapping[str, StoredRun]) -> str | None:
    """The measure of clients to compare: accuracy, else the loss if it is the same; None without any.

    Args:
        runs: By name.
    """
    if all("accuracy" in _main(run) for run in runs.values()):
        return "accuracy"
    return "loss" if all("loss" in _main(run) for run in runs.values()) and same_loss(runs) else None


def same_loss(runs: Mapping[str, StoredRun]) -> bool:
    """Whether all runs have the same loss of the same problem.

    Args:
        runs: By name.
    """
    sources: tuple[Callable[[StoredRun], JsonValue], ...] = (_problem_of_summary, _problem_of_config)
    for source in sources:
        problems = [source(run) for run in runs.values()]
        if all(own is not None for own in problems):
            return all(own == problems[0] for own in problems)
    return len(runs) < 2


def _problem_of_summary(run: StoredRun) -> str | None:
    return (run.finished.problem if run.finished else "") or None


def _problem_of_config(run: StoredRun) -> Settings | None:
    """The [problem] of a run's config, without penalties; of a search that of its choice."""
    trial = run.config.get("trial")
    problem = (trial if isinstance(trial, dict) else run.config).get("problem")
    return {k: v for k, v in problem.items() if k not in PENALTIES} if isinstance(problem, dict) else None


def _main(run: StoredRun) -> Measures:
    return run.finished.main_measures if run.finished else {}


def row_figures(run: StoredRun) -> dict[str, float]:
    """AUROC, average precision, Brier score and log loss of the held-out rows, as far as they are known.

    Args:
        run: The run.
    """
    found = two_classes(run)
    figures: dict[str, float] = {}
    if found is not None:
        pooled = found.choice.pooled
        known = (pooled.auroc, found.choice.within, pooled.average_precision)
        figures = {key: own.value for key, own in zip(ROW_FIGURES, known, strict=False) if own is not None}
        p = found.probabilities()
        return figures if p is None else figures | calibration_figures(p, found.labels)
    measured = run.run_summary.main_pooled if run.run_summary else {}
    return {key: measured[key] for key in ROW_FIGURES if key in measured}


def client_figures(run: StoredRun, measure: str) -> dict[str, float | None]:
    """Statistics over the clients; the worst one and the worst tenth are of clients with at least five rows.

    Args:
        run: The run.
        measure: Such as "accuracy".
    """
    part = run.finished.main_part if run.finished else "train"
    found: dict[str, float | None] = dict(_main(run)[measure])
    listed = [c for c in clients_of(run, part) if c.rows is not None and c.figures.get(measure) is not None]
    if listed:
        enough = [c for c in listed if c.rows is not None and c.rows >= LEAST_ROWS]
        if len(enough) < len(listed):
            values = [float(c.figures[measure] or 0.0) for c in enough]
            own = spread(values, [1] * len(enough), higher_is_better=is_share(measure)) if enough else {}
            found |= {key: own.get(key) for key in ("worst", "bottom10")}
        return found
    sizes = np.diff(run.test.offsets).tolist() if part == "test" and run.test is not None else run.sizes(part)
    if any(0 < size < LEAST_ROWS for size in sizes):
        found["worst"] = None
    return found


def difference_on_rows(ours: StoredRun, theirs: StoredRun) -> RankingDifference | None:
    """Ours minus theirs on the test rows that both scored; None if the rows or their labels differ.

    Args:
        ours: The first run.
        theirs: The run that is subtracted.
    """
    a, b = ours.test, theirs.test
    if a is None or b is None:
        return None
    scores = _aligned(a, b, ours, theirs)
    if scores is None:
        return None
    both = (rank(s, a.labels, a.offsets, a.names, units=a.units) for s in (a.scores[CHOICE], scores))
    return difference(*both)


def probabilities_on_rows(ours: StoredRun, theirs: StoredRun) -> dict[str, Interval]:
    """Ours minus theirs of the Brier score and the log loss, on common test rows; below 0 is better.

    Args:
        ours: The first run.
        theirs: The run that is subtracted.
    """
    a, b = ours.test, theirs.test
    if a is None or b is None or CHOICE not in a.probabilities or CHOICE not in b.probabilities:
        return {}
    order = _order(a, b, ours, theirs)
    if order is None:
        return {}
    y, both = a.labels > 0, (a.probabilities[CHOICE], b.probabilities[CHOICE][order])
    right = [np.clip(np.where(y, p, 1 - p), 1e-12, 1.0) for p in both]
    gaps = {"brier_score": (1 - right[0]) ** 2 - (1 - right[1]) ** 2, "log_loss": np.log(right[1]) - np.log(right[0])}
    drawn = GroupedRows.one_group(len(y), a.units)
    found = {key: means(gap, drawn).of(0) for key, gap in gaps.items()}
    return {key: own for key, own in found.items() if own is not None}


def _aligned(a: HeldOut, b: HeldOut, ours: StoredRun, theirs: StoredRun) -> Floats | None:
    """Their scores in the order of our rows; None where these are other rows."""
    if CHOICE not in a.scores or CHOICE not in b.scores:
        return None
    order = _order(a, b, ours, theirs)
    return None if order is None else b.scores[CHOICE][order]


def _order(a: HeldOut, b: HeldOut, ours: StoredRun, theirs: StoredRun) -> NDArray[np.int64] | None:
    """Where each of our rows is among theirs; None where these are other rows."""
    if len(a.labels) != len(b.labels):
        return None
    if a.rows is None or b.rows is None:
        same = a.names == b.names and np.array_equal(a.offsets, b.offsets) and np.array_equal(a.labels, b.labels)
        return np.arange(len(a.labels)) if same and _same_data(ours, theirs) else None
    if len(np.unique(a.rows)) < len(a.rows):
        return None
    place, from_theirs = np.argsort(np.argsort(a.rows)), np.argsort(b.rows)
    order = from_theirs[place]
    if not np.array_equal(a.rows, b.rows[order]) or not np.array_equal(a.labels, b.labels[order]):
        return None
    return order


def _same_data(ours: StoredRun, theirs: StoredRun) -> bool:
    """Whether two configs make the same split of the same data."""
    apart = differing_settings({"ours": ours, "theirs": theirs})
    return not any(key.split(".")[0] in ("data", "split", "noise") or key == "run.seed" for key in apart)


@dataclass(frozen=True, eq=False)
class PairedClients:
    """A measure of the same clients in two runs. `mean` is over clients, with a t-interval of 95 %.

    Args:
        measure: Such as "accuracy".
        part: The rows it was measured on.
        names: Of the clients.
        ours: (clients,), of the first run.
        theirs: (clients,), of the other run.
    """

    measure: str
    part: PartName
    names: tuple[str, ...]
    ours: Floats
    theirs: Floats

    @property
    def gains(self) -> Floats:
        """Ours minus theirs; above 0 is better for a share such as the accuracy, below 0 for a loss."""
        return self.ours - self.theirs

    @property
    def mean(self) -> Interval:
        """The mean difference; without an interval (both ends infinite) for a single client."""
        d = self.gains
        if len(d) < 2:
            return Interval(float(d.mean()), -np.inf, np.inf)
        mean, low, high = (float(v) for v in t_interval(d))
        return Interval(mean, max(low, -1.0), min(high, 1.0)) if is_share(self.measure) else Interval(mean, low, high)

    @property
    def better(self) -> int:
        """At how many clients ours is better."""
        return int(((self.gains if is_share(self.measure) else -self.gains) > 0).sum())

    @property
    def worse(self) -> int:
        """At how many it is worse."""
        return int(((self.gains if is_share(self.measure) else -self.gains) < 0).sum())


def difference_of_clients(ours: StoredRun, theirs: StoredRun) -> PairedClients | None:
    """Accuracy, else the same loss, of the clients that both runs have.

    None if clients or their numbers of rows differ, or if the losses are not the same.

    Args:
        ours: The first run.
        theirs: The run that is subtracted.
    """
    if ours.finished is None or theirs.finished is None or ours.finished.main_part != theirs.finished.main_part:
        return None
    part = ours.finished.main_part
    a, b = clients_of(ours, part), clients_of(theirs, part)
    if not a or [(c.name, c.rows) for c in a] != [(c.name, c.rows) for c in b]:
        return None
    losses = ["loss"] if same_loss({"ours": ours, "theirs": theirs}) else []
    shared = [m for m in ("accuracy", *losses) if all(c.figures.get(m) is not None for c in (*a, *b))]
    if not shared:
        return None
    both = [np.array([float(c.figures[shared[0]] or 0.0) for c in side]) for side in (a, b)]
    return PairedClients(shared[0], part, tuple(c.name for c in a), both[0], both[1])


def differing_settings(runs: Mapping[str, StoredRun]) -> dict[str, list[str]]:
    """The settings that differ, with the value of each run; "" if it has none.

    Args:
        runs: By name.
    """
    flat = [dict(_flat(run.config)) for run in runs.values()]
    keys = dict.fromkeys(key for found in flat for key in found)
    values = {key: [found.get(key, "") for found in flat] for key in keys}
    return {key: own for key, own in values.items() if len(set(own)) > 1}


def _flat(config: JsonValue, head: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from _flat(value, f"{head}.{key}" if head else str(key))
    else:
        yield head, "" if config is None else str(config)
