"""Rounds in which nobody answers leave the state alone; too many of them in a row end the run."""

from __future__ import annotations

import pytest
import torch
from run_cases import Silent, drfa, fedavg, iris, same_result, story

import fedsaddle as fs
from fedsaddle.errors import NobodyAnswered
from fedsaddle.runs.loop import MAX_EMPTY_ROUNDS
from fedsaddle.runs.run import run


def test_the_state_stays_and_the_round_counts():
    models = []

    def watch(done, record):
        models.append(record["test"]["loss"]["mean"])

    result = run(Silent(drfa(), lambda n: n in (2, 3, 5)), iris(), 6, callbacks=[fs.LambdaCallback(on_round=watch)])
    assert [r["round"] for r in result.history] == [1, 2, 3, 4, 5, 6]
    assert models[0] == models[1] == models[2] != models[3]
    assert models[3] == models[4] != models[5]
    assert result.server.rounds == 3
    assert [r["local_steps"] for r in result.history] == [3, 6, 9, 12, 15, 18]


def test_what_was_sent_in_vain_is_in_the_ledger():
    full = run(fedavg(), iris(), 2).summary["ledger"]
    silent = run(Silent(fedavg(), lambda n: n == 2), iris(), 2).summary["ledger"]
    assert silent == full


def test_the_round_after_draws_as_if_nothing_had_happened():
    """Every draw is keyed by the round, not by what came before."""
    skipped = run(Silent(fedavg(), lambda n: n == 1), iris(), 2)
    only_second = []

    class Second(Silent):
        def round(self, server, clients, rng):
            only_second.append(clients)
            return server if len(only_second) == 1 else self.inner.round(server, clients, rng)

    assert torch.equal(skipped.model, run(Second(fedavg(), None), iris(), 2).model)


def test_twenty_in_a_row_are_too_many(tmp_path):
    late = Silent(fedavg(), lambda n: n > 3)
    with pytest.raises(NobodyAnswered, match="20 rounds in a row; the last one: nobody is at home") as caught:
        run(late, iris(), 60, out=tmp_path, options=fs.RunOptions(checkpoint_every=5))
    assert caught.value.exit_code == 3
    assert [r["round"] for r in story(tmp_path)] == list(range(1, 3 + MAX_EMPTY_ROUNDS))
    assert sorted(p.stem for p in (tmp_path / "checkpoints").glob("*.json")) == ["00000015", "00000020"]


def test_nineteen_are_not():
    result = run(Silent(fedavg(), lambda n: n % MAX_EMPTY_ROUNDS), iris(), 45)
    assert result.summary["stopped"] == "finished"
    assert result.server.rounds == 2


def test_a_resumed_run_remembers_how_many_there_were(tmp_path):
    run(
        drfa(),
        iris(),
        16,
        lost_replies=0.999999,
        out=tmp_path,
        callbacks=[fs.LambdaCallback(on_warning=print)],
        options=fs.RunOptions(checkpoint_every=4),
    )
    with pytest.raises(NobodyAnswered, match="20 rounds in a row"):
        run(
            drfa(),
            iris(),
            40,
            lost_replies=0.999999,
            out=tmp_path,
            resume=True,
            options=fs.RunOptions(checkpoint_every=4),
        )
    assert len(story(tmp_path)) == MAX_EMPTY_ROUNDS - 1


def test_lost_replies_are_the_same_on_both_engines():
    fast, slow = (run(drfa(), iris(), 12, lost_replies=0.6, engine=e, seed=3) for e in ("vectorised", "serial"))
    a, b = (r.summary["ledger"] for r in (fast, slow))
    assert a == b
    assert a["answered"] < a["asked"]
    torch.testing.assert_close(fast.model, slow.model)


def test_no_reply_lost_is_no_wrapper():
    assert same_result(run(drfa(), iris(), 3, lost_replies=0.0), run(drfa(), iris(), 3))
