"""Steps that follow a schedule with a warm-up, in every family, against the boxes."""

import math

import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from coda_box import coda_plus, codasca
from draws import World
from drfa_box import drfa, drfa_ga
from fedavg_box import fedavg, qfedavg
from fedsgda_box import fedsgda, minibatch
from fedx_box import PairWorld, fedx1, fedx2
from game import GameWorld
from game import problem as game
from sgda_box import local_sgda, momentum_local_sgda
from torch import nn

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Cosine, Geometric, Power, Warmup
from fedsaddle.problems.risks import auc, partial_auc
from small import classes, play, seeded

engines = pytest.mark.parametrize("engine", ENGINES)
PRIMAL, DUAL = Warmup(2, of=Cosine(0.4, 7, last=0.05)), Warmup(3, of=Power(0.05, 0.5))
WARM = [1 / 3, 2 / 3, 1, 1, 1, 1, 1]  # of PRIMAL, by hand
OURS = {"local_steps": 3, "batch_size": 4}


def eta(s):
    return WARM[s] * (0.05 + 0.35 * (1 + math.cos(math.pi * s / 7)) / 2)


def gamma(s):
    return min(1, (s + 1) / 4) * 0.05 / math.sqrt(s + 1)


@engines
def test_fedavg_and_qfedavg(engine):
    average = fs.FedAvg(problem=problem(), sampled_clients=4, primal_step=PRIMAL, **OURS)
    models, _ = fedavg(World(ROWS, 3, SEED), start(), ROUNDS, 4, 3, 4, eta, "size")
    agree([s.w for s in library(average, engine)], models)
    fair = fs.QFedAvg(problem=problem(), sampled_clients=4, q=1.5, primal_step=PRIMAL, **OURS)
    models = qfedavg(World(ROWS, 3, SEED), start(), ROUNDS, 4, 3, 4, eta, 1.5, "uniform")
    agree([s.w for s in library(fair, engine)], models)


@engines
@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_drfa(engine, decay):
    algorithm = fs.Drfa(
        problem=problem(), sampled_clients=4, primal_step=PRIMAL, dual_step=DUAL, dual_decay=decay, **OURS
    )
    box = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, 3, 4, eta, gamma, decay)
    states = library(algorithm, engine)
    agree([s.w for s in states], box["w"])
    agree([s.lam for s in states], box["lam"])


@engines
def test_drfa_ga(engine):
    algorithm = fs.DrfaGa(problem=problem(), sampled_clients=4, primal_step=PRIMAL, dual_step=DUAL, **OURS)
    box = drfa_ga(World(ROWS, 3, SEED), start(), ROUNDS, 4, 3, 4, eta, gamma)
    states = library(algorithm, engine)
    agree([s.w for s in states], box["w"])
    agree([s.lam for s in states], box["lam"])


@engines
def test_the_sgda_family(engine):
    world, steps = GameWorld(ROWS, 3, SEED), {"primal_step": PRIMAL, "dual_step": DUAL}
    box = local_sgda(world, ROUNDS * 3, 3, 4, eta, gamma, S=4)
    agree([s.x for s in library(fs.LocalSgda(problem=game(), snapshot_every=4, **steps, **OURS), engine)], box["x"])
    box = momentum_local_sgda(world, ROUNDS * 3, 3, 4, eta, gamma, 1.0, 0.9, 0.9, "average")
    agree([s.y for s in library(fs.MomentumLocalSgda(problem=game(), **steps, **OURS), engine)], box["y"])
    box = fedsgda(world, ROUNDS, 4, 3, 4, eta, gamma, minibatch)
    agree([s.x for s in library(fs.FedSgda(problem=game(), sampled_clients=4, **steps, **OURS), engine)], box["x"])


@engines
@pytest.mark.parametrize("name", ["CODA+", "CODASCA"])
def test_stages_with_a_warm_up_by_rounds(engine, name):
    """The warm-up of 3 rounds reaches into the second stage, of 2 rounds each; what is inside counts stages."""
    step = Warmup(3, of=Geometric(0.2, 0.5))
    algorithm = fs.algorithm(
        name, problem=game(), sampled_clients=4, primal_step=step, proximal=0.3, stage_rounds=2, **OURS
    )
    box, extra = (coda_plus, {}) if name == "CODA+" else (codasca, {"eta_g": 1.0})
    expected = box(
        GameWorld(ROWS, 3, SEED), ROUNDS, 4, R=lambda s: 2, I=lambda s: 3, eta=lambda s: 0.2 * 0.5**s, gamma=0.3,
        batch=4, output="last", warm=[0.25, 0.5, 0.75, 1, 1].__getitem__, **extra,
    )  # fmt: skip
    agree([algorithm.model(s) for s in library(algorithm, engine)], expected["x"])


@engines
def test_fedx(engine):
    rows, step = classes(classes=2), Warmup(2, of=Cosine(0.04, 7, last=0.005))
    options = OURS | {"sampled_clients": 4, "second_batch_size": 2, "primal_step": step, "guard": math.inf}

    def linear():
        return seeded(lambda: nn.Linear(4, 1))

    first = fs.FedX1(problem=auc(linear()), **options)
    states = play(first, ENGINES[engine](rows, seed=SEED), 4, seed=SEED)[1:]
    w = first.problem.initial().numpy().copy()
    agree([s.w for s in states], fedx1(PairWorld(rows, 2, SEED), w, 4, 4, 3, (4, 2), lambda s: eta(s) / 10, 1, "all"))
    second = fs.FedX2(
        problem=partial_auc(linear(), temperature=20.0), tracking=0.6, averaging=0.3, pair_cap=math.inf, **options
    )
    states = play(second, ENGINES[engine](rows, seed=SEED), 4, seed=SEED)[1:]
    rest = (lambda s: eta(s) / 10, 1, "all", 0.6, 0.3, 20.0, math.inf)
    agree([s.w for s in states], [w for w, _ in fedx2(PairWorld(rows, 2, SEED), w, 4, 4, 3, (4, 2), *rest)])


def test_a_step_that_is_divided_by_must_not_end_at_0():
    ends = fs.QFedAvg(problem=problem(), primal_step=Cosine(0.1, 2))
    with pytest.raises(BadInput, match=r"primal_step = 0.0: .*divides by it"):
        library(ends, "serial")
    ends = fs.Codasca(problem=game(), primal_step=Cosine(0.1, 1), stage_rounds=2, **OURS)
    with pytest.raises(BadInput, match=r"primal_step = 0.0: .*divides by it"):
        library(ends, "serial")
    regularised = fs.Drfa(problem=problem(), regulariser=fs.regularisers.KullbackLeibler(0.1), dual_step=Cosine(0.1, 2))
    states = library(regularised, "serial")
    assert (states[-1].lam == states[-2].lam).all(), "without a step the mixture stands still"
