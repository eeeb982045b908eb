import numpy as np
import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from argmax import ball, box
from draws import World
from fedavg_box import fedavg, fedavgm, qfedavg

from fedsaddle import FedAvg, QFedAvg
from fedsaddle.numerics.projections import Ball, Box
from fedsaddle.numerics.schedules import Cosine, Staged

engines = pytest.mark.parametrize("engine", ENGINES)
STEPS = {"tau": 3, "batch": 4, "eta": 0.3}
OURS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3}


@engines
@pytest.mark.parametrize("weighting", ["size", "uniform"])
@pytest.mark.parametrize("m", [4, None])
def test_fedavg(engine, weighting, m):
    algorithm = FedAvg(problem=problem(), sampled_clients=m, weighting=weighting, **OURS)
    models, _ = fedavg(World(ROWS, 3, SEED), start(), ROUNDS, m or ROWS.count, weighting=weighting, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
def test_fedavg_with_a_penalty(engine):
    algorithm = FedAvg(problem=problem(l2=0.2), sampled_clients=4, **OURS)
    models, _ = fedavg(World(ROWS, 3, SEED, l2=0.2), start(), ROUNDS, 4, weighting="size", **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@pytest.mark.parametrize(("ours", "theirs"), [(Ball(0.8), ball(0.8)), (Box(-0.1, 0.3), box(-0.1, 0.3))])
def test_fedavg_projected(engine, ours, theirs):
    algorithm = FedAvg(problem=problem(), sampled_clients=4, projection=ours, **OURS)
    models, _ = fedavg(World(ROWS, 3, SEED), start(), ROUNDS, 4, weighting="size", project=theirs, **STEPS)
    unprojected, _ = fedavg(World(ROWS, 3, SEED), start(), ROUNDS, 4, weighting="size", **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)
    assert np.abs(models[-1] - unprojected[-1]).max() > 1e-2


@engines
@pytest.mark.parametrize("weighting", ["size", "uniform"])
def test_fedavg_average_output(engine, weighting):
    algorithm = FedAvg(problem=problem(), sampled_clients=4, weighting=weighting, output="average", **OURS)
    models, means = fedavg(World(ROWS, 3, SEED), start(), ROUNDS, 4, weighting=weighting, **STEPS)
    states = library(algorithm, engine)
    agree([s.w for s in states], models)
    agree([algorithm.model(s) for s in states], means)


@engines
def test_fedavg_lost_replies(engine):
    def lost(round, exchange):
        return (round, 2)

    algorithm = FedAvg(problem=problem(), **OURS)
    models, _ = fedavg(World(ROWS, 3, SEED, lost=lost), start(), ROUNDS, ROWS.count, weighting="size", **STEPS)
    agree([s.w for s in library(algorithm, engine, lost)], models)


@engines
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("weighting", ["size", "uniform"])
@pytest.mark.parametrize("m", [4, None])
def test_fedavgm(engine, nesterov, weighting, m):
    options = {"server_momentum": 0.7, "nesterov": nesterov, "weighting": weighting}
    algorithm = FedAvg(problem=problem(l2=0.2), sampled_clients=m, **options, **OURS)
    world = World(ROWS, 3, SEED, l2=0.2)
    models, v = fedavgm(
        world, start(), ROUNDS, m or ROWS.count, 3, 4, [0.3] * ROUNDS, 0.7, nesterov, weighting=weighting
    )
    states = library(algorithm, engine)
    agree([s.w for s in states], models)
    agree([s.velocity for s in states], v)
    other, _ = fedavgm(
        world, start(), ROUNDS, m or ROWS.count, 3, 4, [0.3] * ROUNDS, 0.7, not nesterov, weighting=weighting
    )
    assert np.abs(models[-1] - other[-1]).max() > 1e-2


@engines
@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("schedule", [Cosine(0.5, 4, last=0.1), Staged([(2, 0.4), (1, 0.2)])])
def test_fedavgm_with_schedules_lost_replies_and_a_projection(engine, nesterov, schedule):
    def lost(round, exchange):
        return (round, 2)

    algorithm = FedAvg(
        problem=problem(), sampled_clients=5, server_momentum=0.9, nesterov=nesterov, projection=Ball(0.8),
        **(OURS | {"primal_step": schedule}),
    )  # fmt: skip
    etas = [schedule.at(s) for s in range(ROUNDS)]
    world = World(ROWS, 3, SEED, lost=lost)
    models, v = fedavgm(world, start(), ROUNDS, 5, 3, 4, etas, 0.9, nesterov, project=ball(0.8))
    states = library(algorithm, engine, lost)
    agree([s.w for s in states], models)
    agree([s.velocity for s in states], v)


@engines
@pytest.mark.parametrize("q", [0.0, 0.2, 1.0, 2.5])
@pytest.mark.parametrize(("sampling", "m"), [("uniform", 4), ("uniform", 6), ("size", 6)])
def test_qfedavg(engine, q, sampling, m):
    algorithm = QFedAvg(problem=problem(), sampled_clients=m, q=q, sampling=sampling, **OURS)
    models = qfedavg(World(ROWS, 3, SEED), start(), ROUNDS, m, q=q, sampling=sampling, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
def test_qfedavg_projected_penalised_and_lost(engine):
    def lost(round, exchange):
        return (round, 2)

    world = World(ROWS, 3, SEED, l2=0.1, lost=lost)
    models = qfedavg(world, start(), ROUNDS, 6, q=1.0, sampling="uniform", project=ball(0.8), **STEPS)
    algorithm = QFedAvg(problem=problem(l2=0.1), q=1.0, projection=Ball(0.8), **OURS)
    agree([s.w for s in library(algorithm, engine, lost)], models)


def test_sampling_by_size_draws_a_client_twice():
    world = World(ROWS, 3, SEED)
    p = np.array(world.sizes) / sum(world.sizes)
    cohorts = [world.server(s).choice(6, 6, p=p).tolist() for s in range(ROUNDS)]
    assert any(len(set(c)) < len(c) for c in cohorts), "the oracle above must see repeats"
