import pytest
import torch
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library
from argmax import ball
from fedsgda_box import fedsgda, minibatch, spider, storm
from game import GameWorld, problem

from fedsaddle import FedSgda
from fedsaddle.algorithms.fedsgda import Estimate, MiniBatch, Spider, Storm
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.schedules import Power

engines = pytest.mark.parametrize("engine", ENGINES)
CASES = {
    "MB": (MiniBatch(), minibatch, lambda t, S: S),
    "STORM": (Storm(Power(0.9, 2 / 3, 1.0)), storm(lambda t: min(1, 0.9 / (t + 1) ** (2 / 3))), lambda t, S: S),
    "SPIDER": (Spider(3), spider(3), lambda t, S: S**2 if t % 3 == 0 else S),
    "SPIDER, large": (Spider(2, 5), spider(2), lambda t, S: 5 if t % 2 == 0 else S),
}


def lost_some(round, exchange):
    return (round % 6, 3) if exchange == 0 else (5,)


@engines
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("S", "lost"), [(3, None), (2, None), (6, None), (4, lost_some)])
def test_fedsgda(engine, name, S, lost):
    estimator, by_hand, size = CASES[name]
    algorithm = FedSgda(
        problem=problem(project_y=Ball(0.6)), sampled_clients=S, local_steps=3, batch_size=4,
        primal_step=Power(0.1, 1 / 3), dual_step=0.2, estimator=estimator,
    )  # fmt: skip
    world = GameWorld(ROWS, 3, SEED) if lost is None else GameWorld(ROWS, 3, SEED, lost=lost)
    box = fedsgda(
        world, ROUNDS, S, 3, 4, lambda t: 0.1 / (t + 1) ** (1 / 3), lambda t: 0.2, by_hand, size, ball(0.6)
    )  # fmt: skip
    states = library(algorithm, engine, lost)
    for key in ("x", "y", "u", "v"):
        agree([getattr(s, key) for s in states], box[key])


def test_storm_begins_again_with_the_mean_where_either_of_the_earlier_gradients_is_missing():
    """As for a variant of it that does not want the gradients at the previous point in some rounds."""
    now, before, last = torch.tensor([[3.0, 1.0], [2.0, 5.0], [7.0, -1.0]])
    recursion = Storm(0.25)
    assert torch.equal(recursion.estimate(4, Estimate(now, before, last)), 0.75 * (last - before) + now)
    for given in (Estimate(now, None, last), Estimate(now, before, None), Estimate(now, None, None)):
        assert torch.equal(recursion.estimate(4, given), now)
