"""A user's own algorithm runs on every engine, and a task that states what it releases has privacy and all the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated as Annotated_

import pytest
import torch
from torch import Tensor

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.federation.records import Averaged
from fedsaddle.federation.tasks import records_of
from fedsaddle.privacy.client_level import check_client_level
from small import classes, loopback, play, serial


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


@dataclass(frozen=True)
class Model:
    w: Tensor


@dataclass(frozen=True)
class Trained:
    w: Annotated_[Averaged, fs.UpdateOf("w")]


@dataclass(frozen=True, kw_only=True)
class MySgd:
    """An algorithm outside of the package: no line of the package knows its name."""

    problem: fs.Supervised
    batch_size: int = 8
    local_steps: int = 3
    sampled_clients: int | None = None
    secret_cohorts = True

    def start(self, clients):
        return Model(self.problem.initial())

    def round(self, server, clients, rng):
        S = rng.choice(clients.count, self.sampled_clients or clients.count, replace=False)
        return Model(clients.ask(S, self.train, server)[1].w)

    @fs.task(releases=fs.per_step())
    def train(self, own: None, sent: Model, site: fs.Site) -> tuple[None, Trained]:
        w = site.broadcast(sent.w)
        for t in range(self.local_steps):
            w = w - 0.1 * self.problem.gradient(w, site.minibatch(t, self.batch_size))
        return None, Trained(w)

    def model(self, server):
        return server.w


class Again(MySgd):
    """Its task says nothing of what it releases."""

    def train(self, own, sent, site):
        return super().train(own, sent, site)


class Twice(MySgd):
    """It asks twice a round, which its tasks do not tell."""

    def round(self, server, clients, rng):
        return super().round(super().round(server, clients, rng), clients, rng)


def supervised():
    return fs.Supervised(fs.models.logistic_regression(4, 3))


def test_an_own_algorithm_has_privacy_of_rows():
    """The same noise as FedAvg with the same steps, because it releases as much."""
    privacy, plain = fs.Privacy(epsilon=8, rounds=4), fs.FedAvg(problem=supervised(), batch_size=8, local_steps=3)
    mine, known = (fs.Private(algorithm=a, privacy=privacy) for a in (MySgd(problem=supervised()), plain))
    assert mine.noise(100) == known.noise(100) > 0
    result = fs.run(MySgd(problem=supervised()), classes(), 4, privacy=privacy)
    assert 0 < result.summary["privacy"]["epsilon_spent"] <= 8
    other = fs.run(MySgd(problem=supervised()), classes(), 4)
    assert not torch.equal(result.model, other.model)


@pytest.mark.filterwarnings("ignore:privacy.unit = 'client' with 2 clients")
def test_an_own_algorithm_has_privacy_of_clients():
    privacy = fs.Privacy(epsilon=8, unit="client", rounds=3)
    result = fs.run(MySgd(problem=supervised(), sampled_clients=2), classes(), 3, privacy=privacy)
    assert 0 < result.summary["privacy"]["epsilon_spent"] <= 8


def test_an_own_algorithm_has_secure_aggregation():
    plain = fs.run(MySgd(problem=supervised()), classes(), 2)
    hidden = fs.run(MySgd(problem=supervised()), classes(), 2, privacy=fs.Privacy(secure_aggregation=True))
    torch.testing.assert_close(hidden.model, plain.model, rtol=0, atol=1e-6)


@pytest.mark.parametrize("private", [False, True])
def test_an_own_algorithm_over_the_wire(private):
    alg = MySgd(problem=supervised())
    alg = fs.Private(algorithm=alg, privacy=fs.Privacy(epsilon=8, rounds=2)) if private else alg
    assert set(records_of(alg)) == {"Model", "Trained"}
    here, there = play(alg, serial(classes()), 2), play(alg, loopback(alg, classes(), chunk=1), 2)
    assert torch.equal(alg.model(here[-1]), alg.model(there[-1]))


@dataclass(frozen=True)
class Whole:
    w: fs.Parameters
    step: float


@dataclass(frozen=True)
class Walked:
    steps: Annotated_[Tensor, fs.Holds.OTHER]


@dataclass(frozen=True)
class Ended:
    w: Annotated_[Averaged, fs.UpdateOf("w")]
    loss: Annotated_[fs.PerClient, fs.Holds.OTHER]


@dataclass(frozen=True, kw_only=True)
class MyOwn(MySgd):
    """Its records declare which tensors are models; its clients count their steps, and show a loss."""

    def fresh(self, site):
        return Walked(site.sizes.new_zeros(len(site.clients)))

    def round(self, server, clients, rng):
        return Model(clients.ask(range(clients.count), self.train, Whole(server.w, 0.1))[1].w)

    def train(self, own: Walked, sent: Whole, site: fs.Site) -> tuple[Walked, Ended]:
        w = site.broadcast(sent.w)
        for t in range(self.local_steps):
            w = w - sent.step * self.problem.gradient(w, site.minibatch(t, self.batch_size))
        return Walked(own.steps + self.local_steps), Ended(w, self.problem.value(w, site.everything()))


@dataclass(frozen=True)
class Shows(Ended):
    more: Averaged | None = None


class Betrays(MyOwn):
    def train(self, own: Walked, sent: Whole, site: fs.Site) -> tuple[Walked, Shows]:
        own, reply = super().train(own, sent, site)
        return own, Shows(reply.w, reply.loss, reply.w - sent.step)


@pytest.mark.parametrize("engine", ["serial", "vectorised", "processes"])
def test_an_own_algorithm_keeps_layers_at_the_clients(engine):
    """As FedAvg with the same steps does, beside a memory of its own."""
    mine, known = (
        MyOwn(problem=supervised()),
        fs.FedAvg(problem=supervised(), batch_size=8, local_steps=3, weighting="uniform"),
    )
    found, expected = (
        fs.run(fs.Personal(algorithm=a, layers=["*bias"]), classes(), 3, engine=how)
        for a, how in ((mine, engine), (known, "serial"))
    )
    torch.testing.assert_close(found.model, expected.model, rtol=0, atol=1e-12)
    assert not torch.equal(found.client_model(0), found.client_model(1))
    for i in range(classes().count):
        torch.testing.assert_close(found.client_model(i), expected.client_model(i), rtol=0, atol=1e-12)


def test_an_own_algorithm_with_layers_resumes(tmp_path):
    def run(rounds, folder, **options):
        data = fs.load("iris", split="iid", clients=3)
        problem = fs.Supervised(fs.models.logistic_regression(4, 3).float())
        personal = fs.Personal(algorithm=MyOwn(problem=problem), layers=["*bias"])
        return fs.run(personal, data, rounds, out=tmp_path / folder, options=fs.RunOptions(report=False), **options)

    whole = run(4, "whole")
    run(2, "half")
    resumed = run(4, "half", resume=True)
    assert torch.equal(whole.model, resumed.model)
    assert all(torch.equal(whole.client_model(i), resumed.client_model(i)) for i in range(3))


def test_what_does_not_declare_its_models_cannot_keep_layers():
    for made, said in (
        (MySgd(problem=supervised()), r"'MySgd': cannot .*: Model\.w is not declared as a model, .*fs\.Parameters"),
        (Annotated(problem=game()), r"'Annotated': cannot .*: its tasks' types do not name their records; annotate"),
    ):
        with pytest.raises(BadInput, match=said):
            fs.Personal(algorithm=made, layers=["*"])
    personal = fs.Personal(algorithm=Betrays(problem=supervised()), layers=["*bias"])
    with pytest.raises(BadInput, match=r"'more' would show them: it is as long as a model"):
        fs.run(personal, classes(), 1)


def test_what_has_no_private_form_is_refused_by_name():
    privacy = fs.Privacy(epsilon=8, rounds=2)
    with pytest.raises(BadInput, match=r"'Again': has no private form: what train releases .* @fs\.task\(releases="):
        fs.Private(algorithm=Again(problem=supervised()), privacy=privacy)
    with pytest.raises(BadInput, match=r"'Steps': has no client-level privacy: .* secret_cohorts"):
        check_client_level(Steps())
    with pytest.raises(BadInput, match=r"is planned for 2 rounds, and client \d has spent it"):
        fs.run(Twice(problem=supervised()), classes(), 2, privacy=privacy)
