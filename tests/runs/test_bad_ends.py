"""Runs that diverge but stay finite, learn nothing or give one score to all: a warning, and none for ordinary runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from run_cases import drfa, fedavg, iris, problem
from torch import nn

import fedsaddle as fs
from fedsaddle.runs.closing import bad_ends, bounds_of, exit_code
from fedsaddle.runs.run import run


def scaled(by):
    """Iris with columns that are not standardised."""
    data = iris()
    parts = {part: replace(rows, x=rows.x * by) for part in ("train", "test") if (rows := getattr(data, part))}
    return replace(data, **parts)


def dead() -> nn.Sequential:
    """A network whose hidden units are all off, for every row and for good."""
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 3))
    nn.init.constant_(network[1].bias, -1e3)
    return network


BAD = {
    "exploded": (lambda: fedavg(primal_step=0.5), lambda: scaled(300.0), "the run diverged: the loss ended at "),
    "worse": (lambda: fedavg(primal_step=0.5), lambda: scaled(20.0), "the model is worse than the one it began with"),
    "still": (lambda: drfa(primal_step=1e-12), iris, "the steps did nothing: no parameter changed by more than "),
    "constant": (lambda: fs.FedAvg(problem=fs.Supervised(dead())), iris, "the model gives every row the same score"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_end_is_said_everywhere(kind, tmp_path):
    algorithm, data, words = BAD[kind]
    with pytest.warns(UserWarning, match=words):
        result = run(algorithm(), data(), 3, out=tmp_path)
    (warning,) = result.summary["warnings"]
    assert warning["kind"] == kind
    assert result.warnings == [warning["text"]]
    assert exit_code(result.document) == (3 if kind == "exploded" else 0)
    page, card = (tmp_path / "report.html").read_text(), (tmp_path / "MODEL_CARD.md").read_text()
    assert page.index("Do not use this model yet") < page.index("What was run")
    assert "Do not use this model yet" in card


def test_a_resumed_run_remembers_its_start(tmp_path):
    said = []
    run(
        fedavg(primal_step=0.5),
        scaled(300.0),
        1,
        out=tmp_path,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(report=False),
    )
    run(
        fedavg(primal_step=0.5),
        scaled(300.0),
        2,
        out=tmp_path,
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(report=False),
    )
    assert len(said) == 2
    assert all(", from 1.099 at the start, and the model is of no use" in text for text in said)


def test_min_max_auc_on_raw_columns():
    data = fs.load("breast-cancer", split="iid", clients=3)
    raw = replace(data, train=replace(data.train, x=data.train.x * 30), test=None)
    auc = fs.MinimaxAuc(model=nn.Sequential(nn.Flatten(), nn.Linear(30, 1)), positive_share=0.37)
    said = []
    result = run(
        fs.Codasca(problem=auc, local_steps=4, primal_step=0.01),
        raw,
        2,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
    )
    assert len(said) == 1
    assert said[0].startswith("the run diverged: the loss ended at ")
    assert exit_code(result.document) == 3


def test_a_game_may_rise():
    """Its value is not a loss; only figures that leave every scale are an end."""
    game = fs.QuadraticGame(2, 2)
    assert bounds_of(game).worse is None
    start, end = {"mean": 0.0, "global": 0.0}, {"mean": 5e4, "global": 5e4}
    assert bad_ends(game, start, end, None, 9, True) == []
    far = {"mean": -5e7, "global": -5e7}
    assert [bad.kind for bad in bad_ends(game, start, far, None, 9, True)] == ["exploded"]


def test_one_odd_client_is_no_bad_end():
    """The mean over clients is far up by one of them, the mean over rows is not."""
    start, end = {"mean": 1.1, "global": 1.1}, {"mean": 60.0, "global": 0.9}
    assert bad_ends(problem(), start, end, 0.1, 9, True) == []
    assert bad_ends(problem(), None, end, 0.1, 9, True) == []


def test_an_ordinary_run_says_nothing():
    said = []
    result = run(drfa(), iris(), 3, callbacks=[fs.LambdaCallback(on_warning=said.append)])
    assert said == result.warnings == []
    assert "warnings" not in result.summary
    assert torch.isfinite(result.model).all()
