"""What a FedX2 round costs beside a plain loop of torch over the clients.

OMP_NUM_THREADS=1 python benchmarks/fedx_loop.py

Both sides are timed in one process, round by round in turn, so that a busy machine slows both alike; a ratio is the
median over the repeats of (their time / our time). After every round the two models must agree.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from fedx import BATCH, CLIENTS, FEATURES, HIDDEN, ROWS, STEPS, fedx2, rows
from minimax import Ours, figures, timed
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.algorithms.fedx.fedx2 import FedX2State
from fedsaddle.algorithms.fedx.scores import InnerMeans
from fedsaddle.federation.randomness import ClientKeys

STEP, TRACKING, AVERAGING = 0.01, 0.9, 0.1
ACTIVE, FRESH, TURNS = 0, 2, 4  # streams of draws; + 1 for the negatives


@dataclass
class PlainLoop:
    """FedX2 for partial AUC as one would write it first: one client after the other, gradients by autograd."""

    network: nn.Module
    data: fs.Stacked
    steps: int
    u: list[Tensor] = field(default_factory=list)  # of every row of every client, as a log

    def __post_init__(self) -> None:
        self.sets = []
        for i in range(CLIENTS):
            x, y = self.data.client(i)
            self.sets.append([(x[y == label], torch.nonzero(y == label).flatten()) for label in (1, 0)])

    def take(self, server: FedX2State, kept: dict[int, InnerMeans]) -> None:
        """Begin where ours is: model, gradient estimate, buffers and u."""
        self.server = server
        self.u = [torch.where(kept[i].seen, kept[i].u[:, 0], math.nan) for i in range(CLIENTS)]

    def draw(self) -> None:
        """The rows and lazy scores that our own round draws, made outside of the timing."""
        keys = ClientKeys.of(0, self.server.rounds, 0, np.arange(CLIENTS))
        self.picks = []
        for side in (0, 1):
            sizes = np.array([len(both[side][0]) for both in self.sets])
            for stream in (ACTIVE, FRESH):
                drawn = [keys.rows(sizes, k, BATCH, stream + side) for k in range(self.steps)]
                self.picks.append(torch.from_numpy(np.stack(drawn, axis=1)))
        self.turns = []
        for side, buffer in enumerate((self.server.scores1, self.server.scores2)):
            order = torch.from_numpy(keys.uniforms(0, len(buffer), TURNS + side)).topk(
                self.steps * BATCH, dim=1, largest=False
            )
            self.turns.append(order.indices.view(CLIENTS, self.steps, BATCH))

    def round(self) -> None:
        """K steps of every client, the averages, and the buffers of scores."""
        server, ends, slopes, shared = self.server, [], [], ([], [])
        for i in range(CLIENTS):
            local = copy.deepcopy(self.network)
            parameters = list(local.parameters())
            nn.utils.vector_to_parameters(server.w.clone(), parameters)
            G = _split(server.G, parameters)
            (positives, ups), (negatives, _) = self.sets[i]
            weights = (len(positives) / server.mean1, len(negatives) / server.mean2)
            for k in range(self.steps):
                one, fresh_one, two, fresh_two = (picks[i, k] for picks in self.picks)
                lazy1, lazy2 = (buffer[turn[i, k]] for buffer, turn in zip(_buffers(server), self.turns, strict=True))
                h1, h2 = local(positives[one]).squeeze(-1), local(negatives[two]).squeeze(-1)
                u = self._tracked(i, ups[one], h1.detach(), lazy2)
                with torch.no_grad():
                    f1, f2 = local(positives[fresh_one]).squeeze(-1), local(negatives[fresh_two]).squeeze(-1)
                known = self._known(i, ups[fresh_one], f1, lazy2)
                shared[0].append(torch.stack([torch.full_like(f1, len(positives)), f1, known], 1))
                shared[1].append(torch.stack([torch.full_like(f2, len(negatives)), f2], 1))
                own = weights[0] * _pairs(h1, lazy2[:, 1], u, lazy2[:, 0])
                theirs = weights[1] * _pairs(lazy1[:, 1], h2, lazy1[:, 2], torch.ones(BATCH), lazy1[:, 0])
                found = torch.autograd.grad(own + theirs, parameters)
                with torch.no_grad():
                    for p, g, new in zip(parameters, G, found, strict=True):
                        g.mul_(1 - AVERAGING).add_(new, alpha=AVERAGING)
                        p.sub_(g, alpha=STEP)
            ends.append(nn.utils.parameters_to_vector(parameters).detach())
            slopes.append(torch.cat([g.flatten() for g in G]))
        self.w, self.G = torch.stack(ends).mean(0), torch.stack(slopes).mean(0)
        self.buffers = [torch.cat(parts)[torch.randperm(len(parts) * BATCH)] for parts in shared]

    def _observed(self, h: Tensor, lazy: Tensor) -> Tensor:
        losses = (1 - (h[:, None] - lazy[:, 1])).relu().square()
        return (losses + lazy[:, 0].log()).logsumexp(1) - math.log(len(lazy))

    def _tracked(self, client: int, at: Tensor, h: Tensor, lazy: Tensor) -> Tensor:
        new, old = self._observed(h, lazy), self.u[client][at]
        mixed = torch.logaddexp(old + math.log1p(-TRACKING), new + math.log(TRACKING))
        self.u[client][at] = torch.where(old.isnan(), new, mixed)
        return self.u[client][at]

    def _known(self, client: int, at: Tensor, h: Tensor, lazy: Tensor) -> Tensor:
        old = self.u[client][at]
        self.u[client][at] = torch.where(old.isnan(), self._observed(h, lazy), old)
        return self.u[client][at]


def _buffers(server: FedX2State) -> tuple[Tensor, Tensor]:
    assert server.scores1 is not None
    assert server.scores2 is not None
    return server.scores1, server.scores2


def _split(vector: Tensor, parameters: list[nn.Parameter]) -> list[Tensor]:
    parts = vector.clone().split([p.numel() for p in parameters])
    return [part.view_as(p) for part, p in zip(parts, parameters, strict=True)]


def _pairs(a: Tensor, b: Tensor, u: Tensor, wb: Tensor, wa: Tensor | None = None) -> Tensor:
    """The mean over pairs of `exp(L) / u · L`, the first factor being a constant, as in eq. (9)."""
    losses = (1 - (a[:, None] - b)).relu().square()
    most = math.log(BATCH / TRACKING)
    factor = (losses.detach() - u[:, None]).clamp_max(most).exp() * wb
    return (factor * losses * (1 if wa is None else wa[:, None])).mean()


def compared(repeats: int, steps: int) -> dict[str, float]:
    """Both sides in turn; their models must agree after each round."""
    torch.manual_seed(0)
    network, data = fs.models.mlp(FEATURES, HIDDEN, 1), rows(CLIENTS)
    ours, loop = Ours(fedx2(network, "all", steps), data), PlainLoop(network, data, steps)
    ours.round()  # fills the buffers
    seconds: list[list[float]] = [[], []]
    for _ in range(repeats + 1):
        loop.take(ours.server, ours.engine.memory.kept)
        loop.draw()
        for side, into in zip((ours, loop), seconds, strict=True):
            into.append(timed(side.round))
        apart = float((ours.server.w - loop.w).abs().max() / (loop.w - loop.server.w).abs().max())
        assert apart < 1e-2, f"the two do not agree: {apart}"
    a, b = (s[1:] for s in seconds)
    return figures(b, a)


def main() -> None:
    """Print the figures and write them beside the other results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--steps", type=int, default=STEPS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    found = compared(given.repeats, given.steps)
    shape = "-".join(map(str, (FEATURES, *HIDDEN, 1)))
    name = f"MLP {shape}, {CLIENTS} clients of {ROWS} rows, plain loop / FedX2"
    print(f"{name}: {found['ratio']:.2f}   ({found['first_ms']:.1f} / {found['second_ms']:.1f} ms)")
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    (out / "fedx_loop.json").write_text(json.dumps({name: found}, indent=2))


if __name__ == "__main__":
    main()
