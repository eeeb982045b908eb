"""A run of a sweep that diverges but stays finite counts as diverged."""

from __future__ import annotations

import pytest

from fedsaddle.studies.sweep_runs import status_of
from summaries import write_summary


@pytest.mark.parametrize(("kind", "status"), [("exploded", "diverged"), ("worse", "finished")])
def test_a_run_that_stayed_finite(tmp_path, kind, status):
    write_summary(tmp_path, warnings=[{"kind": kind, "text": "the run diverged: ..."}])
    assert status_of(tmp_path)[0] == status
