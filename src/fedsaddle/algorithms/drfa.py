"""Distributionally robust federated averaging: DRFA, DRFA-Prox and AFL (Algorithms 1 and 2)."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.local_sgd import check, cohort_size, iterates, one_of, positive
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Ints, Site
from fedsaddle.federation.records import Averaged, PerClient
from fedsaddle.numerics.averages import Running
from fedsaddle.numerics.projections import Projection, Simplex
from fedsaddle.numerics.regularisers import Regulariser
from fedsaddle.problems.supervised import Minimisation


@dataclass(frozen=True)
class Start:
    """Server to client: the model, and after how many steps to take the snapshot."""

    w: Tensor  # w̄(s)
    snapshot: int  # t' - sτ, in 1 .. τ


@dataclass(frozen=True)
class LocalModels:
    """Client to server: models after τ and after t' steps, and the mean of the iterates if it is wanted."""

    final: Averaged  # w_i^((s+1)τ)
    snapshot: Averaged  # w_i^(t')
    path: Averaged | None = None


@dataclass(frozen=True)
class Probe:
    """Server to client: a model whose loss is wanted."""

    w: Tensor


@dataclass(frozen=True)
class LocalLoss:
    """Client to server: its loss, seen one by one, for λ needs to know whose it is."""

    loss: PerClient  # f_i(w; ξ_i)


@dataclass(frozen=True)
class DrfaState:
    """The server's memory."""

    w: Tensor  # w̄(s)
    lam: Tensor  # λ(s), float64
    rounds: int = 0  # s
    mean: Tensor | None = None  # ŵ so far
    lam_mean: Tensor | None = None  # λ̂ so far


@dataclass(frozen=True, kw_only=True)
class Drfa:
    """DRFA (Deng, Kamani, Mahdavi 2020, Algorithm 1): `min_w max_{λ in Λ} Σ_i λ_i f_i(w)`, Λ the simplex.

    With a `regulariser` g it is DRFA-Prox (Algorithm 2) for `... + g(λ)`; with `local_steps=1` it is AFL.

    **Deviations from the paper**: D is drawn with replacement, which makes the mean over D unbiased; where some of D or
    U do not answer, m is the number that did. `weighting="weight"` and `dual_decay=0.9` are what the published
    figures used: D uniform, `w̄ + (N/m) Σ λ_i (w_i - w̄)`, and a γ that shrinks every round.
    """

    problem: Minimisation
    sampled_clients: int | None = None  # m; None: all
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: float = 0.1  # η
    dual_step: float = 8e-3  # γ
    dual_decay: float = 1.0  # γ is multiplied by this after every round
    regulariser: Regulariser | None = None  # g; None is 0
    weighting: str = "sample"  # D follows λ; "weight": D uniform, λ weighs
    projection: Projection | None = None  # Π_W
    output: str = "last"  # (2) of the box; "average" is (1)

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        positive("dual_step", self.dual_step)
        one_of("weighting", self.weighting, ("sample", "weight"))
        one_of("output", self.output, ("last", "average"))
        if not 0 < self.dual_decay <= 1:
            raise BadInput("dual_decay", self.dual_decay, "must be above 0 and at most 1 (1 keeps the step)")

    def start(self, clients: Clients) -> DrfaState:
        """w̄(0) and the uniform λ(0)."""
        cohort_size(self.sampled_clients, clients)
        N = clients.count
        return DrfaState(self.problem.initial(), torch.full((N,), 1 / N, dtype=torch.float64))

    def round(self, server: DrfaState, clients: Clients, rng: np.random.Generator) -> DrfaState:
        """Lines 2-17 of Algorithm 1."""
        m, N, τ, λ = cohort_size(self.sampled_clients, clients), clients.count, self.local_steps, server.lam
        γ = self.dual_step * self.dual_decay**server.rounds
        D = self._primal_cohort(λ, m, rng)  # line 2
        t = int(rng.integers(1, τ + 1))  # line 3
        weights = None if self.weighting == "sample" else λ.numpy()[D]
        D, local = clients.ask(D, self.local_sgd, Start(server.w, t), weights=weights)  # lines 4-11
        w_next = self._aggregate(server.w, local.final, λ, D)  # line 12
        w_snap = self._aggregate(server.w, local.snapshot, λ, D)  # line 13
        U = rng.choice(N, m, replace=False) if m < N else np.arange(N)  # line 14
        U, f = clients.ask(U, self.local_loss, Probe(w_snap))  # line 15
        v = torch.zeros_like(λ)
        v[U] = N / len(U) * f.loss.double()  # line 16
        z = λ + τ * γ * v
        λ_next = Simplex()(z) if self.regulariser is None else self.regulariser.prox(z, γ * τ)  # line 17
        mean = Running.over(server.mean, self._path(server.w, local.path, λ, D), server.rounds)
        lam_mean = Running.over(server.lam_mean, λ if self.output == "average" else None, server.rounds)
        return DrfaState(w_next, λ_next, server.rounds + 1, mean, lam_mean)

    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModels]:
        """Lines 6-9 and 11: τ projected steps, keeping the snapshot."""
        path = Running() if self.output == "average" else None
        for t, w in enumerate(iterates(self, site.each(sent.w), site), start=1):
            if t == sent.snapshot:
                snapshot = w.clone()
            if path is not None:
                path.add(w)
        return None, LocalModels(w, snapshot, path.mean if path is not None else None)

    def local_loss(self, own: None, sent: Probe, site: Site) -> tuple[None, LocalLoss]:
        """Line 15: the loss over a local minibatch."""
        batch = site.minibatch(0, self.batch_size)
        return None, LocalLoss(self.problem.value(site.each(sent.w), batch))

    def model(self, server: DrfaState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

    def mixture(self, server: DrfaState) -> Tensor:
        """λ(s), or its mean over the rounds."""
        return server.lam if server.lam_mean is None else server.lam_mean

    def _primal_cohort(self, λ: Tensor, m: int, rng: np.random.Generator) -> Ints:
        if self.weighting == "sample":
            return rng.choice(len(λ), m, p=λ.numpy() / float(λ.sum()))
        return rng.choice(len(λ), m, replace=False) if m < len(λ) else np.arange(m)

    def _aggregate(self, w: Tensor, mean: Tensor, λ: Tensor, D: Ints) -> Tensor:
        """The mean over D, or as published `w̄ + (N/m) Σ_{i in D} λ_i (w_i - w̄)`, from the λ-weighted mean."""
        if self.weighting == "sample":
            return mean
        return w + len(λ) / len(D) * float(λ[D].sum()) * (mean - w)

    def _path(self, w: Tensor, path: Tensor | None, λ: Tensor, D: Ints) -> Tensor | None:
        return None if path is None else self._aggregate(w, path, λ, D)


@dataclass(frozen=True, kw_only=True)
class DrfaProx(Drfa):
    """DRFA-Prox (Algorithm 2): DRFA whose regulariser must be given."""

    regulariser: Regulariser = field()  # g; no default


@dataclass(frozen=True, kw_only=True)
class Afl(Drfa):
    """Agnostic federated learning (Mohri, Sivek, Suresh 2019): DRFA with one local step."""

    local_steps: int = field(default=1, init=False)  # τ
