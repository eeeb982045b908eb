"""Layers that stay at each client: FedBN, personal heads. A wrapper around algorithms that average models.

The flat vector falls into two parts. The shared coordinates travel and are averaged; the local ones are a client's
memory, and no message carries them in either direction. An algorithm's records declare which tensors are models:
`Parameters` in what is sent, `From` in a reply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, make_dataclass, replace
from fnmatch import fnmatchcase
from typing import cast

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import Algorithm, AnyAlgorithm, ChecksLocalLayers, OwnLayers, Wraps
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Own, Remembers, Sent, Site, Task
from fedsaddle.federation.records import (
    R,
    Record,
    UpdateOf,
    bounds_marks,
    cached_by_class,
    parameters_in,
    tensors,
    undeclared,
)
from fedsaddle.federation.tasks import RunsTasks, WrappedTask, task_of, tasks_of
from fedsaddle.federation.wrappers import SiteWrapper, Wrapper
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.problems.protocols import HasModel, MeasuresClients, MinimaxProblem, MinimisationProblem, Problem

BATCH_NORM = "batch-norm"  # stands for every layer with running statistics


@dataclass(frozen=True)
class Layers:
    """A client's state: its own coordinates of the flat vector."""

    layers: Tensor  # (C, l)


@dataclass(frozen=True, kw_only=True)
class Personal(Wraps):
    """An algorithm whose clients keep some layers to themselves: FedBN (Li et al. 2021), personal heads.

    Each client trains all layers, sends the shared ones, and goes on with its own in the next round that it takes part
    in. A client that is new starts from the initial layers. Figures are each client's with its own layers; the saved
    model has the shared layers beside the initial ones.

    Args:
        algorithm: one whose records declare their models (`fs.Parameters`, `fs.UpdateOf`) and whose replies hold
            models and numbers only: FedAvg and its kin, the DRFA family, TERM, AAggFF, PropFair, Local SGDA and Local
            SGDA+, or your own. Of several models in a reply, the client continues with the first.
        layers: names of parameters or layers, with `*` and `?`: `["head.*"]`; "batch-norm" is every BatchNorm layer
            with its running statistics.

    Raises:
        BadInput: for another algorithm, with the reason, and for a name that no layer has.

    Examples:
        >>> import fedsaddle as fs
        >>> average = fs.FedAvg(problem=fs.Supervised(fs.models.mlp(30, [16], 2)))
        >>> fs.Personal(algorithm=average, layers=["3"]).local_names
        ('3.weight', '3.bias')
    """

    algorithm: AnyAlgorithm
    layers: Sequence[str]
    local: Tensor = field(init=False, repr=False, compare=False)  # the local coordinates
    shared: Tensor = field(init=False, repr=False, compare=False)
    local_names: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check(self.algorithm)
        given: object = self.layers
        if isinstance(given, str) or not isinstance(given, list | tuple) or not all(isinstance(p, str) for p in given):
            raise BadInput("layers", given, 'give a list of names of layers, such as ["head.*"]')
        names, local = _places(self.algorithm.problem, self.layers)
        object.__setattr__(self, "local_names", names)
        object.__setattr__(self, "local", local.nonzero()[:, 0])
        object.__setattr__(self, "shared", (~local).nonzero()[:, 0])

    def start(self, clients: Clients) -> Record:
        """The state of the algorithm."""
        state: Record = self.algorithm.start(clients)
        return state

    def round(self, server: Record, clients: Clients, rng: np.random.Generator) -> Record:
        """A round of the algorithm over the shared coordinates."""
        state: Record = self.algorithm.round(server, _SharedLayers(clients, self), rng)
        return state

    @property
    def memory_records(self) -> tuple[type[Record], ...]:
        """The record of a client's memory, where the algorithm's clients remember something too."""
        return tuple(_memory(kind) for kind in _remembered(type(self.algorithm)))

    def fresh(self, site: Site) -> Layers:
        """The initial layers, and what the algorithm's own clients begin with."""
        mine = _initial(self.problem)[self.local].to(site.device)
        return self._join(None, mine.repeat(len(site.clients), 1), site)

    def run_task(self, name: str, own: Record | None, sent: Record, site: Site) -> tuple[Record | None, Record]:
        """A task of the algorithm, on models with the client's own layers; what leaves is without them."""
        assert isinstance(own, Layers)
        seen = _SiteWithLayers(site, self, sent, own.layers)
        inner, reply = task_of(self.algorithm, name)(self._inner(own), sent, seen)
        models = _models(reply, sent)
        self._check_hidden(reply, models, 1)
        local, shared = self.local.to(site.device), self.shared.to(site.device)
        layers = models[next(iter(models))][:, local] if models else own.layers
        return self._join(inner, layers, site), replace(reply, **{k: v[:, shared] for k, v in models.items()})

    def own_layers(self, records: Mapping[int, Record]) -> OwnLayers:
        """The layers of each client that has some, from the clients' memory."""
        return OwnLayers(self.local, {i: own.layers for i, own in records.items() if isinstance(own, Layers)})

    def _check_hidden(self, record: Record, models: Mapping[str, Tensor], first: int) -> None:
        """Refuse a record with another tensor as long as a model, after its `first` axes."""
        for name, value in tensors(record):
            if name not in models and value.shape[first:] == (len(self.local) + len(self.shared),):
                remedy = f"{name!r} would show them: it is as long as a model, and not declared as one"
                raise BadInput("layers", list(self.layers), remedy)

    def _inner(self, own: Layers) -> Record | None:
        """What the algorithm's own client remembers."""
        if type(own) is Layers:
            return None
        (kind,) = _remembered(type(self.algorithm))
        return kind(**{f.name: getattr(own, f"own_{f.name}") for f in fields(kind)})

    def _join(self, inner: Record | None, layers: Tensor, site: Site) -> Layers:
        """One record; a task that forgets its memory begins again from that of a new client."""
        if inner is None and isinstance(self.algorithm, Remembers):
            inner = self.algorithm.fresh(site)
        if inner is None:
            return Layers(layers)
        own = {f"own_{f.name}": getattr(inner, f.name) for f in fields(inner)}
        return _memory(type(inner))(layers, **own)


@cached_by_class
def _memory(kind: type) -> type[Layers]:
    """The record of a client's layers beside what the algorithm's clients remember."""
    own = [(f"own_{f.name}", Tensor) for f in fields(kind)]
    return make_dataclass(f"LayersAnd{kind.__name__}", own, bases=(Layers,), frozen=True)


def _remembered(kind: type) -> tuple[type[Record], ...]:
    """The records of an algorithm's clients' memory."""
    return tuple(dict.fromkeys(record for task in tasks_of(kind).values() for record in task.own))


def _sent_models(sent: Record) -> dict[str, Tensor]:
    """The models of what is sent."""
    return {name: value for name in parameters_in(type(sent)) if (value := getattr(sent, name)) is not None}


def _models(reply: Record, sent: Record) -> dict[str, Tensor]:
    """The fields of a reply that began as a model that was sent; the first is where the client stands."""
    marks, known = bounds_marks(type(reply)), parameters_in(type(sent))
    began = [name for name, mark in marks.items() if isinstance(mark, UpdateOf) and mark.field in known]
    return {name: value for name, value in tensors(reply) if name in began}


@dataclass
class _SharedLayers(Wrapper):
    """The clients as the algorithm's server sees them: whole models, of which the shared coordinates travel."""

    personal: Personal

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask for the task of the same name that knows the layers; the server's own coordinates stay."""
        one, shared, whole = self.personal, self.personal.shared, _sent_models(sent)
        one._check_hidden(sent, whole, 0)
        mine = WrappedTask[Sent, R](one, task.__name__)
        short = replace(sent, **{name: v[shared] for name, v in whole.items()})
        answered, reply = self.inner.ask(cohort, mine, short, weights=weights)
        marks, filled = bounds_marks(type(reply)), {}
        for name, value in _models(reply, sent).items():
            filled[name] = whole[cast(UpdateOf, marks[name]).field].clone()
            filled[name][shared] = value
        return answered, replace(reply, **filled)


class _SiteWithLayers(SiteWrapper):
    """A site whose models are the shared coordinates that were sent beside the clients' own."""

    def __init__(self, site: Site, personal: Personal, sent: Record, layers: Tensor) -> None:
        super().__init__(site)
        self._personal, self._layers = personal, layers
        self._models = list(_sent_models(sent).values())

    def broadcast(self, v: Tensor) -> Tensor:
        """The same vector for every client, (C, d); a model with each client's own layers."""
        if not any(v is model for model in self._models):
            return self.site.broadcast(v)
        local, shared, own = self._personal.local.to(v.device), self._personal.shared.to(v.device), self._layers
        whole = v.new_empty(len(own), len(local) + len(shared))
        whole[:, shared], whole[:, local] = v, own
        return whole


def _check(algorithm: object) -> None:
    """Refuse what cannot leave layers out, with the reason."""
    name = type(algorithm).__name__
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        raise BadInput("algorithm", name, "give an algorithm, such as fs.FedAvg(problem=...)")
    if isinstance(algorithm, RunsTasks):
        raise BadInput("algorithm", name, "wraps another algorithm; give the one that it wraps")
    if reason := _reason_against(type(algorithm)):
        raise BadInput("algorithm", name, f"cannot keep layers at the clients: {reason}")
    if isinstance(algorithm, ChecksLocalLayers):
        algorithm.check_local_layers()
    if isinstance(algorithm.problem, MeasuresClients):
        kind = type(algorithm.problem).__name__
        raise BadInput("problem", kind, "compares rows of different clients, who have no model in common")
    if not isinstance(algorithm.problem, HasModel) or algorithm.problem.model is None:
        raise BadInput("problem", type(algorithm.problem).__name__, "has no network, and so no layers")


def _reason_against(kind: type) -> str:
    """Why an algorithm's records do not allow for local layers; empty: they do."""
    tasks = tasks_of(kind).values()
    named = all(task.sent and task.replies for task in tasks)
    if not tasks or not named or len(_remembered(kind)) != issubclass(kind, Remembers):
        return "its tasks' types do not name their records; annotate own (one record), sent and what is returned"
    for record in (record for task in tasks for record in (*task.replies, *task.own, *task.sent)):
        if wrong := undeclared(record):
            shows = "gradients, momentum, variates and scores would show the layers or mix them"
            remedy = "declare models (fs.Parameters, fs.UpdateOf) and what has nothing of them (fs.Holds.OTHER)"
            return f"{record.__name__}.{wrong[0]} is not declared as a model, and {shows}; {remedy}"
    return ""


def _initial(problem: Problem) -> Tensor:
    """The model that a problem starts from."""
    assert isinstance(problem, MinimisationProblem | MinimaxProblem)
    start = problem.initial()
    return start if isinstance(start, Tensor) else start[0]


def _places(problem: Problem, patterns: Sequence[str]) -> tuple[tuple[str, ...], Tensor]:
    """The names that the patterns mean, and which coordinates of the whole vector those are."""
    model = problem.model if isinstance(problem, HasModel) else None
    assert model is not None
    known = getattr(problem, "flat", None)
    flat = known if isinstance(known, FlatModel) else FlatModel(model, statistics=True)
    sizes = {n: s.numel() for n, s in flat.shapes.items()} | {n: v.numel() for n, v in flat.running.items()}
    normal = {n for n, part in model.named_modules() if getattr(part, "track_running_stats", False)}
    chosen: set[str] = set()
    for pattern in patterns:
        if pattern == BATCH_NORM:
            matching = {n for n in sizes if n.rpartition(".")[0] in normal}
        else:
            matching = {n for n in sizes if fnmatchcase(n, pattern) or fnmatchcase(n, f"{pattern}.*")}
        if not matching:
            raise BadInput("layers", pattern, f"no layer has such a name; there are {', '.join(sizes)}"[:600])
        chosen |= matching
    local = torch.zeros(len(_initial(problem)), dtype=torch.bool)
    first = 0
    for name, size in sizes.items():
        local[first : first + size] = name in chosen
        first += size
    return tuple(n for n in sizes if n in chosen), local
