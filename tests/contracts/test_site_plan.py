"""Every algorithm keeps to the plan that a site derives from it, whatever its clients answer, and no other tasks do."""

from __future__ import annotations

from collections import Counter

import pytest
from every_algorithm import ONCE, algorithm

from fedsaddle.deployment.remote_clients import placeholder_rows
from fedsaddle.deployment.site_plan import plan_of
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.errors import NobodyAnswered
from fedsaddle.federation.randomness import server_generator
from fedsaddle.federation.wrappers import Lossy, Wrapper

ROUNDS = 9


class Noted(Wrapper):
    """Notes which tasks are asked for, by round and exchange."""

    def __init__(self, inner) -> None:
        super().__init__(inner)
        self.asked, self.at = [], (0, 0)

    def begin(self, round):
        super().begin(round)
        self.at = (round, 0)

    def ask(self, cohort, task, sent, *, weights=None):
        self.asked.append((self.at, task.__name__))
        self.at = (self.at[0], self.at[1] + 1)
        return self.inner.ask(cohort, task, sent, weights=weights)


@pytest.mark.parametrize("lost", [0.0, 0.3], ids=["all answer", "some replies are lost"])
@pytest.mark.parametrize(("case", "world"), ONCE)
def test_the_algorithm_keeps_to_its_plan(case, world, lost):
    rows = world.rows()
    plan = plan_of(algorithm(case, world), placeholder_rows(rows.x, rows.y), rows.count, ROUNDS, 3)
    assert plan.patterns, "it could be rehearsed"
    one, engine = algorithm(case, world), SerialEngine(rows, 3)
    clients = Noted(Lossy(engine, lost, 3) if lost else engine)
    server = one.start(clients)
    for round in range(ROUNDS):
        clients.begin(round)
        try:
            server = one.round(server, clients, server_generator(3, round))
        except NobodyAnswered:
            clients.begin(round)
        clients.commit()
    done: dict[int, dict[int, str]] = {}
    times: Counter[str] = Counter()
    for at, task in clients.asked:
        before = done.setdefault(at[0], {})
        assert plan.objection(task, at, before, times[task]) == ""
        before[at[1]] = task
        times[task] += 1
    for round in range(ROUNDS):
        before = done.get(round, {})
        assert plan.objection(task, (round, 10**9), before, 0)
        assert plan.objection("another", (round, max(before, default=-1) + 1), before, 0)
