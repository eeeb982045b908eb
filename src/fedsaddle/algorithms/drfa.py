"""Distributionally robust federated averaging: DRFA, DRFA-Prox, AFL and DRFA-GA (Algorithms 1, 2 and 3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from fedsaddle.algorithms.fedavg import LocalModel
from fedsaddle.algorithms.fedavg import Start as WholeRound
from fedsaddle.algorithms.local_steps import check, cohort_size, draw_cohort, iterates, without_outliers
from fedsaddle.arguments import choice, number, whole
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Site
from fedsaddle.federation.records import Averaged, Holds, Parameters, PerClient, UpdateOf
from fedsaddle.federation.tasks import of_all_rows, per_minibatch, per_step, task
from fedsaddle.numerics.mixtures import Mixture
from fedsaddle.numerics.optimisers import LocalOptimiser
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.regularisers import Regulariser, check_regulariser
from fedsaddle.numerics.schedules import Step, at, check_step, if_scheduled
from fedsaddle.numerics.tensors import Running
from fedsaddle.problems.protocols import MinimisationProblem

NAMED = {
    "DRFA": {
        "class": "Drfa",
        "about": "worst mixture of clients, many local steps",
        "source": "Deng, Kamani, Mahdavi 2020, Alg. 1",
        "kind": "minimisation",
    },
    "DRFA-Prox": {
        "class": "Drfa",
        "about": "DRFA with a regularised mixture",
        "source": "Deng, Kamani, Mahdavi 2020, Alg. 2",
        "kind": "minimisation",
        "required": {"regulariser": "{ name = 'kl', strength = 0.1 }"},
    },
    "DRFA-GA": {
        "class": "DrfaGa",
        "about": "DRFA with full gradient ascent",
        "source": "Deng, Kamani, Mahdavi 2020, Alg. 3",
        "kind": "minimisation",
    },
    "AFL": {
        "class": "Drfa",
        "about": "worst mixture of clients, one local step",
        "source": "Mohri et al. 2019",
        "kind": "minimisation",
        "fixed": {"local_steps": 1},
    },
}


@dataclass(frozen=True)
class Start:
    """Server to client: the model, after how many steps to take the snapshot, and η where it has a schedule."""

    w: Parameters  # w̄(s)
    snapshot: int  # t' - sτ, in 1 .. τ
    step: float | None = None


@dataclass(frozen=True)
class LocalModels:
    """Client to server: models after τ and after t' steps, and the mean of the iterates if it is wanted."""

    final: Annotated[Averaged, UpdateOf("w")]  # w_i^((s+1)τ)
    snapshot: Annotated[Averaged, UpdateOf("w")]  # w_i^(t')
    path: Annotated[Averaged, UpdateOf("w")] | None = None


@dataclass(frozen=True)
class Probe:
    """Server to client: a model whose loss is wanted."""

    w: Parameters


@dataclass(frozen=True)
class LocalLoss:
    """Client to server: its loss, visible per client, because λ needs to know whose it is."""

    loss: Annotated[PerClient, Holds.OTHER]  # f_i(w; ξ_i)


@dataclass(frozen=True)
class DrfaState:
    """The server's state."""

    w: Tensor  # w̄(s)
    lam: Tensor  # λ(s), float64; of very many clients, the table of a `Mixture`
    rounds: int = 0  # s
    mean: Tensor | None = None  # ŵ so far
    lam_mean: Tensor | None = None  # λ̂ so far


def check_ceiling(ceiling: float | None, regulariser: Regulariser | None) -> None:
    """Validate the largest weight of a client, in shares of 1 / N."""
    if ceiling is None:
        return
    number("mixture_ceiling", ceiling, least=1)
    if regulariser is not None:
        remedy = "cannot be combined with a regulariser: its prox is over the full simplex; leave one out"
        raise BadInput("mixture_ceiling", ceiling, remedy)


@dataclass(frozen=True, kw_only=True)
class Drfa:
    """DRFA (Deng, Kamani, Mahdavi 2020, Algorithm 1): `min_w max_{λ in Λ} Σ_i λ_i f_i(w)`, Λ the simplex.

    With a `regulariser` g it is DRFA-Prox (Algorithm 2) for `... + g(λ)`; with `local_steps=1` it is AFL.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round; 1 is AFL.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD, as in the box.
        dual_step: γ, learning rate of the mixture λ, a number or a schedule.
        dual_decay: factor of γ after every round; the published figures used 0.9.
        regulariser: g, of `fs.regularisers`, which makes it DRFA-Prox; None is 0.
        weighting: "sample" draws D by λ; "weight" draws D uniformly and weights the models by λ; None is "weight" if
            all clients take part, else "sample".
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.
        output: "last" returns w̄ of the last round, (2) of the box; "average" the mean of the iterates, (1).
        mixture_ceiling: largest weight of a client, as a multiple of 1 / N; None is the box.
        trimmed: ε of DORO, share of the largest losses that is ignored, such as those of wrong labels; 0 is the
            box.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.Drfa(problem=problem, sampled_clients=5, local_steps=10).dual_step
        0.008

    **Deviations from the paper**: D is drawn with replacement, which makes the mean over D unbiased; where some of D or
    U do not answer, m is the number that did. `weighting="weight"` and `dual_decay=0.9` are what the published
    figures used: D uniform, `w̄ + (N/m) Σ λ_i (w_i - w̄)`, and a γ that shrinks every round. By default λ draws D, as in
    the box, where m < N; with all clients, m = N, it weighs them: that is what the box's mean over D is on average,
    without the noise of drawing N out of N. With `mixture_ceiling` c, Λ is the part of the simplex in which no λ_i
    exceeds c / N: a client that lies about its loss gains no more than that. With `trimmed` ε, λ does not see the
    `floor(ε m)` largest losses of U, which may be of wrong labels (DORO, Zhai et al. 2021).
    """

    problem: MinimisationProblem
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    local_optimiser: LocalOptimiser | None = None
    dual_step: Step = 8e-3  # γ
    dual_decay: float = 1.0
    regulariser: Regulariser | None = None  # g
    weighting: str | None = None
    projection: Projection | None = None  # Π_W
    output: str = "last"
    mixture_ceiling: float | None = None
    trimmed: float = 0.0  # ε

    secret_cohorts = False  # λ shows whose losses were asked for

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        check_step("dual_step", self.dual_step)
        check_regulariser(self.regulariser)
        check_ceiling(self.mixture_ceiling, self.regulariser)
        number("trimmed", self.trimmed, least=0, below=1)
        if self.weighting is not None:
            choice("weighting", self.weighting, ("sample", "weight"))
        choice("output", self.output, ("last", "average"))
        number("dual_decay", self.dual_decay, above=0, most=1)

    def start(self, clients: Clients) -> DrfaState:
        """w̄(0) and the uniform λ(0)."""
        cohort_size(self.sampled_clients, clients)
        few = self.regulariser is None and self.output == "last"
        return DrfaState(self.problem.initial(), Mixture.uniform(clients.count, few).table)

    def round(self, server: DrfaState, clients: Clients, rng: np.random.Generator) -> DrfaState:
        """Lines 2-17 of Algorithm 1; with a regulariser, the last four are Algorithm 2."""
        m, N, τ = cohort_size(self.sampled_clients, clients), clients.count, self.local_steps
        λ = Mixture(server.lam)
        γ = at(self.dual_step, server.rounds) * self.dual_decay**server.rounds
        η = if_scheduled(self.primal_step, server.rounds)
        weigh = self.weighting == "weight" or (self.weighting is None and m == N)
        D = draw_cohort(rng, N, m) if weigh else λ.draw(rng, m)  # line 2
        t = int(rng.integers(1, τ + 1))  # line 3
        weights = λ.at(D).numpy() if weigh else None
        D, local = clients.ask(D, self.local_sgd, Start(server.w, t, η), weights=weights)  # lines 4-11
        scale = N / len(D) * float(λ.at(D).sum()) if weigh else 1.0
        w_next = _scaled(server.w, local.final, scale)  # line 12
        w_snap = _scaled(server.w, local.snapshot, scale)  # line 13
        U = draw_cohort(rng, N, m)  # line 14; Algorithm 2: line 1
        U, f = clients.ask(U, self.local_loss, Probe(w_snap))  # line 15; Algorithm 2: lines 2-3
        U, loss = without_outliers(U, f.loss.double(), self.trimmed)
        v = N / len(U) * loss  # line 16; Algorithm 2: line 4: of U; all other v_i are 0
        z = λ.plus(U, τ * γ * v)
        λ_next = self._prox(z, γ * τ)  # line 17; Algorithm 2: line 5
        path = None if local.path is None else _scaled(server.w, local.path, scale)
        mean = Running.over(server.mean, path, server.rounds)
        lam_mean = Running.over(server.lam_mean, λ.dense() if self.output == "average" else None, server.rounds)
        return DrfaState(w_next, λ_next.table, server.rounds + 1, mean, lam_mean)

    @task(releases=per_step())
    def local_sgd(self, own: None, sent: Start, site: Site) -> tuple[None, LocalModels]:
        """Lines 6-9 and 11: τ projected steps, keeping the snapshot."""
        path = Running() if self.output == "average" else None
        for t, w in enumerate(iterates(self, site.broadcast(sent.w), site, sent.step), start=1):  # lines 6-9
            if t == sent.snapshot:
                snapshot = w.clone()
            if path is not None:
                path.add(w)
        return None, LocalModels(w, snapshot, path.mean if path is not None else None)  # line 11

    @task(releases=per_minibatch())
    def local_loss(self, own: None, sent: Probe, site: Site) -> tuple[None, LocalLoss]:
        """Line 15: the loss over a local minibatch."""
        batch = site.minibatch(0, self.batch_size)
        return None, LocalLoss(self.problem.value(site.broadcast(sent.w), batch))  # line 15; Algorithm 2: line 3

    def model(self, server: DrfaState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

    def mixture(self, server: DrfaState) -> Tensor:
        """λ(s), or its mean over the rounds."""
        return Mixture(server.lam).dense() if server.lam_mean is None else server.lam_mean

    def _prox(self, z: Mixture, c: float) -> Mixture:
        """Π_Λ without g; with g its proximal map."""
        g = self.regulariser
        return z.onto_simplex(self.mixture_ceiling) if g is None or c == 0 else z.through(lambda λ: g.prox(λ, c))


def _scaled(w: Tensor, mean: Tensor, scale: float) -> Tensor:
    """The mean over D, or with λ as weights `w̄ + (N/m) Σ_{i in D} λ_i (w_i - w̄)`, from the λ-weighted mean."""
    return mean if scale == 1.0 else w + scale * (mean - w)


@dataclass(frozen=True, kw_only=True)
class DrfaGa:
    """DRFA-GA (Deng, Kamani, Mahdavi 2020, Algorithm 3): `λ ← Π_Λ(λ + γ (f(w̄) + ∇g(λ)))`, all clients, all rows.

    Args:
        problem: the problem to solve.
        sampled_clients: m, clients sampled in each round; None samples all.
        local_steps: τ, local steps of a client in each round.
        batch_size: rows of a minibatch.
        primal_step: η, learning rate of the local steps, a number or a schedule.
        local_optimiser: optimiser of the local steps, of `fs.optimisers`; None is SGD, as in the box.
        dual_step: γ, learning rate of the mixture λ, a number or a schedule.
        regulariser: g, concave regulariser of the mixture, of `fs.regularisers`; None is 0.
        projection: Π_W, projection onto the set of w after each local step, of `fs.projections`; None leaves w
            unconstrained.
        output: "last" returns w̄ of the last round, (2) of the box; "average" the mean of the iterates, (1).
        average_after: rounds left out of the average.
        mixture_ceiling: largest weight of a client, as a multiple of 1 / N; None is the box.

    Raises:
        BadInput: if a hyperparameter is invalid; names it.

    Examples:
        >>> import fedsaddle as fs
        >>> problem = fs.Supervised(fs.models.logistic_regression(64, 10))
        >>> fs.DrfaGa(problem=problem, regulariser=fs.regularisers.KullbackLeibler(0.1)).output
        'last'

    **Deviations from the paper**: D is drawn by λ with replacement, which makes the mean over D unbiased, also with all
    clients, where DRFA by default weighs them instead; `output="average"` is the mean over the
    iterates after `average_after` rounds (give half of the rounds for the paper's T/2; its sum starts one iterate
    earlier and so weighs slightly more than 1). Where only n of the N clients answer line 12, their losses count N/n
    times and the others not at all. `mixture_ceiling` is that of DRFA.
    """

    problem: MinimisationProblem
    sampled_clients: int | None = None  # m
    local_steps: int = 10  # τ
    batch_size: int = 50
    primal_step: Step = 0.1  # η
    local_optimiser: LocalOptimiser | None = None
    dual_step: Step = 8e-3  # γ
    regulariser: Regulariser | None = None  # g
    projection: Projection | None = None  # Π_W
    output: str = "last"
    average_after: int = 0
    mixture_ceiling: float | None = None

    secret_cohorts = False  # λ shows whose losses were asked for

    def __post_init__(self) -> None:
        check(self, self.sampled_clients)
        check_step("dual_step", self.dual_step)
        check_regulariser(self.regulariser)
        if self.mixture_ceiling is not None:
            number("mixture_ceiling", self.mixture_ceiling, least=1)
        choice("output", self.output, ("last", "average"))
        whole("average_after", self.average_after, least=0)

    def start(self, clients: Clients) -> DrfaState:
        """w̄(0) and the uniform λ(0)."""
        cohort_size(self.sampled_clients, clients)
        return DrfaState(self.problem.initial(), Mixture.uniform(clients.count, few=False).table)

    def round(self, server: DrfaState, clients: Clients, rng: np.random.Generator) -> DrfaState:
        """Lines 2-14 of Algorithm 3."""
        m, N, λ, s = cohort_size(self.sampled_clients, clients), clients.count, server.lam, server.rounds
        D = rng.choice(N, m, p=λ.numpy() / float(λ.sum()))  # line 2
        _, local = clients.ask(D, self.local_sgd, WholeRound(server.w, if_scheduled(self.primal_step, s)))  # lines 3-10
        all_, f = clients.ask(np.arange(N), self.full_loss, Probe(server.w))  # lines 11-12
        slope = torch.zeros_like(λ)
        slope[all_] = N / len(all_) * f.loss.double()
        if self.regulariser is not None:
            slope += self.regulariser.gradient(λ)
        z = Mixture(λ + at(self.dual_step, s) * slope)
        λ_next = z.onto_simplex(self.mixture_ceiling).table  # line 13
        late = s - self.average_after
        mean = Running.over(server.mean, local.path if late >= 0 else None, late)
        lam_mean = Running.over(server.lam_mean, λ if self.output == "average" else None, s)
        return DrfaState(local.final, λ_next, s + 1, mean, lam_mean)  # line 14

    @task(releases=per_step())
    def local_sgd(self, own: None, sent: WholeRound, site: Site) -> tuple[None, LocalModel]:
        """Lines 5-8 and 10: τ projected steps."""
        path = Running() if self.output == "average" else None
        for w in iterates(self, site.broadcast(sent.w), site, sent.step):  # lines 5-8
            if path is not None:
                path.add(w)
        return None, LocalModel(w, path.mean if path is not None else None)  # line 10

    @task(releases=of_all_rows())
    def full_loss(self, own: None, sent: Probe, site: Site) -> tuple[None, LocalLoss]:
        """Line 12: the loss over all local rows."""
        return None, LocalLoss(self.problem.value(site.broadcast(sent.w), site.everything()))  # line 12

    def model(self, server: DrfaState) -> Tensor:
        """The solution so far."""
        return server.w if server.mean is None else server.mean

    def mixture(self, server: DrfaState) -> Tensor:
        """λ(s), or its mean over the rounds."""
        return server.lam if server.lam_mean is None else server.lam_mean
