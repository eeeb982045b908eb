"""A wrapper that keeps the budget: it counts what clients release, and asks nobody for more than was planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import ClientsState, Ints, R, Task, merge_repeats
from fedsaddle.federation.tasks import Releases
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.privacy.private import MANY, Private, rounded
from fedsaddle.privacy.problems import check_model
from fedsaddle.privacy.releases import from_plain, to_plain, within

NOTES = "privacy"  # the key of a checkpoint's notes, and of a summary


@dataclass
class Accounted(Wrapper):
    """The same clients; what each was asked to release is counted, whether or not its reply arrived.

    A round that is begun again is the same round: its draws and its noise are keyed, so that it tells nothing new, and
    it counts once.
    """

    private: Private
    units: Ints | None  # rows, or patients, of every client; None: they alone know
    spent: dict[int, Releases] = field(default_factory=dict)
    pending: dict[int, Releases] = field(default_factory=dict)

    def begin(self, round: int) -> None:
        """Begin a round."""
        self.pending.clear()
        super().begin(round)

    def commit(self) -> None:
        """End the round: what it released is spent."""
        super().commit()
        for client, released in self.pending.items():
            self.spent[client] = self.spent.get(client, Counter()) + released
        self.pending.clear()

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask, if everybody's budget suffices."""
        clients, _ = merge_repeats(cohort, weights, self.count)
        released, plan = self.private.releases(task.__name__, sent), self.private.plan
        for client in clients.tolist():
            now = self.pending.get(client, Counter()) + released
            if not within(self.spent.get(client, Counter()) + now, plan):
                privacy = self.private.privacy
                told = f"is planned for {privacy.rounds} rounds, and client {client} has spent it"
                raise BadInput("privacy.epsilon", privacy.epsilon, f"{told}; begin anew, planned for more rounds")
            self.pending[client] = now
        return self.inner.ask(cohort, task, sent, weights=weights)

    def state(self) -> ClientsState:
        """The clients' part of a checkpoint, with what was spent."""
        inner = self.inner.state()
        spent = {str(client): to_plain(released) for client, released in self.spent.items()}
        return ClientsState(inner.records, {**inner.notes, NOTES: {"spent": spent, **self.private.privacy.to_dict()}})

    def restore(self, records: Mapping[int, Mapping[str, Tensor]], notes: dict[str, Any], algorithm: object) -> None:
        """Restore the clients and what was spent from a checkpoint."""
        super().restore(records, notes, algorithm)
        self.spent = {int(client): from_plain(stored) for client, stored in notes[NOTES]["spent"].items()}
        self.pending.clear()

    def report(self) -> dict[str, Any]:
        """Entries about the clients for the summary, with the budget."""
        return {**self.inner.report(), NOTES: self.budget()}

    def budget(self) -> dict[str, Any]:
        """ε spent so far, of how much; the largest over the clients, and the noise of all."""
        privacy, many = self.private.privacy, self.count > MANY
        about = {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "unit": privacy.unit,
            "clip": privacy.clip,
            "planned_rounds": privacy.rounds,
            "accountant": "dp-accounting, privacy loss distributions",
        }
        if self.units is None:  # each site counts for itself; more than epsilon it does not spend
            return {"epsilon_spent": privacy.epsilon if self.spent else 0.0, **about}
        kinds = {
            (int(self.units[c]), tuple(sorted(map(tuple, to_plain(r)), key=str))): r for c, r in self.spent.items()
        }
        each = [self.private.epsilon(released, units, many) for (units, _), released in kinds.items()]
        noise = [self.private.noise(rounded(int(n), many)) for n in (self.units.max(), self.units.min())]
        return {"epsilon_spent": max(each, default=0.0), **about, "least_noise": noise[0], "most_noise": noise[1]}


def large_delta(kept: Accounted) -> str:
    """A warning that δ allows to tell all about somebody; empty if it is below one over the units of each client."""
    privacy, most = kept.private.privacy, 0 if kept.units is None else int(kept.units.max())
    if privacy.delta * most < 1:
        return ""
    told = f"privacy.delta = {privacy.delta:g} with {most:,} of unit {privacy.unit!r} at a client"
    return f"{told}: whoever tells all about one of them at random would keep to it; give less than {0.1 / most:.1g}"


def units_of(private: Private, rows: Any, sizes: Ints) -> Ints | None:
    """Rows, or patients, of every client; refuse rows that cannot be drawn in private. `rows` is None at a server."""
    if getattr(rows, "positives", None) is not None:
        raise BadInput("positives_per_batch", rows.positives, "draws rows by their label; leave it out with privacy")
    if rows is not None:
        check_model(private.problem, *(v[:2] for v in rows.client(0)))
    if private.privacy.unit == "row":
        return np.asarray(sizes, dtype=np.int64)
    if rows is None:
        return None
    if not hasattr(rows, "unit_rows") or getattr(rows, "units", None) is None:
        remedy = "the data do not say whose row is whose; name the column with `together`, or use unit = 'row'"
        raise BadInput("privacy.unit", "patient", remedy)
    return np.array([len(rows.unit_rows(c)) for c in range(rows.count)], dtype=np.int64)
