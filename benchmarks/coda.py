"""What a round of CODA+ and of CODASCA costs: beside each other, and beside a plain loop of torch over the clients.

OMP_NUM_THREADS=1 python benchmarks/coda.py

Everything is timed in one process, round by round in turn, so that a busy machine slows all sides alike; a ratio is the
median over the repeats of (their time / our time).
"""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from minimax import Ours, figures, timed
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.problems.auc import MinimaxAuc

REPEATS = 30
CLIENTS, STEPS, BATCH, ROWS = 16, 8, 32, 500
SHARE, STEP, PROXIMAL = 0.1, 0.05, 2e-3
MODELS = {"MLP 192-32-1": (192, [32]), "MLP 784-200-200-1": (784, [200, 200])}


class Players(nn.Module):
    """The network with a, b and α, and eq. (2) as a loss."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.a, self.b, self.alpha = (nn.Parameter(torch.zeros(1)) for _ in range(3))

    def forward(self, rows: Tensor, labels: Tensor) -> Tensor:
        h, p, positive = self.network(rows).squeeze(-1), SHARE, labels.float()
        up, down = (1 - p) * positive, p * (1 - positive)
        squares = up * (h - self.a).square() + down * (h - self.b).square()
        return (squares + 2 * (1 + self.alpha) * (down - up) * h - p * (1 - p) * self.alpha.square()).mean()


@dataclass
class PlainLoop:
    """CODA+ or CODASCA as one would write it first: one client after the other, gradients by autograd."""

    players: Players
    rows: fs.Stacked
    variates: bool
    rounds: int = 0
    own: list[list[Tensor]] = field(default_factory=list)  # c^k

    def __post_init__(self) -> None:
        self.centre = [p.detach().clone() for p in self.players.parameters()]
        self.c = [torch.zeros_like(p) for p in self.centre]
        self.own = [[torch.zeros_like(p) for p in self.centre] for _ in range(CLIENTS)]

    def draw(self) -> None:
        """The batches that our own run draws, made outside of the timing."""
        keys, sizes = ClientKeys.of(0, self.rounds, 0, np.arange(CLIENTS)), np.full(CLIENTS, ROWS)
        self.batches = torch.from_numpy(np.stack([keys.rows(sizes, t, BATCH) for t in range(STEPS)], axis=1))

    def round(self) -> None:
        ends = []
        for k, picks in enumerate(self.batches):
            local = copy.deepcopy(self.players)
            parameters = list(local.parameters())
            x, y = self.rows.client(k)
            used = [torch.zeros_like(p) for p in parameters]
            for pick in picks:
                slopes = torch.autograd.grad(local(x[pick], y[pick]), parameters)
                with torch.no_grad():
                    for i, (p, g) in enumerate(zip(parameters, slopes, strict=True)):
                        ascent = p is local.alpha
                        direction = g if ascent else g + PROXIMAL * (p - self.centre[i])
                        if self.variates:
                            used[i] += direction / STEPS
                            direction = direction - self.own[k][i] + self.c[i]
                        p.add_(direction, alpha=STEP if ascent else -STEP)
            self.own[k] = used
            ends.append([p.detach() for p in parameters])
        with torch.no_grad():
            for p, parts in zip(self.players.parameters(), zip(*ends, strict=True), strict=True):
                p.copy_(torch.stack(parts).mean(0))
        if self.variates:
            self.c = [torch.stack(parts).mean(0) for parts in zip(*self.own, strict=True)]
        self.rounds += 1

    def vector(self) -> Tensor:
        """The network, a and b."""
        network = [p.detach().flatten() for p in self.players.network.parameters()]
        return torch.cat([*network, self.players.a.detach(), self.players.b.detach()])


def data(features: int) -> fs.Stacked:
    """Sites of one size whose features are shifted, with 10 % positives."""
    g = torch.Generator().manual_seed(0)
    y = (torch.rand(CLIENTS * ROWS, generator=g) < SHARE).long()
    x = torch.randn(CLIENTS * ROWS, features, generator=g) / features**0.5 + 0.05 * y[:, None]
    x += 0.02 * torch.randn(CLIENTS, 1, features, generator=g).expand(-1, ROWS, -1).reshape(x.shape)
    return fs.Stacked(x, y, np.arange(CLIENTS + 1) * ROWS)


def compared(features: int, hidden: list[int], repeats: int = REPEATS) -> dict[str, dict[str, float]]:
    """Four sides in turn; the iterates of each pair must agree at the end."""
    torch.manual_seed(0)
    network, rows = fs.models.mlp(features, hidden, 1), data(features)
    problem = MinimaxAuc(model=network, positive_share=SHARE)
    how = {"local_steps": STEPS, "batch_size": BATCH, "primal_step": STEP, "proximal": PROXIMAL, "stage_rounds": 10**6}
    plus, sca = (Ours(kind(problem=problem, **how), rows) for kind in (fs.CodaPlus, fs.Codasca))
    loops = [PlainLoop(Players(copy.deepcopy(network)), rows, variates) for variates in (False, True)]
    sides = (plus, sca, *loops)
    seconds: list[list[float]] = [[] for _ in sides]
    for _ in range(repeats + 2):
        for loop in loops:
            loop.draw()
        for side, into in zip(sides, seconds, strict=True):
            into.append(timed(side.round))
    for ours, loop in zip((plus, sca), loops, strict=True):
        apart = float((ours.server.x - loop.vector()).abs().max() / loop.vector().abs().max())
        assert apart < 1e-3, f"the two do not agree: {apart}"
    a, b, c, d = (s[2:] for s in seconds)
    return {
        "CODASCA / CODA+": figures(b, a),
        "plain loop / CODA+": figures(c, a),
        "plain loop / CODASCA": figures(d, b),
    }


def main() -> None:
    """Print the figures and write them beside the other results."""
    results = {}
    for name, (features, hidden) in MODELS.items():
        for pair, found in compared(features, hidden).items():
            results[f"{name}, {pair}"] = found
            milliseconds = f"({found['first_ms']:.1f} / {found['second_ms']:.1f} ms)"
            print(f"{name + ', ' + pair:42} {found['ratio']:6.2f}   {milliseconds}")
    out = Path(__file__).parent / "results"
    out.mkdir(exist_ok=True)
    (out / "coda.json").write_text(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
