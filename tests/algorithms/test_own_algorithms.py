"""A user's own min-max algorithm: whatever it says of its `problem`, it is made, and run on every engine."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import Averaged
from small import classes


@dataclass(frozen=True)
class Pair:
    x: Tensor
    y: Tensor


@dataclass(frozen=True)
class Slopes:
    x: Averaged
    y: Averaged


class Steps:
    """Descent and ascent along the means of the clients' gradients."""

    def start(self, clients):
        return Pair(*self.problem.initial())

    def round(self, server, clients, rng):
        _, mean = clients.ask(range(clients.count), self.local, server)
        return Pair(server.x - 0.1 * mean.x, self.problem.project_y(server.y + 0.1 * mean.y))

    def local(self, own, sent, site):
        g = self.problem.gradients(site.broadcast(sent.x), site.broadcast(sent.y), site.everything())
        return None, Slopes(g.x, g.y)

    def model(self, server):
        return server.x


@dataclass(frozen=True, kw_only=True)
class Annotated(Steps):
    problem: fs.Minimax


class Plain(Steps):
    def __init__(self, problem):
        self.problem = problem


@dataclass(frozen=True, kw_only=True)
class Unknown(Steps):
    problem: NoSuchName  # noqa: F821  # as a name that is imported for type checkers alone


@dataclass(frozen=True, kw_only=True)
class Missing(Steps):
    problem: fs.NoSuchName


EVERY = [Annotated, Plain, Unknown, Missing]


def game():
    def rows(x, y, batch):
        return batch.x @ x * y.sum() + x @ x / 2 - y @ y / 2

    return fs.Minimax(rows, start_x=torch.ones(4), start_y=torch.zeros(2), project_y=fs.projections.Ball(1.0))


def by_hand(rows, rounds):
    """The same in closed form: f_i depends on the mean a_i of a client's rows alone."""
    a = torch.stack([rows.client(i)[0].mean(0) for i in range(rows.count)]).mean(0)
    x, y = torch.ones(4), torch.zeros(2)
    for _ in range(rounds):
        gx, gy = a * y.sum() + x, (a @ x).expand(2) - y
        x, y = x - 0.1 * gx, y + 0.1 * gy
        y = y / max(1.0, float(y.norm()))
    return x


@pytest.mark.parametrize("make", EVERY)
@pytest.mark.parametrize("engine", ["serial", "vectorised"])
def test_it_is_made_and_run(make, engine):
    result = fs.run(make(problem=game()), classes(), 3, engine=engine)
    torch.testing.assert_close(result.model, by_hand(classes(), 3), rtol=0, atol=1e-12)


@dataclass(frozen=True, kw_only=True)
class Minimises(Steps):
    problem: fs.Supervised


def test_a_problem_of_another_kind_than_it_says_is_refused():
    """That it is for fs.Supervised, its annotation says."""
    with pytest.raises(BadInput, match="problem = 'Minimax': is not for Minimises; give it one that minimises"):
        fs.run(Minimises(problem=game()), classes(), 1)
