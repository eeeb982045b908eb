"""Min-max: each client i has f_i(x, y), the mean over its rows; the server wants `min_x max_y` of their mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn

from fedsaddle.arguments import function, tensor
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Batch
from fedsaddle.numerics.flat import FlatModel
from fedsaddle.numerics.projections import Everywhere, Projection, check_projection
from fedsaddle.problems.protocols import Gradients, MinimaxProblem, Pair
from fedsaddle.problems.supervised import shares

Scores = Callable[[Tensor], Tensor]  # rows -> their scores by the model with the parameters x


@dataclass(frozen=True)
class Minimax(MinimaxProblem):
    """A user's own problem: `function(x, y, batch)` gives the value of each row of one client's batch, `(B,)`.

    With a `model`, `x` is a callable that scores rows with the model's parameters in place; without one it is the
    flat vector itself, starting from `start_x`. The library takes the means over rows, so that clients of different
    sizes count as they should.

    Example: a quadratic game in which each client holds rows `b`.

        >>> import torch, fedsaddle as fs
        >>> game = fs.Minimax(
        ...     lambda x, y, batch: 0.5 * x @ x + batch.x @ x * y.sum() - 0.5 * y @ y,
        ...     start_x=torch.ones(3), start_y=torch.zeros(1),
        ... )
        >>> [v.shape[0] for v in game.initial()]
        [3, 1]

    Args:
        function: `function(x, y, batch)`, the value of each row, `(B,)`.
        start_y: y at the start.
        start_x: x at the start, unless there is a model.
        model: a network whose parameters are x; None if x is a flat vector.
        project_x: projection of x, of `fs.projections`; none by default.
        project_y: projection of y, of `fs.projections`; none by default.
        best_response: y*(x) over weighted rows `(n, ...)` in closed form, for the measures; None if unknown.
    """

    function: Callable[[Tensor, Tensor, Batch], Tensor] | Callable[[Scores, Tensor, Batch], Tensor]
    start_y: Tensor
    start_x: Tensor | None = None
    model: nn.Module | None = None
    project_x: Projection = field(default_factory=Everywhere)
    project_y: Projection = field(default_factory=Everywhere)
    best_response: Callable[[Tensor, Batch], Tensor] | None = None
    flat: FlatModel | None = field(init=False, repr=False, compare=False, default=None)

    def __post_init__(self) -> None:
        function("function", self.function, takes=3)
        if self.best_response is not None:
            function("best_response", self.best_response, takes=2)
        if (self.model is None) == (self.start_x is None):
            raise BadInput("start_x", self.start_x, "give either a model or a starting vector")
        if self.model is not None:
            object.__setattr__(self, "flat", FlatModel(self.model))
        x, y = self.initial()
        for key, v in (("start_x", x), ("start_y", y)):
            check_vector(key, v)
        if x.dtype != y.dtype:
            raise BadInput("start_y", str(y.dtype), f"must be of the same type as x, {x.dtype}")
        check_projection("project_x", self.project_x, x)
        check_projection("project_y", self.project_y, y)

    def initial(self) -> Pair:
        """The model's parameters, or `start_x`; and `start_y`."""
        x = self.flat.initial() if self.flat is not None else self.start_x
        assert x is not None
        return x, self.start_y

    def value(self, x: Tensor, y: Tensor, batch: Batch) -> Tensor:
        """The mean over each client's rows."""
        rows = self._rows(x, y, batch)
        return (rows * shares(rows, batch)).sum(1)

    def gradients(self, x: Tensor, y: Tensor, batch: Batch) -> Gradients:
        """By automatic differentiation, for all clients at once."""
        at_x, at_y = x.detach().requires_grad_(), y.detach().requires_grad_()
        with torch.enable_grad():
            rows = self._rows(at_x, at_y, batch, self._keys(batch))
            total = (rows * shares(rows, batch)).sum()
        gx, gy = torch.autograd.grad(total, (at_x, at_y), allow_unused=True)
        return Gradients(_or_zero(gx, x), _or_zero(gy, y))

    def best_dual(self, x: Tensor, batch: Batch) -> Tensor:
        """The `best_response` of each client, (C, q)."""
        if self.best_response is None:
            raise BadInput("best_response", None, "this problem has none; give one, or use an algorithm without it")
        real = torch.ones(batch.x.shape[:2], device=batch.x.device) if batch.weight is None else batch.weight
        each = [(batch.x[c][w > 0], batch.y[c][w > 0], w[w > 0] / w.sum()) for c, w in enumerate(real.to(x.dtype))]
        return torch.stack([self.best_response(x[c], Batch(*rows)) for c, rows in enumerate(each)])

    def row_measures(self, x: Tensor, rows: Tensor, labels: Tensor, dual: Tensor | None = None) -> dict[str, Tensor]:
        """The value of each row at the present pair."""
        y = self.start_y if dual is None else dual
        if self.flat is not None:
            self.flat.draws(rows[None])
        return {"loss": self._one(x, y, rows, labels)}

    def module(self, x: Tensor) -> nn.Module:
        """A copy of the model that carries the parameters."""
        if self.flat is None:
            raise BadInput("model", None, "this problem has plain vectors and no model")
        return self.flat.module_with(x)

    def _keys(self, batch: Batch) -> Tensor | None:
        """What the model's dropout is drawn from; None: it has none."""
        if self.flat is None or batch.keys is None or not self.flat.draws(batch.x):
            return None
        return batch.keys()

    def _rows(self, x: Tensor, y: Tensor, batch: Batch, keys: Tensor | None = None) -> Tensor:
        rows, size = batch.x.shape[1], len(x)
        each = (x, y, batch.x, batch.y) if keys is None else (x, y, batch.x, batch.y, keys)
        if self.flat is not None:
            self.flat.draws(batch.x)  # to know it before vmap
        if size == 1:
            values = self._one(*(v[0] for v in each))[None]
        elif self.flat is None or self.flat.takes_cohorts(batch.x):
            values = torch.func.vmap(self._one)(*each)
        else:
            values = torch.stack([self._one(*own) for own in zip(*each, strict=True)])
        if values.shape != (size, rows):
            got = tuple(values.shape[1:])
            raise BadInput("function", got, f"must give one value for each of the {rows} rows, of shape ({rows},)")
        return values

    def _one(self, x: Tensor, y: Tensor, rows_x: Tensor, rows_y: Tensor, key: Tensor | None = None) -> Tensor:
        at = x if self.flat is None else self.flat.bound(x, key)
        function = cast(Callable[[Tensor | Scores, Tensor, Batch], Tensor], self.function)
        return function(at, y, Batch(rows_x, rows_y))


def check_vector(key: str, v: object) -> None:
    """Refuse what is no flat vector of finite numbers."""
    if not isinstance(v, Tensor) or not v.is_floating_point():
        given = str(v.dtype) if isinstance(v, Tensor) else v
        raise BadInput(key, given, "must be a tensor of real numbers, such as torch.zeros(3)")
    tensor(key, v, least_axes=0)
    if v.ndim != 1 or not len(v):
        raise BadInput(key, tuple(v.shape), "must be a flat vector of one number or more; use .flatten()")
    if not torch.isfinite(v).all():
        raise BadInput(key, v[~torch.isfinite(v)][0].item(), "must be finite")


def _or_zero(g: Tensor | None, like: Tensor) -> Tensor:
    return torch.zeros_like(like) if g is None else g
