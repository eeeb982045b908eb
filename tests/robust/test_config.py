"""[robust] and [attack] of a config."""

from __future__ import annotations

import json
import sys

import pytest

from fedsaddle.cli import main
from fedsaddle.config.schema import validate_config
from fedsaddle.errors import BadInput
from fedsaddle.robust.settings import Robust

CONFIG = """
[data]
name = "iris"
[split]
name = "iid"
clients = 5
[model]
name = "logistic"
[algorithm]
name = "FedAvg"
[run]
rounds = 3
[robust]
aggregation = "centred-clipping"
bounds = true
[attack]
name = "scale"
clients = [1]
"""


def test_a_run_from_a_file(tmp_path, monkeypatch):
    path = tmp_path / "run.toml"
    path.write_text(CONFIG)
    monkeypatch.setattr(sys, "argv", ["fedsaddle", "run", str(path), "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["robust"]["aggregation"] == "centred-clipping"
    assert summary["robust"]["bounded"] == {"1": {"final": 3}}
    assert summary["attack"] == {"name": "scale", "clients": [1], "factor": -100.0}


def content(**sections):
    plain = {"data": {"name": "iris"}, "split": {"name": "iid"}, "model": {"name": "logistic"}}
    return {**plain, "algorithm": {"name": "FedAvg"}, **sections}


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ({"robust": {"aggregation": "krum"}}, r"robust\.aggregation = 'krum'"),
        ({"robust": {"trim": 0.5}}, r"robust\.trim = 0\.5"),
        ({"robust": {"agregation": "median"}}, "did you mean 'aggregation'"),
        ({"attack": {"name": "bribe"}}, r"attack\.name = 'bribe'"),
        (
            {"attack": {"name": "scale", "clients": [1, 1]}},
            r"attack\.clients = \[1, 1\]: name each hostile client once",
        ),
    ],
)
def test_what_cannot_be(sections, said):
    with pytest.raises(BadInput, match=said):
        validate_config(content(**sections))


def test_the_defaults_are_those_of_python():
    section = validate_config(content()).robust
    assert section.settings(deployed=False) == Robust(bounds=False)
    assert section.settings(deployed=True) == Robust(bounds=True)
    assert not section.settings(deployed=False).active
    off = validate_config(content(robust={"bounds": False})).robust
    assert off.settings(deployed=True) == Robust(bounds=False)
