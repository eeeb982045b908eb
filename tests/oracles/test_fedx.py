"""FedX1, FedX2, Local Pair and SOX against literal transcriptions.

Partial participation, buffers of several rounds, sub-sampled scores, unequal minibatches, clients without positives or
without negatives.
"""

import math
import re
from pathlib import Path

import pytest
import torch
from agreement import ENGINES, agree
from fedx_box import PairWorld, fedx1, fedx2, local_pair
from torch import nn

from fedsaddle.algorithms.fedx.fedx1 import FedX1
from fedsaddle.algorithms.fedx.fedx2 import FedX2
from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.problems.risks import auc, partial_auc, two_way_partial_auc
from small import classes, play, rows_of, seeded

SEED, ROUNDS = 5, 4
ROOT = Path(__file__).parents[2]


def rows():
    """Six clients; the fifth has no positives, and a seventh no negatives."""
    six = classes(classes=2)
    pairs = [six.client(i) for i in range(6)]
    x = torch.randn(4, 4, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    return rows_of([*(p[0] for p in pairs), x], [*(p[1] for p in pairs), torch.ones(4, dtype=torch.int64)])


ROWS = rows()
CASES = [
    {"m": 7, "tau": 1, "sharing": "all"},
    {"m": 7, "tau": 1, "sharing": "sub-sampled"},
    {"m": 3, "tau": 1, "sharing": "all"},
    {"m": 7, "tau": 3, "sharing": "all"},
    {"m": 4, "tau": 2, "sharing": "sub-sampled"},
]
cases = pytest.mark.parametrize("case", CASES, ids=str)
engines = pytest.mark.parametrize("engine", ENGINES)
B, K, STEP = (3, 2), 3, 0.05


def options(case, step=STEP):
    return {
        "sampled_clients": case["m"] if case["m"] < 7 else None,
        "local_steps": K,
        "batch_size": B[0],
        "second_batch_size": B[1],
        "primal_step": step,
        "buffer_rounds": case["tau"],
        "sharing": case["sharing"],
    }


def linear():
    return seeded(lambda: nn.Linear(4, 1))


def test_the_world_has_clients_with_one_label_only():
    world = PairWorld(ROWS, 2, SEED)
    assert 0 in world.counts(0)
    assert 0 in world.counts(1)


@cases
@engines
def test_fedx1(case, engine):
    algorithm = FedX1(problem=auc(linear()), guard=math.inf, **options(case))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), ROUNDS, seed=SEED)[1:]
    w = algorithm.problem.initial().numpy().copy()
    box = fedx1(PairWorld(ROWS, 2, SEED), w, ROUNDS, case["m"], K, B, STEP, case["tau"], case["sharing"])
    agree([s.w for s in states], box)


GUARDED = [(0.3, 1.01), (1.5, 1.5), (0.05, 1e3)]  # steps and κ: it acts on a long path, on an explosion, and not at all
guarded = pytest.mark.parametrize(("step", "kappa"), GUARDED)


@guarded
@engines
@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=str)
def test_fedx1_with_a_guard(case, engine, step, kappa):
    """All clients shorten their steps alike, and the server takes a share of their mean change."""
    algorithm = FedX1(problem=auc(linear()), guard=kappa, **options(case, step))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), 6, seed=SEED)[1:]
    w, world = algorithm.problem.initial().numpy().copy(), PairWorld(ROWS, 2, SEED)
    agree([s.w for s in states], fedx1(world, w, 6, case["m"], K, B, step, case["tau"], case["sharing"], kappa))
    assert (world.guard.acted > 0) == (kappa < 1e3)
    assert states[-1].pace == pytest.approx(world.guard.s, rel=1e-10)


@pytest.mark.parametrize(("step", "kappa"), [(0.3, 1.01), (0.1, 1.2), (0.02, 1e3)])
@engines
def test_fedx2_with_a_guard(engine, step, kappa):
    case, problem = CASES[0], partial_auc(linear(), temperature=2.0)
    algorithm = FedX2(problem=problem, tracking=0.6, averaging=0.3, pair_cap=3.0, guard=kappa, **options(case, step))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), 6, seed=SEED)[1:]
    world, start = PairWorld(ROWS, 2, SEED), problem.initial().numpy().copy()
    box = fedx2(world, start, 6, 7, K, B, step, 1, "all", 0.6, 0.3, 2.0, 3.0, kappa=kappa)
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])
    assert (world.guard.acted > 0) == (kappa < 1e3)


@cases
@engines
@pytest.mark.parametrize(
    ("gamma", "beta", "temperature", "step", "cap"),
    [(0.6, 0.3, 20.0, STEP, math.inf), (1.0, 1.0, 2.0, 0.02, 2.0), (0.5, 0.2, 1.0, 0.02, 3.0)],
)
def test_fedx2(case, engine, gamma, beta, temperature, step, cap):
    limits = {"pair_cap": cap, "guard": math.inf}
    problem = partial_auc(linear(), temperature=temperature)
    algorithm = FedX2(problem=problem, tracking=gamma, averaging=beta, **limits, **options(case, step))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), ROUNDS, seed=SEED)[1:]
    w = problem.initial().numpy().copy()
    rest = (case["tau"], case["sharing"], gamma, beta, temperature, cap)
    world = PairWorld(ROWS, 2, SEED)
    box = fedx2(world, w, ROUNDS, case["m"], K, B, step, *rest)
    assert world.capped == (cap != math.inf), "infinity is the box as it is printed; else the cap must matter"
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])


@engines
@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[4]], ids=str)
@pytest.mark.parametrize("gamma", [0.6, 1.0])
def test_fedx2_on_the_log_of_a_mean(case, engine, gamma):
    """Two-way partial AUC: the server tracks the mean over S1, which every factor is divided by."""
    problem = two_way_partial_auc(linear(), temperature=20.0, positive_temperature=8.0)
    given = {"tracking": gamma, "averaging": 0.3, "pair_cap": math.inf, "guard": math.inf}
    algorithm = FedX2(problem=problem, **given, **options(case))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), ROUNDS, seed=SEED)[1:]
    rest = (case["m"], K, B, STEP, case["tau"], case["sharing"], gamma, 0.3, 20.0, math.inf)
    start = problem.initial().numpy().copy()
    box = fedx2(PairWorld(ROWS, 2, SEED), start, ROUNDS, *rest, power=20 / 8)
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])


@engines
@pytest.mark.parametrize("case", [CASES[0], CASES[4]], ids=str)
def test_fedx2_with_normalised_weights(case, engine):
    problem = partial_auc(linear(), temperature=20.0)
    given = {"tracking": 0.6, "averaging": 0.3, "pair_cap": math.inf, "guard": math.inf}
    algorithm = FedX2(problem=problem, normalised_weights=True, **given, **options(case))
    states = play(algorithm, ENGINES[engine](ROWS, seed=SEED), ROUNDS, seed=SEED)[1:]
    rest = (case["m"], K, B, STEP, case["tau"], case["sharing"], 0.6, 0.3, 20.0, math.inf)
    start = problem.initial().numpy().copy()
    box = fedx2(PairWorld(ROWS, 2, SEED), start, ROUNDS, *rest, normalised=True)
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])
    plain = fedx2(PairWorld(ROWS, 2, SEED), start, ROUNDS, *rest)
    assert abs(box[-1][0] - plain[-1][0]).max() > 1e-4


OUTERS = {
    "linear": (auc, {}, {}),
    "log": (partial_auc, {"temperature": 2.0}, {"temperature": 2.0}),
    "log of a mean": (
        two_way_partial_auc,
        {"temperature": 2.0, "positive_temperature": 3.0},
        {"temperature": 2.0, "power": 2 / 3},
    ),
}
outers = pytest.mark.parametrize("outer", OUTERS)


@outers
@engines
@pytest.mark.parametrize(("m", "gamma", "beta"), [(7, 0.6, 0.3), (4, 0.3, 1.0), (7, 1.0, 0.2)])
def test_local_pair(outer, engine, m, gamma, beta):
    make, given, box_given = OUTERS[outer]
    problem, rows = make(linear(), **given), ROWS
    options = {"local_steps": K, "batch_size": B[0], "second_batch_size": B[1], "primal_step": STEP}
    algorithm = LocalPair(
        problem=problem, sampled_clients=m if m < 7 else None, tracking=gamma, averaging=beta, **options
    )
    states = play(algorithm, ENGINES[engine](rows, seed=SEED), ROUNDS, seed=SEED)[1:]
    start = problem.initial().numpy().copy()
    box = local_pair(PairWorld(rows, 2, SEED), start, ROUNDS, m, K, B, STEP, gamma, beta, **box_given)
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])


@outers
@engines
@pytest.mark.parametrize(("gamma", "beta"), [(0.6, 0.3), (0.9, None), (1.0, 0.1)])
def test_sox_and_centralised_sgd(outer, engine, gamma, beta):
    """All rows in one place. Without an averaging given it is 1 where f is linear, and 0.1 else."""
    make, given, box_given = OUTERS[outer]
    problem, rows = make(linear(), **given), rows_of([ROWS.x], [ROWS.y])
    options = {"local_steps": K, "batch_size": B[0], "second_batch_size": B[1], "primal_step": STEP}
    algorithm = LocalPair(problem=problem, centralised=True, tracking=gamma, averaging=beta, **options)
    states = play(algorithm, ENGINES[engine](rows, seed=SEED), ROUNDS, seed=SEED)[1:]
    start = problem.initial().numpy().copy()
    beta = beta or (1.0 if outer == "linear" else 0.1)
    box = local_pair(PairWorld(rows, 2, SEED), start, ROUNDS, 1, K, B, STEP, gamma, beta, **box_given)
    agree([s.w for s in states], [w for w, _ in box])
    agree([s.G for s in states], [G for _, G in box])


@pytest.mark.parametrize("name", ["fedx1", "fedx2"])
def test_the_page_shows_each_line_of_the_box_beside_its_code(name):
    """docs/algorithms/fedx.md has the code as it is; the line, or the docstring above it, carries the box's number."""
    code = (ROOT / f"src/fedsaddle/algorithms/fedx/{name}.py").read_text().splitlines()
    tables = (ROOT / "docs/algorithms/fedx.md").read_text().split("\n\n")
    rows = [row for table in tables if f"`{name}.py` |" in table.split("\n")[0] for row in table.splitlines()[2:]]
    assert len(rows) > 12
    for row in rows:
        number, _, shown = row.strip("|").split(" | ")
        at = [i for i, line in enumerate(code) if shown.strip(" `") in line]
        assert at, row
        anchors = set(re.findall(r"\d+", f"{code[at[0]].partition('#')[2]} {code[at[0] - 1]}"))
        assert anchors >= set(re.findall(r"\d+", number)), row
