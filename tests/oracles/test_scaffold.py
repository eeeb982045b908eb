import numpy as np
import pytest
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from draws import World
from fedavg_box import fedavg
from scaffold_box import scaffold

from fedsaddle import Scaffold
from fedsaddle.errors import BadInput
from fedsaddle.numerics.schedules import Staged

engines = pytest.mark.parametrize("engine", ENGINES)
OURS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3}


@engines
@pytest.mark.parametrize("weighting", ["uniform", "size"])
@pytest.mark.parametrize("m", [4, None])
def test_scaffold(engine, weighting, m):
    algorithm = Scaffold(problem=problem(l2=0.2), sampled_clients=m, weighting=weighting, global_step=1.2, **OURS)
    world = World(ROWS, 3, SEED, l2=0.2)
    models, c, own = scaffold(world, start(), ROUNDS, m or ROWS.count, 3, 4, 0.3, 1.2, weighting)
    states = library(algorithm, engine)
    agree([s.x for s in states], models)
    agree([s.c for s in states], c)
    if m is None:  # c is the mean of the c_i
        n = np.array(world.sizes if weighting == "size" else [1] * world.N)
        np.testing.assert_allclose(c[-1], (n[:, None] * np.array(own)).sum(0) / n.sum(), atol=1e-12)


@engines
def test_scaffold_with_a_step_that_changes(engine):
    algorithm = Scaffold(problem=problem(), sampled_clients=4, **OURS | {"primal_step": Staged([(2, 0.3), (9, 0.1)])})
    models, _, _ = scaffold(World(ROWS, 3, SEED), start(), ROUNDS, 4, 3, 4, lambda r: 0.3 if r < 2 else 0.1)
    agree([s.x for s in library(algorithm, engine)], models)


def test_the_first_round_is_that_of_fedavg_and_the_second_is_not():
    states = library(Scaffold(problem=problem(), **OURS), "vectorised")
    models, _ = fedavg(World(ROWS, 3, SEED), start(), 2, ROWS.count, 3, 4, 0.3, weighting="uniform")
    np.testing.assert_allclose(states[0].x, models[0], atol=1e-12)
    assert np.abs(np.asarray(states[1].x) - models[1]).max() > 1e-4


@pytest.mark.parametrize("wrong", [{"global_step": 0.0}, {"weighting": "rows"}, {"local_steps": 0}])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(BadInput, match=next(iter(wrong))):
        Scaffold(problem=problem(), **wrong)
