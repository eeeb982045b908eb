"""NVFlare with real processes, real TLS and kits: the same models as the simulation, and no code from outside.

Slow: run with `-m slow` where NVFlare is installed.
"""

from __future__ import annotations

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


def test_the_trial_of_all(tmp_path):
    said = ends(fedsaddle("deploy", "try", "--sites", "4", "--out", tmp_path / "out"))
    assert "largest difference of the models: 0.0e+00" in said
    assert (tmp_path / "out" / "progress.png").exists()
