"""The pictures of the documentation that have a script of their own show what the text says."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow  # tests/identities has the same convergence
def test_linear_convergence(tmp_path, capsys):
    script = runpy.run_path(str(ROOT / "docs" / "assets" / "linear_convergence.py"))
    script["main"](tmp_path / "a.png")
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert "FedSGDA-MB, 10 local steps" in capsys.readouterr().out
    distances = {
        name: {r["exchanges"]: r["pooled"]["distance_to_saddle"] for r in history}
        for name, history in script["runs"]().items()
    }
    fed, local = distances["FedSGDA-MB, 10 local steps"], distances["Local SGDA, 10 local steps"]
    logs = np.log([fed[e] for e in range(20, 181, 20)])
    assert np.all(np.diff(logs) < np.log(0.2)), "each 20 exchanges a fifth or less"
    assert fed[300] < 1e-13
    assert local[300] > 0.99 * local[100] > 1e-2, "Local SGDA has stopped"
