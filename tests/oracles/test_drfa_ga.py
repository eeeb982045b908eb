import numpy as np
import pytest
import torch
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from argmax import Distance, Divergence, Quartic, ball
from draws import World
from drfa_box import drfa_ga

from fedsaddle import DrfaGa
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.regularisers import Concave, KullbackLeibler, Quadratic

engines = pytest.mark.parametrize("engine", ENGINES)
STEPS = {"tau": 3, "batch": 4, "eta": 0.3, "gamma": 0.1}
OURS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3, "dual_step": 0.1}
PI = np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])


def compare(algorithm, engine, box, lost=None):
    states = library(algorithm, engine, lost)
    agree([s.w for s in states], box["w"])
    agree([s.lam for s in states], box["lam"])
    output = algorithm.output == "average"
    agree([algorithm.model(s) for s in states], box["mean" if output else "w"])
    agree([algorithm.mixture(s) for s in states], box["lam_mean" if output else "lam"])


@engines
@pytest.mark.parametrize("m", [4, None])
def test_drfa_ga(engine, m):
    algorithm = DrfaGa(problem=problem(), sampled_clients=m, **OURS)
    compare(algorithm, engine, drfa_ga(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, **STEPS))


@engines
@pytest.mark.parametrize("after", [0, 1, 3])
def test_drfa_ga_average_output(engine, after):
    algorithm = DrfaGa(problem=problem(), sampled_clients=4, output="average", average_after=after, **OURS)
    compare(algorithm, engine, drfa_ga(World(ROWS, 3, SEED), start(), ROUNDS, 4, after=after, **STEPS))


@engines
def test_drfa_ga_projected_and_penalised(engine):
    algorithm = DrfaGa(problem=problem(l2=0.1), sampled_clients=4, projection=Ball(0.8), **OURS)
    world = World(ROWS, 3, SEED, l2=0.1)
    compare(algorithm, engine, drfa_ga(world, start(), ROUNDS, 4, project=ball(0.8), **STEPS))


@engines
def test_drfa_ga_counts_those_who_answered(engine):
    def lost(round, exchange):
        return (round, 2) if exchange == 0 else (5 - round, 1)

    algorithm = DrfaGa(problem=problem(), **OURS)
    compare(algorithm, engine, drfa_ga(World(ROWS, 3, SEED, lost=lost), start(), ROUNDS, 6, **STEPS), lost)


REGULARISERS = {
    "quadratic": (Quadratic(2.0, torch.from_numpy(PI)), Distance(2.0, PI)),
    "Kullback-Leibler": (KullbackLeibler(0.3, torch.from_numpy(PI)), Divergence(0.3, PI)),
    "general": (Concave(lambda u: -100 * (u - torch.from_numpy(PI)).pow(4).sum()), Quartic(100.0, PI)),
}


@engines
@pytest.mark.parametrize("g", REGULARISERS)
def test_drfa_ga_regularised(engine, g):
    ours, theirs = REGULARISERS[g]
    algorithm = DrfaGa(problem=problem(), sampled_clients=4, regulariser=ours, **OURS)
    box = drfa_ga(World(ROWS, 3, SEED), start(), ROUNDS, 4, g=theirs, **STEPS)
    compare(algorithm, engine, box)
    plain = drfa_ga(World(ROWS, 3, SEED), start(), ROUNDS, 4, **STEPS)
    assert np.abs(box["lam"][-1] - plain["lam"][-1]).max() > 1e-3, "g must matter"
