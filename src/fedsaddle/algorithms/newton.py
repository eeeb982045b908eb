"""Newton's method on exchanged sums: the exact pooled solution of a regression in a few exchanges, with inference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.local_steps import check_problem, cohort_size, draw_cohort
from fedsaddle.arguments import choice, flag, number, whole
from fedsaddle.array_types import Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Own, Sent, Site, Task
from fedsaddle.federation.records import Averaged, Parameters, R
from fedsaddle.federation.tasks import task
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.problems.protocols import HasHessian
from fedsaddle.problems.regression import Fit, LinearLayout

NAMED = {
    "Newton": {
        "class": "Newton",
        "about": "exact regression in a few exchanges of sums, with standard errors",
        "source": "Wu et al. 2012, GLORE",
        "kind": "minimisation",
    },
}
MOST_PARAMETERS = 1000
ANY = 1e300  # a limit of the value that is none
FAR = 1e3  # times the last value, and 1: a client whose value is above asks for a shorter step
LONGER = 4.0  # times the last step's t may be that of the next
ENOUGH = 1e-4  # of the decrease that the slope promises
ROUNDING = 1e-10  # of a value, relative
DOUBLE = 2.0  # times the last value is too large where other clients answered, unless the step is short
SHORT = 1 / 16  # is t of a short step
RANK = 1e-10  # an eigenvalue of the scaled Hessian below is 0
VANISHING = 1e-3  # of the first curvature along a step: if less is left, and the step is long, it has no end
LONG = 1e-3  # of a step, in units of the first curvature
MOST_STEPS = 30  # without a client; one or two are usual


@dataclass(frozen=True)
class Point:
    """Server to client: the coefficients, and what is wanted of them."""

    w: Parameters
    limit: float  # a client with a larger value answers with `far` alone
    products: bool  # whether the outer products of the units' scores are wanted


@dataclass(frozen=True)
class Sums:
    """Client to server: means over its rows, of which the server sees those over all rows."""

    value: Averaged  # of the negative log-likelihood, without the penalty
    gradient: Averaged  # (d,)
    hessian: Averaged  # its upper triangle, (d (d + 1) / 2,)
    far: Averaged  # 1 if the value is above the limit or not finite; then the others are 0
    products: Averaged | None = None  # the upper triangle of the units' outer products, by row
    units: Averaged | None = None  # by row


@dataclass(frozen=True)
class NewtonState:
    """The server's memory: where it asks next, and what it knows of the last point that it accepted."""

    w: Tensor  # in double precision
    point: Tensor  # the last accepted point
    rounds: int = 0
    direction: Tensor | None = None  # from the point
    share: float = 0.0  # of the direction, that w is away from the point
    value: float = 0.0  # at the point, with the penalty
    slope: float = 0.0  # of the value along the direction
    gradient: Tensor | None = None  # (d,), without the penalty
    hessian: Tensor | None = None  # (d, d), without the penalty
    first: Tensor | None = None  # (d, d): the Hessian of the first exchange
    products: Tensor | None = None  # (d, d)
    units: int | None = None  # of those who answered
    answered: Tensor | None = None  # (N,): who answered at the point
    rows: int = 0  # of those
    settled: bool = False  # whether the point is the solution for those who answered


@dataclass(frozen=True, kw_only=True)
class Newton:
    """Damped Newton steps on pooled sums (GLORE: Wu, Jiang, Kim, Ohno-Machado 2012).

    `w ← w - t (H + R)^{-1} (g + R w)` with the gradient g and the Hessian H of the mean negative log-likelihood over
    the rows of all clients, and the ridge R. An exchange asks each client for its value, gradient and Hessian, of which
    the server needs the sums alone; the solution is that of the pooled rows. The next exchange's value decides whether
    the step was too long. A run ends by its rounds: once the steps have ended, nothing more is asked of clients, and
    the bits stay. `model` is the last point whose value was no worse; `fit` has all that `fs.inference` needs.

    Args:
        problem: A linear model with a log-likelihood: `fs.Supervised` over `fs.models.logistic_regression` or
            `nn.Linear` with cross-entropy, the logistic, the square or the Poisson loss, or `fs.Cox`. Its penalty is
            the ridge; with `l2_biases=False` intercepts have none. It starts from the problem's initial vector.
        tolerance: The steps have ended when the Newton decrement `sqrt(g (H + R)^{-1} g)` is at most that. With n rows,
            `sqrt(n)` times it bounds how far a coefficient is from the solution, in standard errors.
        damping: The largest t. Where a step was too long, t falls by a factor of 2 to 3, or of 10 if a client's value
            is a thousand times the last one or not finite; the next step has at most 4 times the t of the last one.
        missing: What a reply that is missing means: "wait" asks all once more without a step, "go on" takes the step
            of those who answered.
        sampled_clients: How many clients are asked, drawn anew in each round; None: all. The steps end only with all.
        sandwich: Whether a last exchange asks for the outer products of the units' scores, for robust standard errors.
            A unit is a patient where the rows know theirs (`together`), else a row.

    Raises:
        BadInput: if an argument is invalid, with its name; if the model is not linear, the loss has no Hessian, or
            there are more than 1,000 parameters.

    Examples:
        >>> import fedsaddle as fs
        >>> fs.Newton(problem=fs.Supervised(fs.models.logistic_regression(30, 2), l2=1e-3)).missing
        'wait'

    **Deviations from the paper**: any log-likelihood of a linear model, and Cox's; the steps are damped, so that they
    converge from any start; a ridge; a missing client need not stop the run. Where those who answered are not those who
    answered at the last point, values cannot be compared, and the step is taken unless the value has doubled.
    """

    problem: HasHessian
    tolerance: float = 1e-9
    damping: float = 1.0  # t
    missing: str = "wait"  # or "go on"
    sampled_clients: int | None = None  # None: all
    sandwich: bool = False

    def __post_init__(self) -> None:
        check_problem(self, HasHessian)
        number("tolerance", self.tolerance, above=0, below=1)
        number("damping", self.damping, above=0, most=1)
        choice("missing", self.missing, ("wait", "go on"))
        flag("sandwich", self.sandwich)
        if self.sampled_clients is not None:
            whole("sampled_clients", self.sampled_clients)
        d = self.problem.layout().dimension
        if d > MOST_PARAMETERS:
            up = f"Newton sends {d * (d + 1) // 2:,} numbers up for them, and takes at most {MOST_PARAMETERS:,} of them"
            raise BadInput("parameters", d, f"{up}; use fs.FedAvg, or fewer columns")

    def start(self, clients: Clients) -> NewtonState:
        """The state before the first round."""
        cohort_size(self.sampled_clients, clients)
        w = self.problem.initial().double()  # line 1
        return NewtonState(w, w)

    def round(self, server: NewtonState, clients: Clients, rng: np.random.Generator) -> NewtonState:
        """Lines 2-11 of the box."""
        later = replace(server, rounds=server.rounds + 1)
        if self._ended(server):  # line 11
            return later
        S = draw_cohort(rng, clients.count, cohort_size(self.sampled_clients, clients))  # line 2
        limit = ANY if server.hessian is None else FAR * (1 + abs(server.value))
        sent = Point(server.w, limit, self.sandwich and server.settled)
        answered, sums = clients.ask(S, self.sums, sent, weights=clients.sizes[S])  # lines 3-6
        if self.missing == "wait" and len(answered) < len(S):
            return later
        who = torch.zeros(clients.count, dtype=torch.bool)
        who[torch.from_numpy(answered)] = True
        value = float(sums.value) + self._penalty(server.w)
        if self._too_long(server, who, value, float(sums.far)):  # line 7
            assert server.direction is not None
            t = _shorter(server, value) if float(sums.far) == 0 else server.share / 10  # line 8
            return replace(later, share=t, w=server.point + t * server.direction)
        return self._accepted(later, who, int(clients.sizes[answered].sum()), value, sums)

    def _accepted(self, server: NewtonState, who: Tensor, rows: int, value: float, sums: Sums) -> NewtonState:
        """Lines 9-11: w becomes the point, and w goes a step from it."""
        d, R = len(server.w), self.problem.ridge()
        H, w = _whole(sums.hessian.cpu(), d), server.w
        g = sums.gradient.cpu()
        decomposed = self._decomposed(H)
        p = decomposed.solve(-(g + R * w))  # line 9: p = -(H + R)^{-1} (g + R w)
        slope = float((g + R * w) @ p)
        settled = -slope <= self.tolerance**2
        found = replace(
            server,
            point=w + p if settled else w,  # line 11: its value need not be checked
            direction=p,
            slope=slope,
            value=value,
            gradient=g,
            hessian=H,
            first=H if server.first is None else server.first,
            answered=who,
            rows=rows,
            settled=settled,
            products=None if sums.products is None else _whole(sums.products.cpu(), d),
            units=None if sums.units is None else round(float(sums.units) * rows),
        )
        if settled:
            return replace(found, share=0.0, w=found.point)
        t = min(self.damping, LONGER * (server.share or 1.0))
        return replace(found, share=t, w=w + t * p)  # line 10

    @task(reason="the sensitivity of a Hessian is not bounded here; use fs.FedAvg with a linear model")
    def sums(self, own: None, sent: Point, site: Site) -> tuple[None, Sums]:
        """Lines 4-6: value, gradient and Hessian of the client's rows."""
        w = site.broadcast(sent.w)
        found = self.problem.second_order(w, site.everything(), sent.products)  # lines 4-5
        parts = [found.value, found.gradient, found.hessian, found.products, found.units]
        near = found.value <= sent.limit  # also False for NaN
        for each in parts[1:]:
            near = near if each is None else near & torch.isfinite(each).reshape(len(each), -1).all(1)
        if sent.limit >= ANY:
            near = torch.ones_like(near)  # a start that is not finite is an error
        kept = [
            None if each is None else torch.where(near.view(-1, *[1] * (each.ndim - 1)), each, 0.0) for each in parts
        ]
        value, gradient, hessian, products, units = kept
        assert value is not None
        assert gradient is not None
        assert hessian is not None
        outer = None if products is None else _triangle(products)
        return None, Sums(value, gradient, _triangle(hessian), (~near).to(value.dtype), outer, units)  # line 6

    def model(self, server: NewtonState) -> Tensor:
        """The last accepted point."""
        return server.point.to(self.problem.initial().dtype)

    def fit(self, server: NewtonState) -> Fit:
        """The likelihood at the last accepted point, for `fs.inference`.

        Raises:
            BadInput: if the steps have not ended, or the rows do not identify the coefficients.
        """
        if server.hessian is None or not server.settled:
            raise BadInput("rounds", server.rounds, "the steps have not ended; run more rounds")
        wrong = self.cautions(server)
        if wrong:
            raise BadInput("inference", "not possible", wrong[0])
        ridge, variance = self.problem.ridge(), self.problem.estimates_variance()
        value = server.value - self._penalty(server.point)
        layout = self.problem.layout()
        robust = server.products, server.units
        return Fit(layout, server.point, server.hessian, ridge, server.rows, value, variance, *robust)

    def without_each(self, server: NewtonState, clients: Clients) -> Tensor:
        """The solutions without each client in turn, `(N, d)`, for the influence that each has.

        The sums of one client are subtracted from those of all, which gives the first step from the common solution;
        the others' sums at that point confirm it, mostly in one or two more exchanges. The server sees each client's
        sums here, also behind masks, since it knows those of all.

        Args:
            server: The state at the solution.
            clients: All clients.

        Raises:
            BadInput: if the steps have not ended, or rows without one of the clients have no solution.
        """
        everyone, n = self.fit(server), clients.sizes.astype(np.float64)
        found, R = [], self.problem.ridge()
        for i in range(clients.count):
            others = Without(clients, i)
            _, own = clients.ask([i], self.sums, Point(server.point, ANY, False))
            g = (n.sum() * self._gradient(server) - n[i] * own.gradient.cpu()) / (n.sum() - n[i])
            H = (n.sum() * everyone.hessian - n[i] * _whole(own.hessian.cpu(), len(g))) / (n.sum() - n[i])
            w = server.point - self._decomposed(H).solve(g + R * server.point)
            state, rng = NewtonState(w, w), np.random.default_rng(0)
            for _ in range(MOST_STEPS):
                state = replace(self, sandwich=False, sampled_clients=None).round(state, others, rng)
                if state.settled:
                    break
            if not state.settled:
                raise BadInput("clients", int(i), "without it the steps have not ended: set l2")
            found.append(state.point)
        return torch.stack(found)

    def _gradient(self, server: NewtonState) -> Tensor:
        """Of the mean negative log-likelihood at the solution, where the penalised gradient is 0."""
        return -self.problem.ridge() * server.point

    def cautions(self, server: NewtonState, features: Sequence[str] = ()) -> list[str]:
        """What a reader of the result must know: columns that the rows do not identify, or separation."""
        if server.hessian is None or server.first is None or server.direction is None:
            return []
        layout = self.problem.layout()
        lacking = self._decomposed(server.first).lacking()
        if len(lacking):
            remedy = "leave out one of each set of columns that determine each other, or set l2"
            return [f"the rows do not identify the coefficients of {_columns(layout, lacking, features)}: {remedy}"]
        growing = self._decomposed(server.hessian).lacking()
        length = float(server.direction @ (server.first @ server.direction))
        if length > LONG**2 and -server.slope < VANISHING * length:
            growing = _large(server.direction.abs() * server.first.diagonal().clamp_min(0).sqrt())
        if len(growing):
            cause = "grow without end, as these columns separate the outcomes of some rows perfectly"
            which = _columns(layout, growing, features)
            return [f"the coefficients of {which} {cause}: set l2, or leave such a column out"]
        if server.settled or self.sampled_clients is not None:
            return []
        return ["the Newton steps have not ended; run more rounds"]

    def _ended(self, server: NewtonState) -> bool:
        """Whether nothing is left to ask: the point is the solution for all clients."""
        everyone = server.answered is not None and bool(server.answered.all())
        return server.settled and everyone and (server.products is not None or not self.sandwich)

    def _too_long(self, server: NewtonState, who: Tensor, value: float, far: float) -> bool:
        """Line 7: whether the value at w is not below that at the point by enough."""
        if server.answered is None:
            return False
        if far > 0:
            return True
        if not torch.equal(who, server.answered):
            return server.share > SHORT and value > DOUBLE * abs(server.value)
        return not value <= server.value + ENOUGH * server.share * server.slope + ROUNDING * (1 + abs(server.value))

    def _penalty(self, w: Tensor) -> float:
        return float((self.problem.ridge() * w.square()).sum() / 2)

    def _decomposed(self, hessian: Tensor) -> Decomposed:
        """The penalised Hessian; directions that change nothing have some curvature, so that no step goes there."""
        ridge = self.problem.ridge()
        redundant = self.problem.layout().redundant(ridge)
        H = hessian + torch.diag(ridge)
        return Decomposed.of(H + float(H.diagonal().mean()) * redundant @ redundant.T)


@dataclass
class Without(Wrapper):
    """All clients but one.

    Args:
        inner: All of them.
        left_out: The number of that one.
    """

    left_out: int

    @property
    def count(self) -> int:
        """One fewer."""
        return self.inner.count - 1

    @property
    def sizes(self) -> Ints:
        """Of the others."""
        return np.delete(self.inner.sizes, self.left_out)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask the others."""
        there = np.delete(np.arange(self.inner.count), self.left_out)
        answered, reply = self.inner.ask(there[np.asarray(cohort)], task, sent, weights=weights)
        return np.searchsorted(there, answered), reply


@dataclass(frozen=True)
class Decomposed:
    """A symmetric matrix `D V diag(e) V^T D` with D² its diagonal, so that the scales of columns do not matter."""

    scale: Tensor  # D
    values: Tensor  # e, rising
    vectors: Tensor  # V

    @classmethod
    def of(cls, matrix: Tensor) -> Decomposed:
        """Decompose it."""
        size = matrix.diagonal().clamp_min(0).sqrt()
        scale = torch.where(size > 0, size, 1.0)
        return cls(scale, *torch.linalg.eigh(matrix / scale / scale[:, None]))

    @property
    def real(self) -> Tensor:
        """Which eigenvalues are not 0."""
        return self.values > RANK * max(float(self.values[-1]), 1e-300)

    def solve(self, right: Tensor) -> Tensor:
        """The solution, without the directions whose eigenvalue is 0."""
        inverse = torch.where(self.real, 1 / torch.where(self.real, self.values, 1.0), 0.0)
        found: Tensor = self.vectors @ (inverse * (self.vectors.T @ (right / self.scale))) / self.scale
        return found

    def lacking(self) -> Ints:
        """The places that the directions with an eigenvalue of 0 move."""
        parts = [_large(v) for v in self.vectors[:, ~self.real].abs().T]
        return np.unique(np.concatenate(parts)) if parts else np.zeros(0, dtype=np.int64)


def _large(sizes: Tensor) -> Ints:
    """The places of the numbers that are not small beside the largest."""
    found: Ints = (sizes > 0.1 * sizes.max()).nonzero()[:, 0].numpy()
    return found


def _shorter(server: NewtonState, value: float) -> float:
    """Where the parabola through the two values and the slope is least, between a third and half of the step."""
    t, rise = server.share, value - server.value - server.slope * server.share
    best = -server.slope * t * t / (2 * rise) if rise > 0 else 0.0
    return min(max(best, t / 3), t / 2)


def _triangle(matrices: Tensor) -> Tensor:
    """The upper triangles, `(C, d (d + 1) / 2)`."""
    rows, columns = torch.triu_indices(matrices.shape[1], matrices.shape[2], device=matrices.device)
    return matrices[:, rows, columns]


def _whole(triangle: Tensor, d: int) -> Tensor:
    """The symmetric matrix of an upper triangle."""
    rows, columns = torch.triu_indices(d, d)
    found = triangle.new_empty(d, d)
    found[rows, columns] = triangle
    found[columns, rows] = triangle
    return found


def _columns(layout: LinearLayout, places: Ints, features: Sequence[str]) -> str:
    """Their columns by name, or by number from 0; at most ten."""
    found = sorted({-1 if (column := layout.column(int(i))) is None else column for i in places})
    known = len(features) == layout.inputs
    named = ["the intercept" if j < 0 else repr(features[j]) if known else str(j) for j in found[:10]]
    more = f" and {len(found) - 10} more" if len(found) > 10 else ""
    return ("columns " if found[-1] >= 0 else "") + ", ".join(named) + more
