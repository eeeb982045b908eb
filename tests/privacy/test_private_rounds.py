"""Private rounds: against numpy, the noise's variance, Poisson samples, budgets, resuming and what is refused."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("dp_accounting")

import fedsaddle as fs
from fedsaddle.algorithms.drfa import Probe
from fedsaddle.algorithms.fedavg import Start
from fedsaddle.data.store import Stacked
from fedsaddle.engines.site import LocalSite
from fedsaddle.federation.randomness import ClientKeys, server_generator
from fedsaddle.federation.tasks import task_of
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.privacy.accountant import Event, epsilon_of, events_of, from_plain, planned_releases, to_plain
from fedsaddle.privacy.client_level import Exchange, events
from fedsaddle.privacy.problems import check_problem
from fedsaddle.privacy.site import NOISE_STREAM, PrivateSite, SecretKeys, SeededNormals
from privacy_quickly import coarse_accountant  # noqa: F401
from small import classes as unequal
from small import play, seeded, serial

τ, B, η = 2, 3, 0.3
SIZES = (9, 9, 9, 2)  # two kinds of client: the noise of each kind takes a second to find
PRIVACY = fs.Privacy(epsilon=4, rounds=5, clip=0.7, dual_clip=0.4)


def classes(sizes=SIZES, **options):
    return unequal(sizes, **options)


def private(algorithm, privacy=PRIVACY):
    return fs.Private(algorithm=algorithm, privacy=privacy)


def fedavg(**options):
    problem = fs.Supervised(seeded(lambda: nn.Linear(4, 3)), l2=0.1)
    return fs.FedAvg(problem=problem, local_steps=τ, batch_size=B, primal_step=η, **options)


def drawn(rows, i, t, exchange=0, seed=0):
    """The Poisson sample of client i at step t, row by row, and a source of its noise, from the same uniforms."""
    keys = ClientKeys.of(seed, 0, exchange, np.array([i]))
    n, chosen, at = int(rows.sizes[i]), [], -1
    q = min(1.0, B / n)
    for u in 1 - keys.uniforms(t, 500)[0]:
        at += 1 + (0 if q == 1 else int(np.floor(np.log(u) / np.log1p(-q))))
        if at >= n:
            break
        chosen.append(at)
    normals = SeededNormals(keys.uniforms(t, 1, NOISE_STREAM)[:, 0])
    return chosen, q * n, lambda call, size: normals(t, 0, call, size, torch.zeros(1, dtype=torch.float64))[0].numpy()


def clipped(g, limit):
    return g * min(1.0, limit / max(np.linalg.norm(g), 1e-300))


def test_a_round_of_private_fedavg_is_the_box_in_numpy():
    rows, alg = classes(), private(fedavg())
    state = play(alg, serial(rows), 1)[-1]
    start, finals = alg.problem.initial().numpy(), []
    for i in range(rows.count):
        x, y = (v.numpy() for v in rows.client(i))
        w, z = start.copy(), alg.noise(len(x))
        for t in range(τ):
            chosen, expected, noise = drawn(rows, i, t)
            total = np.zeros_like(w)
            for r in chosen:
                s = w[:12].reshape(3, 4) @ x[r] + w[12:]
                d = np.exp(s - s.max()) / np.exp(s - s.max()).sum() - np.eye(3)[y[r]]
                total += clipped(np.concatenate([np.outer(d, x[r]).ravel(), d]), 0.7)
            w = w - η * ((total + z * 0.7 * noise(0, len(w))) / expected + 0.1 * w)
        finals.append(w)
    mean = np.average(finals, axis=0, weights=rows.sizes)
    np.testing.assert_allclose(state.w.numpy(), mean, rtol=0, atol=1e-10)


def test_a_round_of_private_local_sgda_is_the_box_in_numpy():
    rows, p, η_y = classes(classes=2), 0.3, 0.2
    problem = fs.MinimaxAuc(model=seeded(lambda: nn.Linear(4, 1)), positive_share=p)
    alg = private(fs.LocalSgda(problem=problem, local_steps=τ, batch_size=B, primal_step=η, dual_step=η_y))
    state = play(alg, serial(rows), 1)[-1]
    xs, ys = [], []
    for i in range(rows.count):
        a, label = (v.numpy() for v in rows.client(i))
        x, α, z = problem.initial()[0].numpy().copy(), 0.0, alg.noise(len(a))
        for t in range(τ):
            chosen, expected, noise = drawn(rows, i, t)
            sum_x, sum_y = np.zeros_like(x), 0.0
            for r in chosen:
                h, up = x[:4] @ a[r] + x[4], label[r] == 1
                side = 2 * (1 - p) * (h - x[5]) if up else 2 * p * (h - x[6])
                slope = side + 2 * (1 + α) * (-(1 - p) if up else p)
                sum_x += clipped(np.array([*(slope * a[r]), slope, -side * up, -side * (1 - up)]), 0.7)
                gy = 2 * (-(1 - p) if up else p) * h - 2 * p * (1 - p) * α
                sum_y += float(np.clip(gy, -0.4, 0.4))
            x, α = (
                x - η * (sum_x + z * 0.7 * noise(0, len(x))) / expected,
                α + η_y * (sum_y + z * 0.4 * noise(1, 1)[0]) / expected,
            )
        xs.append(x)
        ys.append(α)
    np.testing.assert_allclose(state.x.numpy(), np.mean(xs, 0), rtol=0, atol=1e-10)
    np.testing.assert_allclose(state.y.numpy(), [np.mean(ys)], rtol=0, atol=1e-10)


@pytest.mark.parametrize("secret", [False, True])
def test_the_noise_has_the_stated_variance(secret):
    rows, d = classes((40,)), 15
    alg = private(fs.FedAvg(problem=fs.Supervised(seeded(lambda: nn.Linear(4, 3))), local_steps=1, batch_size=8))
    z, w = alg.noise(40), alg.problem.initial()
    found = []
    for r in range(150):
        keys = SecretKeys(b"s" * 32, bytes([r % 256, r // 256])) if secret else ClientKeys.of(0, r, 0, np.array([0]))
        site = LocalSite(rows, np.array([0]), keys)
        reply = alg.run_task("local_sgd", None, Start(torch.zeros_like(w)), site)[1]
        seen = PrivateSite(LocalSite(rows, np.array([0]), keys), lambda n: 0.0, False)
        exact = alg.inner.problem.gradient(torch.zeros_like(w)[None], seen.minibatch(0, 8))
        found.append((reply.final + 0.1 * exact) / 0.1)  # what is left is the noise, over the expected rows
    noise = torch.cat(found) * 8
    assert noise.numel() == 150 * d
    assert float(noise.std()) == pytest.approx(z * 0.7, rel=5 / (2 * 150 * d) ** 0.5)
    assert abs(float(noise.mean())) < 5 * z * 0.7 / (150 * d) ** 0.5


def test_samples_are_poisson():
    rows = classes((30, 7, 3))
    numbers = np.arange(3)
    taken, sizes = np.zeros(30), []
    for r in range(1000):
        site = PrivateSite(LocalSite(rows, numbers, ClientKeys.of(1, r, 0, numbers)), lambda n: 1.0, False)
        batch = site.minibatch(0, 6)
        mine = batch.rows[0][batch.weight[0] > 0].numpy()
        assert len(np.unique(mine)) == len(mine), "no row is drawn twice"
        np.add.at(taken, mine, 1)
        sizes.append(len(mine))
        assert int(batch.weight[2].sum()) == 3, "fewer rows than the batch: all of them"
    sd = (0.2 * 0.8 / 1000) ** 0.5
    assert (abs(taken / 1000 - 0.2) < 5 * sd).all()
    assert np.var(sizes) == pytest.approx(30 * 0.2 * 0.8, rel=0.2), "binomial, not fixed"


def test_a_patient_counts_as_one_row():
    x, y = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 9, torch.zeros(6).long()
    rows = Stacked(x, y, np.array([0, 6]), units=np.array([0, 0, 0, 1, 1, 2]))
    alg = private(fedavg(), fs.Privacy(epsilon=4, rounds=5, clip=0.7, unit="patient"))
    site = PrivateSite(LocalSite.alone(rows, 0), lambda n: 0.0, True)
    batch = site.everything()
    torch.testing.assert_close(batch.weight, torch.tensor([[1 / 3] * 3 + [1 / 2] * 2 + [1.0]], dtype=torch.float64))
    w = alg.problem.initial()[None]
    g = alg.inner.problem.gradient(w, batch) - 0.1 * w  # without the penalty
    for patient in range(3):  # nobody moves the sum by more than the clip
        seen = PrivateSite(LocalSite.alone(rows, 0), lambda n: 0.0, True)
        less = seen.everything()
        less.keys.weight[0, rows.units == patient] = 0
        assert float((3 * g - 3 * (alg.inner.problem.gradient(w, less) - 0.1 * w)).norm()) <= 0.7
    result = fs.run(fedavg(), rows, 2, privacy=fs.Privacy(epsilon=4, unit="patient"))
    assert result.summary["privacy"]["unit"] == "patient"
    with pytest.raises(fs.BadInput, match="together"):
        fs.run(fedavg(), classes(), 2, privacy=fs.Privacy(epsilon=4, unit="patient"))


def test_a_batch_without_noise_is_refused():
    alg = private(fedavg())
    with pytest.raises(fs.BadInput, match="needs a batch of a private site"):
        alg.inner.problem.gradient(alg.problem.initial()[None], LocalSite.alone(classes(), 0).minibatch(0, 3))


def test_the_budget_is_what_the_accountant_says_and_lost_replies_count():
    rows = classes()
    whole = fs.run(fedavg(), rows, 3, privacy=fs.Privacy(epsilon=4), lost_replies=0.3)
    budget = whole.summary["privacy"]
    alg = private(fedavg(), fs.Privacy(epsilon=4, rounds=3))
    each = [epsilon_of(events_of(alg.plan, int(n)), alg.noise(int(n)), 1e-5) for n in rows.sizes]
    assert budget["epsilon_spent"] == max(each) <= 4
    early = fs.run(fedavg(), rows, 1, privacy=fs.Privacy(epsilon=4, rounds=3)).summary["privacy"]
    assert 0 < early["epsilon_spent"] < budget["epsilon_spent"]


@pytest.mark.filterwarnings("ignore:the loss ended")  # noise is large
@pytest.mark.filterwarnings("ignore:privacy.unit = 'client' with 3 clients a round")
@pytest.mark.parametrize("unit", ["row", "client"])
def test_resuming_spends_nothing_twice_and_gives_the_same_run(tmp_path, unit):
    rows, privacy, seen = classes(), fs.Privacy(epsilon=4, unit=unit), []
    alg = fedavg(weighting="uniform", sampled_clients=3)
    given = {"privacy": privacy, "lost_replies": 0.2, "evaluate_every": 4}
    whole = fs.run(alg, rows, 4, **given)
    fs.run(
        alg,
        rows,
        4,
        out=tmp_path,
        callbacks=[fs.LambdaCallback(on_round=lambda *_: seen.append(1) or len(seen) == 3)],
        options=fs.RunOptions(report=False),
        **given,
    )
    part = fs.run(alg, rows, 3, out=tmp_path, resume=True, options=fs.RunOptions(report=False), **given)
    assert part.summary["privacy"]["epsilon_spent"] <= whole.summary["privacy"]["epsilon_spent"]
    again = fs.run(alg, rows, 4, out=tmp_path, resume=True, options=fs.RunOptions(report=False), **given)
    assert torch.equal(again.model, whole.model)
    assert again.summary["privacy"] == whole.summary["privacy"]
    with pytest.raises(fs.BadInput, match="planned for 4 rounds"):
        fs.run(alg, rows, 5, out=tmp_path, resume=True, options=fs.RunOptions(report=False), **given)


def test_more_than_planned_is_not_asked_for():
    from fedsaddle.privacy.private import Accounted, units_of

    rows, alg = classes(), private(fedavg(), fs.Privacy(epsilon=4, rounds=1))
    clients = Accounted(serial(rows), alg, units_of(alg, rows, rows.sizes))
    states = play(alg, clients, 1)
    clients.begin(1)
    with pytest.raises(fs.BadInput, match="has spent it"):
        alg.round(states[-1], clients, server_generator(0, 1))


def test_few_clients_are_warned_of():
    told = []
    alg = fedavg(weighting="uniform")
    fs.run(
        alg,
        classes(),
        1,
        privacy=fs.Privacy(epsilon=4, unit="client"),
        callbacks=[fs.LambdaCallback(on_warning=told.append)],
    )
    assert any("it is for 100 clients and more" in text for text in told)


def test_privacy_of_clients_bounds_each_of_them():
    rows = classes()
    alg = fedavg(weighting="uniform")
    with pytest.raises(fs.BadInput, match="weighting"):
        fs.run(fedavg(), rows, 2, privacy=fs.Privacy(epsilon=4, unit="client"))
    with pytest.raises(fs.BadInput, match="has no client-level privacy"):
        fs.run(fs.QFedAvg(problem=alg.problem), rows, 2, privacy=fs.Privacy(epsilon=4, unit="client"))
    with pytest.raises(fs.BadInput, match="leave out robust"):
        fs.run(alg, rows, 2, privacy=fs.Privacy(epsilon=4, unit="client"), robust=fs.Robust(aggregation="median"))
    from fedsaddle.privacy.client_level import ClientPrivate

    clients = ClientPrivate(serial(rows), fs.Privacy(epsilon=4, unit="client", rounds=1, clip=0.05), alg, 0)
    clients.noise = 0.0
    start = alg.start(clients)
    state = play(alg, clients, 1)[-1]
    assert 0.01 < float((state.w - start.w).norm()) <= 0.05, "the mean of updates that are no longer than the clip"


def bad():
    norm = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    drop = nn.Sequential(nn.Linear(4, 5), nn.Dropout(0.5), nn.Linear(5, 3))
    pairs = fs.risks.Auroc(model=nn.Linear(4, 1)) if hasattr(fs.risks, "Auroc") else None
    weighted = nn.CrossEntropyLoss(weight=torch.ones(3))
    yield "BatchNorm", lambda: fs.FedAvg(problem=fs.Supervised(norm.double())), "BatchNorm.*nn.GroupNorm"
    yield "dropout", lambda: fs.FedAvg(problem=fs.Supervised(drop.double())), "dropout"
    yield "weights", lambda: fs.FedAvg(problem=fs.Supervised(nn.Linear(4, 3).double(), weighted)), "class weights"
    yield "q-FedAvg", lambda: fs.QFedAvg(problem=fedavg().problem), "use FedAvg or DRFA"
    step = fs.CompositionalAuc(model=nn.Linear(4, 1).double(), positive_share=0.4)
    yield "compositional AUC", lambda: fs.CodaPlus(problem=step), "CompositionalAuc.*has no private form.*use auc"
    if pairs is not None:
        yield "FedX", lambda: fs.FedX2(problem=pairs), "do not split by row"


@pytest.mark.parametrize(("make", "complaint"), [pytest.param(m, c, id=n) for n, m, c in bad()])
def test_what_cannot_be_private_is_refused_with_the_reason(make, complaint):
    with pytest.raises(fs.BadInput, match=complaint):
        fs.run(make(), classes(), 1, privacy=fs.Privacy(epsilon=4))


def test_values_that_cannot_be():
    for wrong in ({"epsilon": 0}, {"epsilon": 1e9}, {"epsilon": 1, "delta": 1}, {"epsilon": 1, "unit": "site"}):
        with pytest.raises(fs.BadInput):
            fs.Privacy(**wrong)
    with pytest.raises(fs.BadInput, match="give the number of rounds to plan the noise for"):
        private(fedavg(), fs.Privacy(epsilon=1))


MEMBERS = 30
SEEDS = 8


def attack(privacy, seed):
    """The AUROC of an attack that takes rows of low loss for members, on a model with a weight for every row."""
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(2 * MEMBERS, 60, generator=g), torch.randint(10, (2 * MEMBERS,), generator=g)
    rows = Stacked(x[:MEMBERS], y[:MEMBERS], np.array([0, 10, 20, MEMBERS]))
    problem = fs.Supervised(fs.models.logistic_regression(60, 10))
    alg = fs.FedAvg(problem=problem, local_steps=5, batch_size=5, primal_step=0.5)
    model = fs.run(alg, rows, 12, seed=seed, privacy=privacy, evaluate_every=12).model
    loss = problem.row_measures(model, x, y)["loss"]
    return float((loss[:MEMBERS, None] < loss[None, MEMBERS:]).double().mean())


@pytest.mark.filterwarnings("ignore:the run diverged", "ignore:the loss ended")  # by noise for few rows
def test_an_attack_by_the_loss_fails_where_there_is_noise():
    """Under chance the mean over seeds has this standard error (Mann and Whitney); three of them are the limit."""
    error = ((2 * MEMBERS + 1) / (12 * MEMBERS**2) / SEEDS) ** 0.5
    plain = [attack(None, seed) for seed in range(SEEDS)]
    private = [attack(fs.Privacy(epsilon=1), seed) for seed in range(SEEDS)]
    assert min(plain) > 0.9, "the model knows its rows by heart"
    assert np.mean(plain) - 0.5 > 10 * error
    assert abs(np.mean(private) - 0.5) < 3 * error, "not to be told from chance"


def test_losses_of_clients_have_noise_of_their_bound():
    from fedsaddle.privacy.client_level import ClientPrivate

    rows, privacy = classes((9,) * 400), fs.Privacy(epsilon=4, unit="client", rounds=1, loss_bound=0.5)
    alg = fs.Drfa(problem=fedavg().problem, local_steps=1, batch_size=3, weighting="weight")
    clients = ClientPrivate(serial(rows), privacy, alg, 0)
    clients.begin(0)
    sent = Probe(alg.problem.initial())
    noisy = clients.ask(np.arange(400), alg.local_loss, sent)[1].loss
    exact = serial(rows)
    exact.begin(0)
    bounded = exact.ask(np.arange(400), alg.local_loss, sent)[1].loss.clamp(0, 0.5)
    assert float((noisy - bounded).std()) == pytest.approx(0.5 * clients.noise, rel=5 / 800**0.5)


def test_a_server_that_goes_back_counts_what_it_told(tmp_path):
    """A checkpoint may be older than the last model that was sent: the ledger on the disk is what counts."""
    from fedsaddle.privacy.client_level import ClientPrivate, ServerLedger

    rows, privacy = classes(), fs.Privacy(epsilon=4, unit="client", rounds=2)
    alg = fedavg(weighting="uniform")

    def clients(lost=0.0, seed=0):
        inner = Lossy(serial(rows), lost, seed) if lost else serial(rows)
        return ClientPrivate(inner, privacy, alg, None, ServerLedger.of(tmp_path))

    first = play(alg, clients(), 1)[-1]
    again = clients()
    assert torch.equal(play(alg, again, 1)[-1].w, first.w), "the same answers have the same noise"
    assert sum(again.spent.values()) == 1
    other = clients(0.3, 1)
    assert not torch.equal(play(alg, other, 1)[-1].w, first.w)
    assert sum(other.spent.values()) == 2, "other answers are another release"
    with pytest.raises(fs.BadInput, match="planned for 2 rounds"):
        play(alg, clients(), 1, state=first, first=1)
    assert clients().report()["privacy"]["epsilon_spent"] <= 4


class Asked:
    """Clients that note how they are asked, and restored."""

    count = 3

    def __init__(self):
        self.seen = []

    def begin(self, round):
        self.seen.append(("begin", round))

    def commit(self):
        self.seen.append("commit")

    def ask(self, cohort, task, sent, *, weights=None):
        self.seen.append((list(cohort), weights))
        return cohort, None

    def restore(self, records, notes, algorithm):
        self.seen.append(("restore", records, algorithm))


def test_the_wrapper_that_counts_passes_everything_on():
    from fedsaddle.privacy.private import Accounted

    alg, inner = private(fedavg(), fs.Privacy(epsilon=4, rounds=3)), Asked()
    clients = Accounted(inner, alg, None)
    clients.begin(2)
    clients.ask([0, 2], task_of(alg, "local_sgd"), None, weights=[3.0, 1.0])
    clients.commit()
    spent = {client: [list(entry) for entry in to_plain(released)] for client, released in clients.spent.items()}
    assert set(spent) == {0, 2}
    notes = {"privacy": {"spent": {"1": spent[0]}}}
    clients.restore({7: "kept"}, notes, alg)
    assert clients.spent == {1: from_plain(spent[0])}
    want = [("begin", 2), ([0, 2], [3.0, 1.0]), "commit", ("restore", {7: "kept"}, alg)]
    assert inner.seen == want


def test_what_fedsgda_releases_in_all_rounds():
    """All rows once a round, at two points where the estimator wants the one before; and K samples at two points."""
    start = torch.zeros(2, dtype=torch.float64)
    game = fs.Minimax(lambda x, y, batch: batch.x @ x * y.sum(), start_x=start, start_y=start)
    given = {"problem": game, "local_steps": 3, "batch_size": 4}
    assert planned_releases(fs.FedSgda(**given, estimator=fs.MiniBatch()), 5) == {(4, 4): 15, (None, 2): 5}
    storm = planned_releases(fs.FedSgda(**given, estimator=fs.Storm()), 5)
    assert storm == {(4, 4): 15, (None, 2): 1, (None, 4): 4}


@pytest.mark.parametrize(("given", "key"), [({"trimmed": 0.2}, "trimmed"), ({"hardest": 0.5}, "hardest"), ({}, None)])
def test_means_of_some_rows_cannot_be_private(given, key):
    problem = fs.Supervised(nn.Linear(4, 3).double(), **given)
    if key is None:
        check_problem(problem)
    else:
        with pytest.raises(fs.BadInput, match=f"{key} = .*selects rows by the losses of the others"):
            check_problem(problem)


def test_a_sample_goes_on_with_the_same_numbers_where_the_first_do_not_reach_the_last_row(monkeypatch):
    """Client 0 draws its first 34 rows one after the other, and then every 116th; client 1 all of its rows."""
    asked, tries, cumsum = [], iter(range(5)), np.cumsum

    def uniforms(step, size, stream):
        asked.append(size)
        return torch.cat([torch.zeros(2, 34), torch.full((2, size - 34), 0.5)], 1).double()

    def counted(*given):
        next(tries)  # it ends
        return cumsum(*given)

    site = PrivateSite(SimpleNamespace(sizes=torch.tensor([1000, 3]), uniforms=uniforms), lambda n: 1.0, False)
    with monkeypatch.context() as patch:
        patch.setattr(np, "cumsum", counted)
        found = site._poisson(0, 0, np.array([0.006, 1.0]))
    assert asked == [34, 68]
    assert [rows.tolist() for rows in found] == [[*range(34), *range(149, 1000, 116)], [0, 1, 2]]


def test_each_exchange_with_whole_clients_releases_one_sum():
    made = Counter({Exchange(): 3, Exchange(0.1, 50): 2, Exchange(0.5, 4): 0})
    assert events(made) == (Event(0.1, 1, 2, 50), Event(1.0, 1, 3))


def test_the_most_rounds_that_can_be_planned():
    assert fs.Privacy(epsilon=1, rounds=10**9).rounds == 10**9
    with pytest.raises(fs.BadInput, match="rounds = 1000000001"):
        fs.Privacy(epsilon=1, rounds=10**9 + 1)
