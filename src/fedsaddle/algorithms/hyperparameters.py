"""Checks of hyper-parameters that algorithms share, and the draw of a cohort."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from fedsaddle.arguments import whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem, PairwiseProblem


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
}


def check_problem(algorithm: HasProblem, kind: type) -> None:
    """Validate that a problem is of the kind that the algorithm solves."""
    problem: object = algorithm.problem
    if isinstance(problem, type) or not isinstance(problem, kind):
        name = problem.__name__ if isinstance(problem, type) else type(problem).__name__
        raise BadInput("problem", name, f"is not for {type(algorithm).__name__}; {REMEDIES[kind]}")


def cohort_size(sampled_clients: int | None, clients: Clients) -> int:
    """m, or all clients; m > N cannot be."""
    if sampled_clients is None:
        return clients.count
    if sampled_clients > clients.count:
        raise BadInput("sampled_clients", sampled_clients, f"there are only {clients.count} clients")
    return sampled_clients


def draw_cohort(rng: np.random.Generator, count: int, size: int) -> Ints:
    """`size` of `count` clients, uniformly without replacement; all of them, in order, without a draw."""
    return rng.choice(count, size, replace=False) if size < count else np.arange(count)
