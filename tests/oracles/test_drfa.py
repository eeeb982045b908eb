import numpy as np
import pytest
import torch
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from argmax import Distance, Divergence, Quartic, ball
from draws import World
from drfa_box import drfa

import fedsaddle as fs
from fedsaddle import Drfa
from fedsaddle.numerics import mixtures
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.regularisers import Concave, KullbackLeibler, Quadratic

engines = pytest.mark.parametrize("engine", ENGINES)
weightings = pytest.mark.parametrize("weighting", ["sample", "weight"])
STEPS = {"tau": 3, "batch": 4, "eta": 0.3, "gamma": 0.03}
OURS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3, "dual_step": 0.03}
PI = np.array([0.3, 0.1, 0.1, 0.2, 0.2, 0.1])


def compare(algorithm, engine, box, lost=None):
    states = library(algorithm, engine, lost)
    agree([s.w for s in states], box["w"])
    agree([s.lam for s in states], box["lam"])
    output = algorithm.output == "average"
    agree([algorithm.model(s) for s in states], box["mean" if output else "w"])
    agree([algorithm.mixture(s) for s in states], box["lam_mean" if output else "lam"])


@engines
@weightings
@pytest.mark.parametrize("m", [4, None])
@pytest.mark.parametrize("output", ["last", "average"])
def test_drfa(engine, weighting, m, output):
    algorithm = Drfa(problem=problem(), sampled_clients=m, weighting=weighting, output=output, **OURS)
    compare(algorithm, engine, drfa(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, weighting=weighting, **STEPS))


@engines
@pytest.mark.parametrize(("m", "weighting"), [(None, "weight"), (6, "weight"), (4, "sample")])
def test_drfa_as_it_is_by_default(engine, m, weighting):
    """With all clients λ weighs them, with a cohort it draws them, as the page of DRFA says."""
    algorithm = Drfa(problem=problem(), sampled_clients=m, **OURS)
    compare(algorithm, engine, drfa(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, weighting=weighting, **STEPS))
    other = drfa(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, weighting="sample", **STEPS)
    assert (weighting == "sample") == (np.abs(other["w"][-1] - library(algorithm, engine)[-1].w.numpy()).max() < 1e-10)


def test_the_defaults_of_drfa_are_those_of_its_page():
    algorithm = Drfa(problem=problem())
    given = (algorithm.local_steps, algorithm.batch_size, algorithm.primal_step, algorithm.dual_step)
    assert given == (10, 50, 0.1, 8e-3)
    rest = (algorithm.dual_decay, algorithm.output, algorithm.mixture_ceiling, algorithm.trimmed)
    assert rest == (1.0, "last", None, 0.0)
    assert (algorithm.sampled_clients, algorithm.weighting, algorithm.regulariser) == (None, None, None)


@engines
@weightings
def test_drfa_with_a_mixture_that_lists_few(engine, weighting, monkeypatch):
    monkeypatch.setattr(mixtures, "LARGE", 0)
    monkeypatch.setattr(mixtures, "FEW", 2)
    algorithm = Drfa(problem=problem(), sampled_clients=2, weighting=weighting, **OURS)
    states = library(algorithm, engine)
    box = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 2, weighting=weighting, **STEPS)
    agree([s.w for s in states], box["w"])
    agree([algorithm.mixture(s) for s in states], box["lam"])
    assert all(s.lam.ndim == 2 for s in states)


@engines
@weightings
def test_drfa_dual_decay(engine, weighting):
    algorithm = Drfa(problem=problem(), sampled_clients=4, weighting=weighting, dual_decay=0.5, **OURS)
    compare(algorithm, engine, drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, decay=0.5, weighting=weighting, **STEPS))


@engines
@weightings
def test_drfa_projected_and_penalised(engine, weighting):
    algorithm = Drfa(problem=problem(l2=0.1), sampled_clients=4, weighting=weighting, projection=Ball(0.8), **OURS)
    world = World(ROWS, 3, SEED, l2=0.1)
    compare(algorithm, engine, drfa(world, start(), ROUNDS, 4, weighting=weighting, project=ball(0.8), **STEPS))


@engines
@weightings
def test_drfa_counts_those_who_answered(engine, weighting):
    def lost(round, exchange):
        return (round, 2) if exchange == 0 else (5 - round,)

    algorithm = Drfa(problem=problem(), weighting=weighting, **OURS)
    world = World(ROWS, 3, SEED, lost=lost)
    compare(algorithm, engine, drfa(world, start(), ROUNDS, 6, weighting=weighting, **STEPS), lost)


@engines
@weightings
@pytest.mark.parametrize("output", ["last", "average"])
def test_afl(engine, weighting, output):
    options = {"batch_size": 4, "primal_step": 0.3, "dual_step": 0.03, "weighting": weighting, "output": output}
    box = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, weighting=weighting, **(STEPS | {"tau": 1}))
    compare(fs.algorithm("AFL", problem=problem(), sampled_clients=4, **options), engine, box)


REGULARISERS = {
    "quadratic": (Quadratic(8.0), Distance(8.0, [1 / 6] * 6)),
    "quadratic with a prior": (Quadratic(8.0, torch.from_numpy(PI)), Distance(8.0, PI)),
    "Kullback-Leibler": (KullbackLeibler(0.8), Divergence(0.8, [1 / 6] * 6)),
    "Kullback-Leibler with a prior": (KullbackLeibler(0.8, torch.from_numpy(PI)), Divergence(0.8, PI)),
    "general": (
        Concave(lambda u: -300 * (u - torch.from_numpy(PI)).pow(4).sum(), tolerance=1e-12, most_steps=500),
        Quartic(300.0, PI),
    ),
}


@engines
@weightings
@pytest.mark.parametrize("g", REGULARISERS)
def test_drfa_prox(engine, weighting, g):
    ours, theirs = REGULARISERS[g]
    algorithm = Drfa(problem=problem(), sampled_clients=4, regulariser=ours, weighting=weighting, **OURS)
    box = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, g=theirs, weighting=weighting, **STEPS)
    compare(algorithm, engine, box)
    plain = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, weighting=weighting, **STEPS)
    assert np.abs(box["lam"][-1] - plain["lam"][-1]).max() > 1e-3, "g must matter"


def test_the_runs_above_see_repeats_and_sparse_mixtures():
    box = drfa(World(ROWS, 3, SEED), start(), ROUNDS, 4, **STEPS)
    mixtures = [np.full(6, 1 / 6), *box["lam"][:-1]]
    D = [World(ROWS, 3, SEED).server(s).choice(6, 4, p=lam / lam.sum()) for s, lam in enumerate(mixtures)]
    assert any(len(set(d.tolist())) < 4 for d in D)
    assert any((lam == 0).any() for lam in mixtures)
