"""What one row, patient or client can move in every field that is released, and that the noise goes with it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("dp_accounting")

import fedsaddle as fs
from fedsaddle.algorithms.drfa import Probe
from fedsaddle.algorithms.drfa import Start as DrfaStart
from fedsaddle.data.store import Stacked
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.privacy import accountant
from fedsaddle.privacy.client_level import ClientPrivate, exchange_of
from fedsaddle.privacy.private import Private, units_of
from fedsaddle.privacy.problems import (
    PrivateMinimax,
    PrivateMinimisation,
    Sensitivities,
    check_problem,
    mixes_gradients,
    mixes_rows,
)
from fedsaddle.privacy.site import PrivateSite
from fedsaddle.problems.scored import ByScores, Slopes
from fedsaddle.problems.supervised import shares
from small import classes, play, seeded, serial

ROWS, LIMITS = 6, Sensitivities(primal=0.7, dual=0.4, loss=0.3)
G = torch.Generator().manual_seed(3)
X = 30 * torch.randn(ROWS, 4, generator=G, dtype=torch.float64)  # large: every limit is reached
LABELS = torch.tensor([0, 1, 0, 1, 1, 0])


def game(x, y, batch):
    """A min-max problem of which nothing is known but the value of each row."""
    return 20 * (batch.x @ x).tanh() + 0.1 * (batch.x @ x) + 20 * (batch.x @ y) - y.square().sum()


class OwnAuc(fs.MinimaxAuc):
    """A subclass with a gradient of its own, and the row slopes of another."""

    def gradients(self, x, y, batch):
        g = super().gradients(x, y, batch)
        return g._replace(x=3 * g.x, y=-g.y)


@dataclass(frozen=True, kw_only=True)
class SlopesAlone(ByScores):
    """A problem that knows its slopes of batches, and not of rows: `mean(h² / 2 + y h) - y²`."""

    def initial(self):
        x = self.flat.initial()
        return x, x.new_zeros(1)

    def slopes(self, scores, x, y, batch):
        share = shares(scores[..., 0], batch)
        h = scores[..., 0]
        slope = (h + y) * share
        return Slopes(slope.unsqueeze(-1), (h * share).sum(1, keepdim=True) - 2 * y)


class OwnLoss(fs.Supervised):
    def value(self, w, batch):
        return 2 * super().value(w, batch)

    def gradient(self, w, batch):
        return -super().gradient(w, batch)


def problems():
    linear, single = seeded(lambda: nn.Linear(4, 3)), seeded(lambda: nn.Linear(4, 1))
    start = torch.ones(4, dtype=torch.float64)
    deep = seeded(lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 3)))
    return {
        "chain": fs.Supervised(linear),
        "module": fs.Supervised(deep),
        "auc": fs.MinimaxAuc(model=single, positive_share=0.3),
        "own auc": OwnAuc(model=single, positive_share=0.3),
        "slopes alone": SlopesAlone(model=single),
        "own loss": OwnLoss(linear),
        "class-fair": fs.ClassFair(model=linear, classes=3),
        "robust": fs.RobustTraining(model=linear, shape=(4,)),
        "game": fs.Minimax(game, start_x=start / 100, start_y=start, best_response=lambda x, rows: 10 * rows.x.mean(0)),
    }


def batch(noise=0.0, without=None, times=1):
    """All rows, of so many clients alike, perhaps one of which counts nothing."""
    clients = np.arange(times)
    rows = Stacked(X.repeat(times, 1), LABELS.repeat(times), ROWS * np.arange(times + 1))
    site = PrivateSite(LocalSite(rows, clients, ClientKeys.of(0, 0, 0, clients)), lambda n: noise, False)
    found = site.everything()
    if without is not None:
        found.keys.weight[:, without] = 0.0
    return found


def released(problem, batch):
    """Each field that the problem can release, times the number of rows, with its limit."""
    some = len(batch.x)
    if isinstance(problem, fs.Supervised):
        private = PrivateMinimisation(problem, LIMITS)
        w = 3 * problem.initial().expand(some, -1) + 0.1
        return {
            "gradient": (ROWS * private.gradient(w, batch), LIMITS.primal),
            "loss": (ROWS * private.value(w, batch)[:, None], LIMITS.loss),
        }
    private = PrivateMinimax(problem, LIMITS)
    x, y = (v.expand(some, -1).clone() + 0.1 for v in problem.initial())
    g = private.gradients(x, y, batch)
    found = {"x": (ROWS * g.x, LIMITS.primal), "y": (ROWS * g.y, LIMITS.dual)}
    if hasattr(problem, "best_dual"):
        found["best dual"] = (ROWS * private.best_dual(x, batch), LIMITS.loss)
    return found


@pytest.mark.parametrize("name", problems())
def test_no_row_moves_a_sum_by_more_than_its_limit_and_some_do_by_that(name):
    problem = problems()[name]
    whole = released(problem, batch())
    moved = dict.fromkeys(whole, 0.0)
    for row in range(ROWS):
        for field, (less, limit) in released(problem, batch(without=row)).items():
            by = float((whole[field][0] - less).norm())
            assert by <= limit * (1 + 1e-9), (field, row)
            moved[field] = max(moved[field], by / limit)
    assert all(most > 0.999 for most in moved.values()), f"{moved}: the rows are meant to reach the limits"


@pytest.mark.parametrize("name", problems())
def test_the_noise_of_every_field_is_that_of_its_limit(name):
    problem, z, times = problems()[name], 2.0, 400 if name == "auc" else 100
    exact, noisy = released(problem, batch(times=times)), released(problem, batch(z, times=times))
    noises = {field: noisy[field][0] - exact[field][0] for field in exact}
    for field, noise in noises.items():
        wanted = z * exact[field][1]
        assert float(noise.std()) == pytest.approx(wanted, rel=5 / (2 * noise.numel()) ** 0.5), field
    first, *others = [noise[:, 0] for noise in noises.values()]
    if not isinstance(problem, fs.Supervised):  # two fields of one batch: the noise of each is its own
        for other in others:
            assert abs(float(torch.corrcoef(torch.stack([first, other]))[0, 1])) < 5 / times**0.5


def client_level(algorithm, count=40, noise=None, clip=0.05, seed=0, **privacy):
    g = torch.Generator().manual_seed(0)
    x, y = torch.randn(3 * count, 4, generator=g, dtype=torch.float64), torch.randint(3, (3 * count,), generator=g)
    settings = fs.Privacy(epsilon=4, unit="client", rounds=50, clip=clip, **privacy)
    made = ClientPrivate(serial(Stacked(x, y, 3 * np.arange(count + 1))), settings, algorithm, seed)
    made.noise = made.noise if noise is None else noise
    return made


def drfa(**options):
    problem = fs.Supervised(seeded(lambda: nn.Linear(4, 3)))
    return fs.Drfa(problem=problem, local_steps=3, batch_size=3, primal_step=0.5, weighting="weight", **options)


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr("fedsaddle.privacy.client_level.noise_for", lambda *given: 2.0)


def test_no_client_moves_both_models_of_drfa_by_more_than_its_weight_allows(quick):
    """Two averaged fields, final and snapshot, are clipped together; weights differ; the noise goes by the largest."""
    alg, count = drfa(), 6
    weights = np.linspace(0.2, 3.0, count)

    def asked(noise, seed=0):
        made = client_level(alg, count, noise, seed=seed)
        made.begin(0)
        sent = DrfaStart(alg.start(made).w, 2)
        _, found = made.ask(np.arange(count), alg.local_sgd, sent, weights=weights)
        return torch.cat([found.final, found.snapshot]) * weights.sum()

    exact = asked(0.0)
    noise = torch.stack([asked(2.0, seed) - exact for seed in range(30)])
    wanted = 2.0 * 0.05 * 3.0
    assert float(noise.std()) == pytest.approx(wanted, rel=5 / (2 * noise.numel()) ** 0.5)

    def alone(i):
        made = client_level(alg, count, 0.0)
        made.begin(0)
        sent = DrfaStart(alg.start(made).w, 2)
        _, found = made.ask(np.array([i]), alg.local_sgd, sent, weights=weights[[i]])
        return torch.cat([found.final - sent.w, found.snapshot - sent.w])

    changes = [float(alone(i).norm()) for i in range(5)]
    assert max(changes) <= 0.05 * (1 + 1e-9)
    assert max(changes) > 0.0499, "clipped, all fields together"


def test_a_client_that_does_not_answer_counts_as_no_change(quick):
    alg = fs.FedAvg(problem=drfa().problem, local_steps=3, batch_size=3, primal_step=0.5, weighting="uniform")
    made = client_level(alg, noise=0.0, clip=100.0)
    whole = play(alg, made, 1)[-1].w
    lossy = ClientPrivate(Lossy(made.inner, 0.5, 1), made.privacy, alg, 0)
    lossy.noise = 0.0
    start = alg.start(made).w
    assert float((play(alg, lossy, 1)[-1].w - start).norm()) < 0.8 * float((whole - start).norm())


def test_who_was_asked_earns_a_discount_only_where_it_stays_a_secret():
    auc = fs.MinimaxAuc(model=seeded(lambda: nn.Linear(4, 1)), positive_share=0.3)
    sgda = {"problem": auc, "sampled_clients": 5}
    discount = [fs.FedAvg(problem=drfa().problem, sampled_clients=5), fs.LocalSgda(**sgda), fs.CodaPlus(**sgda)]
    none = [
        drfa(sampled_clients=5),
        fs.DrfaGa(problem=drfa().problem, sampled_clients=5),
        fs.Codasca(**sgda),
        fs.LocalSgda(**sgda, local_steps=4, snapshot_every=3),
        fs.MomentumLocalSgda(**sgda, momentum_at_sync="keep"),
    ]
    for alg in discount:
        assert exchange_of(alg, 50, 5) == (0.1, 50), type(alg).__name__
        assert exchange_of(alg, 50, 50) == (1.0, 0), "nobody is left out"
    for alg in none:
        assert exchange_of(alg, 50, 5) == (1.0, 0), type(alg).__name__


def test_a_budget_that_no_noise_can_keep_is_refused(monkeypatch):
    monkeypatch.setattr(accountant, "MOST", 4.0)
    with pytest.raises(fs.BadInput, match=r"epsilon = 0.01: is out of reach with delta = 1e-05, even with noise of 4"):
        accountant.noise_for((accountant.Event(1.0, 1, 10),), 0.01, 1e-5)


def test_models_that_take_no_single_row_are_refused():
    class Whitened(nn.Module):
        def __init__(self):
            super().__init__()
            self.line = nn.Linear(4, 3)

        def forward(self, x):
            if len(x) < 2:
                raise ValueError("wants more rows")
            return self.line(x)

    batch_norm = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3, track_running_stats=False), nn.Linear(3, 3))
    with pytest.raises(fs.BadInput, match=r"BatchNorm.*use nn.GroupNorm"):
        check_problem(fs.Supervised(batch_norm))
    assert mixes_rows(fs.Supervised(Whitened()).flat, torch.zeros(3, 4))


def test_a_large_delta_is_warned_of(monkeypatch):
    monkeypatch.setattr(Private, "noise", lambda self, units: 2.0)
    told, rows = [], Stacked(X, LABELS, np.array([0, 3, 6]))
    alg = fs.FedAvg(problem=fs.Supervised(seeded(lambda: nn.Linear(4, 3))), local_steps=1, batch_size=1)
    fs.run(
        alg, rows, 1, privacy=fs.Privacy(epsilon=4, delta=0.5), callbacks=[fs.LambdaCallback(on_warning=told.append)]
    )
    assert any("privacy.delta = 0.5 with 3 of unit 'row' at a client" in text for text in told)
    told.clear()
    fs.run(alg, rows, 1, privacy=fs.Privacy(epsilon=4), callbacks=[fs.LambdaCallback(on_warning=told.append)])
    assert not any("delta" in text for text in told)


def test_what_has_no_private_form_is_refused() -> None:
    class Later(fs.Supervised):
        def slope_at(self, w, rows):
            """What an algorithm to come may ask for."""
            return rows.x.sum(0)

    private = PrivateMinimisation(Later(seeded(lambda: nn.Linear(4, 3))), LIMITS)
    assert private.dimension == private.plain.dimension
    with pytest.raises(fs.BadInput, match=r"Later\.slope_at has no private form"):
        _ = private.slope_at


@pytest.mark.parametrize("name", ["own auc", "own loss", "slopes alone"])
def test_a_subclass_with_its_own_gradient_is_private_with_that_one(name):
    """Sensitivities that nothing reaches, and no noise: the private gradient is the problem's own."""
    wide, problem = Sensitivities(1e9, 1e9, 1e9), problems()[name]
    rows = batch()
    plain = fs.Batch(rows.x, rows.y)
    if name == "own loss":
        w, private = problem.initial()[None], PrivateMinimisation(problem, wide)
        torch.testing.assert_close(private.gradient(w, rows), problem.gradient(w, plain))
        torch.testing.assert_close(private.value(w, rows), problem.value(w, plain))
        return
    x, y = (v[None] + 0.1 for v in problem.initial())
    found, wanted = PrivateMinimax(problem, wide).gradients(x, y, rows), problem.gradients(x, y, plain)
    torch.testing.assert_close(found[:2], wanted[:2])


def test_a_problem_whose_gradient_mixes_rows_is_refused():
    """A user's function may look at the whole batch; row by row it would be another problem in silence."""
    start = torch.ones(4, dtype=torch.float64)

    def centred(x, y, batch):
        return ((batch.x - batch.x.mean(0)) @ x).square() + batch.x @ y - y.square().sum()

    rows = classes()
    for function, refused in ((centred, True), (game, False)):
        algorithm = fs.LocalSgda(problem=fs.Minimax(function, start_x=start, start_y=start), local_steps=1)
        private = Private(algorithm=algorithm, privacy=fs.Privacy(epsilon=4, rounds=1))
        if refused:
            with pytest.raises(fs.BadInput, match="problem = 'Minimax': has no private form: the gradient of a batch"):
                units_of(private, rows, rows.sizes)
        else:
            assert units_of(private, rows, rows.sizes).tolist() == rows.sizes.tolist()


def test_mixed_rows_are_seen_where_the_start_hides_them_and_not_in_a_single_row():
    """At w = 0 the gradient of a centred square is 0 for rows together and alone; one row cannot tell."""

    def centred(x, y, batch):
        return ((batch.x - batch.x.mean(0)) @ x).square() + batch.x @ y - y.square().sum()

    zero = torch.zeros(4, dtype=torch.float64)
    problem = fs.Minimax(centred, start_x=zero, start_y=zero)
    assert mixes_gradients(problem, X, LABELS)
    assert not mixes_gradients(problem, X[:1], LABELS[:1])


def test_rounding_in_a_deep_network_is_not_taken_for_rows_that_are_mixed():
    """Far from the start such a network is chaotic: it would turn the last bit of a row's score into another score."""

    def deep():
        return nn.Sequential(*(part for _ in range(40) for part in (nn.Linear(32, 32), nn.Tanh())), nn.Linear(32, 3))

    assert not mixes_rows(fs.Supervised(seeded(deep).float()).flat, torch.zeros(3, 32))


def test_losses_of_clients_count_between_zero_and_their_bound(quick):
    alg, count = drfa(), 12
    made, plain = client_level(alg, count, 0.0, loss_bound=1.1), client_level(alg, count).inner
    found = []
    for clients in (made, plain):
        clients.begin(0)
        found.append(clients.ask(np.arange(count), alg.local_loss, Probe(alg.problem.initial()))[1].loss)
    assert 0 < int((found[1] > 1.1).sum()) < count, "some are cut"
    torch.testing.assert_close(found[0], found[1].clamp(max=1.1))
