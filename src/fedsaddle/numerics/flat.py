"""A module as a function of one flat vector, for one client or for a cohort.

`scores(w, x)` takes `w (C, d)` and `x (C, B, ...)`. One client runs the module itself; several run it in one pass: by
the module's own `cohort(parameters, x)` method if it has one, by stacked matrix products if it is a plain chain of
linear layers, and otherwise through `torch.func.vmap`.

Random functions of the module, such as dropout, draw from clients' keys while a gradient is taken, and not at all
otherwise. Parameters that require no gradient are frozen: they are not part of the vector.

Running statistics of BatchNorm, where the caller allows them, are the tail of the vector: they travel, are averaged and
are saved with the parameters. A gradient is taken in training mode and gives new statistics beside it, which
`write_statistics_` writes into the vector after the step; everything else is in evaluation mode. Several clients have
batch statistics and running ones of their own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from functools import partial
from threading import RLock

import torch
from torch import Tensor, nn

from fedsaddle.arguments import flag, instance, number
from fedsaddle.errors import BadInput
from fedsaddle.numerics.chain import Chain, ImageChain
from fedsaddle.numerics.keyed_draws import KeyedDraws
from fedsaddle.numerics.modules import (
    BareModule,
    check_statistics,
    drawing,
    draws_numbers,
    first_rows,
    in_bf16,
    laid,
    mixes_rows,
    normalised_together,
    pulled_apart,
    rows_enough,
    running_statistics,
    same_gradients,
    takes_cohorts,
    trained_parameters,
)
from fedsaddle.numerics.tensors import Constant, Forward, InPlace, Keys, ScoresCohorts, SlopeMap, norms, shrink_

_TRIALS = RLock()


class FlatModel:
    """Views of a flat vector as the parameters of `module`."""

    def __init__(self, module: nn.Module, statistics: bool = False) -> None:
        instance("model", module, nn.Module, "give a torch.nn.Module, such as fs.models.mlp(30, [16], 1)")
        self.running = running_statistics(module)
        check_statistics(module, statistics)
        self._normalising = {name.rpartition("running_")[0].rstrip(".") for name in self.running}
        self.module = copy.deepcopy(module) if self.running else module  # its mode is switched to and fro
        named = trained_parameters(module)
        if not named:
            frozen = any(True for _ in module.parameters())
            remedy = "all its parameters are frozen; leave some to train" if frozen else "it has no parameters to train"
            raise BadInput("model", type(module).__name__, remedy)
        self.shapes = {name: p.shape for name, p in named.items()}
        self.sizes = [p.numel() for p in named.values()]
        self.tail = sum(v.numel() for v in self.running.values())
        self.dimension = sum(self.sizes) + self.tail
        self.frozen = {name: p for name, p in module.named_parameters() if not p.requires_grad}
        self._chain = None if self.frozen else Chain.of(module)
        self._images = None if self.frozen or self.tail else ImageChain.of(module)
        self._cohort = module.cohort if isinstance(module, ScoresCohorts) else None
        self._draws = draws_numbers(module)  # None: not known before the first pass
        self._takes_cohorts = takes_cohorts(module)  # likewise
        self._mixes_rows = bool(self.running) or mixes_rows(module)
        self._bare = BareModule(self.module, named)

    @property
    def linear_chain(self) -> Chain | None:
        """The module as a chain of linear layers; None if it is something else."""
        return None if in_bf16() else self._chain

    def by_hand(self, w: Tensor, x: Tensor) -> Chain | ImageChain | None:
        """The module as a chain whose passes are written by hand: of linear layers for several clients, or of
        convolutions for one; None if it is something else.
        """
        if in_bf16():
            return None
        if len(w) > 1:
            return self._chain if self._chain is not None and self._chain.fits(x) else None
        if self._images is None or torch.compiler.is_compiling():
            return None
        return self._images if self._images.fits(w, x) else None

    def initial(self) -> Tensor:
        """The module's present parameters, and its running statistics, as one vector."""
        parts = [*trained_parameters(self.module).values(), *self.running.values()]
        return torch.cat([p.detach().flatten() for p in parts]).cpu()

    def views(self, w: Tensor) -> dict[str, Tensor]:
        """Parameter name -> view of `w`; leading axes of `w` stay in front."""
        parts = torch.split(
            w[..., : self.dimension - self.tail] if self.tail else w, self.sizes, dim=-1
        )  # one split, so that its gradient is one cat
        return {name: p.view(*w.shape[:-1], *s) for p, (name, s) in zip(parts, self.shapes.items(), strict=True)}

    def draws(self, x: Tensor) -> bool:
        """Whether a pass in training draws random numbers, as dropout does; `x (C, B, ...)` are rows to find out by."""
        if self._draws is None:
            w, one = self.initial().to(x.device)[None], x[:1, :2]
            seen = KeyedDraws(torch.zeros((), dtype=torch.int64, device=x.device))
            with torch.no_grad(), seen:
                if self.tail:  # another thread may find out at the same time
                    self._normalised_as(w, one, False, None, False, draws=False)
                else:
                    self._bare(self._laid_views(w[0]), one[0])
            self._draws = seen.calls > 0
        return self._draws

    def takes_cohorts(self, x: Tensor) -> bool:
        """Whether vmap can run the module for several clients at once: by its kind, or by trying it with two rows."""
        known = self._takes_cohorts
        if known is None:
            with _TRIALS:  # one thread at a time: a trial turns warnings into errors
                known = self._takes_cohorts
                if known is None:
                    own = self._cohort is not None and not self.tail and not self.draws(x)  # a pass of its own
                    self._takes_cohorts = known = own or self._can_vmap(first_rows(x))
        return known

    def keep_apart(self) -> None:
        """Run clients one after the other where vmap would run them."""
        self._takes_cohorts = False

    def scores(self, w: Tensor, x: Tensor) -> Tensor:
        """The module's output for each client's own vector and rows, in evaluation mode: without dropout."""
        if self._draws is not False and self.draws(x):
            return self._drawn(w, x, None, training=False)[0]
        if self.tail:
            return self._normalised(w, x, training=False)[0]
        chain = self.by_hand(w, x)
        if len(w) == 1 and chain is None:
            with rows_enough():
                return self._bare(self._laid_views(w[0]), x[0])[None]
        if self._cohort is not None and not in_bf16():
            return self._cohort(self._all_views(w), x)
        return self._stacked(w, x) if chain is None else chain.scores(w, x)

    def pullback(self, w: Tensor, x: Tensor, keys: Keys | None = None, sizes: Sequence[int] | None = None) -> Forward:
        """The scores in training mode, and the map from a slope in them to the gradient in `w`.

        Dropout draws its masks from `keys`; without them there is none. Where clients have `sizes` rows and the rest
        are padding, BatchNorm must not see that.
        """
        chain = self.by_hand(w, x)
        if chain is not None:
            return Forward(*chain.pullback(w, x), None)
        if sizes is not None and self._mixes_rows and len(w) > 1:
            return Forward(*pulled_apart(self._pulled, w, x, keys, sizes))
        return self._pulled(w, x, keys)

    def _pulled(self, w: Tensor, x: Tensor, keys: Keys | None) -> Forward:
        at = w.detach().requires_grad_()
        with torch.enable_grad():
            z, statistics = self._trained(at, x, keys)
        return Forward(z.detach(), lambda slope: torch.autograd.grad(z, at, slope)[0], statistics)

    def trained_scores(self, w: Tensor, x: Tensor, keys: Keys | None) -> Tensor:
        """The scores in training mode, as autograd sees them; for models without BatchNorm."""
        return self._trained(w, x, keys)[0]

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0, keys: Keys | None = None) -> InPlace:
        """The same with a gradient that is written; the last `watched` rows have scores, and no slope."""
        chain = self.by_hand(w, x)
        if chain is not None and (len(w) > 1 or not watched):
            return InPlace(*chain.push(w, x), None)
        return self.pulled_forward(w, x, watched, keys)

    def pulled_forward(self, w: Tensor, x: Tensor, watched: int, keys: Keys | None) -> InPlace:
        """The same by way of a gradient that is formed, as `pullback` gives it."""
        moving = x.shape[1] - watched
        scores, pull, statistics = self.pullback(w, x[:, :moving], keys)
        if watched:
            with torch.no_grad():
                scores = torch.cat([scores, self.scores(w, x[:, moving:])], 1)

        def write(slope: Tensor, into: Tensor, keep: float, gain: float) -> None:
            gradient = pull(slope)  # first: it looks at `w`, which may be `into`
            shrink_(into, keep).add_(gradient, alpha=gain)

        return InPlace(scores, write, statistics)

    def descend_(
        self,
        w: Tensor,
        x: Tensor,
        slope_of: SlopeMap,
        step: float,
        keep: float = 1.0,
        keys: Keys | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Tensor | None:
        """`w ← keep w - step gradient`; `slope_of` gives the slope in the scores, from the scores.

        Returns BatchNorm's new statistics, which are not in `w` yet: see `write_statistics_`.
        """
        chain = self.by_hand(w, x)
        if chain is not None:
            chain.descend_(w, x, slope_of, step, keep)
            return None
        scores, pull, statistics = self.pullback(w, x, keys, sizes)
        gradient = pull(slope_of(scores))
        shrink_(w, keep).sub_(gradient, alpha=step)
        return statistics

    def bound(self, w: Tensor, key: Tensor | None = None) -> Callable[[Tensor], Tensor]:
        """The module with the parameters `w (d,)`, as a function of rows; with a key it has dropout."""
        if self._draws is False:
            return lambda x: self._bare(self._laid_views(w), x)
        draws = KeyedDraws(key)  # its draws go on from call to call
        return lambda x: self._bare.under(draws, self._laid_views(w), x, training=key is not None)

    def module_with(self, w: Tensor) -> nn.Module:
        """A copy of the module whose parameters are `w (d,)`."""
        filled = copy.deepcopy(self.module)
        with torch.no_grad():
            for name, value in self.views(w).items():
                filled.get_parameter(name).copy_(value)
            for name, value in self._statistics(w).items():
                filled.get_buffer(name).copy_(value)
        return filled

    def write_statistics_(self, w: Tensor, statistics: Tensor | None) -> Tensor:
        """Write BatchNorm's statistics into the tail of `w`; `w` itself where there are none."""
        if statistics is not None:
            w[..., self.dimension - self.tail : self.dimension] = statistics
        return w

    def _statistics(self, w: Tensor) -> dict[str, Tensor]:
        """Name of each running statistic -> view of the tail of `w`."""
        tail = w[..., self.dimension - self.tail : self.dimension]
        parts = torch.split(tail, [v.numel() for v in self.running.values()], dim=-1)
        return {n: p.view(*w.shape[:-1], *v.shape) for p, (n, v) in zip(parts, self.running.items(), strict=True)}

    def _trained(self, w: Tensor, x: Tensor, keys: Keys | None) -> tuple[Tensor, Tensor | None]:
        if self._draws is not False and self.draws(x):
            drawn_from = None if keys is None else keys()
            return self._drawn(w, x, drawn_from, training=drawn_from is not None or self.tail > 0)
        return self._normalised(w, x, training=True) if self.tail else (self.scores(w, x), None)

    def _drawn(self, w: Tensor, x: Tensor, keys: Tensor | None, training: bool) -> tuple[Tensor, Tensor | None]:
        """Scores of a module with dropout and, with BatchNorm, its new statistics."""
        x = x.clone() if x.is_floating_point() else x  # dropout may write into it
        if self.tail:
            return self._normalised(w, x, training, keys)
        if len(w) == 1:
            draws = KeyedDraws(None if keys is None else keys[0])
            return self._bare.under(draws, self._laid_views(w[0]), x[0], training)[None], None
        if not self.takes_cohorts(x):
            each = [self._drawn(own[None], x[c][None], _one(keys, c), training)[0] for c, own in enumerate(w)]
            return torch.cat(each), None
        return self._drawn_together(w, x, keys, training), None

    def _drawn_together(self, w: Tensor, x: Tensor, keys: Tensor | None, training: bool) -> Tensor:
        def one(parameters: dict[str, Tensor], rows: Tensor, key: Tensor) -> Tensor:
            return self._bare.under(KeyedDraws(None if keys is None else key), parameters, rows, training)

        each = torch.zeros(len(w), dtype=torch.int64, device=w.device) if keys is None else keys
        self._bare.module(w.device, training)
        stacked: Tensor = torch.func.vmap(one, randomness="error")(self.views(w), x, each)
        return stacked

    def _stacked(self, w: Tensor, x: Tensor) -> Tensor:
        """Several clients through vmap, or one after the other."""
        if self._takes_cohorts is not False and self.takes_cohorts(x):
            return self._vmapped(w, x)
        return torch.stack([self._bare(self._laid_views(own), rows) for own, rows in zip(w, x, strict=True)])

    def _vmapped(self, w: Tensor, x: Tensor) -> Tensor:
        self._bare.module(w.device)
        stacked: Tensor = torch.func.vmap(self._bare, randomness="error")(self.views(w), x)
        return stacked

    def _can_vmap(self, x: Tensor) -> bool:
        """Whether vmap runs two clients as one after the other is run; a slow way of torch's counts as no.

        With BatchNorm it is compared in evaluation mode: by two rows training would blow rounding up.
        """
        keys, at = torch.arange(2, device=x.device), self.initial().to(x.device).expand(2, -1).clone().requires_grad_()
        draws = self.draws(x)

        def together(keys: Tensor | None) -> Tensor:
            if self.tail:
                return self._normalised_as(at, x, keys is not None, keys, True)[0]
            return self._drawn_together(at, x, keys, keys is not None) if draws else self._vmapped(at, x)

        def alone(c: int) -> Tensor:
            one = slice(c, c + 1)
            return self.scores(at[one], x[one]) if self.tail else self._trained(at[one], x[one], lambda: keys[one])[0]

        modes = [keys, None] if not self.tail else [None, keys]
        first, second = (partial(together, mode) for mode in modes)
        return same_gradients(at, lambda: torch.cat([alone(0), alone(1)]), first, [second])

    def _normalised(
        self, w: Tensor, x: Tensor, training: bool, keys: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Scores of a module with BatchNorm and, in training, its new statistics."""
        if len(w) == 1 or self.takes_cohorts(x):
            return self._normalised_as(w, x, training, keys, len(w) > 1)
        each = [self._normalised_as(own[None], x[c][None], training, _one(keys, c), False) for c, own in enumerate(w)]
        return torch.cat([z for z, _ in each]), torch.cat([s for _, s in each if s is not None]) if training else None

    def _normalised_as(
        self, w: Tensor, x: Tensor, training: bool, keys: Tensor | None, together: bool, draws: bool | None = None
    ) -> tuple[Tensor, Tensor | None]:
        draws = self._draws is True if draws is None else draws  # then there is a twin for evaluation
        main = training or not draws
        for name in self._normalising if main else ():
            self._bare.module(w.device).get_submodule(name).train(training)
        statistics = {name: v.detach().clone() for name, v in self._statistics(w).items()}
        with rows_enough():
            if together:
                z = normalised_together(self._bare, main, self.views(w), statistics, x, keys, draws)
            else:
                own = {name: v[0] for name, v in statistics.items()}
                with drawing(None if keys is None else keys[0], draws):
                    z = self._bare(self._laid_views(w[0]), x[0], own, main)[None]
        return z, torch.cat([v.flatten(1) for v in statistics.values()], 1) if training else None

    def _laid_views(self, w: Tensor) -> dict[str, Tensor]:
        return {name: laid(p) for name, p in self.views(w).items()}

    def _all_views(self, w: Tensor) -> dict[str, Tensor]:
        """Those of frozen parameters too, the same for every client."""
        return self.views(w) | {name: p.to(w.device).expand(len(w), *p.shape) for name, p in self.frozen.items()}


def _one(keys: Tensor | None, c: int) -> Tensor | None:
    return None if keys is None else keys[c : c + 1]


SMALL = 1e-6  # added to a norm before it is divided by, as torch.nn.utils.clip_grad_norm_ does


def flat_model(module: nn.Module, statistics: bool, l2: float, l2_biases: bool, clip: float | None) -> FlatModel:
    """The module as a function of a flat vector, with what its gradients need; checks the three options."""
    number("l2", l2, least=0)
    flag("l2_biases", l2_biases)
    check_clip(clip)
    if not l2 and clip is None:
        return FlatModel(module, statistics)
    return ShapedModel(module, statistics, l2, l2_biases, clip)


def check_clip(clip: object) -> None:
    """Validate the largest norm of a gradient; None: any."""
    if clip is not None:
        number("clip", clip, above=0)


def clip_(g: Tensor, limit: float, size: int) -> Tensor:
    """Shorten each client's gradient `g (C, d)` whose first `size` entries have a norm above `limit`."""
    own = g[:, :size]
    own *= (limit / (norms(own) + SMALL)).clamp_max(1.0).to(g.dtype)
    return g


def without_penalty(flat: FlatModel, biases: bool) -> Tensor | None:
    """The places that a penalty leaves out: BatchNorm's statistics, and with `biases=False` all with a single axis."""
    places, first = [], 0
    for shape in flat.shapes.values():
        if len(shape) < 2 and not biases:
            places.append(torch.arange(first, first + shape.numel()))
        first += shape.numel()
    if flat.tail:
        places.append(torch.arange(first, first + flat.tail))
    if not places:
        return None if biases else torch.zeros(0, dtype=torch.int64)
    return torch.cat(places)


class ShapedModel(FlatModel):
    """A flat model whose gradients are those of the loss and `(l2 / 2) |w|²`, and no longer than `clip`."""

    def __init__(self, module: nn.Module, statistics: bool, l2: float, l2_biases: bool, clip: float | None) -> None:
        super().__init__(module, statistics)
        self.l2, self.clip = l2, clip
        free = without_penalty(self, l2_biases) if l2 else None
        self.free = None if free is None else Constant(free)

    def penalty(self, w: Tensor) -> Tensor:
        """`(l2 / 2) |w|²` of each client, (C,)."""
        own = w[:, : self.dimension]
        squares = own.square().sum(-1)
        return (
            self.l2 / 2 * (squares if self.free is None else squares - own[:, self.free.to(w.device)].square().sum(-1))
        )

    def shape_(self, g: Tensor, w: Tensor) -> Tensor:
        """Add the penalty's gradient at w to that of the loss, and clip the sum."""
        if self.l2:
            g.add_(w, alpha=self.l2)
            if self.free is not None:
                free = self.free.to(w.device)
                g[:, free] -= self.l2 * w[:, free]
        return self.bound_(g)

    def bound_(self, g: Tensor) -> Tensor:
        """Clip a whole gradient."""
        return g if self.clip is None else clip_(g, self.clip, self.dimension - self.tail)

    def pullback(self, w: Tensor, x: Tensor, keys: Keys | None = None, sizes: Sequence[int] | None = None) -> Forward:
        """The scores in training mode, and the map from a slope in them to the gradient in `w`."""
        scores, pull, statistics = super().pullback(w, x, keys, sizes)
        return Forward(scores, lambda slope: self.shape_(pull(slope), w.detach()), statistics)

    def pushforward(self, w: Tensor, x: Tensor, watched: int = 0, keys: Keys | None = None) -> InPlace:
        """The same with a gradient that is written."""
        return self.pulled_forward(w, x, watched, keys)

    def descend_(
        self,
        w: Tensor,
        x: Tensor,
        slope_of: SlopeMap,
        step: float,
        keep: float = 1.0,
        keys: Keys | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Tensor | None:
        """`w ← keep w - step gradient`; without a bound a chain by hand still forms none."""
        chain = self.by_hand(w, x) if self.clip is None else None
        if chain is not None:
            at = None if self.free is None else self.free.to(w.device)
            free = None if at is None else w[:, at]
            chain.descend_(w, x, slope_of, step, keep - step * self.l2)
            if free is not None:
                w[:, at] += step * self.l2 * free
            return None
        scores, pull, statistics = self.pullback(w, x, keys, sizes)
        gradient = pull(slope_of(scores))
        shrink_(w, keep).sub_(gradient, alpha=step)
        return statistics
