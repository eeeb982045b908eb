"""`fedsaddle deploy ...` as far as it goes without NVFlare: projects, and complaints in one line."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest
from cli_command import IRIS, fedsaddle

from fedsaddle.config.schema import read_config
from fedsaddle.deployment.project import read_project
from fedsaddle.errors import install
from fedsaddle.studies.candidates import Facts, candidates
from fedsaddle.studies.study_plan import read_plan
from fedsaddle.studies.table_config import TableConfig

PATIENTS = Path(__file__).parents[1] / "data" / "patients.csv"

without = pytest.mark.skipif(importlib.util.find_spec("nvflare") is not None, reason="NVFlare is installed")


def test_init_writes_a_project_that_can_be_read(tmp_path: Path):
    done = fedsaddle("deploy", "init", tmp_path / "trial", "--sites", 4, "--server", "fl.example.org")
    assert done.code == 0, done.err
    project = read_project(tmp_path / "trial")
    assert project.names == ("site-1", "site-2", "site-3", "site-4")
    assert project.deployment.server == "fl.example.org"
    assert project.patience.minimum == 3
    config = read_config(tmp_path / "trial" / "fedsaddle.toml")
    assert config.data.name == "file"
    assert config.algorithm.name == "DRFA"
    assert config.algorithm.options()["sampled_clients"] == 4, "as many as there are"


def test_init_keeps_a_config_that_is_there(tmp_path: Path):
    (tmp_path / "fedsaddle.toml").write_text(IRIS)
    assert fedsaddle("deploy", "init", tmp_path).code == 0
    assert (tmp_path / "fedsaddle.toml").read_text() == IRIS
    again = fedsaddle("deploy", "init", tmp_path)
    assert again.code == 2
    assert "already has a deployment.toml" in again.err


@pytest.mark.parametrize("server", ['a"b', "a b", "", "x\ny = 1", "[::"])
def test_what_can_be_no_server_is_refused_before_anything_is_written(tmp_path, server):
    done = fedsaddle("deploy", "init", tmp_path / "trial", "--server", server)
    assert done.code == 2
    assert "give a host name or an address, such as fl.hospital.org" in done.err
    assert len(done.err.strip().splitlines()) == 1
    assert not (tmp_path / "trial").exists()


def test_names_of_columns_are_escaped_in_the_config(tmp_path):
    names = {"label": 'died "in" hospital', "site": "h\\ospital 😀", "number": 'K+ "raw"\x7f'}
    rows = [f"{i % 2},h{i % 3},{i * 0.37:.2f}" for i in range(60)]
    head = ",".join('"' + name.replace('"', '""') + '"' for name in names.values())
    (tmp_path / "t.csv").write_text("\n".join([head, *rows]) + "\n")
    options = ("--sample", tmp_path / "t.csv", "--label", names["label"], "--site-column", names["site"])
    done = fedsaddle("deploy", "init", tmp_path / "trial", *options)
    assert done.code == 0, done.err
    found = read_plan(tmp_path / "trial" / "study.toml").data.options()
    assert (found["target"], found["client"], found["features"]) == (names["label"], names["site"], [names["number"]])


def test_a_sample_gives_the_study_of_the_command(tmp_path):
    """The candidates that `fedsaddle run TABLE` tries on these rows, sites named as in the table."""
    options = ("--sample", PATIENTS, "--label", "died", "--site-column", "hospital", "--patient", "patient")
    done = fedsaddle("deploy", "init", tmp_path / "trial", *options, "--data", "rows/{site}.csv")
    assert done.code == 0, done.err
    plan, project = read_plan(tmp_path / "trial" / "study.toml"), read_project(tmp_path / "trial")
    assert project.deployment.config == "study.toml"
    assert project.names[:2] == ("h01", "h02")
    assert project.sites["h01"].data == "rows/h01.csv"
    table = TableConfig(PATIENTS, "hospital", "died", patient="patient", drop=("admitted",))
    listed = candidates(Facts.of(table.federated(table.dataset())), "auroc")
    assert plan.candidates == tuple(replace(c, evaluations=0) for c in listed if c.problem["name"] != "pairwise")
    assert (plan.data.options()["positive"], plan.data.minimum_cell) == ("yes", 5)
    assert plan.privacy.secure_aggregation
    text = (tmp_path / "trial" / "study.toml").read_text()
    assert "Not tried, because sites would send scores of single rows" in text
    without = fedsaddle("deploy", "init", tmp_path / "other", *options[:4], "--sites", 2)
    assert without.code == 0, without.err
    assert read_project(tmp_path / "other").names == ("site-1", "site-2")
    assert not read_plan(tmp_path / "other" / "study.toml").privacy.secure_aggregation


def test_a_study_takes_no_options_of_a_run(tmp_path):
    options = ("--sample", PATIENTS, "--label", "died", "--site-column", "hospital")
    assert fedsaddle("deploy", "init", tmp_path, *options).code == 0
    for extra, key in (
        (("--set", "run.rounds=3"), "--set"),
        (("--engine", "ray"), "--engine"),
        (("--for", "auroc"), "--for"),
        (("--dry-run",), "--dry-run"),
    ):
        done = fedsaddle("run", tmp_path / "study.toml", *extra)
        assert done.code == 2
        assert key in done.err
        assert len(done.err.strip().splitlines()) == 1


def spoilt(tmp_path: Path, old: str, new: str) -> Path:
    fedsaddle("deploy", "init", tmp_path, "--sites", 3)
    path = tmp_path / "deployment.toml"
    path.write_text(path.read_text().replace(old, new))
    return tmp_path


BAD = {
    "a port that is none": ("port = 8002", "port = 80020", "deployment.port = 80020"),
    "a minimum above the sites": (
        "minimum = 2",
        "minimum = 9",
        "deployment.minimum = 9: must be at most 3, the number of sites",
    ),
    "an unknown key": ("minimum = 2", "minimun = 2", "did you mean 'minimum'?"),
    "a name with a blank": ("[sites.site-1]", '[sites."site 1"]', "sites = 'site 1': use lower-case letters"),
    "no TOML": ("[deployment]", "[deployment", "is not valid TOML"),
    "a site called as the server": ('server = "server.example.org"', 'server = "site-2"', "is also the name of a site"),
}


@pytest.mark.parametrize(("old", "new", "complaint"), BAD.values(), ids=BAD)
def test_bad_projects(tmp_path, old, new, complaint):
    done = fedsaddle("deploy", "start-site", "site-1", spoilt(tmp_path, old, new))
    assert done.code == 2
    assert complaint in done.err
    assert done.err.count("\n") == 1


def test_a_site_that_is_not_in_the_project(tmp_path):
    done = fedsaddle("deploy", "start-site", "site-9", spoilt(tmp_path, "", ""))
    assert done.code == 2
    assert "site = 'site-9': choose one of site-1, site-2, site-3" in done.err


def test_a_folder_without_a_project(tmp_path):
    done = fedsaddle("deploy", "start-server", tmp_path)
    assert done.code == 2
    assert "`fedsaddle deploy init` writes one" in done.err


def test_kits_that_are_not_made_yet(tmp_path):
    done = fedsaddle("deploy", "start-server", spoilt(tmp_path, "", ""))
    assert done.code == 2
    assert "fedsaddle deploy provision" in done.err


@without
@pytest.mark.parametrize("arguments", [("provision",), ("try",)], ids=["provision", "try"])
def test_without_nvflare(tmp_path, arguments, monkeypatch):
    monkeypatch.chdir(spoilt(tmp_path, "", ""))
    done = fedsaddle("deploy", *arguments)
    assert done.code == 2
    assert done.err == f"error: NVFlare is not installed; {install('nvflare')}\n"


@without
def test_a_deployed_run_without_nvflare(tmp_path):
    (tmp_path / "c.toml").write_text(IRIS)
    done = fedsaddle("run", tmp_path / "c.toml", "--engine", "nvflare", "--out", tmp_path / "out")
    assert done.code == 2
    assert "NVFlare is not installed" in done.err
