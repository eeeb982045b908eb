import numpy as np
import pytest
import torch
from agreement import ENGINES, ROWS, SEED, Losing, agree
from argmax import ball, free
from coda_box import coda_plus, codasca
from fedavg_box import AdamByHand
from game import GameWorld, problem

import fedsaddle as fs
from fedsaddle import Coda, CodaPlus, Codasca
from fedsaddle.errors import BadInput
from fedsaddle.numerics.optimisers import Adam
from fedsaddle.numerics.projections import Ball
from fedsaddle.numerics.schedules import Geometric
from small import play

engines = pytest.mark.parametrize("engine", ENGINES)
outputs = pytest.mark.parametrize("output", ["last", "average", "random"])
ROUNDS = 7  # three stages: 3 rounds, then 2 and 2
GROWING = {
    "local_steps": Geometric(2, 1.4), "stage_rounds": Geometric(3, 0.6), "primal_step": Geometric(0.2, 1 / 2)
}  # fmt: skip
BY_HAND = {"R": [3, 2, 2], "I": [2, 3, 4], "eta": [0.2, 0.1, 0.05]}
RESPONSE = {"best_response": lambda x, batch: ((batch.x @ x)[:, None] * batch.x).mean(0)}
EXACT = {"batch_size": 4, "proximal": 0.3}


def box(transcription, m=6, lost=None, output="last", project=free, **options):
    world = GameWorld(ROWS, 3, SEED) if lost is None else GameWorld(ROWS, 3, SEED, lost=lost)
    plan = {key: values.__getitem__ for key, values in BY_HAND.items()}
    return transcription(world, ROUNDS, m, gamma=0.3, batch=4, output=output, project=project, **plan | options)


def library(algorithm, engine, lost=None):
    clients = ENGINES[engine](ROWS, seed=SEED)
    states = play(algorithm, clients if lost is None else Losing(clients, lost), ROUNDS, seed=SEED)[1:]
    return states, clients


def lost_some(round, exchange):
    return (round % 6, 3)


CASES = {"all": (None, None), "four": (4, None), "some lost": (5, lost_some)}
cohorts = pytest.mark.parametrize("who", CASES)


@engines
@outputs
@cohorts
def test_coda_plus(engine, output, who):
    m, lost = CASES[who]
    algorithm = CodaPlus(
        problem=problem(project_y=Ball(0.4)), sampled_clients=m, output=output, **GROWING, **EXACT
    )  # fmt: skip
    states, _ = library(algorithm, engine, lost)
    expected = box(coda_plus, m or 6, lost, output, ball(0.4))
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])


@engines
@outputs
@cohorts
@pytest.mark.parametrize(("project", "by_hand"), [({}, free), ({"project_y": Ball(0.4)}, ball(0.4))])
def test_codasca(engine, output, who, project, by_hand):
    m, lost = CASES[who]
    algorithm = Codasca(
        problem=problem(**project), sampled_clients=m, output=output, global_step=1.3, **GROWING, **EXACT
    )  # fmt: skip
    states, _ = library(algorithm, engine, lost)
    expected = box(codasca, m or 6, lost, output, by_hand, eta_g=1.3)
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])
    for key in ("cx", "cy"):
        found = np.stack([np.broadcast_to(getattr(s, key), 4) for s in states])
        np.testing.assert_allclose(found, np.stack(expected[key]), rtol=0, atol=1e-10)
        assert np.abs(found).max() > 0.01


@engines
@cohorts
@pytest.mark.parametrize(("project", "by_hand"), [({}, free), ({"project_y": Ball(0.4)}, ball(0.4))])
def test_codasca_with_momentum(engine, who, project, by_hand):
    m, lost = CASES[who]
    algorithm = Codasca(problem=problem(**project), sampled_clients=m, momentum=0.6, **GROWING, **EXACT)
    states, _ = library(algorithm, engine, lost)
    expected, without = (box(codasca, m or 6, lost, project=by_hand, eta_g=1.0, mu=mu) for mu in (0.6, 0.0))
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])
    assert np.abs(np.stack(expected["x"]) - np.stack(without["x"])).max() > 1e-3


@engines
@cohorts
@pytest.mark.parametrize(("project", "by_hand"), [({}, free), ({"project_y": Ball(0.4)}, ball(0.4))])
def test_codasca_with_adam(engine, who, project, by_hand):
    """Adam of the corrected gradients, of both players."""
    m, lost = CASES[who]
    algorithm = Codasca(problem=problem(**project), sampled_clients=m, local_optimiser=Adam(), **GROWING, **EXACT)
    states, _ = library(algorithm, engine, lost)
    expected, plain = (box(codasca, m or 6, lost, project=by_hand, eta_g=1.0, adam=a) for a in (AdamByHand, None))
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])
    for key in ("cx", "cy"):
        found = np.stack([np.broadcast_to(getattr(s, key), 4) for s in states])
        np.testing.assert_allclose(found, np.stack(expected[key]), rtol=0, atol=1e-10)
    assert np.abs(np.stack(expected["x"]) - np.stack(plain["x"])).max() > 1e-3


def test_adam_and_momentum_are_not_both():
    with pytest.raises(BadInput, match=r"momentum = 0\.5"):
        Codasca(problem=problem(), momentum=0.5, local_optimiser=Adam())


@engines
@cohorts
@pytest.mark.parametrize("kind", [CodaPlus, Coda, Codasca])
def test_clients_that_count_by_their_rows(engine, who, kind):
    m, lost = CASES[who]
    algorithm = kind(problem=problem(**RESPONSE), sampled_clients=m, weighting="size", **GROWING, **EXACT)
    states, _ = library(algorithm, engine, lost)
    own = {CodaPlus: {}, Coda: {"dual_batch": "all"}, Codasca: {"eta_g": 1.0}}[kind]
    transcription = codasca if kind is Codasca else coda_plus
    expected, alike = (box(transcription, m or 6, lost, by_rows=by, **own) for by in (True, False))
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])
    assert np.abs(np.stack(expected["x"]) - np.stack(alike["x"])).max() > 1e-4


@engines
def test_variates_are_the_means_of_the_gradients_used(engine):
    algorithm = Codasca(problem=problem(), stage_rounds=100, primal_step=0.1, local_steps=3, **EXACT)
    states, clients = library(algorithm, engine)
    expected = box(
        codasca, R=lambda s: 100, I=lambda s: 3, eta=lambda s: 0.1, eta_g=1.0
    )  # fmt: skip
    kept = torch.stack([clients.memory.kept[k].cx for k in range(6)])
    np.testing.assert_allclose(kept.numpy(), np.stack(expected["ck"][-1]), rtol=0, atol=1e-10)
    torch.testing.assert_close(kept.mean(0), states[-1].cx, rtol=0, atol=1e-12)


@engines
@pytest.mark.parametrize("weighting", ["uniform", "size"])
def test_projections_of_both_players_leave_c_the_mean(engine, weighting):
    how = {"weighting": weighting, "stage_rounds": 100, "primal_step": 0.3, "local_steps": 3, **EXACT}
    algorithm, free_x = (
        Codasca(problem=problem(project_y=Ball(0.4), **given), **how) for given in ({"project_x": Ball(0.63)}, {})
    )
    states, clients = library(algorithm, engine)
    n = torch.as_tensor(clients.sizes, dtype=torch.float64) if weighting == "size" else torch.ones(6)
    for mine, server in (("cx", states[-1].cx), ("cy", states[-1].cy)):
        kept = torch.stack([getattr(clients.memory.kept[k], mine) for k in range(6)])
        torch.testing.assert_close((n / n.sum()) @ kept, server, rtol=0, atol=1e-12)
    ends = [states[-1].x, library(free_x, engine)[0][-1].x]
    assert (ends[0] - ends[1]).norm() > 1e-3, "the ball of x is reached"


@engines
@pytest.mark.parametrize(("rows", "by_hand"), [(None, "all"), (5, 5)])
def test_coda(engine, rows, by_hand):
    algorithm = Coda(problem=problem(project_y=Ball(0.4), **RESPONSE), dual_batch=rows, **GROWING, **EXACT)
    states, _ = library(algorithm, engine)
    expected = box(coda_plus, project=ball(0.4), dual_batch=by_hand)
    agree([algorithm.model(s) for s in states], expected["x"])
    agree([algorithm.dual(s) for s in states], expected["y"])
    without = box(coda_plus, project=ball(0.4))
    assert np.abs(expected["x"][-1] - without["x"][-1]).max() > 1e-6


@engines
def test_npa(engine):
    algorithm = fs.algorithm("NPA", problem=problem(), stage_rounds=3, primal_step=0.2, **EXACT)
    states, _ = library(algorithm, engine)
    expected = box(coda_plus, R=lambda s: 3, I=lambda s: 1, eta=lambda s: 0.2)
    agree([algorithm.model(s) for s in states], expected["x"])


def test_stages_counted_in_steps():
    algorithm = CodaPlus(
        problem=problem(), stage_steps=10, local_steps=Geometric(4, 2), primal_step=0.1, batch_size=2
    )  # fmt: skip
    states, _ = library(algorithm, "serial")
    assert [s.stage for s in states] == [0, 0, 1, 1, 2, 3, 4]  # 4 4 4 | 8 8 | 16 | 32 ...: the stage after the round
    assert [algorithm.iterations(s) for s in states] == [4, 8, 12, 20, 28, 44, 76]
