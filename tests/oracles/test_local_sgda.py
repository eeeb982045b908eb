import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library
from argmax import ball
from game import GameWorld, problem
from sgda_box import local_sgda, momentum_local_sgda

from fedsaddle import LocalSgda, MomentumLocalSgda
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.schedules import Staged

engines = pytest.mark.parametrize("engine", ENGINES)
snapshots = pytest.mark.parametrize("S", [None, 1, 2, 3, 4, 6, 7])
TAU = 3
OURS = {"local_steps": TAU, "batch_size": 4}
BOX = {"T": ROUNDS * TAU, "tau": TAU, "batch": 4}


def world():
    return GameWorld(ROWS, 3, SEED)


def compare(algorithm, engine, box):
    states = library(algorithm, engine)
    agree([s.x for s in states], box["x"])
    agree([s.y for s in states], box["y"])
    return states


@engines
@snapshots
def test_local_sgda_and_plus(engine, S):
    algorithm = LocalSgda(problem=problem(), primal_step=0.1, dual_step=0.2, snapshot_every=S, **OURS)
    compare(algorithm, engine, local_sgda(world(), eta_x=lambda r: 0.1, eta_y=lambda r: 0.2, S=S, **BOX))


@engines
def test_staged_steps_projection_and_average(engine):
    steps = Staged([(2, 0.2), (1, 0.1), (1, 0.05)])
    algorithm = LocalSgda(
        problem=problem(project_y=Ball(0.5)),
        primal_step=steps,
        dual_step=0.2,
        output="average",
        snapshot_every=4,
        **OURS,
    )
    stages = [0.2, 0.2, 0.1, 0.05, 0.05]
    box = local_sgda(world(), eta_x=lambda r: stages[r], eta_y=lambda r: 0.2, S=4, project=ball(0.5), **BOX)
    states = compare(algorithm, engine, box)
    agree([algorithm.model(s) for s in states], box["mean"])


@engines
@snapshots
@pytest.mark.parametrize("at_sync", ["average", "keep", "reset"])
def test_momentum_local_sgda_and_plus(engine, S, at_sync):
    options = {"alpha": 0.7, "primal_beta": 0.8, "dual_beta": 0.6}
    algorithm = MomentumLocalSgda(
        problem=problem(project_y=Ball(0.6)), primal_step=0.1, dual_step=0.2, momentum_at_sync=at_sync,
        snapshot_every=S, **options, **OURS,
    )  # fmt: skip
    box = momentum_local_sgda(
        world(), eta_x=0.1, eta_y=0.2, alpha=0.7, beta_x=0.8, beta_y=0.6, at_sync=at_sync, S=S, project=ball(0.6), **BOX
    )
    compare(algorithm, engine, box)


@engines
def test_random_output_is_one_of_the_average_iterates(engine):
    algorithm = LocalSgda(problem=problem(), output="random", **OURS)
    box = local_sgda(world(), eta_x=lambda r: 0.02, eta_y=lambda r: 0.016, **BOX)
    drawn = [algorithm.model(s).numpy() for s in compare(algorithm, engine, box)]
    for r, x in enumerate(drawn):
        assert min(abs(x - seen).max() for seen in box["path"][: (r + 1) * TAU]) < 1e-12
    assert any((a != b).any() for a, b in zip(drawn, box["x"], strict=True)), "it is not merely the last one"
