"""Callbacks are told of a run, cannot harm it, and are left out when they fail."""

from __future__ import annotations

import pytest
from tracked_runs import NAMES, Crash, small_run

import fedsaddle as fs
from fedsaddle.config.build import load
from fedsaddle.errors import BadInput


class Listener(fs.Callback):
    def __init__(self):
        self.heard = []

    def on_begin(self, beginning):
        self.heard.append(("begin", beginning.done, beginning.resumed, beginning.rounds, beginning.clients))
        self.parameters = beginning.parameters

    def on_round(self, done, record):
        self.heard.append(("record", done))
        record.clear()  # of its own copy

    def on_end(self, summary):
        self.heard.append(("end", summary["stopped"]))
        summary.clear()


class Plain(fs.Callback):
    """Two methods will do."""

    def __init__(self, fails=""):
        self.records, self.ends, self.fails = 0, 0, fails

    def on_round(self, done, record):
        if self.fails == "round" and done == 2:
            raise OSError("disk full\n\x1b[2J")
        self.records += 1

    def on_end(self, summary):
        self.ends += 1
        if self.fails == "end":
            raise ValueError("bug")


def test_a_callback_hears_everything_and_changes_nothing():
    listener = Listener()
    result, alone = small_run(callbacks=[listener]), small_run()
    assert listener.heard == [
        ("begin", 0, False, 8, NAMES),
        *(("record", k) for k in range(1, 9)),
        ("end", "finished"),
    ]
    assert listener.parameters["algorithm"]["local_steps"] == 2
    assert listener.parameters["run"]["rounds"] == 8
    assert [{**r, "seconds": 0} for r in result.history] == [{**r, "seconds": 0} for r in alone.history]
    assert result.summary["stopped"] == "finished"


@pytest.mark.parametrize(("fails", "records", "ends"), [("round", 1, 0), ("end", 8, 1)])
def test_one_that_fails_is_named_once_and_left_out(fails, records, ends):
    bad, good, said = Plain(fails), Plain(), []
    result = small_run(callbacks=[bad, good, fs.LambdaCallback(on_warning=said.append)])
    assert result.summary["rounds"] == 8
    assert (bad.records, bad.ends) == (records, ends)
    assert (good.records, good.ends) == (8, 1)
    assert len(said) == 1
    assert said[0].startswith(f"Plain.on_{fails} failed (")
    assert "the run continues" in said[0]
    assert said[0].isprintable()


def test_the_end_is_told_however_it_comes(tmp_path):
    listener = Listener()
    with pytest.raises(Crash):
        small_run(3, callbacks=[listener])
    assert listener.heard[-1] == ("end", "failed")
    small_run(callbacks=[listener, fs.LambdaCallback(on_round=lambda *_: True)], out=tmp_path)
    assert listener.heard[-1] == ("end", "interrupted")
    small_run(callbacks=[listener], out=tmp_path, resume=True)
    assert listener.heard[-9:-7] == [("begin", 1, True, 8, NAMES), ("record", 2)]


@pytest.mark.parametrize("given", [Plain(), "tensorboard", [Plain], [object()], 3])
def test_what_is_no_callback_is_refused(given):
    with pytest.raises(BadInput, match=r"callbacks = .*fs\.Callback"):
        fs.run(
            fs.FedAvg(problem=fs.Supervised(fs.models.logistic_regression(4, 3))),
            load("iris", split="iid", clients=4),
            callbacks=given,
        )
