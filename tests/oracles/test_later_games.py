"""Later min-max methods against their boxes."""

import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library
from argmax import ball
from game import GameWorld, problem
from later_games_box import fedgda_gt, fedsgda_plus, fess_gda, proxskip, proxskip_with_lost_replies

from fedsaddle import FedGdaGt, FedSgdaPlus, FessGda, ProxSkip
from fedsaddle.numerics.projections import Ball

engines = pytest.mark.parametrize("engine", ENGINES)


def lost(round, exchange):
    return (round,) if exchange == 0 else (5 - round,)


def compare(states, box):
    for k, name in enumerate("xyz"[: len(box[0])]):
        agree([getattr(s, name) for s in states], [point[k] for point in box])
    assert [s.rounds for s in states] == list(range(1, ROUNDS + 1))


@engines
@pytest.mark.parametrize(("m", "p", "beta"), [(None, 0.5, 0.3), (4, 0.0, 0.5), (4, 2.0, 1.0)])
def test_fess_gda(engine, m, p, beta):
    algorithm = FessGda(
        problem=problem(project_y=Ball(0.5)), sampled_clients=m, local_steps=3, batch_size=4, primal_step=0.1,
        dual_step=0.2, server_primal_step=0.8, server_dual_step=1.2, smoothing=p, trailing=beta,
    )  # fmt: skip
    world = GameWorld(ROWS, 3, SEED)
    box = fess_gda(world, ROUNDS, m or 6, 3, 4, 0.1, 0.2, 0.8, 1.2, p, beta, project=ball(0.5))
    compare(library(algorithm, engine), box)


@engines
@pytest.mark.parametrize("replies", [None, lost], ids=["all", "lost"])
@pytest.mark.parametrize(("gamma", "S"), [(1.0, 1), (1.5, 2), (0.5, 3)])
def test_fedsgda_plus(engine, gamma, S, replies):
    algorithm = FedSgdaPlus(
        problem=problem(project_y=Ball(0.5)), local_steps=3, batch_size=4, primal_step=0.1, dual_step=0.2,
        server_step=gamma, snapshot_rounds=S,
    )  # fmt: skip
    world = GameWorld(ROWS, 3, SEED, **({} if replies is None else {"lost": replies}))
    box = fedsgda_plus(world, ROUNDS, 3, 4, 0.1, 0.2, gamma, S, project=ball(0.5))
    compare(library(algorithm, engine, replies), box)


@engines
@pytest.mark.parametrize("replies", [None, lost], ids=["all", "lost"])
@pytest.mark.parametrize("K", [1, 4])
def test_fedgda_gt(engine, K, replies):
    algorithm = FedGdaGt(problem=problem(project_y=Ball(0.5)), local_steps=K, primal_step=0.1, dual_step=0.2)
    world = GameWorld(ROWS, 3, SEED, **({} if replies is None else {"lost": replies}))
    compare(library(algorithm, engine, replies), fedgda_gt(world, ROUNDS, K, 0.1, 0.2, project=ball(0.5)))


@engines
@pytest.mark.parametrize(("p", "batch"), [(0.3, None), (1.0, None), (0.5, 4)])
def test_proxskip(engine, p, batch):
    algorithm = ProxSkip(problem=problem(), chance=p, batch_size=batch, primal_step=0.1, dual_step=0.2)
    states = library(algorithm, engine)
    compare(states, proxskip(GameWorld(ROWS, 3, SEED), ROUNDS, p, 0.1, 0.2, batch))
    assert states[-1].iterations >= ROUNDS


@engines
def test_proxskip_with_lost_replies(engine):
    algorithm = ProxSkip(problem=problem(), chance=0.3, batch_size=4, primal_step=0.1, dual_step=0.2)
    world = GameWorld(ROWS, 3, SEED, lost=lost)
    compare(library(algorithm, engine, lost), proxskip_with_lost_replies(world, ROUNDS, 0.3, 0.1, 0.2, 4))
