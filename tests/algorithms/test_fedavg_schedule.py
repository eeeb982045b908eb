"""A step may follow a schedule, and is then sent with the message."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import fedsaddle as fs
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.federation.randomness import server_generator
from small import classes, play, seeded


def algorithm(step: fs.schedules.Schedule | float) -> fs.FedAvg:
    model = seeded(lambda: fs.models.logistic_regression(4, 3))
    return fs.FedAvg(problem=fs.Supervised(model), local_steps=3, batch_size=4, primal_step=step)


@pytest.mark.parametrize("engine", [SerialEngine, VectorisedEngine])
def test_each_round_has_its_own_step(engine: type[SerialEngine] | type[VectorisedEngine]) -> None:
    staged = algorithm(fs.schedules.Staged([(2, 0.5), (1, 0.01)]))
    states = play(staged, engine(classes()), 3)
    for r, step in enumerate((0.5, 0.5, 0.01)):
        clients = engine(classes())
        clients.begin(r)
        alone = replace(staged, primal_step=step).round(states[r], clients, server_generator(0, r))
        torch.testing.assert_close(states[r + 1].w, alone.w, rtol=0, atol=1e-12)


def test_a_schedule_costs_eight_bytes_and_a_number_none() -> None:
    down = [fs.run(algorithm(s), classes(), 2).history[-1]["bytes_down"] for s in (0.1, fs.schedules.Power(0.1, 0.5))]
    assert down[1] - down[0] == 2 * 6 * 8  # rounds, clients, bytes


@pytest.mark.parametrize(("name", "exchanges"), [("DRFA", 1), ("DRFA-GA", 1), ("q-FedAvg", 1)])
def test_so_it_is_elsewhere(name: str, exchanges: int) -> None:
    def down(step: fs.schedules.Schedule | float) -> int:
        one = fs.algorithm(name, problem=algorithm(0.1).problem, primal_step=step, local_steps=2, batch_size=4)
        return int(fs.run(one, classes(), 2, seed=3).history[-1]["bytes_down"])

    flat = fs.schedules.Staged([(1, 0.1)])  # the same steps, so that the same clients are drawn
    assert (down(flat) - down(0.1)) % 8 == 0
    assert 0 < down(flat) - down(0.1) <= 2 * 6 * 8 * exchanges
