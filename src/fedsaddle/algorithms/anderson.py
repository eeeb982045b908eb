"""Anderson mixing of the server's iterates: a wrapper around any algorithm whose round is a map z -> g(z).

The server keeps the last rounds' points z and images g(z), and continues not from g(z) but from the combination of
images whose residual g(z) - z would be smallest if g were affine. Clients, messages and costs stay as they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, make_dataclass, replace
from zlib import crc32

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from fedsaddle.algorithms.protocols import Algorithm, AnyAlgorithm, HasCautions, Wraps, dual_of
from fedsaddle.arguments import flag, number, whole
from fedsaddle.array_types import Floats, Ints
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients, Own, Remembers, Sent, Site, Task
from fedsaddle.federation.records import R, Record, cached_by_class, tensors
from fedsaddle.federation.tasks import RunsTasks, WrappedTask, task_of
from fedsaddle.federation.wrappers import Wrapper
from fedsaddle.problems.protocols import MinimaxProblem

MOST_MEMORY = 1000


@dataclass(frozen=True)
class Window:
    """What mixing adds to the server's memory: the last points and images, oldest first."""

    mixing_points: Tensor | None = None  # z_i, (k, d)
    mixing_images: Tensor | None = None  # g(z_i), (k, d)
    mixing_jumped: bool = False  # whether the present point is a mix rather than an image
    mixing_cohort: int = 0  # a checksum of who answered in the last round
    mixing_restarts: int = 0  # how often the window was emptied


@dataclass(frozen=True)
class Anderson(Wraps):
    """Anderson mixing of type II (Anderson 1965; Walker, Ni 2011) around an algorithm, at the server alone.

    A round of the algorithm is a map g of the model and, where there is one, the dual: together z. With the residuals
    `f_i = g(z_i) - z_i` of the last rounds, the next round starts from `g(z) - Σ γ_j (g(z_{j+1}) - g(z_j))`, where γ
    minimises `|f - Σ γ_j (f_{j+1} - f_j)|`. On quadratic problems that is as quick as GMRES, also where plain rounds
    turn in circles. It costs no exchange and no byte.

    Guard: where a mix made the residual grow, it is taken back: the next round starts from the image of the best point
    of the window, and the window is emptied. So it is where other clients answered than in the last round or a stage
    ended, since g is then another map. A mix that is not finite is replaced by g(z).

    Args:
        algorithm: one whose rounds are deterministic: all clients, all rows (`batch_size=None`), such as
            `fs.FedGdaGt(...)`, `fs.Extragradient(...)`. Constant steps.
        memory: m, the number of differences; 0 is the algorithm itself; more than the rounds is warned of.
        ridge: regulariser of the least squares, relative to the squared length of each difference.
        growth: by how much a mix may lengthen the residual before it is taken back.
        exact: whether to refuse algorithms whose round is not a map of the point: cohorts or minibatches are drawn,
            the server or the clients remember something else. False mixes them all the same, under the guard alone.

    Raises:
        BadInput: if a hyperparameter is invalid, or the algorithm's rounds are random; names it.

    Examples:
        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: batch.x @ x * y.sum(), start_x=torch.ones(3), start_y=torch.zeros(1)
        ... )
        >>> fs.Anderson(fs.Extragradient(problem=game), memory=5).local_steps
        1
    """

    algorithm: AnyAlgorithm
    memory: int = 10
    _: KW_ONLY
    ridge: float = 1e-20
    growth: float = 2.0
    exact: bool = True

    def __post_init__(self) -> None:
        whole("memory", self.memory, least=0, most=MOST_MEMORY)
        number("ridge", self.ridge, least=0, below=1)
        number("growth", self.growth, least=1)
        flag("exact", self.exact)
        _check(self.algorithm, self.refuses)

    @property
    def refuses(self) -> bool:
        """Whether the algorithm must be a map of the point alone."""
        return self.exact and self.memory > 0

    def start(self, clients: Clients) -> Record:
        """The state of the algorithm, and an empty window."""
        m = self.sampled_clients
        if self.refuses and m is not None and m < clients.count:
            raise BadInput("sampled_clients", m, f"draws {m} of {clients.count} clients, {NO_MAP}")
        first: Record = self.algorithm.start(clients)
        if not self.memory:
            return first
        _iterate(self.algorithm, first)
        return _with_window(first, Window())  # line 1: z_0, an empty window

    def round(self, server: Record, clients: Clients, rng: np.random.Generator) -> Record:
        """A round of the algorithm, and lines 3-8 of the box."""
        recorded = _RecordedCohorts(clients, self)
        if not self.memory:
            alone: Record = self.algorithm.round(server, recorded, rng)
            return alone
        before = _plain(server)
        drawn = _position(rng)
        after: Record = self.algorithm.round(before, recorded, rng)  # line 2: g(z)
        names = _iterate(self.algorithm, before)
        if self.refuses:
            self._need_a_map(before, after, names, _position(rng) != drawn)
        tail = int(getattr(self.problem, "tail", 0))
        z, g = _vector(before, names, tail), _vector(after, names, tail)
        window = self._continued(_window(server), server, after, recorded.checksum)
        points, images = _append(window.mixing_points, z), _append(window.mixing_images, g)
        f = (images.double() - points.double()).cpu().numpy()  # line 3: f_i = g(z_i) - z_i
        size = lengths_of(f)
        if window.mixing_jumped and len(f) > 1 and not size[-1] <= self.growth * size[:-1].min():  # line 4: it grew
            best = images[int(size[:-1].argmin())]
            return _with_window(_put(after, names, tail, best), self._restarted(window))  # line 4: back to the best
        mix = self._mix(after, names, tail, images, f)
        if mix is None:
            return _with_window(after, replace(self._latest(window, points, images), mixing_jumped=False))
        return _with_window(mix, replace(self._latest(window, points, images), mixing_jumped=True))  # line 8

    def _need_a_map(self, before: Record, after: Record, names: tuple[str, ...], drew: bool) -> None:
        """Refuse rounds that depend on more than the point."""
        old = dict(tensors(before))
        others = [n for n, v in tensors(after) if n not in names and not (n in old and torch.equal(old[n], v))]
        if drew or others:
            does = f"remembers {others[0]} between rounds" if others else "draws random numbers at the server"
            raise BadInput("algorithm", type(self.algorithm).__name__, f"{does}, {NO_MAP}")

    def _mix(self, after: Record, names: tuple[str, ...], tail: int, images: Tensor, f: Floats) -> Record | None:
        """Lines 5-7: the state at the mix; None where there is nothing to mix, or the mix is not finite."""
        if len(f) < 2 or not np.isfinite(lengths_of(f)).all():
            return None
        γ = least_squares(f, self.ridge)  # line 5: γ = argmin |f_k - Σ γ_j (f_{j+1} - f_j)|
        G = images.double().cpu().numpy()
        mixed = torch.from_numpy(G[-1] - (γ[:, None] * np.diff(G, axis=0)).sum(0))  # line 6: g(z_k) - Σ γ_j Δg_j
        if not torch.isfinite(mixed).all():
            return None
        state = _put(after, names, tail, mixed)
        return replace(state, **self._projected(state, names))  # line 7: P

    def _projected(self, state: Record, names: tuple[str, ...]) -> dict[str, Tensor]:
        """The nearest point of the sets of x and y, since weights may be negative."""
        problem = self.problem
        if isinstance(problem, MinimaxProblem):
            maps: list[Callable[[Tensor], Tensor] | None] = [problem.project_x, problem.project_y]
        else:
            maps = [getattr(self.algorithm, "projection", None)]
        pairs = [(n, p) for n, p in zip(names, maps, strict=False) if p is not None]
        return {name: project(getattr(state, name)[None])[0] for name, project in pairs}

    def _continued(self, window: Window, server: Record, after: Record, cohort: int) -> Window:
        """The window of the last round; an empty one where g is another map now."""
        other_clients = cohort != window.mixing_cohort and self.exact
        other_stage = getattr(server, "stage", 0) != getattr(after, "stage", 0)
        if window.mixing_points is not None and (other_clients or other_stage):
            window = self._restarted(window)
        return replace(window, mixing_cohort=cohort)

    def _restarted(self, window: Window) -> Window:
        return Window(mixing_cohort=window.mixing_cohort, mixing_restarts=window.mixing_restarts + 1)

    def _latest(self, window: Window, points: Tensor, images: Tensor) -> Window:
        """The last m + 1 rounds, of which m differences are left."""
        few = self.memory  # the next round adds one
        return replace(window, mixing_points=points[-few:].clone(), mixing_images=images[-few:].clone())

    def cautions(self, server: Record, features: Sequence[str] = ()) -> Sequence[str]:
        """Those of the algorithm, and one line where the memory is longer than the run."""
        own = self.algorithm.cautions(server, features) if isinstance(self.algorithm, HasCautions) else ()
        rounds = getattr(server, "rounds", None)
        if rounds is None or self.memory <= rounds:
            return own
        longer = f"the memory of Anderson mixing, {self.memory}, is longer than the {rounds} rounds"
        return [*own, f"{longer}; one of {rounds} does the same"]

    def fresh(self, site: Site) -> Record | None:
        """What the algorithm's own clients begin with."""
        return self.algorithm.fresh(site) if isinstance(self.algorithm, Remembers) else None

    def run_task(self, name: str, own: Record | None, sent: Record, site: Site) -> tuple[Record | None, Record]:
        """A task of the algorithm, as it is."""
        return task_of(self.algorithm, name)(own, sent, site)


NO_MAP = "so that a round is not a map of the point; use all clients and rows without memory, or exact=False"


def lengths_of(f: Floats) -> Floats:
    """The length of each row; infinite where its square is."""
    with np.errstate(over="ignore", invalid="ignore"):
        return np.asarray(np.sqrt((f * f).sum(1)))


def least_squares(f: Floats, ridge: float) -> Floats:
    """γ that minimises `|f_k - Σ γ_j (f_{j+1} - f_j)|² + ridge Σ (γ_j |f_{j+1} - f_j|)²`, for residuals `(k + 1, d)`.

    By Gram-Schmidt on the differences at unit length, newest first, in double precision: its sums are numpy's, the same
    for every number of threads, and the matrix that LAPACK sees is small.

    >>> least_squares(np.array([[4.0, 0.0], [2.0, 0.0]]), 0.0)  # the next residual would be 0
    array([-1.])
    """
    differences = np.diff(f, axis=0)[::-1]
    lengths = lengths_of(differences)
    columns = differences / np.where(lengths > 0, lengths, 1)[:, None]
    k, rest = len(columns), f[-1].copy()
    R, right = np.zeros((k, k)), np.zeros(k)
    for j in range(k):
        for _ in range(2):  # twice is enough
            for i in range(j):
                along = (columns[i] * columns[j]).sum()
                R[i, j] += along
                columns[j] -= along * columns[i]
        R[j, j] = np.sqrt((columns[j] * columns[j]).sum())
        if R[j, j] > 0:
            columns[j] /= R[j, j]
        right[j] = (columns[j] * rest).sum()
        rest -= right[j] * columns[j]
    system = np.concatenate([R, np.sqrt(ridge) * np.eye(k)])
    γ = np.linalg.lstsq(system, np.concatenate([right, np.zeros(k)]), rcond=None)[0]
    return np.asarray(np.where(lengths > 0, γ / np.where(lengths > 0, lengths, 1), 0.0)[::-1])


@dataclass
class _RecordedCohorts(Wrapper):
    """The clients as the algorithm's server sees them; who answered is noted."""

    anderson: Anderson
    checksum: int = field(default=0, init=False)

    def ask(
        self, cohort: ArrayLike, task: Task[Own, Sent, R], sent: Sent, *, weights: ArrayLike | None = None
    ) -> tuple[Ints, R]:
        """Ask for the task of the same name."""
        mine = WrappedTask[Sent, R](self.anderson, task.__name__)
        answered, reply = self.inner.ask(cohort, mine, sent, weights=weights)
        self.checksum = crc32(np.ascontiguousarray(answered, dtype="<i8").tobytes(), self.checksum)
        return answered, reply


@cached_by_class
def _mixed(kind: type) -> type[Record]:
    """The algorithm's state with a window beside it: still a state of the algorithm."""
    added = [(f.name, f.type, field(default=f.default)) for f in fields(Window)]
    return make_dataclass(f"Mixed{kind.__name__}", added, bases=(kind,), frozen=True, namespace={"plain": kind})


def _with_window(state: Record, window: Window) -> Record:
    values = {f.name: getattr(state, f.name) for f in fields(state)}
    return _mixed(type(state))(**values, **{f.name: getattr(window, f.name) for f in fields(window)})


def _plain(state: Record) -> Record:
    """The algorithm's own part of a state."""
    kind: type[Record] = getattr(state, "plain", type(state))
    return kind(**{f.name: getattr(state, f.name) for f in fields(kind)})


def _window(state: Record) -> Window:
    return Window(**{f.name: getattr(state, f.name) for f in fields(Window)})


def _iterate(algorithm: AnyAlgorithm, state: Record) -> tuple[str, ...]:
    """The fields of the state that are the model and the dual, in this order."""
    probe = replace(state, **{name: v.clone() for name, v in tensors(state)})  # no two fields are the same tensor
    solution = [v for v in (algorithm.model(probe), dual_of(algorithm, probe)) if v is not None]
    names = tuple(name for v in solution for name, u in tensors(probe) if u is v)
    if len(names) != len(solution):
        remedy = "its solution is not a field of the server's state, so it cannot be mixed; use output = 'last'"
        raise BadInput("algorithm", type(algorithm).__name__, remedy)
    return names


def _vector(state: Record, names: tuple[str, ...], tail: int) -> Tensor:
    """z: the model without BatchNorm's statistics, and the dual."""
    x, *others = (getattr(state, name) for name in names)
    return torch.cat([x[: len(x) - tail], *others])


def _put(state: Record, names: tuple[str, ...], tail: int, z: Tensor) -> Record:
    """The state with another z."""
    x, *others = (getattr(state, name) for name in names)
    first = len(x) - tail
    values = [torch.cat([z[:first].to(x), x[first:]])]
    for v in others:
        values.append(z[first : first + len(v)].to(v))
        first += len(v)
    return replace(state, **dict(zip(names, values, strict=True)))


def _append(rows: Tensor | None, v: Tensor) -> Tensor:
    return v[None].clone() if rows is None else torch.cat([rows, v[None]])


def _position(rng: np.random.Generator) -> str:
    """Where a generator stands."""
    bits = getattr(rng, "bit_generator", None)
    return "" if bits is None else repr(bits.state)


def _check(algorithm: object, needs_a_map: bool) -> None:
    """Raise `BadInput` for an algorithm that cannot be mixed."""
    name = type(algorithm).__name__
    if isinstance(algorithm, type) or not isinstance(algorithm, Algorithm):
        raise BadInput("algorithm", name, "give an algorithm, such as fs.FedGdaGt(problem=...)")
    if isinstance(algorithm, RunsTasks):
        raise BadInput("algorithm", name, "wraps another algorithm; give the one that it wraps")
    if (output := getattr(algorithm, "output", "last")) != "last":
        raise BadInput("output", output, 'mixing needs the last iterate; use output = "last"')
    if (size := getattr(algorithm, "batch_size", None)) is not None and needs_a_map:
        raise BadInput("batch_size", size, f"draws minibatches, {NO_MAP}")
