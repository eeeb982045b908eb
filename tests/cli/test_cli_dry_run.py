"""`fedsaddle run --dry-run`: the cost of a run beside the run, and nothing written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from cli_command import fedsaddle

from fedsaddle.commands.documents import DryRunDocument
from fedsaddle.commands.info import adapter
from fedsaddle.commands.plan import leaving_by_type
from fedsaddle.config.registry import ALGORITHMS
from fedsaddle.runs.cost_probe import TIMED


def plan(*arguments: object) -> dict:
    before = sorted(Path().rglob("*"))
    outcome = fedsaddle("run", *arguments, "--dry-run", "--json")
    assert outcome.code == 0, outcome.err
    assert sorted(Path().rglob("*")) == before
    found = json.loads(outcome.out)
    adapter(DryRunDocument).validate_python(found)
    return found


def test_bytes_are_those_of_the_run(config, quick):
    changes = ("--set", "algorithm.name=FedAvg", "--set", "run.rounds=4")
    said = plan(config, *changes, "--out", "a")
    assert said["folder"] == "a"
    run = json.loads(fedsaddle("run", config, *changes, "--out", "a", "--json").out)["summary"]
    cost, ledger = said["plan"]["cost"], run["ledger"]
    assert cost["exact"]
    for key in ("exchanges", "bytes_down", "bytes_up"):
        assert cost[key] == ledger[key]
    assert cost["bytes_up_per_client"] == ledger["bytes_up"] / 5
    assert cost["local_steps"] == 12
    assert said["plan"]["leaves_a_site"] == [{"field": "LocalModel.final", "visibility": "averaged"}]
    assert said["plan"]["rows"] == {"train": 120, "test": 30}
    assert f"from {TIMED} timed rounds" in cost["note"]


def test_options_of_a_search_are_refused_elsewhere(config):
    outcome = fedsaddle("run", config, "--for", "auroc", "--dry-run")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: --for = 'auroc': is for a search")


def test_the_plan_as_text(config):
    outcome = fedsaddle("run", config, "--dry-run", "--set", "run.target='worst accuracy >= 0.5'")
    assert outcome.code == 0, outcome.err
    for words in ("DRFA on supervised", "15 numbers", "5 clients", "the server sees each client's own", "at most"):
        assert words in outcome.out
    assert outcome.out.splitlines()[-1] == "would write to runs/small; nothing was written"


def test_a_run_for_the_auroc_has_its_baseline(config):
    text = config.read_text().replace("iris", "breast-cancer").replace('"DRFA"', '"CODASCA"\nstage_rounds = 2')
    config.write_text(text + '[problem]\nname = "auc"\n')
    said = plan(config)
    assert (said["plan"]["algorithm"], said["baseline"]["algorithm"]) == ("CODASCA", "FedAvg")
    assert said["baseline"]["cost"]["rounds"] == said["plan"]["cost"]["rounds"] == 6


def test_a_search_on_a_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    lines = [f"{a:.3f},{'ab'[k % 2]},{int(a + rng.normal() > 0)}" for k, a in enumerate(rng.normal(size=120))]
    Path("rows.csv").write_text("age,clinic,ill\n" + "\n".join(lines) + "\n")
    said = plan("rows.csv", "--site", "clinic", "--label", "ill", "--budget", "30s")
    assert (said["kind"], said["budget"], said["folder"]) == ("search", 30.0, "runs/rows")
    assert said["candidates"][0]["candidate"] == "FedAvg"
    assert [said["candidates"][0][key] for key in ("trials", "rounds")] == [8, 4 * 25 + 2 * 75 + 2 * 100]
    assert len(said["candidates"]) > 2


def test_a_deployed_run_says_what_leaves_a_site(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert fedsaddle("deploy", "init", ".").code == 0
    config = Path("fedsaddle.toml")
    config.write_text(config.read_text().replace("# features", "features"))
    said = plan("fedsaddle.toml", "--engine", "nvflare")
    assert (said["kind"], said["sites"]) == ("deployed", ["site-1", "site-2", "site-3"])
    assert said["plan"]["cost"]["bytes_up"] is None
    seen = {one["field"]: one["visibility"] for one in said["plan"]["leaves_a_site"]}
    assert seen["LocalModels.final"] == "averaged"
    assert seen["LocalLoss.loss"] == "per client"


@pytest.mark.parametrize("name", ["FedAvg", "DRFA-GA", "CODASCA", "FedX2", "FedSGDA-STORM"])
def test_types_say_what_leaves_a_site(name):
    assert leaving_by_type(name)
    assert name in ALGORITHMS


@pytest.mark.slow
def test_seconds_are_about_right(config, quick):
    changes = ("--set", "algorithm.name=FedAvg", "--set", "run.rounds=200", "--set", "algorithm.local_steps=20")
    cost = plan(config, *changes)["plan"]["cost"]
    run = json.loads(fedsaddle("run", config, *changes, "--out", "a", "--json").out)["summary"]
    assert run["seconds"] / 5 < cost["seconds"] < run["seconds"] * 5
