"""A run of a sweep that diverges but stays finite counts as diverged."""

from __future__ import annotations

import json

import pytest

from fedsaddle.sweeps.job import status_of


@pytest.mark.parametrize(("kind", "status"), [("exploded", "diverged"), ("worse", "finished")])
def test_a_run_that_stayed_finite(tmp_path, kind, status):
    summary = {"stopped": "finished", "ledger": {}, "warnings": [{"kind": kind, "text": "the run diverged: ..."}]}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    assert status_of(tmp_path)[0] == status
