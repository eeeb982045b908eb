"""Local SGD, the client's half of FedAvg and the DRFA family, and what algorithms share: checks and cohorts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from fedsaddle.arguments import whole
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.numerics.optimisers import BLANK, LocalOptimiser, check_local_optimiser, own_optimiser
from fedsaddle.numerics.projections import Projection, check_map
from fedsaddle.numerics.schedules import Step, at, check_step
from fedsaddle.problems.protocols import HasHessian, MinimaxProblem, MinimisationProblem, PairwiseProblem


class HasProblem(Protocol):
    """An algorithm, as far as its problem is concerned."""

    @property
    def problem(self) -> object: ...  # noqa: D102


MOST_STEPS = 1_000_000  # local steps between two exchanges
MOST_ROWS = 10_000_000  # rows of a minibatch


def check_local(local_steps: object, batch_size: object, sampled_clients: object) -> None:
    """Validate τ, the batch and the cohort."""
    whole("local_steps", local_steps, most=MOST_STEPS)
    whole("batch_size", batch_size, most=MOST_ROWS)
    if sampled_clients is not None:
        whole("sampled_clients", sampled_clients)


REMEDIES: dict[type, str] = {
    MinimisationProblem: "give it one that minimises, such as fs.Supervised, or inherit from fs.MinimisationProblem",
    MinimaxProblem: "give it a min-max problem, such as fs.Minimax, or inherit from fs.MinimaxProblem",
    PairwiseProblem: "give it a problem of pairs, such as fs.PairwiseRisk or one of fs.risks",
    HasHessian: "give it a regression, such as fs.Supervised over a linear model, or fs.Cox",
}


def check_problem(algorithm: HasProblem, kind: type) -> None:
    """Validate that a problem is of the kind that the algorithm solves."""
    problem: object = algorithm.problem
    if isinstance(problem, type) or not isinstance(problem, kind):
        name = problem.__name__ if isinstance(problem, type) else type(problem).__name__
        raise BadInput("problem", name, f"is not for {type(algorithm).__name__}; {REMEDIES[kind]}")


def cohort_size(sampled_clients: int | None, clients: Clients) -> int:
    """The cohort size m, all clients if None. Raises BadInput if m > N.

    Args:
        sampled_clients: m, or None for all clients.
        clients: the clients of the run.
    """
    if sampled_clients is None:
        return clients.count
    if sampled_clients > clients.count:
        raise BadInput("sampled_clients", sampled_clients, f"there are only {clients.count} clients")
    return sampled_clients


def draw_cohort(rng: np.random.Generator, count: int, size: int) -> Ints:
    """`size` of `count` clients, uniformly without replacement; all of them, in order, without a draw.

    Args:
        rng: random numbers of the server.
        count: number of clients N.
        size: size of the cohort m.
    """
    return rng.choice(count, size, replace=False) if size < count else np.arange(count)


class LocalSgd(Protocol):
    """The hyperparameters of local SGD."""

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
    algorithm: LocalSgd, w: Tensor, site: Site, step: float | None = None, proximal: float = 0.0
) -> Iterator[Tensor]:
    """`w_i ← Π_W(w_i - η ∇f_i(w_i; ξ_i))`, τ times; yields each iterate, (C, d).

    These are lines 8-11 of FedAvg's Algorithm 1, 6-9 of DRFA's Algorithm 1 and 5-8 of its Algorithm 3, and line 5 of
    q-FedAvg's Algorithm 2. The steps write into a copy of `w`: an iterate must be cloned to be kept. `step` is η where
    it has a schedule. With a `local_optimiser`, its direction replaces the gradient. With `proximal` μ each
    step also goes `η μ` of the way back to `w`, as FedProx does.
    """
    optimiser = own_optimiser(algorithm.local_optimiser)
    start, w = w, w.clone(memory_format=torch.contiguous_format)
    η = at(algorithm.primal_step, 0) if step is None else step
    moments = BLANK
    for t in range(algorithm.local_steps):
        ξ = site.minibatch(t, algorithm.batch_size)
        away = w - start if proximal else None
        if optimiser is None:
            w = algorithm.problem.descend_(w, ξ, η)
        else:
            g = algorithm.problem.primal_gradient(w, ξ)
            moments, direction = optimiser.direction(moments, g.x, w)
            w = algorithm.problem.write_statistics_(w.sub_(direction, alpha=η), g.statistics)
        if away is not None:
            w.sub_(away, alpha=η * proximal)
        if algorithm.projection is not None:
            w = algorithm.projection(w)
        yield w


def last_iterate(algorithm: LocalSgd, w: Tensor, site: Site, step: float | None = None) -> Tensor:
    """The last of the `iterates`."""
    for latest in iterates(algorithm, w, site, step):
        w = latest
    return w


def check(algorithm: LocalSgd, sampled_clients: int | None = None) -> None:
    """Validate the hyperparameters."""
    check_problem(algorithm, MinimisationProblem)
    check_local(algorithm.local_steps, algorithm.batch_size, sampled_clients)
    check_step("primal_step", algorithm.primal_step)
    check_local_optimiser(algorithm.local_optimiser)
    if algorithm.projection is not None:
        check_map("projection", algorithm.projection, algorithm.problem.initial()[None])


def without_outliers(clients: Ints, losses: Tensor, share: float) -> tuple[Ints, Tensor]:
    """The clients and their losses without the `floor(share m)` largest ones, in the same order; one at least stays.

    Examples:
        >>> import numpy as np, torch
        >>> without_outliers(np.array([4, 7, 9]), torch.tensor([1.0, 5.0, 2.0]), 0.34)
        (array([4, 9]), tensor([1., 2.]))
    """
    gone = min(int(share * len(clients)), len(clients) - 1)
    if gone == 0:
        return clients, losses
    inliers = losses.argsort(descending=True, stable=True)[gone:].sort().values
    return clients[inliers.cpu().numpy()], losses[inliers]
