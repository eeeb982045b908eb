"""A study with real NVFlare processes: by the commands of the docs, killed in the middle, to the same bits."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from real import Federation, ends, fedsaddle, free_ports, wait
from safetensors.torch import load_file
from test_deployed_study import SITES, small_plan, with_keys, write_rows

from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.deployed_study import DeployedStudy
from fedsaddle.deployment.project import read_project
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.study_site import StudySite
from fedsaddle.errors import BadInput
from fedsaddle.studies.study_plan import StudyPlan

pytestmark = pytest.mark.slow
pytest.importorskip("nvflare")


def made(folder: Path) -> tuple[Federation, StudyPlan]:
    """A project by `deploy init` from a sample, with shorter candidates; its kits, not started."""
    files = write_rows(folder / "rows")
    sample = pd.concat([pd.read_csv(path).assign(hospital=name) for name, path in files.items()])
    sample.to_csv(folder / "sample.csv", index=False)
    roles = ("--label", "died", "--site-column", "hospital", "--patient", "patient")
    where = ("--data", f"{folder}/rows/{{site}}.csv", "--server", "localhost")
    ends(fedsaddle("deploy", "init", folder, "--sample", folder / "sample.csv", *roles, *where))
    plan = small_plan(cell=5, secure=True)
    (folder / "study.toml").write_text(plan.to_toml())
    text, ports = (folder / "deployment.toml").read_text(), free_ports(2)
    text = text.replace("port = 8002", f"port = {ports[0]}", 1).replace("port = 8003", f"port = {ports[1]}")
    text = text.replace("timeout = 60.0", "timeout = 20.0").replace(
        "minimum = 3 ", "minimum = 4 "
    )  # nobody is left out
    (folder / "deployment.toml").write_text(text)
    ends(fedsaddle("deploy", "provision", folder))
    for name in SITES:  # draws by the seed, so that a simulation has the same bits
        (folder / "kits" / name / "site-policy.toml").write_text('draws = "seed"\nminimum_rows = 10\n')
    return Federation(folder), plan


def restart(federation: Federation, name: str) -> None:
    """Start a kit again, once its port is free."""
    end = time.monotonic() + 60
    while True:
        try:
            return federation.start(name)
        except BadInput:
            assert time.monotonic() < end
            time.sleep(1)


def test_a_study_that_is_killed_twice_ends_as_one_that_is_not(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    federation, plan = made(folder)
    out = folder / "runs" / "first"

    def trials() -> list[str]:
        path = federation.kit("localhost") / "fedsaddle"
        return sorted(p.parent.name for p in path.glob("*/trials/*/after-*.json"))

    try:
        federation.start("localhost", *SITES)
        federation.submitted.append(process := fedsaddle("run", folder / "study.toml", "--out", out))
        wait(lambda: len(trials()) >= 1, 240, process)
        federation.kill("localhost")
        restart(federation, "localhost")
        wait(lambda: len(trials()) >= 4, 240, process)
        federation.kill("south")
        restart(federation, "south")
        said = ends(process)
    finally:
        federation.stop()
    assert "written to" in said
    policy = SitePolicy(minimum_rows=10, draws="seed")
    names = read_project(folder).names  # in its order, by which clients are numbered
    services = {
        i: StudySite(plan, SiteSettings(name, folder / "rows" / f"{name}.csv", tmp_path / f"disk-{i}"), policy)
        for i, name in enumerate(names)
    }
    transport = InProcess({i: site.answer for i, site in with_keys(services, tmp_path).items()})
    whole = DeployedStudy(plan, "trial", names, tmp_path / "whole", Patience(patience=0.0)).go(transport)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["choice"] == whole.choice.name
    ours, theirs = load_file(out / "model.safetensors"), load_file(tmp_path / "whole" / "model.safetensors")
    assert summary["pooled"] == whole.summary.to_dict()["pooled"]
    for name, value in theirs.items():
        assert torch.equal(ours[name], value), name
    for name in SITES:
        homes = list((federation.kit(name) / "fedsaddle").glob("*/model/report.html"))
        assert len(homes) == 1, name
    new = pd.read_csv(folder / "rows" / "north.csv").drop(columns=["died", "patient"])
    new.to_csv(tmp_path / "new.csv", index=False)
    said = ends(fedsaddle("predict", homes[0].parent, tmp_path / "new.csv", "--out", tmp_path / "p.csv"))
    assert "160 rows" in said
    assert len(pd.read_csv(tmp_path / "p.csv")) == 160
