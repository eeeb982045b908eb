"""NVFlare with real processes, real TLS and kits: the same models as the simulation, and no code from outside.

Slow: run with `-m slow` where NVFlare is installed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import ALGORITHMS, DRFA, Federation, ends, fedsaddle, same_model, wait

from fedsaddle.deployment.nvflare import processes

pytest.importorskip("nvflare")
pytestmark = pytest.mark.slow


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "trial")
    yield made
    made.stop()
    assert not [p for kit in made.started for p in processes.members(kit)], "a process was left behind"


@pytest.mark.parametrize(("algorithm", "data", "problem"), ALGORITHMS.values(), ids=ALGORITHMS)
def test_the_model_is_that_of_the_simulation(algorithm, data, problem, federation):
    federation.make(algorithm, 4, data, problem)
    federation.start()
    assert "4 rounds, finished" in ends(federation.submit())
    same_model(federation)


def test_a_job_may_bring_no_code_and_name_no_other_class(federation):
    from fedsaddle.deployment.nvflare.session import NVFlareSession
    from fedsaddle.deployment.nvflare.supervise import write_job

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
            path.write_text(path.read_text().replace("fedsaddle.deployment.nvflare.app.SiteApp", "subprocess.Popen"))
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


def test_another_attaches_when_the_one_who_submitted_is_gone(federation):
    federation.make(DRFA, 40)
    federation.start()
    first = federation.submit()
    wait(lambda: federation.rounds() >= 2, 600, first)
    first.kill()  # -9: it can end nothing
    first.communicate()
    name = json.loads((federation.folder / "out" / "deployment.json").read_text())["run"]
    said = ends(fedsaddle("deploy", "attach", name, federation.folder, "--out", federation.folder / "other"))
    assert "40 rounds, finished" in said
    same_model(federation, "other")
    said = ends(fedsaddle("deploy", "attach", "nobody", federation.folder), code=2)
    assert f"the server knows no such run; the last ones are: {name}" in said


def test_certificates_are_renewed_and_the_old_ones_refused(federation):
    """Sites that were not told stay out; with their new start-up folders they take part, and the run goes on."""
    federation.make(DRFA, 4, patience=25.0)
    kit = federation.kit("site-3")
    ends(fedsaddle("deploy", "renew", federation.folder))
    new, (old,) = kit / "startup", kit.glob("startup-until-*")
    new.rename(kit / "startup-new")
    old.rename(kit / "startup")
    federation.start()
    assert "2 of at least 3 sites are connected; start site-3" in ends(federation.submit(), code=3)
    federation.kill("site-3")
    (kit / "startup").rename(old)
    (kit / "startup-new").rename(kit / "startup")
    federation.start("site-3")
    ends(federation.submit("second"))
    same_model(federation, "second")


def test_a_site_that_is_started_twice_runs_once(federation):
    federation.make(DRFA, 4)
    kit = federation.kit("site-1")
    first = fedsaddle("deploy", "start-site", "site-1", kit)
    try:
        wait(lambda: bool(processes.members(kit)), 120, first)
        before = processes.members(kit)
        said = ends(fedsaddle("deploy", "start-site", "site-1", kit), code=2)
        assert "runs already" in said
        assert len(said.strip().splitlines()) == 1
        assert set(before) <= set(processes.members(kit))
        assert first.poll() is None
    finally:
        first.terminate()
        first.communicate()
        processes.kill(kit)


def test_the_trial_of_all(tmp_path):
    said = ends(fedsaddle("deploy", "try", "--sites", "4", "--out", tmp_path / "out"))
    assert "largest difference of the models: 0.0e+00" in said
    assert (tmp_path / "out" / "progress.png").exists()
