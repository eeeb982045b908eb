"""Methods for the worst clients against their boxes."""

import numpy as np
import pytest
import torch
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from argmax import ball
from by_loss_box import RESPONSES, aaggff, delta_fl, exponential_dro, fedmgda, fednova, fedprox, propfair, term
from draws import World

import fedsaddle as fs
from fedsaddle.algorithms.aaggff import RESPONSES as THEIRS
from fedsaddle.algorithms.delta_fl import Bins, tail_weights
from fedsaddle.algorithms.fedmgda import mixture_of_least_norm
from fedsaddle.numerics.projections import Ball

engines = pytest.mark.parametrize("engine", ENGINES)
STEPS = {"tau": 3, "batch": 4, "eta": 0.3}
OURS = {"local_steps": 3, "batch_size": 4, "primal_step": 0.3}


def lost(round, exchange):
    return (round,) if exchange == 0 else (5 - round,)


@engines
@pytest.mark.parametrize("boundary", ["whole", "fractional"])
@pytest.mark.parametrize(("theta", "weighting", "m"), [(0.5, "size", None), (0.3, "uniform", 5), (1.0, "size", 4)])
def test_delta_fl(engine, boundary, theta, weighting, m):
    options = {"boundary": boundary, "weighting": weighting}
    algorithm = fs.DeltaFl(problem=problem(), tail=theta, sampled_clients=m, **options, **OURS)
    models = delta_fl(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, theta=theta, **options, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@pytest.mark.parametrize("boundary", ["whole", "fractional"])
def test_delta_fl_by_counts_takes_the_same_clients(engine, boundary):
    """The local steps are of the third exchange, after two of counts."""
    algorithm = fs.DeltaFl(problem=problem(), tail=0.4, boundary=boundary, threshold="counts", **OURS)
    models = delta_fl(World(ROWS, 3, SEED), start(), ROUNDS, 6, theta=0.4, boundary=boundary, exchange=2, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
def test_delta_fl_with_lost_replies_a_penalty_and_a_projection(engine):
    algorithm = fs.DeltaFl(problem=problem(l2=0.1), tail=0.7, projection=Ball(0.8), **OURS)
    world = World(ROWS, 3, SEED, l2=0.1, lost=lost)
    models = delta_fl(world, start(), ROUNDS, 6, theta=0.7, boundary="whole", project=ball(0.8), **STEPS)
    agree([s.w for s in library(algorithm, engine, lost)], models)


@engines
@pytest.mark.parametrize("normaliser", ["batch", "running", "running_as_published"])
@pytest.mark.parametrize(("t", "m"), [(0.5, None), (4.0, 4)])
def test_term(engine, normaliser, t, m):
    algorithm = fs.Term(problem=problem(), tilt=t, normaliser=normaliser, averaging=0.3, sampled_clients=m, **OURS)
    models = term(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, t=t, normaliser=normaliser, l=0.3, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
def test_term_with_clients_drawn_by_size(engine):
    algorithm = fs.Term(problem=problem(), tilt=2.0, sampled_clients=3, sampling="size", **OURS)
    world = World(ROWS, 3, SEED)
    models = term(world, start(), ROUNDS, 3, t=2.0, normaliser="batch", by_size=True, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
def test_term_with_lost_replies(engine):
    algorithm = fs.Term(problem=problem(), tilt=2.0, **OURS)
    models = term(World(ROWS, 3, SEED, lost=lost), start(), ROUNDS, 6, t=2.0, normaliser="batch", **STEPS)
    agree([s.w for s in library(algorithm, engine, lost)], models)


@pytest.mark.parametrize("response", RESPONSES)
def test_responses_by_hand(response):
    u = torch.linspace(0.2, 3, 9, dtype=torch.float64)
    expected = [RESPONSES[response](float(v)) for v in u]
    np.testing.assert_allclose(THEIRS[response](u).numpy(), expected, rtol=0, atol=1e-14)


@engines
@pytest.mark.parametrize("response", ["weibull", "normal"])
def test_aaggff_newton(engine, response):
    algorithm = fs.algorithm("AAggFF-S", problem=problem(), response=response, **OURS)
    models, mixtures = aaggff(World(ROWS, 3, SEED), start(), ROUNDS, 6, update="newton", response=response, **STEPS)
    states = library(algorithm, engine)
    agree([s.p for s in states], mixtures)
    agree([s.w for s in states], models)


@engines
@pytest.mark.parametrize(("m", "server_step"), [(None, 1.0), (4, 0.5)])
def test_aaggff_entropy(engine, m, server_step):
    options = {"response": "normal", "server_step": server_step}
    algorithm = fs.algorithm("AAggFF-D", problem=problem(), sampled_clients=m, **options, **OURS)
    models, mixtures = aaggff(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, update="entropy", **options, **STEPS)
    states = library(algorithm, engine)
    agree([s.p for s in states], mixtures)
    agree([s.w for s in states], models)


@engines
@pytest.mark.parametrize("update", ["newton", "entropy"])
def test_aaggff_with_lost_replies(engine, update):
    algorithm = fs.AaggFf(problem=problem(), update=update, **OURS)
    models, mixtures = aaggff(
        World(ROWS, 3, SEED, lost=lost), start(), ROUNDS, 6, update=update, response="weibull", **STEPS
    )
    states = library(algorithm, engine, lost)
    agree([s.p for s in states], mixtures)
    agree([s.w for s in states], models)


@engines
@pytest.mark.parametrize(("M", "near", "extended"), [(5.0, 0.2, False), (1.2, 0.4, False), (1.2, 0.4, True)])
def test_propfair(engine, M, near, extended):
    options = {"ceiling": M, "near": near, "extended": extended}
    algorithm = fs.PropFair(problem=problem(), sampled_clients=4, projection=Ball(2.0), **options, **OURS)
    models = propfair(
        World(ROWS, 3, SEED), start(), ROUNDS, 4, M=M, near=near, extended=extended, project=ball(2.0), **STEPS
    )
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@pytest.mark.parametrize("eps", [0.0, 0.05, 0.3, 1.0])
def test_fedmgda(engine, eps):
    algorithm = fs.FedMgda(problem=problem(), freedom=eps, server_step=0.4, sampled_clients=5, **OURS)
    models = fedmgda(World(ROWS, 3, SEED), start(), ROUNDS, 5, eps=eps, server_step=0.4, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@pytest.mark.parametrize("freedom", [0.02, 0.2, 1.0])
def test_the_mixture_of_least_norm_cannot_be_bettered(freedom):
    """At the minimum no pair of clients gains by handing weight over."""
    g = torch.randn(7, 4, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    λ = mixture_of_least_norm(g, freedom)
    slope = g @ (λ @ g)
    low, high = max(0.0, 1 / 7 - freedom), min(1.0, 1 / 7 + freedom)
    assert abs(float(λ.sum()) - 1) < 1e-12
    assert low - 1e-12 < float(λ.min()) <= float(λ.max()) < high + 1e-12
    may_give, may_take = λ > low + 1e-9, λ < high - 1e-9
    assert float(slope[may_give].max()) <= float(slope[may_take].min()) + 1e-9


@pytest.mark.parametrize("tail", [0.05, 0.25, 0.5, 0.77, 1.0])
def test_counts_find_the_quantile_that_losses_find(tail):
    """With weights of any size, and losses far apart and near."""
    rng = np.random.default_rng(int(100 * tail))
    losses, sizes = np.exp(rng.normal(0, 2, 40)), rng.integers(1, 30, 40).astype(float)
    found = Bins.all()
    for _ in range(2):
        at = torch.bucketize(torch.from_numpy(losses), found.edges, right=True).numpy()
        found = found.holding(torch.from_numpy(np.bincount(at, sizes, 256)), tail)
    counts = (losses >= found.high) + found.share * ((losses >= found.low) & (losses < found.high))
    np.testing.assert_allclose(sizes * counts, tail_weights(losses, sizes, tail, "fractional"), atol=1e-9)


@engines
@pytest.mark.parametrize("mu", [0.01, 1.0])
def test_fedprox(engine, mu):
    algorithm = fs.algorithm("FedProx", problem=problem(l2=0.1), proximal=mu, sampled_clients=4, **OURS)
    models = fedprox(World(ROWS, 3, SEED, l2=0.1), start(), ROUNDS, 4, mu=mu, **STEPS)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@pytest.mark.parametrize(("epochs", "m"), [(1.0, None), (2.5, 4), (0.1, None)])
def test_fednova(engine, epochs, m):
    algorithm = fs.FedNova(problem=problem(), epochs=epochs, sampled_clients=m, batch_size=4, primal_step=0.3)
    models = fednova(World(ROWS, 3, SEED), start(), ROUNDS, m or 6, epochs, 4, 0.3)
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@pytest.mark.parametrize(
    ("lam", "alpha", "beta", "m"), [(1.0, 0.2, 0.1, None), (2.0, 1.0, 1.0, None), (2.0, 0.5, 0.3, 4)]
)
@pytest.mark.parametrize("replies", [None, lost], ids=["all", "lost"])
def test_exponential_dro(engine, replies, lam, alpha, beta, m):
    options = {"temperature": lam, "inner_averaging": alpha, "momentum_averaging": beta}
    algorithm = fs.ExponentialDro(problem=problem(), sampled_clients=m, **options, **OURS)
    world = World(ROWS, 3, SEED, **({} if replies is None else {"lost": replies}))
    models = exponential_dro(world, start(), ROUNDS, m or 6, lam=lam, alpha=alpha, beta=beta, **STEPS)
    agree([s.w for s in library(algorithm, engine, replies)], models)
