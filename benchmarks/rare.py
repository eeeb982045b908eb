"""Where the ranking objective pays: rare positives at unlike sites, every method tuned alike.

FEDSADDLE_DATA=... OMP_NUM_THREADS=1 python benchmarks/rare.py [case ...]

Each seed draws its own split. Every method has the same network, rounds, local steps and batches, and chooses its first
step from the same grid, by the AUROC of a fifth of the training rows that no run trains on. What is printed is the
AUROC of the test rows, and the paired difference from FedAvg with cross-entropy, with a 95 % t interval over the seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
import torch
from scipy import stats
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.errors import Diverged

SEEDS, GRID, BASE = range(5), (0.03, 0.1, 0.3, 1.0), "FedAvg, cross-entropy"
BATCH, HELD_OUT = 32, 0.2


@dataclass(frozen=True)
class Case:
    """A data set with its split, the network, and how long methods run."""

    data: str
    share: float  # of positives
    clients: int
    window: int  # I, local steps a round
    rounds: int
    network: Callable[[], nn.Module]
    methods: tuple[str, ...]
    options: dict[str, Any] | None = None


def mlp() -> nn.Module:
    """784-32-1."""
    return fs.models.mlp(784, [32], 1)


def cnn(channels: int, side: int) -> nn.Module:
    """Two convolutions of 8 and 16 channels with strides of 2, and 32 units."""
    return nn.Sequential(
        nn.Conv2d(channels, 8, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, stride=2, padding=1), nn.ReLU(),
        nn.Flatten(), nn.Linear(16 * (side // 4) ** 2, 32), nn.ReLU(), nn.Linear(32, 1),
    )  # fmt: skip


VARIATES, CODA, CODASCA = "cross-entropy, control variates", "CODA+", "CODASCA"
WARM_CODASCA, WARM_FEDX = "FedAvg, then CODASCA", "FedAvg, then FedX2 (partial AUC)"
IMAGES = {"images": True}
CASES = {
    "clothes": Case("fashion-mnist", 0.01, 5, 64, 32, mlp, (BASE, VARIATES, CODA, CODASCA)),
    "clothes, CNN": Case("fashion-mnist", 0.01, 5, 64, 16, partial(cnn, 1, 28), (BASE, CODASCA), IMAGES),
    "pictures": Case("cifar10", 0.02, 5, 16, 32, partial(cnn, 3, 32), (BASE, WARM_CODASCA, WARM_FEDX), IMAGES),
}


@dataclass(frozen=True)
class Rows:
    """The rows of one seed."""

    train: fs.Stacked
    held_out: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]


@cache
def rows_of(name: str, seed: int) -> Rows:
    """The imbalanced heterogeneous split, and a fifth of either class of each client held out."""
    case = CASES[name]
    split = {"clients": case.clients, "imratio": case.share}
    data = fs.load(case.data, split="imbalanced", seed=seed, options=case.options, **split)
    train, test, rng = data.train, data.test, np.random.default_rng([seed, 7])
    assert test is not None
    labels, kept, held = train.y.numpy(), [], []
    for begin, end in zip(train.offsets[:-1], train.offsets[1:], strict=True):
        own, mine = np.arange(begin, end), []
        for label in (0, 1):
            rows = rng.permutation(own[labels[begin:end] == label])
            count = max(1, round(HELD_OUT * len(rows)))
            held.append(rows[:count])
            mine.append(rows[count:])
        kept.append(np.sort(np.concatenate(mine)))
    out = np.concatenate(held)
    return Rows(fs.Stacked.of(train.x, train.y, kept), (train.x[out], train.y[out]), (test.x, test.y))


def cross_entropy(score: Any, y: Tensor, batch: Any) -> Tensor:
    """The same loss as a game without a second player, so that CODASCA's control variates serve it too."""
    s, label = score(batch.x).squeeze(-1), batch.y.to(y.dtype)
    return nn.functional.softplus(s) - s * label - y.square().sum() / 2


def algorithm(case: Case, method: str, step: float, model: nn.Module, share: float, rounds: int) -> Any:
    """A method whose step is divided by 3 half way."""
    half = max(1, rounds // 2)
    local = {"local_steps": case.window, "batch_size": BATCH}
    staged = local | {"primal_step": fs.schedules.Staged([(half, step), (half, step / 3)])}
    stages = local | {"primal_step": fs.schedules.Geometric(step, 1 / 3), "stage_rounds": half}
    if method == BASE:
        return fs.FedAvg(problem=fs.Supervised(model, loss=fs.losses.Logistic()), weighting="uniform", **staged)
    if method == VARIATES:
        game = fs.Minimax(cross_entropy, start_y=torch.zeros(1), model=model)
        return fs.Codasca(problem=game, **stages)
    if method == WARM_FEDX:
        return fs.FedX2(problem=fs.risks.partial_auc(model), sharing="sub-sampled", **staged)
    auc = fs.MinimaxAuc(model=model, positive_share=share)
    return (fs.CodaPlus if method == CODA else fs.Codasca)(problem=auc, **stages)


def trained(case: Case, method: str, step: float, model: nn.Module, rows: Rows, rounds: int, seed: int) -> nn.Module:
    """The model after some rounds."""
    share = float(rows.train.y.double().mean())
    how = algorithm(case, method, step, model, share, rounds)
    result = fs.run(how, rows.train, rounds=rounds, seed=seed, evaluate_every=rounds)
    module: nn.Module = how.problem.module(result.model)
    return module


def auroc(module: nn.Module, at: tuple[Tensor, Tensor]) -> float:
    """Of all rows."""
    with torch.no_grad():
        return float(roc_auc_score(at[1].numpy(), module(at[0]).squeeze(-1).numpy()))


def run(name: str, method: str, step: float, seed: int) -> tuple[float, float]:
    """The AUROC of the held-out and of the test rows, in per cent; 0 where a run diverges.

    A warm start takes half of the rounds with cross-entropy at `WARM_STEP`; only the step of the other half is tuned.
    """
    torch.set_num_threads(1)
    case, rows = CASES[name], rows_of(name, seed)
    torch.manual_seed(seed)
    model, rounds = case.network(), case.rounds
    try:
        if method in (WARM_CODASCA, WARM_FEDX):
            rounds //= 2
            model = trained(case, BASE, WARM_STEP, model, rows, rounds, seed)
        module = trained(case, method, step, model, rows, rounds, seed + 100 * (rounds < case.rounds))
        return 100 * auroc(module, rows.held_out), 100 * auroc(module, rows.test)
    except (Diverged, ValueError):
        return 0.0, 0.0


WARM_STEP = 0.1  # of the cross-entropy before a ranking objective takes over


def difference(a: Sequence[float], b: Sequence[float]) -> str:
    """The mean of the paired differences and its t interval."""
    d = np.subtract(a, b)
    half = stats.t.ppf(0.975, len(d) - 1) * d.std(ddof=1) / np.sqrt(len(d))
    return f"{d.mean():+.2f} [{d.mean() - half:+.2f}, {d.mean() + half:+.2f}]"


def main(names: Sequence[str]) -> None:
    """Print a table for each case."""
    for name in names:
        case = CASES[name]
        jobs = [(m, step, seed) for m in case.methods for seed in SEEDS for step in GRID]
        with ProcessPoolExecutor(2) as pool:
            found = dict(zip(jobs, pool.map(partial(_star, name), jobs), strict=True))
        print(f"\n{name}: {case.data}, K = {case.clients}, {case.share:.0%} positives, I = {case.window},", end=" ")
        print(f"{case.rounds} rounds, {len(SEEDS)} seeds; steps {GRID}\n")
        print("| method | steps chosen | test AUROC | difference, 95 % |\n| --- | --- | --- | --- |")
        finals = {}
        for m in case.methods:
            steps = [max(GRID, key=lambda step: found[m, step, s][0]) for s in SEEDS]
            finals[m] = [found[m, step, s][1] for step, s in zip(steps, SEEDS, strict=True)]
            apart = "" if m == BASE else difference(finals[m], finals[BASE])
            print(f"| {m} | {', '.join(f'{s:g}' for s in steps)} | {np.mean(finals[m]):.2f} | {apart} |", flush=True)


def _star(name: str, job: tuple[str, float, int]) -> tuple[float, float]:
    return run(name, *job)


if __name__ == "__main__":
    main(sys.argv[1:] or list(CASES))
