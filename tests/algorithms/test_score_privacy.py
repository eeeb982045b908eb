"""What leaves a client as a score: how often, how noised, and what that guarantees."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms.fedx.scores import FIRST, ScorePrivacy, Shared, epsilon
from fedsaddle.engines.simulated import SerialEngine
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import BadInput
from fedsaddle.federation.randomness import ClientKeys
from fedsaddle.problems import risks
from fedsaddle.problems.pair_losses import Scores
from small import classes, play, rows_of, seeded


def exact(releases, noise, delta):
    """The exact ε of composed Gaussian releases (Balle, Wang 2018), by bisection."""
    mu = math.sqrt(releases) / noise

    def delta_of(e):
        return norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu)

    low, high = 0.0, 100.0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_of(middle) > delta else (low, middle)
    return high


@pytest.mark.parametrize("releases", [1, 10, 200])
@pytest.mark.parametrize("noise", [5.0, 20.0, 100.0])
def test_the_accounting_is_above_the_exact_value_and_not_far(releases, noise):
    found, least = epsilon(releases, noise, 1e-5), exact(releases, noise, 1e-5)
    assert least <= found <= 1.25 * least + 0.02
    rho = releases / (2 * noise**2)
    assert found <= rho + 2 * math.sqrt(rho * math.log(1e5))  # the simpler formula of Bun and Steinke


def test_rounds_add_up():
    privacy = ScorePrivacy(1.0, 10.0)
    assert privacy.epsilon(9) == pytest.approx(epsilon(10, 10.0))
    assert privacy.epsilon(9, both_sets=True) == pytest.approx(epsilon(20, 10.0))
    assert privacy.epsilon(9) < privacy.epsilon(99)
    assert epsilon(0, 1.0) == 0
    assert epsilon(1, 0.0) == math.inf


@pytest.mark.parametrize(("bound", "noise"), [(0, 1), (1, 0), (-1, 1), (1, math.inf), ("1", 1), (1, None)])
def test_bad_values(bound, noise):
    with pytest.raises(BadInput, match=r"privacy\.(bound|noise) = "):
        ScorePrivacy(bound, noise)


@pytest.mark.parametrize(("key", "given"), [("rounds", {"rounds": -1}), ("delta", {"rounds": 1, "delta": 0.0})])
def test_bad_questions(key, given):
    with pytest.raises(BadInput, match=f"{key} = "):
        ScorePrivacy(1.0, 1.0).epsilon(**given)


def site(rows, client=0):
    clients = np.array([client])
    return LocalSite(rows, clients, ClientKeys.of(0, 0, 0, clients))


def test_scores_are_clipped_and_noised():
    h = torch.full((1, 20000, 1), 50.0)
    small = ScorePrivacy(bound=3.0, noise=0.01).hide(h, site(classes()), 0, 6)
    inside = small[small < 3.0 - 1e-9]
    assert float(small.max()) <= 3.0 + 1e-12
    assert 0.45 < len(inside) / 20000 < 0.55
    assert float((3.0 - inside).square().mean().sqrt()) == pytest.approx(0.06, rel=0.03)  # 2 · bound · noise
    centre = ScorePrivacy(bound=3.0, noise=0.1).hide(torch.zeros_like(h), site(classes()), 0, 6)
    assert float(centre.mean()) == pytest.approx(0, abs=0.02)
    assert float(centre.std()) == pytest.approx(0.6, rel=0.03)
    several = ScorePrivacy(bound=2.0, noise=1.0).hide(torch.full((1, 50, 3), 9.0), site(classes()), 0, 6)
    assert float(several.norm(dim=-1).max()) <= 2.0 + 1e-12


def test_a_row_is_shared_once_a_round_and_its_client_counts_as_before():
    rows = classes((6, 5), classes=2)
    algorithm = fs.FedX1(
        problem=risks.auc(seeded(lambda: nn.Linear(4, 1))), local_steps=4, batch_size=5, privacy=ScorePrivacy(1.0, 1.0)
    )
    here = site(rows)
    own = here.labelled(1).double().unsqueeze(1)
    shared = Shared(algorithm, here, FIRST, own, 2)
    for k in range(4):
        z = here.minibatch(k, 5, 0, label=1)
        shared.add(z, Scores(torch.randn(1, 5, 1), z.y))
    found = shared.packed()[0]
    there = found[found[:, 0] > 0]
    assert len(there) <= int(own) < 20
    assert float(found[:, 0].sum()) == pytest.approx(20 * float(own))


def test_the_heap_has_no_names_and_scores_show_in_the_ledger():
    rows = classes((6, 5, 9), classes=2)
    problem = risks.partial_auc(seeded(lambda: nn.Linear(4, 1)))
    algorithm = fs.FedX2(
        problem=problem, local_steps=2, batch_size=4, primal_step=0.003, privacy=ScorePrivacy(1.0, 5.0)
    )
    result = fs.run(algorithm, rows, 3)
    fields = result.summary["ledger"]["fields"]
    assert {k for k, how in fields.items() if how == "pooled"} == {
        "First.scores1", "First.scores2", "Local.scores1", "Local.scores2"
    }  # fmt: skip
    assert "per client" not in fields.values()
    assert result.summary["privacy"]["releases"] == 4
    assert result.summary["privacy"]["epsilon"] == pytest.approx(epsilon(4, 5.0))
    assert result.server.scores1.shape[1] == 3  # weight, score, u


def test_the_order_of_the_heap_does_not_follow_the_clients():
    """Client i has the score i; after the shuffle the heap is in no order of clients."""
    xs = [torch.full((8, 1), float(i)) for i in range(6)]
    ys = [torch.tensor([0, 1] * 4) for _ in range(6)]
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.ones_(model.weight)
    algorithm = fs.FedX1(problem=risks.auc(model), local_steps=1, batch_size=6, primal_step=1e-12)
    heap = play(algorithm, SerialEngine(rows_of(xs, ys)), 1)[-1].scores1[:, 1].round()
    assert int((heap[1:] != heap[:-1]).sum()) > 20  # 35 neighbours, of which a heap client by client has 5 changes
    assert heap.long().bincount().tolist() == [6] * 6
