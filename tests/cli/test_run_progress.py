"""The time left of many runs, and what an interruption says."""

from __future__ import annotations

import pytest

from fedsaddle.commands.run_progress import Pace, runs_in_progress


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
        with runs_in_progress("games", [1.0, 1.0, 1.0]) as finished:
            finished(1.0, True)
            finished(1.0, False)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    told = capsys.readouterr().err
    assert "games: interrupted; 2 of 3 runs have ended and are kept. The same command goes on" in told
