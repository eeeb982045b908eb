"""The extragradient family and Anderson mixing against their boxes."""

import numpy as np
import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library
from argmax import ball
from draws import World
from extragradient_box import anderson, extragradient, local_extragradient, mean_gradients, optimistic
from game import X0, Y0, GameWorld, problem
from later_games_box import fedgda_gt

from fedsaddle import Anderson, Extragradient, FedGdaGt, LocalExtragradient, Optimistic
from fedsaddle.numerics.projections import Ball

engines = pytest.mark.parametrize("engine", ENGINES)
replies = pytest.mark.parametrize("lost", [None, lambda round, exchange: (round,) if exchange == 0 else (5 - round,)])
STEPS = {"primal_step": 0.1, "dual_step": 0.2}


def world(lost=None) -> World:
    return GameWorld(ROWS, 3, SEED, **({} if lost is None else {"lost": lost}))


def compare(states, box):
    for k, name in enumerate("xy"):
        agree([getattr(s, name) for s in states], [point[k] for point in box])


@engines
@replies
@pytest.mark.parametrize(("m", "batch"), [(None, None), (None, 3), (4, 3)])
def test_extragradient(engine, lost, m, batch):
    algorithm = Extragradient(problem=problem(project_y=Ball(0.5)), sampled_clients=m, batch_size=batch, **STEPS)
    box = extragradient(world(lost), ROUNDS, m or 6, batch, 0.1, 0.2, ball(0.5))
    compare(library(algorithm, engine, lost), box)


@engines
def test_extragradient_average(engine):
    algorithm = Extragradient(problem=problem(), output="average", **STEPS)
    states, box = library(algorithm, engine), extragradient(world(), ROUNDS, 6, None, 0.1, 0.2, average=True)
    agree([algorithm.model(s) for s in states], [p[0] for p in box])
    agree([algorithm.dual(s) for s in states], [p[1] for p in box])


@engines
@replies
@pytest.mark.parametrize(("m", "batch"), [(None, None), (4, 3)])
def test_optimistic(engine, lost, m, batch):
    algorithm = Optimistic(problem=problem(project_y=Ball(0.5)), sampled_clients=m, batch_size=batch, **STEPS)
    compare(library(algorithm, engine, lost), optimistic(world(lost), ROUNDS, m or 6, batch, 0.1, 0.2, ball(0.5)))


@engines
@replies
@pytest.mark.parametrize("variates", [False, True])
@pytest.mark.parametrize(("m", "batch"), [(None, None), (4, 3)])
def test_local_extragradient(engine, lost, variates, m, batch):
    algorithm = LocalExtragradient(
        problem=problem(project_y=Ball(0.5)), sampled_clients=m, local_steps=3, batch_size=batch,
        control_variates=variates, **STEPS,
    )  # fmt: skip
    box = local_extragradient(world(lost), ROUNDS, m or 6, 3, batch, 0.1, 0.2, variates, ball(0.5))
    compare(library(algorithm, engine, lost), box)


def one_round(method):
    """A round of a box as a map of z = (x, y)."""

    def g(z):
        w, (x, y) = world(), np.split(z, 2)
        if method == "extragradient":
            gx, gy = mean_gradients(w, 0, 0, range(w.N), x, y, None)
            gx, gy = mean_gradients(w, 0, 0, range(w.N), x - 0.1 * gx, ball(0.5)(y + 0.2 * gy), None)
            return np.concatenate([x - 0.1 * gx, ball(0.5)(y + 0.2 * gy)])
        return np.concatenate(fedgda_gt(w, 1, 3, 0.1, 0.2, project=ball(0.5), start=(x, y))[0])

    return g


@engines
@pytest.mark.parametrize("method", ["extragradient", "FedGDA-GT"])
@pytest.mark.parametrize(("memory", "ridge"), [(1, 1e-20), (2, 1e-4), (10, 1e-20)])
def test_anderson(engine, method, memory, ridge):
    game = problem(project_y=Ball(0.5))
    inner = Extragradient(problem=game, **STEPS) if method == "extragradient" else FedGdaGt(
        problem=game, local_steps=3, **STEPS
    )  # fmt: skip
    states = library(Anderson(inner, memory, ridge=ridge), engine)

    def project(z):
        return np.concatenate([z[:4], ball(0.5)(z[4:])])

    box = anderson(one_round(method), np.concatenate([X0, Y0]), ROUNDS, memory, ridge, project=project)
    compare(states, [np.split(z, 2) for z in box])


@engines
def test_anderson_takes_a_bad_mix_back(engine):
    """With a guard that no growth passes, and steps so long that mixes overshoot."""
    steps = {"primal_step": 0.9, "dual_step": 1.5}
    algorithm = Anderson(Extragradient(problem=problem(), **steps), 2, growth=1.0)

    def g(z):
        w, (x, y) = world(), np.split(z, 2)
        gx, gy = mean_gradients(w, 0, 0, range(w.N), x, y, None)
        gx, gy = mean_gradients(w, 0, 0, range(w.N), x - 0.9 * gx, y + 1.5 * gy, None)
        return np.concatenate([x - 0.9 * gx, y + 1.5 * gy])

    states = library(algorithm, engine)
    compare(states, [np.split(z, 2) for z in anderson(g, np.concatenate([X0, Y0]), ROUNDS, 2, 1e-20, growth=1.0)])
    assert states[-1].mixing_restarts
