"""Started at the optimum of clients that differ, every algorithm stays there: what it does to a step must not move it.

At such an optimum each client's gradient is long and only their mean vanishes. All rows of a client are alike, so that
every minibatch is a full batch, and steps fall from round to round, so that the drift of local steps dies out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from every_algorithm import TABLE, Case
from torch import Tensor, nn

import fedsaddle as fs
from fedsaddle.config.registry import ALGORITHMS
from small import play, rows_of, vectorised

ROUNDS, RISE = 60, 1e-3
STEP = fs.schedules.Power(0.02, 0.7)
EVERYBODY = {"sampled_clients": None, "primal_step": STEP}
LINES = {case.covers: case for case in sorted(TABLE, key=lambda c: c.name == c.covers) if case.covers in ALGORITHMS}
OWN = {  # options under which the line's own would not be about this optimum
    "DRFA-GA": {"primal_step": fs.schedules.Power(0.005, 0.7)},  # which draws its clients
    "DRFA-Prox": {"regulariser": fs.regularisers.KullbackLeibler(0.1)},
    "Newton": {"sampled_clients": None},
    "FedGDA-GT": {"sampled_clients": None},
    "FedAdam": {"server_optimiser": fs.optimisers.ServerAdam(1e-3)},
    "FedYogi": {"server_optimiser": fs.optimisers.ServerYogi(1e-3)},
    "FedAdagrad": {"server_optimiser": fs.optimisers.ServerAdagrad(1e-3)},
}


def options(case: Case) -> dict[str, Any]:
    """Those of the line, with all clients and a step that falls."""
    own = OWN.get(case.covers, {})
    falls = {"primal_step": fs.schedules.Geometric(0.02, 0.5)} if "stage_rounds" in case.options else EVERYBODY
    given = {**case.options, **EVERYBODY, **falls, **own} if "primal_step" in case.options else case.options | own
    return given | ({"dual_step": STEP} if ALGORITHMS[case.covers].kind == "minimax" and "dual_step" in given else {})


def names(*kinds: str) -> Any:
    return pytest.mark.parametrize("name", [n for n in LINES if ALGORITHMS[n].kind in kinds])


def unlike() -> fs.Stacked:
    """Three clients whose losses (w x - 1)² are the same at w = 0; their gradients are long, and add up to nothing."""
    rows = [torch.tensor([x] * 4, dtype=torch.float64) for x in ([-2.0, 0.0], [1.0, 1.0], [1.0, -1.0])]
    return rows_of(rows, [torch.ones(4, dtype=torch.float64)] * 3)


@names("minimisation")
def test_a_minimum_is_kept(name: str) -> None:
    """The losses are alike at the optimum, so that it is that of any mixture, tail or power of them as well."""
    if name == "BoostedTrees":
        pytest.skip("it grows trees, which have no such minimum")
    case, model = LINES[name], nn.Linear(2, 1, bias=False).double()
    nn.init.zeros_(model.weight)
    problem = fs.Supervised(model, loss=fs.losses.Square())
    algorithm = case.make(problem=problem, **options(case))
    states = play(algorithm, vectorised(unlike()), ROUNDS)
    w = algorithm.model(states[-1])
    assert float(w.square().sum()) < RISE


def game() -> tuple[fs.Minimax, fs.Stacked]:
    """Clients `k (|x|² - |y|²) / 2 + x'y + p'x + q'y`: unlike k, long p and q, which add up to nothing."""

    def rows(x: Tensor, y: Tensor, batch: Any) -> Tensor:
        k, p, q = batch.x[:, 0], batch.x[:, 1:3], batch.x[:, 3:5]
        return k * (x @ x - y @ y) / 2 + x @ y + p @ x + q @ y

    start = torch.zeros(2, dtype=torch.float64)
    problem = fs.Minimax(rows, start_x=start, start_y=start)
    each = ([0.5, 2.0, 0.0, -1.0, 0.0], [1.0, -1.0, 1.0, 1.0, 2.0], [2.0, -1.0, -1.0, 0.0, -2.0])
    xs = [torch.tensor([one] * 4, dtype=torch.float64) for one in each]
    return problem, rows_of(xs, [torch.zeros(4, dtype=torch.int64)] * 3)


@names("minimax")
def test_a_saddle_is_kept(name: str) -> None:
    """Of a game whose clients each pull both players elsewhere."""
    case, (problem, rows) = LINES[name], game()
    if name == "CODA":
        pytest.skip("it wants the closed form of the AUC's dual variable")
    algorithm = case.make(problem=problem, **options(case))
    states = play(algorithm, vectorised(rows), ROUNDS)
    assert float(algorithm.model(states[-1]).square().sum()) < RISE


def skewed_sites(seed: int = 0) -> fs.Stacked:
    """Sites of 120, 30, 30, 15 and 15 rows with 5, 20, 50, 80 and 90 % positives, each with a shift of its own."""
    rng, xs, ys = np.random.default_rng(seed), [], []
    for n, share in zip((120, 30, 30, 15, 15), (0.05, 0.2, 0.5, 0.8, 0.9), strict=True):
        y = (np.arange(n) < round(share * n)).astype(np.int64)
        x = rng.normal(size=(n, 6)) + rng.normal(size=6) + 0.5 * y[:, None]
        xs.append(torch.from_numpy(x))
        ys.append(torch.from_numpy(y))
    return rows_of(xs, ys)


def minimised(risk: Any, rows: fs.Stacked, alone: bool) -> tuple[Tensor, Any]:
    """The minimiser by L-BFGS, and the objective: of all pairs, or the mean over sites of the risk of their own."""
    groups = [rows.client(i) for i in range(rows.count)] if alone else [(rows.x, rows.y)]
    batches = [fs.Batch(x[None], y[None]) for x, y in groups]

    def objective(w: Tensor) -> Tensor:
        return torch.stack([risk.value(w[None], batch)[0] for batch in batches]).mean()

    w = risk.initial().clone().requires_grad_()
    solver = torch.optim.LBFGS([w], max_iter=500, tolerance_grad=1e-10, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        solver.zero_grad()
        value = objective(w)
        value.backward()
        return value

    solver.step(closure)
    return w.detach(), objective


@names("pairwise")
def test_a_minimum_of_pairs_is_kept(name: str) -> None:
    """As above, with the defaults: batches and lazy scores are random, so that the risk may rise by their noise."""
    rows = skewed_sites()
    model = nn.Linear(6, 1).double()
    risk = fs.risks.auc(model)
    best, objective = minimised(risk, rows, alone=name == "Local Pair")
    with torch.no_grad():
        model.weight.copy_(best[:6])
    model.bias.data.copy_(best[6:])
    given = {"local_steps": 8, "batch_size": 16, "primal_step": fs.schedules.Power(0.03, 0.5)}
    algorithm = LINES[name].make(problem=replace(risk, model=model), **given)
    states = play(algorithm, vectorised(rows), 200)
    least, risks = float(objective(best)), [float(objective(s.w)) for s in states]
    assert risks[0] == pytest.approx(least)
    assert np.mean(risks[-20:]) < 1.02 * least


def test_adam_of_corrected_gradients_keeps_a_saddle_and_adam_of_own_gradients_does_not() -> None:
    """Rescaled, the long gradients of unlike clients no longer add up to nothing; corrected ones are short."""
    problem, rows = game()
    how = {"local_optimiser": fs.optimisers.Adam(epsilon=0.1), "primal_step": 0.02, "dual_step": 0.02, "local_steps": 3}
    corrected = fs.Codasca(problem=problem, stage_rounds=1000, proximal=0.0, **how)
    own = fs.LocalSgda(problem=problem, **how)
    far = [float(a.model(play(a, vectorised(rows), 300)[-1]).square().sum()) for a in (corrected, own)]
    assert far[0] < 1e-20
    assert far[1] > 1e-2
