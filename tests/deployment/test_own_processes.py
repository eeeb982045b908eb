"""An algorithm outside of the package, with real processes and TLS over NVFlare: private, and behind masks.

Slow: run with `-m slow` where NVFlare is installed.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import Federation, ends, same_model

from fedsaddle import own_code
from fedsaddle.commands.deploy_try import OPEN_POLICY
from fedsaddle.deployment.ledger import LEDGER
from fedsaddle.deployment.nvflare import processes
from fedsaddle.deployment.project import RUNS
from fedsaddle.deployment.site_policy import FILE as POLICY
from fedsaddle.own_code import digest_of

pytest.importorskip("nvflare")
pytestmark = pytest.mark.slow

MODULE = '''
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

import fedsaddle as fs


@dataclass(frozen=True)
class Start:
    w: fs.Parameters


@dataclass(frozen=True)
class Trained:
    w: Annotated[fs.Averaged, fs.UpdateOf("w")]


@dataclass(frozen=True, kw_only=True)
class SiteSgd:
    """Local SGD."""

    problem: fs.MinimisationProblem
    batch_size: int = 4
    local_steps: int = 3
    sampled_clients: int | None = None

    def start(self, clients: fs.Clients) -> Start:
        return Start(self.problem.initial())

    def round(self, server: Start, clients: fs.Clients, rng) -> Start:
        return Start(clients.ask(range(clients.count), self.train, server)[1].w)

    @fs.task(releases=fs.per_step())
    def train(self, own: None, sent: Start, site: fs.Site) -> tuple[None, Trained]:
        w = site.broadcast(sent.w)
        for t in range(self.local_steps):
            w = w - 0.1 * self.problem.gradient(w, site.minibatch(t, self.batch_size))
        return None, Trained(w)

    def model(self, server: Start) -> Tensor:
        return server.w
'''
OWN = 'name = "site_sgd:SiteSgd"\n[privacy]\n'


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Federation]:
    """Four sites and a server, where the module is installed."""
    home = tmp_path / "installed"
    home.mkdir()
    (home / "site_sgd.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(home))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(home), os.environ.get("PYTHONPATH")))))
    monkeypatch.setattr(own_code, "_FOLDERS", [])
    made = Federation(tmp_path / "trial", sites=4)
    yield made
    made.stop()
    sys.modules.pop("site_sgd", None)
    importlib.invalidate_caches()
    own_code.forget()
    assert not [p for kit in made.started for p in processes.members(kit)], "a process was left behind"


def start(federation: Federation, privacy: str, rounds: int) -> None:
    """With policies that list the module."""
    federation.make(OWN + privacy, rounds, minimum=4)
    listed = f'[modules]\nsite_sgd = "{digest_of("site_sgd")}"\n'
    for i in range(4):
        (federation.kit(f"site-{i + 1}") / POLICY).write_text(OPEN_POLICY + "most_rounds = 1000\n" + listed)
    (federation.kit("localhost") / POLICY).write_text(listed)
    federation.start()


def test_it_is_summed_behind_masks(federation):
    start(federation, "secure_aggregation = true", 4)
    assert "4 rounds, finished" in ends(federation.submit())
    same_model(federation)
    assert federation.summary()["secure_aggregation"] == {"sums": ["Trained.w"], "single": []}


@pytest.mark.parametrize("masks", [False, True], ids=["alone", "behind masks"])
def test_sites_add_their_noise(masks, federation):
    pytest.importorskip("dp_accounting")
    start(federation, f"epsilon = 8.0\nsecure_aggregation = {str(masks).lower()}", 3)
    assert "3 rounds, finished" in ends(federation.submit())
    summary = federation.summary()
    assert 0 < summary["privacy"]["epsilon_spent"] <= 8
    assert "train" not in summary
    if masks:
        assert summary["secure_aggregation"] == {"sums": ["Trained.w"], "single": []}
    for i in range(4):
        (ledger,) = (federation.kit(f"site-{i + 1}") / RUNS).glob(f"*/{LEDGER}")
        kept = json.loads(ledger.read_text())
        assert kept["spent"] == kept["planned"] == [[4, 1, 9]], "three rounds of three steps"
        assert len(kept["answered"]) == 3
