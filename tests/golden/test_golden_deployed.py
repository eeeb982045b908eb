"""Deployed runs: server and sites in this process, and as real processes of NVFlare.

The real ones are slow and need NVFlare: `pytest -m slow tests/golden`. `golden_folder` says how to record anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from golden_folder import check, folder
from in_process import config, deployed, sites
from real import DRFA, Federation, ends

CASES = {
    "drfa": config(
        {"name": "DRFA", "sampled_clients": 3, "local_steps": 3, "primal_step": 3.0},
        held_out={"validation_share": 0.2, "stratify": True},
        select="worst loss",
        rounds=12,
    ),
    "codasca": config({"name": "CODASCA"}, data="breast-cancer", problem={"name": "auc"}),
}


@pytest.mark.parametrize("name", CASES)
def test_in_this_process(name, tmp_path):
    given = CASES[name]
    deployed(given, sites(given, tmp_path), tmp_path / "out")
    check(f"deployed_{name}", folder(tmp_path / "out"))


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "trial")
    yield made
    made.stop()


@pytest.mark.slow
def test_real_processes(federation):
    pytest.importorskip("nvflare")
    federation.make(DRFA, 4)
    federation.start()
    ends(federation.submit())
    check("deployed_nvflare", folder(federation.folder / "out"))
