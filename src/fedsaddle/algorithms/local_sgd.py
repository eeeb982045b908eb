"""The client's half that FedAvg, q-FedAvg and the DRFA family share: τ projected SGD steps on the client's own rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import torch
from torch import Tensor

from fedsaddle.algorithms.hyperparameters import check_local, check_problem
from fedsaddle.federation.clients import Site
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, check_local_optimiser, own_optimiser
from fedsaddle.numerics.projections import Projection, check_map
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.problems.protocols import MinimisationProblem


class LocalSgd(Protocol):
    """The hyper-parameters of local SGD."""

    @property
    def problem(self) -> MinimisationProblem: ...  # noqa: D102
    @property
    def local_steps(self) -> int: ...  # noqa: D102
    @property
    def batch_size(self) -> int: ...  # noqa: D102
    @property
    def primal_step(self) -> Step: ...  # noqa: D102
    @property
    def local_optimiser(self) -> LocalOptimiser | None: ...  # noqa: D102
    @property
    def projection(self) -> Projection | None: ...  # noqa: D102


def iterates(
    how: LocalSgd, w: Tensor, site: Site, step: float | None = None, proximal: float = 0.0
) -> Iterator[Tensor]:
    """`w_i ← Π_W(w_i - η ∇f_i(w_i; ξ_i))`, τ times; gives each new iterate, (C, d).

    These are lines 8-11 of FedAvg's Algorithm 1, 6-9 of DRFA's Algorithm 1 and 5-8 of its Algorithm 3, and line 5 of
    q-FedAvg's Algorithm 2. The steps write into a copy of `w`: an iterate must be cloned to be kept. `step` is η where
    it has a schedule. With a `local_optimiser`, its direction stands in place of the gradient. With `proximal` μ each
    step also goes `η μ` of the way back to `w`, as FedProx does.
    """
    optimiser = own_optimiser(how.local_optimiser)
    start, w = w, w.clone(memory_format=torch.contiguous_format)
    η = at(how.primal_step, 0) if step is None else step
    moments = BLANK
    for t in range(how.local_steps):
        ξ = site.minibatch(t, how.batch_size)
        away = w - start if proximal else None
        if optimiser is None:
            w = how.problem.descend_(w, ξ, η)
        else:
            g = how.problem.primal_gradient(w, ξ)
            moments, direction = optimiser.direction(moments, g.x, w)
            w = how.problem.settle_(w.sub_(direction, alpha=η), g.statistics)
        if away is not None:
            w.sub_(away, alpha=η * proximal)
        if how.projection is not None:
            w = how.projection(w)
        yield w


def last_iterate(how: LocalSgd, w: Tensor, site: Site, step: float | None = None) -> Tensor:
    """The last of them."""
    for latest in iterates(how, w, site, step):
        w = latest
    return w


def check(how: LocalSgd, sampled_clients: int | None = None) -> None:
    """Validate the hyper-parameters."""
    check_problem(how, MinimisationProblem)
    check_local(how.local_steps, how.batch_size, sampled_clients)
    check_step("primal_step", how.primal_step)
    check_local_optimiser(how.local_optimiser)
    if how.projection is not None:
        check_map("projection", how.projection, how.problem.initial()[None])
