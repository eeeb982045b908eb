"""The time left of many runs, and what an interruption says."""

from __future__ import annotations

import pytest

from fedsaddle.commands.progress import Pace, RunsProgress


def test_stored_runs_tell_nothing_of_the_time_left() -> None:
    now = 0.0
    pace = Pace(10.0, lambda: now)
    for _ in range(4):
        pace.count(1.0, stored=True)
    assert pace.left is None
    now = 30.0
    pace.count(2.0, stored=False)
    assert pace.runs == 5
    assert pace.left == 30 / 2 * (10 - 6)
    pace.count(99.0, stored=False)
    assert pace.left == 0, "estimates that were too low do not make it negative"


def test_an_interruption_says_what_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted() -> None:
        with RunsProgress("games", [1.0, 1.0, 1.0]) as progress:
            progress.ended(1.0, stored=True)
            progress.ended(1.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    told = capsys.readouterr().err
    assert "games: interrupted; 2 of 3 runs have ended and are kept. The same command continues" in told
