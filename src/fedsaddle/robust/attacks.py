"""`fs.Attack`: simulated hostile clients, to try out what a setting holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.arguments import choice, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.data.store import Lazy, Stacked
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Own, Sent, Site, Task
from fedsaddle.federation.records import ExactBounds, R, Record, Visibility, bounds_marks, tensors, visibility
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.files import Json
from fedsaddle.robust.reduction import origin

ATTACKS = {"scale": -100.0, "sign-flip": -1.0, "flipped-labels": 1.0, "inflated-loss": 100.0}  # -> the usual factor


@dataclass(frozen=True, kw_only=True)
class Attack:
    """Some clients of a simulated run are hostile: they work together on one of four attacks.

    - "scale": they send `factor` = -100 times their update, the difference of a reply and what was sent, and of scores
      that they share;
    - "sign-flip": the same with `factor` = -1;
    - "flipped-labels": they train on wrong labels, class k as class K - 1 - k; real targets change their sign;
    - "inflated-loss": they train on flipped labels and report `factor` = 100 times their loss, where the algorithm
      asks for one.

    What they send is finite; evaluation uses everybody's true rows.

    Args:
        name: one of the names above.
        clients: how many of the first clients are hostile, or their numbers.
        factor: in place of the usual one.

    Raises:
        BadInput: if a value is invalid; names its key.

    Examples:
        >>> import fedsaddle as fs
        >>> data = fs.load("iris", split="iid", clients=5)
        >>> fedavg = fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3)))
        >>> attack, robust = fs.Attack(name="sign-flip", clients=1), fs.Robust(aggregation="median")
        >>> fs.run(fedavg, data, rounds=2, attack=attack, robust=robust).summary["attack"]["clients"]
        [0]
    """

    name: str
    clients: int | Sequence[int] = 1
    factor: float | None = None

    def __post_init__(self) -> None:
        choice("name", self.name, tuple(ATTACKS))
        given: object = self.clients
        if isinstance(given, list | tuple):
            for i in given:
                whole("clients", i, least=0)
            if len(set(given)) < len(given) or not given:
                raise BadInput("clients", given, "name each hostile client once, and at least one")
        else:
            whole("clients", given)
        if self.factor is not None:
            number("factor", self.factor)

    def hostile(self, count: int) -> Ints:
        """The numbers of the hostile clients, of `count`."""
        given = list(range(self.clients)) if isinstance(self.clients, int) else sorted(self.clients)
        if len(given) >= count or given[-1] >= count:
            raise BadInput("attack.clients", self.clients, f"there are {count} clients, and one must be honest")
        return np.array(given, dtype=np.int64)

    @property
    def flips_labels(self) -> bool:
        """Whether the hostile clients train on wrong labels."""
        return self.name in ("flipped-labels", "inflated-loss")

    def to_dict(self, count: int) -> dict[str, Json]:
        """For JSON."""
        factor = ATTACKS[self.name] if self.factor is None else self.factor
        return {**asdict(self), "clients": self.hostile(count).tolist(), "factor": factor}


@dataclass
class Attacked(Wrapper):
    """The same clients, of which the hostile ones follow the attack; for simulated engines."""

    attack: Attack

    def __post_init__(self) -> None:
        self.hostile = self.attack.hostile(self.count)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask the clients."""
        changed_task = hostile_task(self.attack, self.hostile, task)
        return self.inner.ask(cohort, changed_task, sent, weights=weights)

    def report(self) -> dict[str, Json]:
        """Entries about the clients for the summary, with the attack."""
        return {**self.inner.report(), "attack": self.attack.to_dict(self.count)}


def hostile_task(attack: Attack, hostile: Ints, task: Task[Own, Sent, R]) -> Task[Own, Sent, R]:
    """The task as hostile clients run it; an engine finds its name and the algorithm as before."""

    def run(own: Own, message: Sent, site: Site) -> tuple[Own | None, R]:
        new, reply = task(own, message, site)
        who = torch.from_numpy(np.isin(site.clients, hostile))
        return new, changed(attack, reply, message, who) if who.any() else reply

    for name in ("__self__", "__name__"):
        if hasattr(task, name):
            setattr(run, name, getattr(task, name))
    return run


def with_flipped_labels(rows: Stacked | Lazy, clients: Ints) -> Stacked:
    """The same rows, with class k as class K - 1 - k at these clients, or real targets with the other sign."""
    if isinstance(rows, Lazy):
        raise BadInput("attack", "flipped-labels", "needs all rows in memory; choose another attack if rows are lazy")
    y = rows.y.clone()
    for i in clients.tolist():
        own = slice(int(rows.offsets[i]), int(rows.offsets[i + 1]))
        y[own] = -y[own] if y.is_floating_point() else int(rows.y.max()) - y[own]
    return replace(rows, y=y)


def changed(attack: Attack, reply: R, sent: Record, who: Tensor) -> R:
    """The replies with those of the clients `who (C,)` changed by the attack."""
    factor = ATTACKS[attack.name] if attack.factor is None else attack.factor
    visible, marks = visibility(type(reply)), bounds_marks(type(reply))
    new = {f.name: getattr(reply, f.name) for f in fields(reply)}
    for name, value in tensors(reply):
        hostile = value.clone()
        if attack.name == "inflated-loss":
            if visible[name] is Visibility.PER_CLIENT:
                hostile[who] = factor * value[who]
        elif attack.name != "flipped-labels" and visible[name] is not Visibility.PER_CLIENT:
            if marks.get(name) in (ExactBounds.COUNT, ExactBounds.WIDE):
                continue
            start = origin(type(reply), name, sent)
            hostile[who] = factor * value[who] if start is None else start + factor * (value[who] - start)
            if marks.get(name) is ExactBounds.WEIGHTS_FIRST:
                hostile[..., 0] = value[..., 0]
        new[name] = hostile
    return type(reply)(**new)
