"""NVFlare with real processes, real TLS and kits: the same models as the simulation, and faults, one test each.

Slow: run with `-m slow` where NVFlare is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from real import Federation, fedsaddle, wait
from safetensors.torch import load_file

from fedsaddle.deploy import processes

pytest.importorskip("nvflare")
pytestmark = pytest.mark.slow

DRFA = 'name = "DRFA"\nlocal_steps = 3\nbatch_size = 4'
ALGORITHMS = {
    "DRFA": (DRFA, "iris", "supervised"),
    "FedSGDA-STORM": ('name = "FedSGDA-STORM"\nlocal_steps = 3\nbatch_size = 4', "breast-cancer", "auc"),
    "CODASCA": ('name = "CODASCA"\nbatch_size = 4', "breast-cancer", "auc"),
    "FedX2": ('name = "FedX2"', "breast-cancer", "pairwise"),
    "Local SGDA+, memory": ('name = "Local SGDA+"\nlocal_steps = 3\nsnapshot_every = 2', "iris", "class-fair"),
}
MEMORY = ALGORITHMS["Local SGDA+, memory"]


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "trial")
    yield made
    made.stop()
    assert not [p for kit in made.started for p in processes.members(kit)], "a process was left behind"


def ends(process, code: int = 0, seconds: float = 1200) -> str:
    said, _ = process.communicate(timeout=seconds)
    assert process.returncode == code, said
    return said


def same_model(federation: Federation, out: str = "out") -> None:
    found = load_file(federation.folder / out / "model.safetensors")
    for name, value in federation.simulated().state_dict().items():
        assert torch.equal(found[name], value), name


@pytest.mark.parametrize(("algorithm", "data", "problem"), ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_model_is_that_of_the_simulation(algorithm, data, problem, federation):
    federation.make(algorithm, 4, data, problem)
    federation.start()
    assert "4 rounds, finished" in ends(federation.submit())
    same_model(federation)


def test_a_server_that_is_killed_and_started_again(federation):
    federation.make(MEMORY[0], 40, *MEMORY[1:])
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 5, 600, run)
    federation.kill("localhost")
    federation.start("localhost")
    said = ends(run)
    assert "submitting it again (1 of 5)" in said
    same_model(federation)


def test_a_site_that_is_killed_and_started_again_comes_back(federation):
    federation.make(DRFA, 60, timeout=20.0, grace=20.0)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 5, 600, run)
    memory = list((federation.kit("site-2") / "fedsaddle").rglob("agreed.json"))
    federation.kill("site-2")
    assert memory
    federation.start("site-2")
    said = ends(run)
    sites = federation.summary()["sites"]
    assert "site-2" in said
    assert federation.summary()["rounds"] == 60
    assert sites["site-2"]["answered"] > 20
    assert sites["site-1"]["left_out"] == {}


def test_fewer_sites_than_the_minimum(federation):
    federation.make(DRFA, 200, minimum=3, timeout=3.0, patience=10.0, grace=0.0, resubmit=1)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 3, 600, run)
    federation.kill("site-3")
    said = ends(run, code=3)
    assert "error: " in said
    assert "site" in said.splitlines()[-1]


def test_a_site_with_another_config_refuses(federation):
    federation.make(DRFA, 4, patience=5.0)
    toml = federation.kit("site-2") / "local" / "fedsaddle.toml"
    toml.write_text(toml.read_text().replace("local_steps = 3", "local_steps = 4"))
    federation.start()
    said = ends(federation.submit(), code=3)
    assert "site-2 failed: this site's [algorithm] differs from the run's" in said.splitlines()[-1]


@pytest.mark.parametrize("harm", ["foreign", "missing"])
def test_a_certificate_that_is(harm, federation, tmp_path):
    federation.make(DRFA, 4, patience=25.0)
    startup = federation.kit("site-3") / "startup"
    if harm == "foreign":
        other = Federation(tmp_path / "other")
        other.make(DRFA, 4)
        for name in ("client.crt", "client.key", "rootCA.pem"):
            shutil.copyfile(other.kit("site-3") / "startup" / name, startup / name)
    else:
        (startup / "client.crt").unlink()
    federation.start()
    said = ends(federation.submit(), code=3)
    assert "2 of at least 3 sites are connected; start site-3" in said


def test_a_job_may_bring_no_code_and_name_no_other_class(federation):
    from fedsaddle.deploy.jobs import write_job
    from fedsaddle.deploy.nvflare_session import NVFlareSession

    project = federation.make(DRFA, 4)
    federation.start()
    kit = federation.kit(project.admin)
    jobs = {}
    for kind in ("code", "class"):
        job = write_job(federation.folder / f"job-{kind}", f"job-{kind}", federation.config.model_dump_json(), 3, 0.1)
        if kind == "code":
            (job / "app" / "custom").mkdir()
            (job / "app" / "custom" / "mine.py").write_text("print('not wanted')")
        else:
            path = job / "app" / "config" / "config_fed_client.json"
            path.write_text(path.read_text().replace("fedsaddle.deploy.nvflare_app.SiteApp", "subprocess.Popen"))
        jobs[kind] = job
    with NVFlareSession(project.admin, kit, 60.0) as session:
        wait(lambda: len(session.sites()) == 3, 300)
        for job in jobs.values():
            try:
                number = session.submit(job)
            except Exception:
                continue
            wait(lambda n=number: session.status(n).startswith("FINISHED"), 600)
            assert session.status(number) != "FINISHED:COMPLETED"


def test_the_trial_of_all(tmp_path):
    said = ends(fedsaddle("deploy", "try", "--sites", "4", "--out", tmp_path / "out"))
    assert "largest difference of the models: 0.0e+00" in said
    assert (tmp_path / "out" / "progress.png").exists()
