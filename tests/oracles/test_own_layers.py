"""Layers that stay at the clients, against plain local SGD and averages of the rest."""

import numpy as np
import pytest
import torch
from agreement import ROWS, problem
from draws import World
from fedavg_box import local_sgd

import fedsaddle as fs
from small import play, serial, vectorised

engines = pytest.mark.parametrize("engine", [serial, vectorised])


def average():
    return fs.FedAvg(problem=problem(), sampled_clients=4, local_steps=3, batch_size=4, primal_step=0.3)


@engines
def test_all_layers_local_is_everybody_alone(engine):
    personal = fs.Personal(algorithm=average(), layers=["*"])
    clients = engine(ROWS, seed=5)
    states = play(personal, clients, 4, seed=5)
    assert all(torch.equal(s.w, states[0].w) for s in states), "the server's model never moves"
    world, w = World(ROWS, 3, 5), {}
    for s in range(4):
        for i in world.server(s).choice(6, 4, replace=False):
            start = w.get(int(i), states[0].w.numpy())
            w[int(i)] = local_sgd(world, s, 0, int(i), start, 3, 4, 0.3, lambda v: v)[-1]
    assert clients.memory.kept.keys() == w.keys()
    for i, own in w.items():
        np.testing.assert_allclose(clients.memory.kept[i].layers.numpy(), own, rtol=0, atol=1e-10)


@engines
@pytest.mark.parametrize("layers", [["bias"], ["weight"]])
def test_an_oracle_of_fedavg_with_layers_of_their_own(engine, layers):
    personal = fs.Personal(algorithm=average(), layers=layers)
    clients = engine(ROWS, seed=5)
    states = play(personal, clients, 5, seed=5)
    local = np.arange(12, 15) if layers == ["bias"] else np.arange(12)
    shared = np.setdiff1d(np.arange(15), local)
    world, w, own = World(ROWS, 3, 5), states[0].w.numpy().copy(), {}
    for s in range(5):
        ends, S = {}, [int(i) for i in world.server(s).choice(6, 4, replace=False)]
        for i in S:
            start = w.copy()
            start[local] = own.get(i, w[local])
            ends[i] = local_sgd(world, s, 0, i, start, 3, 4, 0.3, lambda v: v)[-1]
            own[i] = ends[i][local]
        w[shared] = sum(world.sizes[i] * ends[i][shared] for i in S) / sum(world.sizes[i] for i in S)
        np.testing.assert_allclose(states[s + 1].w.numpy(), w, rtol=0, atol=1e-10)
    for i, mine in own.items():
        np.testing.assert_allclose(clients.memory.kept[i].layers.numpy(), mine, rtol=0, atol=1e-10)
    plain = play(average(), engine(ROWS, seed=5), 5, seed=5)
    assert np.abs(plain[-1].w.numpy()[shared] - w[shared]).max() > 1e-3
