"""Two runs compared in pairs: row by row where they scored the same rows, client by client where these are the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedsaddle.metrics.intervals import Interval
from fedsaddle.metrics.means import t_interval
from fedsaddle.metrics.ranking import Difference, difference, rank
from fedsaddle.metrics.target import main_part_name
from fedsaddle.report.predictions import CHOICE
from fedsaddle.report.sections.clients import clients_of
from fedsaddle.report.sections.numbers import DAMAGED, is_share
from fedsaddle.report.stored_run import HeldOut, StoredRun

Floats = NDArray[np.float64]


def difference_on_rows(ours: StoredRun, theirs: StoredRun) -> Difference | None:
    """Ours minus theirs on the test rows that both scored; None where the rows or their labels are not the same."""
    a, b = ours.test, theirs.test
    if a is None or b is None:
        return None
    try:
        scores = _aligned(a, b, ours, theirs)
        if scores is None:
            return None
        both = (rank(s, a.labels, a.offsets, a.names, units=a.units) for s in (a.scores[CHOICE], scores))
        return difference(*both)
    except DAMAGED:
        return None


def _aligned(a: HeldOut, b: HeldOut, ours: StoredRun, theirs: StoredRun) -> Floats | None:
    """Their scores in the order of our rows; None where these are other rows."""
    if CHOICE not in a.scores or CHOICE not in b.scores or len(a.labels) != len(b.labels):
        return None
    if a.rows is None or b.rows is None:
        same = a.names == b.names and np.array_equal(a.offsets, b.offsets) and np.array_equal(a.labels, b.labels)
        return b.scores[CHOICE] if same and _same_data(ours, theirs) else None
    if len(np.unique(a.rows)) < len(a.rows):
        return None
    place, from_theirs = np.argsort(np.argsort(a.rows)), np.argsort(b.rows)
    order = from_theirs[place]
    if not np.array_equal(a.rows, b.rows[order]) or not np.array_equal(a.labels, b.labels[order]):
        return None
    return b.scores[CHOICE][order]


def _same_data(ours: StoredRun, theirs: StoredRun) -> bool:
    """Whether two configs make the same split of the same data."""
    apart = differing_settings({"ours": ours, "theirs": theirs})
    return not any(key.split(".")[0] in ("data", "split", "noise") or key == "run.seed" for key in apart)


@dataclass(frozen=True, eq=False)
class PairedClients:
    """A measure of the same clients in two runs. `mean` is over clients, with a t-interval of 95 %."""

    measure: str
    part: str
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
    """Accuracy, else loss, of the clients that both runs have; None where clients or their numbers of rows differ."""
    try:
        part = main_part_name(ours.summary)
        if part != main_part_name(theirs.summary):
            return None
        a, b = clients_of(ours, part), clients_of(theirs, part)
        if not a or [(c.name, c.rows) for c in a] != [(c.name, c.rows) for c in b]:
            return None
        shared = [m for m in ("accuracy", "loss") if all(c.figures.get(m) is not None for c in (*a, *b))]
        if not shared:
            return None
        both = [np.array([float(c.figures[shared[0]] or 0.0) for c in side]) for side in (a, b)]
        return PairedClients(shared[0], part, tuple(c.name for c in a), both[0], both[1])
    except DAMAGED:
        return None


def differing_settings(runs: Mapping[str, StoredRun]) -> dict[str, list[str]]:
    """The settings that are not the same in all runs, with the value of each run; "" where one has none."""
    flat = [dict(_flat(run.config)) for run in runs.values()]
    keys = dict.fromkeys(key for found in flat for key in found)
    values = {key: [found.get(key, "") for found in flat] for key in keys}
    return {key: own for key, own in values.items() if len(set(own)) > 1}


def _flat(config: Any, head: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(config, dict) and config:
        for key, value in config.items():
            yield from _flat(value, f"{head}.{key}" if head else str(key))
    else:
        yield head, "" if config is None else str(config)
