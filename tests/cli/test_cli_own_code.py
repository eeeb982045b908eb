"""Own code on the command line: run, resume, the model's loader, and a figure of one's own."""

from __future__ import annotations

import json
import runpy
import tomllib
from pathlib import Path

import pytest
import torch
from cli_command import IRIS, fedsaddle, no_pictures, run

from own_package import ALGORITHMS, PARTS, own_code

FIGURE = """
from fedsaddle_papers.reproductions.figure import Figure, Line, Panel, Setting


def claims(runs):
    return []


def figure():
    data = {"name": "own_parts:table", "split": "own_parts:Halves", "parts": 3}
    lines = tuple(Line(f"pull {p}", "own_algs:FedProx", {"pull": p}, 2, colour=k) for k, p in enumerate((0.0, 0.5)))
    panel = Panel("round", "test loss mean", "loss")
    return Figure("Pulls", "nobody 2026", Setting(data, "own_parts:Net"), lines, (panel,), claims, 1, 1)


def fails():
    raise KeyError("data")
"""


@pytest.fixture
def mine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedsaddle_papers.commands.reproduce.MAX_WORKERS", 1)
    (tmp_path / "c.toml").write_text(IRIS)
    with own_code(tmp_path, own_algs=ALGORITHMS, own_parts=PARTS, own_figures=FIGURE) as folder:
        yield folder


OWN = ("algorithm={name='own_algs:FedProx', pull=0.1}", "model.name=own_parts:Net", "model.width=2")


def test_a_run_by_its_own_names_and_what_it_leaves(mine):
    with no_pictures():
        outcome = run(mine / "c.toml", *OWN, "run.rounds=2", out=mine / "out")
    assert (outcome.code, "own_algs:FedProx: 2 rounds" in outcome.out) == (0, True)
    assert json.loads((mine / "out" / "config.json").read_text())["algorithm"]["name"] == "own_algs:FedProx"
    assert json.loads((mine / "out" / "code.json").read_text()).keys() == {"own_algs", "own_parts"}
    text = (mine / "out" / "load_model.py").read_text()
    assert "from own_parts import Net" in text
    assert "of the module own_parts, which must be installed or beside it" in text
    model = runpy.run_path(str(mine / "out" / "load_model.py"))["model"]
    assert model(torch.zeros(2, 4)).shape == (2, 3)
    with (mine / "own_algs.py").open("a") as file:
        file.write("# a change\n")
    with no_pictures():
        resumed = run(mine / "c.toml", *OWN, "run.rounds=3", out=mine / "out", resume=True)
    assert resumed.code == 0
    assert f"{mine / 'own_algs.py'} has changed since the run began" in " ".join(resumed.err.split())


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            "algorithm.name=own_algs:FedPro",
            "algorithm.name = 'own_algs:FedPro': did you mean own_algs:FedProx? there is",
        ),
        (
            "algorithm.name=own_alg:FedProx",
            "algorithm.name = 'own_alg:FedProx': did you mean own_algs:FedProx? there is",
        ),
        (
            "model.name=own_algs:FedProx",
            "model.name = 'own_algs:FedProx': is the class FedProx; it must be a class that",
        ),
    ],
)
def test_a_mistake_is_one_line(mine, change, line):
    outcome = run(mine / "c.toml", change, out=mine / "out")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {line}")
    assert len(outcome.err.splitlines()) == 1
    assert not (mine / "out").exists()


def test_a_config_for_ones_own_table_and_algorithm(mine):
    table = Path(__file__).parents[1] / "data" / "patients.csv"
    own = ("--algorithm", "own_algs:FedProx")
    outcome = fedsaddle("init", mine / "own.toml", "--csv", table, "--site", "hospital", "--label", "died", *own)
    assert outcome.code == 0, outcome.err
    section = tomllib.loads((mine / "own.toml").read_text())["algorithm"]
    assert section == {"name": "own_algs:FedProx", "local_steps": 8, "batch_size": 64, "primal_step": 0.3}


def test_a_figure_of_ones_own(mine):
    outcome = fedsaddle("reproduce", "own_figures:figure", "--quick", "--out", mine / "figures")
    assert outcome.code == 0
    results = json.loads((mine / "figures" / "own_figures.figure" / "results.json").read_text())
    assert results["name"] == "own_figures:figure"
    wrong = fedsaddle("reproduce", "own_figures:claims", "--out", mine / "other")
    assert wrong.err.startswith("error: reproduce = 'own_figures:claims': must be a fedsaddle_papers")
    fails = fedsaddle("reproduce", "own_figures:fails", "--out", mine / "other")
    assert fails.err.startswith("error: reproduce = 'own_figures:fails': raised KeyError: 'data' (")
