"""What a run asks of an algorithm, and what else an algorithm may offer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from torch import Tensor

from fedsaddle.federation.clients import Clients
from fedsaddle.federation.records import Record
from fedsaddle.federation.tasks import RunsTasks
from fedsaddle.files import Json
from fedsaddle.numerics.schedules import Schedule
from fedsaddle.problems.protocols import Problem

State = TypeVar("State")
Seen = TypeVar("Seen", contravariant=True)


@runtime_checkable
class Algorithm(Protocol[State]):
    """An algorithm: frozen hyperparameters, and functions of the server's state, a frozen dataclass.

    Its clients' parts are methods `(own, sent, site) -> (own, reply)`, which it hands to `clients.ask`.
    """

    @property
    def problem(self) -> Problem:
        """What is solved."""
        ...

    def start(self, clients: Clients) -> State:
        """The state before the first round."""
        ...

    def round(self, server: State, clients: Clients, rng: np.random.Generator) -> State:
        """The state after one more round; `server` stays as it is."""
        ...

    def model(self, server: State) -> Tensor:
        """The solution so far, one flat vector."""
        ...


AnyAlgorithm = Algorithm[Any]  # one whose state its wrapper only hands on


class Wraps:
    """The parts of a wrapped algorithm that its wrapper has as well."""

    algorithm: AnyAlgorithm

    @property
    def problem(self) -> Problem:
        """What is solved."""
        return self.algorithm.problem

    @property
    def local_steps(self) -> int | Schedule:
        """Steps at a client between two exchanges; for stages perhaps a schedule."""
        steps: int | Schedule = getattr(self.algorithm, "local_steps", 1)
        return steps

    @property
    def sampled_clients(self) -> int | None:
        """Clients a round; None: all."""
        clients: int | None = getattr(self.algorithm, "sampled_clients", None)
        return clients

    @property
    def output(self) -> str:
        """Which iterate is the solution."""
        return str(getattr(self.algorithm, "output", "last"))

    def model(self, server: Record) -> Tensor:
        """The solution so far."""
        return self.algorithm.model(server)

    def dual(self, server: Record) -> Tensor | None:
        """The y that goes with the solution, if there is one."""
        return dual_of(self.algorithm, server)

    def mixture(self, server: Record) -> Tensor | None:
        """λ, if there is one."""
        return mixture_of(self.algorithm, server)


@runtime_checkable
class HasDual(Protocol[Seen]):
    """An algorithm with a second player."""

    def dual(self, server: Seen) -> Tensor:
        """The y that goes with the solution."""
        ...


@runtime_checkable
class HasMixture(Protocol[Seen]):
    """An algorithm that weighs clients."""

    def mixture(self, server: Seen) -> Tensor:
        """λ, one number a client."""
        ...


@runtime_checkable
class CountsIterations(Protocol[Seen]):
    """An algorithm whose rounds are not all alike."""

    def iterations(self, server: Seen) -> int:
        """Local steps so far."""
        ...


@runtime_checkable
class HasLocalSteps(Protocol):
    """An algorithm with the same number of local steps in every round."""

    @property
    def local_steps(self) -> int:
        """Steps at a client between two exchanges."""
        ...


@runtime_checkable
class Guarantees(Protocol):
    """An algorithm with a guarantee of privacy."""

    def guarantee(self, rounds: int) -> Mapping[str, Json] | None:
        """The guarantee after `rounds` rounds; None: none."""
        ...


@runtime_checkable
class HasCautions(Protocol[Seen]):
    """An algorithm that knows whether its solution may be used."""

    def cautions(self, server: Seen, features: Sequence[str] = ()) -> Sequence[str]:
        """What a reader of the result must know, a line each, with the remedy; `features` may name the columns."""
        ...


@dataclass(frozen=True)
class OwnLayers:
    """Layers that clients keep to themselves."""

    local: Tensor  # their places in the flat vector
    layers: Mapping[int, Tensor]  # client -> its values; a client without any has those of the model

    def model_of(self, client: int, model: Tensor) -> Tensor:
        """The model of a client: the given one with its own layers."""
        own = self.layers.get(client)
        if own is None:
            return model
        whole = model.clone()
        whole[self.local] = own
        return whole


@runtime_checkable
class KeepsLayers(Protocol):
    """An algorithm whose clients have models of their own."""

    @property
    def local_names(self) -> Sequence[str]:
        """The parameters that stay at the clients."""
        ...

    def own_layers(self, records: Mapping[int, Record]) -> OwnLayers:
        """The layers of each client that has some, from the clients' memory."""
        ...


@runtime_checkable
class ChecksLocalLayers(Protocol):
    """An algorithm with settings under which layers cannot stay at the clients, whatever its records declare."""

    def check_local_layers(self) -> None:
        """Raise `BadInput` under such settings, such as a projection at the server."""
        ...


def dual_of(algorithm: Algorithm[State], server: State) -> Tensor | None:
    """y, for algorithms that have one."""
    return algorithm.dual(server) if isinstance(algorithm, HasDual) else None


def mixture_of(algorithm: Algorithm[State], server: State) -> Tensor | None:
    """λ, for algorithms that have one."""
    return algorithm.mixture(server) if isinstance(algorithm, HasMixture) else None


def iterations_of(algorithm: Algorithm[State], server: State, rounds: int) -> int | None:
    """Local steps after `rounds` rounds; None if the algorithm does not count them."""
    if isinstance(algorithm, RunsTasks):
        inner = algorithm.algorithm
        return iterations_of(inner, server, rounds) if isinstance(inner, Algorithm) else None
    if isinstance(algorithm, CountsIterations):
        return int(algorithm.iterations(server))
    return rounds * algorithm.local_steps if isinstance(algorithm, HasLocalSteps) else None
