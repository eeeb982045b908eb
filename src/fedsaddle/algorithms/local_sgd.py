"""The client's half that FedAvg, q-FedAvg and the DRFA family share: τ projected SGD steps on the client's own rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch, Clients, Site
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.schedules import Schedule, Step, at
from fedsaddle.problems.supervised import Minimisation, Supervised


class LocalSgd(Protocol):
    """The hyper-parameters of local SGD."""

    @property
    def problem(self) -> Minimisation: ...  # noqa: D102
    @property
    def local_steps(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102
    @property
    def projection(self) -> Projection | None: ...  # noqa: D102


def iterates(how: LocalSgd, w: Tensor, site: Site, step: float | None = None) -> Iterator[Tensor]:
    """`w_i ← Π_W(w_i - η ∇f_i(w_i; ξ_i))`, τ times; gives each new iterate, (C, d).

    The steps write into a copy of `w`: an iterate must be cloned to be kept. `step` is η where it has a schedule.
    """
    w = w.clone(memory_format=torch.contiguous_format)
    η = at(how.primal_step, 0) if step is None else step
    for t in range(how.local_steps):
        w = descended(how.problem, w, site.minibatch(t, how.batch_size), η)
        if how.projection is not None:
            w = how.projection(w)
        yield w


def descended(problem: Minimisation, w: Tensor, batch: Batch, step: float) -> Tensor:
    """`w - step ∇f(w; batch)`, written into `w`; a problem may have a quicker way than through its gradient."""
    if isinstance(problem, Supervised):
        return problem.descend(w, batch, step)
    return w.sub_(problem.gradient(w, batch), alpha=step)


def after(how: LocalSgd, w: Tensor, site: Site) -> Tensor:
    """The last of them."""
    for latest in iterates(how, w, site):
        w = latest
    return w


def check(how: LocalSgd, sampled_clients: int | None = None, schedules: bool = False) -> None:
    """Refuse hyper-parameters that cannot be; with `schedules` the step may change with the rounds."""
    for key in ("local_steps", "batch_size"):
        if getattr(how, key) < 1:
            raise BadInput(key, getattr(how, key), "must be at least 1")
    if not (schedules and isinstance(how.primal_step, Schedule)):
        positive("primal_step", how.primal_step)
    if sampled_clients is not None and sampled_clients < 1:
        raise BadInput("sampled_clients", sampled_clients, "ask at least one client a round")


def positive(key: str, value: Step) -> None:
    """Refuse a step that is not a positive number."""
    if isinstance(value, Schedule) or not 0 < value < float("inf"):
        raise BadInput(key, value, "a step must be a positive number")


def one_of(key: str, value: str, choices: tuple[str, ...]) -> None:
    """Refuse a word that is not among the choices."""
    if value not in choices:
        raise BadInput(key, value, f"choose one of {', '.join(choices)}")


def cohort_size(sampled_clients: int | None, clients: Clients) -> int:
    """m, or all clients; m > N cannot be."""
    if sampled_clients is None:
        return clients.count
    if sampled_clients > clients.count:
        raise BadInput("sampled_clients", sampled_clients, f"there are only {clients.count} clients")
    return sampled_clients
