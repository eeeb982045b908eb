"""Optimisers at the clients and at the server, against the boxes."""

import numpy as np
import pytest
import torch
from agreement import ENGINES, ROUNDS, ROWS, SEED, agree, library, problem, start
from argmax import ball
from draws import World
from drfa_box import drfa
from fedavg_box import AdamByHand, HeavyBall, fedavg, fedopt
from game import X0, Y0, GameWorld, gradients
from game import problem as game

import fedsaddle as fs
from fedsaddle.numerics.optimisers import Adam, Momentum, ServerAdagrad, ServerAdam, ServerYogi
from fedsaddle.numerics.schedules import Geometric

engines = pytest.mark.parametrize("engine", ENGINES)
OURS = {"local_steps": 3, "batch_size": 4}
LOCAL = {
    "momentum": (Momentum(0.8), lambda: HeavyBall(0.8, nesterov=False)),
    "Nesterov": (Momentum(0.8, nesterov=True), lambda: HeavyBall(0.8, nesterov=True)),
    "Adam": (Adam(beta1=0.8, beta2=0.95, epsilon=1e-3), lambda: AdamByHand(0.0, 0.8, 0.95, 1e-3)),
    "AdamW": (Adam(weight_decay=0.2), lambda: AdamByHand(0.2)),
}
locally = pytest.mark.parametrize("name", LOCAL)


def world(optimiser, lost=None):
    made = World(ROWS, 3, SEED, l2=0.1) if lost is None else World(ROWS, 3, SEED, l2=0.1, lost=lost)
    made.optimiser = optimiser
    return made


@engines
@locally
def test_fedavg_with_a_local_optimiser(engine, name):
    ours, theirs = LOCAL[name]
    algorithm = fs.FedAvg(problem=problem(l2=0.1), sampled_clients=4, primal_step=0.1, local_optimiser=ours, **OURS)
    models, _ = fedavg(world(theirs), start(), ROUNDS, 4, 3, 4, 0.1, "size")
    agree([s.w for s in library(algorithm, engine)], models)


@engines
@locally
def test_drfa_with_a_local_optimiser(engine, name):
    ours, theirs = LOCAL[name]
    steps = {"primal_step": 0.1, "dual_step": 0.03, "local_optimiser": ours}
    algorithm = fs.Drfa(problem=problem(l2=0.1), sampled_clients=4, **steps, **OURS)
    box = drfa(world(theirs), start(), ROUNDS, 4, 3, 4, 0.1, 0.03)
    states = library(algorithm, engine)
    agree([s.w for s in states], box["w"])
    agree([s.lam for s in states], box["lam"])


def two_players(optimiser, proximal=0.0):
    """One round: each client's steps with optimisers of its own for both players, and their means."""
    w, xs, ys = GameWorld(ROWS, 3, SEED), [], []
    for i in range(w.N):
        x, y, of_x, of_y = X0, Y0, optimiser(), optimiser()
        for t in range(3):
            gx, gy = gradients(x, y, w.rows(0, 0, i, t, 4))
            x, y = x - 0.1 * of_x(gx + proximal * (x - X0), x), y + 0.2 * of_y(gy, np.zeros(4))
        xs.append(x)
        ys.append(y)
    return sum(xs) / w.N, sum(ys) / w.N


@engines
@locally
def test_both_players_have_one(engine, name):
    ours, theirs = LOCAL[name]
    options = {"primal_step": 0.1, "dual_step": 0.2, "local_optimiser": ours, **OURS}
    for algorithm, proximal in (
        (fs.LocalSgda(problem=game(), **options), 0.0),
        (fs.CodaPlus(problem=game(), proximal=0.3, stage_rounds=10, **options), 0.3),
    ):
        state, (x, y) = library(algorithm, engine)[0], two_players(theirs, proximal)
        np.testing.assert_allclose(state.x.numpy(), x, rtol=0, atol=1e-10)
        np.testing.assert_allclose(state.y.numpy(), y, rtol=0, atol=1e-10)


SERVER = {"adam": ServerAdam, "yogi": ServerYogi, "adagrad": ServerAdagrad}


@engines
@pytest.mark.parametrize("kind", SERVER)
@pytest.mark.parametrize("beta1", [0.0, 0.7])
def test_fedopt(engine, kind, beta1):
    def lost(round, exchange):
        return (round, 2)

    optimiser = SERVER[kind](step=0.2, beta1=beta1, beta2=0.8, adaptivity=0.01)
    algorithm = fs.FedAvg(
        problem=problem(l2=0.1), sampled_clients=5, primal_step=0.3, server_optimiser=optimiser, **OURS
    )
    box = fedopt(world(lambda: lambda g, w: g, lost), start(), ROUNDS, 5, 3, 4, 0.3, kind, 0.2, beta1, 0.8, 0.01)
    states = library(algorithm, engine, lost)
    agree([s.w for s in states], box[0])
    np.testing.assert_allclose(states[-1].second.numpy(), box[1], rtol=0, atol=1e-12)


@engines
def test_fedadam_with_everything(engine):
    server = ServerAdam(step=Geometric(0.3, 0.8))
    algorithm = fs.FedAvg(
        problem=problem(l2=0.1), sampled_clients=4, primal_step=Geometric(0.1, 0.9), local_optimiser=Adam(),
        server_optimiser=server, projection=fs.projections.Ball(0.8), **OURS,
    )  # fmt: skip
    steps = (lambda s: 0.1 * 0.9**s, "adam", lambda s: 0.3 * 0.8**s, 0.9, 0.99, 1e-3, ball(0.8))
    agree([s.w for s in library(algorithm, engine)], fedopt(world(AdamByHand), start(), ROUNDS, 4, 3, 4, *steps)[0])


def test_the_kinds_differ():
    def last(kind):
        return fedopt(world(lambda: lambda g, w: g), start(), ROUNDS, 4, 3, 4, 0.3, kind, 0.2, 0.7, 0.8, 0.01)[0][-1]

    adam, yogi, adagrad = (last(kind) for kind in SERVER)
    assert min(np.abs(adam - yogi).max(), np.abs(adam - adagrad).max(), np.abs(yogi - adagrad).max()) > 1e-3


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (Adam(), lambda p: torch.optim.Adam(p, lr=0.05)),
        (Adam(0.5, 0.7, 1e-4), lambda p: torch.optim.Adam(p, lr=0.05, betas=(0.5, 0.7), eps=1e-4)),
        (fs.optimisers.adamw(weight_decay=0.3), lambda p: torch.optim.AdamW(p, lr=0.05, weight_decay=0.3)),
        (Momentum(0.9), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9)),
        (Momentum(0.9, nesterov=True), lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True)),
    ],
    ids=["Adam", "other Adam", "AdamW", "momentum", "Nesterov"],
)
def test_one_client_and_one_exchange_are_torch(ours, theirs):
    """Full batches of one row, so that both see the same gradients for forty steps."""
    from small import classes, play, serial

    rows = classes((1,), features=4, classes=3)
    algorithm = fs.FedAvg(problem=problem(), local_steps=40, batch_size=1, primal_step=0.05, local_optimiser=ours)
    found = play(algorithm, serial(rows), 1)[-1].w
    module = problem().model
    optimiser = theirs(module.parameters())
    for _ in range(40):
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(module(rows.x), rows.y).backward()
        optimiser.step()
    expected = torch.cat([p.detach().flatten() for p in module.parameters()])
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


@engines
def test_momentum_0_is_sgd_to_the_bit(engine):
    for make in (fs.FedAvg, fs.Drfa, fs.DrfaGa):
        with_, without = (make(problem=problem(), local_optimiser=o, **OURS) for o in (Momentum(0.0), None))
        assert torch.equal(library(with_, engine)[-1].w, library(without, engine)[-1].w)
    for make in (fs.LocalSgda, fs.CodaPlus):
        with_, without = (make(problem=game(), local_optimiser=o, **OURS) for o in (Momentum(0.0), None))
        assert torch.equal(library(with_, engine)[-1].x, library(without, engine)[-1].x)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"local_optimiser": "adam"}, "local_optimiser = 'adam'"),
        ({"local_optimiser": Adam}, "local_optimiser = 'Adam'"),
        ({"server_optimiser": Adam()}, "server_optimiser = "),
        ({"server_optimiser": ServerAdam(), "server_momentum": 0.9}, "server_momentum = 0.9: cannot be combined with"),
    ],
)
def test_what_cannot_be(options, named):
    with pytest.raises(fs.BadInput, match=named):
        fs.FedAvg(problem=problem(), **options)


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Momentum(1.0), "momentum = 1.0"),
        (lambda: Momentum(0.9, nesterov=1), "nesterov = 1"),
        (lambda: Adam(beta1=1.0), "beta1"),
        (lambda: Adam(epsilon=0.0), "epsilon"),
        (lambda: Adam(weight_decay=-1.0), "weight_decay"),
        (lambda: ServerAdam(step=0.0), "step"),
        (lambda: ServerYogi(adaptivity=0.0), "adaptivity"),
        (lambda: ServerAdagrad(beta2=1.0), "beta2"),
    ],
)
def test_options_that_cannot_be(make, named):
    with pytest.raises(fs.BadInput, match=named):
        make()


def test_configs_name_them():
    made = fs.algorithm("FedAvg", problem=problem(), local_optimiser="adam")
    assert made.local_optimiser == Adam()
    made = fs.algorithm("DRFA", problem=problem(), local_optimiser={"name": "adamw", "beta1": 0.5})
    assert made.local_optimiser == Adam(beta1=0.5, weight_decay=0.01)
    made = fs.algorithm("FedYogi", problem=problem(), server_optimiser={"name": "yogi", "step": 0.5})
    assert made.server_optimiser == ServerYogi(0.5)
    assert fs.algorithm("FedAdagrad", problem=problem()).server_optimiser == ServerAdagrad()
    with pytest.raises(fs.BadInput, match="local_optimiser = 'adan': did you mean 'adam'"):
        fs.algorithm("FedAvg", problem=problem(), local_optimiser="adan")
    with pytest.raises(fs.BadInput, match="q-FedAvg has none: remove it"):
        fs.algorithm("q-FedAvg", problem=problem(), local_optimiser="adam")
