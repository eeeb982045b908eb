"""Layers that stay at each client: FedBN, personal heads. A wrapper around algorithms that average models.

The flat vector falls into two parts. The shared coordinates travel and are averaged; the local ones are a client's
memory, and no message carries them in either direction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from fedsaddle.algorithms import drfa, fedavg
from fedsaddle.algorithms.drfa import Drfa, DrfaGa, Probe
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.protocols import Algorithm, OwnLayers, dual_of, mixture_of
from fedsaddle.algorithms.sgda import rounds as sgda
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.rounds import MidRound
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints, R, Site, Task
from fedsaddle.federation.records import From, bounds_marks, tensors
from fedsaddle.federation.tasks import WrappedTask
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.problems.protocols import HasModel, MeasuresClients, Problem

FedAvgStart, DrfaStart, SgdaStart = fedavg.Start, drfa.Start, sgda.Start
BATCH_NORM = "batch-norm"  # stands for every layer with running statistics
KINDS = (FedAvg, Drfa, DrfaGa, LocalSgda)
# What is sent to a task -> the fields that are models; replies mark their models by `From`.
MODELS: dict[type, tuple[str, ...]] = {
    FedAvgStart: ("w",),
    DrfaStart: ("w",),
    Probe: ("w",),
    SgdaStart: ("x", "anchor"),
}


@dataclass(frozen=True)
class Layers:
    """A client's memory: its own coordinates of the flat vector."""

    layers: Tensor  # (C, l)


@dataclass(frozen=True)
class LayersMidRound:
    """The same, beside where a client stands in the middle of a round of Local SGDA+."""

    layers: Tensor
    x: Tensor
    y: Tensor
    dx: Tensor
    dy: Tensor
    started: Tensor


@dataclass(frozen=True, kw_only=True)
class Personal:
    """An algorithm whose clients keep some layers to themselves: FedBN (Li et al. 2021), personal heads.

    Each client trains all layers, sends the shared ones, and goes on with its own in the next round that it takes part
    in. A client that is new starts from the initial layers. Figures are each client's with its own layers; the saved
    model has the shared layers beside the initial ones.

    Args:
        algorithm: FedAvg (FedAvgM, FedAdam, ...), DRFA, DRFA-Prox, AFL, DRFA-GA, Local SGDA or Local SGDA+.
        layers: Names of parameters or layers, with `*` and `?`: `["head.*"]`; "batch-norm" is every BatchNorm layer
            with its running statistics.

    Raises:
        BadInput: for another algorithm, with the reason, and for a name that no layer has.

    Example:
        >>> import fedsaddle as fs
        >>> average = fs.FedAvg(problem=fs.Supervised(fs.models.mlp(30, [16], 2)))
        >>> fs.Personal(algorithm=average, layers=["3"]).local_names
        ('3.weight', '3.bias')
    """

    algorithm: Any
    layers: Sequence[str]
    local: Tensor = field(init=False, repr=False, compare=False)  # the local coordinates
    shared: Tensor = field(init=False, repr=False, compare=False)
    local_names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.algorithm)
        given: object = self.layers
        if isinstance(given, str) or not isinstance(given, list | tuple) or not all(isinstance(p, str) for p in given):
            raise BadInput("layers", given, 'give a list of names of layers, such as ["head.*"]')
        names, kept = _places(self.algorithm.problem, self.layers)
        object.__setattr__(self, "local_names", names)
        object.__setattr__(self, "local", kept.nonzero()[:, 0])
        object.__setattr__(self, "shared", (~kept).nonzero()[:, 0])

    @property
    def problem(self) -> Problem:
        """What is solved."""
        found: Problem = self.algorithm.problem
        return found

    @property
    def local_steps(self) -> int:
        """Steps at a client between two exchanges."""
        return int(self.algorithm.local_steps)

    @property
    def sampled_clients(self) -> int | None:
        """Clients a round; None: all."""
        found: int | None = self.algorithm.sampled_clients
        return found

    @property
    def output(self) -> str:
        """Which iterate is the solution."""
        return str(self.algorithm.output)

    def start(self, clients: Clients) -> Any:
        """The state of the algorithm."""
        return self.algorithm.start(clients)

    def round(self, server: Any, clients: Clients, rng: np.random.Generator) -> Any:
        """A round of the algorithm over the shared coordinates."""
        return self.algorithm.round(server, _SharedAlone(clients, self), rng)

    def fresh(self, site: Site) -> Layers | LayersMidRound:
        """The initial layers, and what the algorithm's own clients begin with."""
        start = self.problem.initial()  # type: ignore[attr-defined]
        first = start[0] if isinstance(start, tuple) else start
        mine = first[self.local].to(site.device)
        return self._join(self._inner_fresh(site), mine.repeat(len(site.clients), 1), site)

    def run_task(self, name: str, own: Layers | LayersMidRound, sent: Any, site: Site) -> tuple[Any, Any]:
        """A task of the algorithm, on models with the client's own layers; what leaves is without them."""
        inner = None if isinstance(own, Layers) else MidRound(own.x, own.y, own.dx, own.dy, own.started)
        seen = _WithOwn(site, self, sent, own.layers)
        inner, reply = getattr(self.algorithm, name)(inner, sent, cast(Site, seen))
        models = self._models_of(reply, sent)
        local, shared = self.local.to(site.device), self.shared.to(site.device)
        layers = models[next(iter(models))][:, local] if models else own.layers
        for field_name, value in tensors(reply):
            if field_name not in models and value.shape[1:] == (len(self.local) + len(self.shared),):
                raise BadInput(
                    "layers", list(self.layers), f"{field_name!r} of the reply would show them to the server"
                )
        return self._join(inner, layers, site), replace(reply, **{k: v[:, shared] for k, v in models.items()})

    def model(self, server: Any) -> Tensor:
        """The shared layers, beside the initial ones."""
        found: Tensor = self.algorithm.model(server)
        return found

    def dual(self, server: Any) -> Tensor | None:
        """The y that goes with the solution, if there is one."""
        return dual_of(self.algorithm, server)

    def mixture(self, server: Any) -> Tensor | None:
        """λ, if there is one."""
        return mixture_of(self.algorithm, server)

    def own_layers(self, records: Mapping[int, Any]) -> OwnLayers:
        """The layers of each client that has some, from the clients' memory."""
        return OwnLayers(self.local, {i: record.layers for i, record in records.items()})

    def _models_of(self, reply: Any, sent: Any) -> dict[str, Tensor]:
        """The fields of a reply that began as a model that was sent; the first is where the client stands."""
        marks, known = bounds_marks(type(reply)), MODELS[type(sent)]
        began = [n for n, mark in marks.items() if isinstance(mark, From) and mark.field in known]
        return {name: value for name, value in tensors(reply) if name in began}

    def _inner_fresh(self, site: Site) -> MidRound | None:
        return self.algorithm.fresh(site) if isinstance(self.algorithm, LocalSgda) else None

    def _join(self, inner: MidRound | None, layers: Tensor, site: Site) -> Layers | LayersMidRound:
        """One record; a task that forgets its memory begins again from that of a new client."""
        inner = self._inner_fresh(site) if inner is None else inner
        if inner is None:
            return Layers(layers)
        return LayersMidRound(layers, **{f.name: getattr(inner, f.name) for f in fields(inner)})


@dataclass
class _SharedAlone(Wrapper):
    """The clients as the algorithm's server sees them: whole models, of which the shared coordinates travel."""

    personal: Personal

    def ask(self, cohort: ArrayLike, task: Task[R], sent: Any, *, weights: ArrayLike | None = None) -> tuple[Ints, R]:
        """Ask for the task of the same name that knows the layers; the server's own coordinates stay."""
        one, shared = self.personal, self.personal.shared
        whole = {name: v for name in MODELS[type(sent)] if (v := getattr(sent, name)) is not None}
        mine: Task[R] = WrappedTask(one, task.__name__)
        short = replace(sent, **{name: v[shared] for name, v in whole.items()})
        answered, reply = self.inner.ask(cohort, mine, short, weights=weights)
        marks = bounds_marks(type(reply))
        filled = {}
        for name, value in tensors(reply):
            mark = marks.get(name)
            if isinstance(mark, From) and mark.field in whole:
                filled[name] = whole[mark.field].clone()
                filled[name][shared] = value
        return answered, cast(R, replace(cast(Any, reply), **filled))


class _WithOwn:
    """A site whose models are the shared coordinates that were sent beside the clients' own."""

    def __init__(self, site: Site, personal: Personal, sent: Any, layers: Tensor) -> None:
        self._site, self._personal, self._layers = site, personal, layers
        self._models = [getattr(sent, name) for name in MODELS[type(sent)]]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._site, name)

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client, (C, d); a model with each client's own layers."""
        if not any(v is model for model in self._models):
            return self._site.broadcast(v)
        local, shared, own = self._personal.local.to(v.device), self._personal.shared.to(v.device), self._layers
        whole = v.new_empty(len(own), len(local) + len(shared))
        whole[:, shared], whole[:, local] = v, own
        return whole


def _check(algorithm: object) -> None:
    """Refuse what cannot leave layers out, with the reason."""
    name = type(algorithm).__name__
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        raise BadInput("algorithm", name, "give an algorithm, such as fs.FedAvg(problem=...)")
    if type(algorithm) not in KINDS:
        known = ", ".join(kind.__name__ for kind in KINDS)
        reason = "its replies are not models alone: gradients, momentum, variates or scores would show the layers"
        raise BadInput("algorithm", name, f"cannot keep layers at the clients: {reason}; choose one of {known}")
    if isinstance(algorithm, LocalSgda) and algorithm.output != "last":
        raise BadInput("output", algorithm.output, 'would show sums of the layers; with local layers it is "last"')
    if isinstance(algorithm, FedAvg) and algorithm.projection is not None and _steps(algorithm):
        raise BadInput("projection", algorithm.projection, "the server cannot project layers that it does not have")
    if isinstance(algorithm.problem, MeasuresClients):
        kind = type(algorithm.problem).__name__
        raise BadInput("problem", kind, "compares rows of different clients, who have no model in common")
    if not isinstance(algorithm.problem, HasModel) or algorithm.problem.model is None:
        raise BadInput("problem", type(algorithm.problem).__name__, "has no network, and so no layers")


def _steps(algorithm: FedAvg) -> bool:
    """Whether the server takes a step of its own, and so a projection."""
    return bool(algorithm.server_momentum) or algorithm.server_optimiser is not None


def _places(problem: Any, patterns: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """The names that the patterns mean, and which coordinates of the whole vector those are."""
    model: nn.Module = problem.model
    flat = problem.flat if isinstance(getattr(problem, "flat", None), FlatModel) else FlatModel(model, statistics=True)
    sizes = {n: s.numel() for n, s in flat.shapes.items()} | {n: v.numel() for n, v in flat.running.items()}
    normal = {n for n, part in model.named_modules() if getattr(part, "track_running_stats", False)}
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == BATCH_NORM:
            found = {n for n in sizes if n.rpartition(".")[0] in normal}
        else:
            found = {n for n in sizes if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")}
        if not found:
            raise BadInput("layers", pattern, f"no layer has such a name; there are {', '.join(sizes)}"[:600])
        chosen |= found
    start = problem.initial()
    kept = torch.zeros(len(start[0] if isinstance(start, tuple) else start), dtype=torch.bool)
    first = 0
    for name, size in sizes.items():
        kept[first : first + size] = name in chosen
        first += size
    return tuple(n for n in sizes if n in chosen), kept
