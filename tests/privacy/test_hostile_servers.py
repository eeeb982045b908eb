"""What a server may try: to get budget back, to cancel noise, or to find a row by an overflow."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

pytest.importorskip("dp_accounting")

import fedsaddle as fs
from fedsaddle.algorithms.coda.coda import Start as Stage
from fedsaddle.algorithms.fedavg import Start
from fedsaddle.algorithms.sgda.local_sgda import Start as Piece
from fedsaddle.data.store import Stacked
from fedsaddle.deployment.ledger import SiteBudget, read_ledger
from fedsaddle.deployment.messages import Ask
from fedsaddle.engines.site import LocalSite
from fedsaddle.errors import Refused
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.problems import mixes_rows
from fedsaddle.privacy.site import PrivateSite
from small import seeded

PRIVACY = fs.Privacy(epsilon=4, rounds=3)


@pytest.fixture(autouse=True)
def _any_noise(monkeypatch):
    monkeypatch.setattr(Private, "noise", lambda self, units: 2.0)


def auc():
    return fs.MinimaxAuc(model=seeded(lambda: nn.Linear(4, 1)), positive_share=0.3)


def fedavg(**options):
    problem = fs.Supervised(seeded(lambda: nn.Linear(4, 3)))
    return fs.FedAvg(problem=problem, local_steps=2, batch_size=3, **options)


def budget(folder, algorithm=None, run="one", **options):
    private = fs.Private(algorithm=algorithm or fedavg(), privacy=PRIVACY)
    return SiteBudget(folder / run, private, 9, b"rows", **options)


def asked(round=0, exchange=0, task="local_sgd"):
    return Ask(run="one", fingerprint="f", nonce="n", round=round, exchange=exchange, task=task, starts={}, keep={})


def zeros(size):
    return torch.zeros(size, dtype=torch.float64)


@pytest.mark.parametrize(("first", "last"), [(5, 2), (0, 0), (-3, 0), (0, 1.5), (True, 2)])
def test_fewer_steps_than_none_give_no_budget_back(tmp_path, first, last):
    kept = budget(tmp_path, fs.LocalSgda(problem=auc(), local_steps=2, batch_size=3))
    sent = Piece(zeros(7), zeros(1), 0.1, 0.1, 0, 2)
    kept.draws(asked(0, 0, "local_sgda"), sent, None)
    before = read_ledger(tmp_path / "one")["spent"]
    with pytest.raises(fs.BadInput, match="steps"):
        kept.draws(asked(1, 0, "local_sgda"), replace(sent, first=first, last=last), None)
    assert read_ledger(tmp_path / "one")["spent"] == before
    private = fs.Private(algorithm=fs.CodaPlus(problem=auc()), privacy=PRIVACY)
    with pytest.raises(fs.BadInput, match="steps"):
        private.releases("dsg", Stage(zeros(7), zeros(1), zeros(7), 0.1, 0.1, -4, 0))


def test_two_processes_of_a_site_share_one_ledger(tmp_path):
    one, other = budget(tmp_path), budget(tmp_path)
    for r in range(3):
        (one, other)[r % 2].draws(asked(r), Start(zeros(15)), None)
    for kept in (one, other):
        with pytest.raises(Refused, match="and spent"):
            kept.draws(asked(3), Start(zeros(15)), None)
        kept.draws(asked(0), Start(zeros(15)), None)  # known, and answered with the same noise


def test_what_else_a_reply_depends_on_keys_its_noise(tmp_path):
    first = budget(tmp_path, fingerprint="a").draws(asked(), Start(zeros(15)), None)
    same = budget(tmp_path, fingerprint="a").draws(asked(), Start(zeros(15)), None)
    assert (first.secret, first.given) == (same.secret, same.given)
    with pytest.raises(Refused, match="another privacy"):  # such as another clip, or other steps
        budget(tmp_path, fingerprint="b")
    for other in (asked(0, 1),):
        assert budget(tmp_path, fingerprint="a").draws(other, Start(zeros(15)), None).given != first.given
    moved = budget(tmp_path, fingerprint="a").draws(asked(), Start(zeros(15) + 1e-9), None)
    assert moved.given != first.given
    like = zeros(4)
    assert not torch.equal(moved(0, 0, 0, 4, like), first(0, 0, 0, 4, like))


def test_runs_under_other_names_add_up(tmp_path):
    first, second, wide = (budget(tmp_path, run="a"), budget(tmp_path, run="b"), budget(tmp_path, run="c", in_all=8.0))
    first.draws(asked(), Start(zeros(15)), None)
    with pytest.raises(Refused, match=r"epsilon_in_all = 4 \(by default .*; with this run it would be 8"):
        second.draws(asked(), Start(zeros(15)), None)
    assert not read_ledger(tmp_path / "b")["spent"], "nothing was told"
    wide.draws(asked(), Start(zeros(15)), None)
    first.draws(asked(1), Start(zeros(15)), None)  # it goes on


@pytest.mark.parametrize("kind", ["chain", "module", "auc"])
def test_a_row_that_overflows_cannot_be_seen(kind):
    """A model so large that one row's numbers overflow must not turn the sum into NaN: that would tell of the row."""
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x[3] = 1e300
    y = torch.tensor([0, 1, 0, 1, 1])
    model = {"chain": lambda: nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3)),
             "module": lambda: nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 3))}  # fmt: skip
    if kind == "auc":
        alg = fs.LocalSgda(problem=auc())
    else:
        alg = fs.FedAvg(problem=fs.Supervised(seeded(model[kind])))
    problem = fs.Private(algorithm=alg, privacy=PRIVACY).inner.problem

    def total(rows):
        seen = PrivateSite(LocalSite.alone(rows, 0), lambda n: 0.0, False)
        batch = seen.everything()
        batch.keys.expected[:], batch.keys.even = 1.0, None
        if kind == "auc":
            at, α = alg.problem.initial()
            return torch.cat(problem.gradients(1e20 * at[None], α[None], batch)[:2], 1)
        return problem.gradient(1e20 * alg.problem.initial()[None], batch)

    every, others = Stacked(x, y, np.array([0, 5])), np.array([0, 1, 2, 4])
    found = total(every)
    assert torch.isfinite(found).all()
    assert float((found - total(Stacked(x[others], y[others], np.array([0, 4])))).norm()) <= 2.0, "and is clipped"


class Centred(nn.Module):
    """Scores of rows less the mean over their batch."""

    def __init__(self):
        super().__init__()
        self.line = nn.Linear(4, 3)

    def forward(self, x):
        scores = self.line(x)
        return scores - scores.mean(0, keepdim=True)


def test_a_model_that_mixes_rows_is_refused():
    g = torch.Generator().manual_seed(0)
    rows = Stacked(torch.randn(9, 4, generator=g), torch.randint(3, (9,), generator=g), np.array([0, 4, 9]))
    mixed, plain = nn.Sequential(Centred()), nn.Sequential(nn.Linear(4, 6), nn.GroupNorm(2, 6), nn.Linear(6, 3))
    with pytest.raises(fs.BadInput, match="scores a row by the others"):
        fs.run(fs.FedAvg(problem=fs.Supervised(mixed)), rows, 1, privacy=fs.Privacy(epsilon=4))
    assert not mixes_rows(fs.Supervised(plain).flat, rows.x)
