"""Faults with real processes and real TLS over NVFlare, a row each: what is harmed, and what must come of it.

Slow: run with `-m slow` where NVFlare is installed. contracts/test_deployed_faults.py has them without processes.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from real import ALGORITHMS, DRFA, MEMORY, Federation, ends, same_model, wait

from fedsaddle.deployment.nvflare import processes

pytest.importorskip("nvflare")
pytestmark = pytest.mark.slow
HARMFUL = Path(__file__).parent / "harmful"

# What site-2 does once, in round 3 -> why the server says it left it out.
LEFT_OUT = {
    "raises": "failed: RuntimeError",
    "hangs": "did not answer in 15 s",
    "nan": "that is not finite",
    "wrong_shape": "of shape",
    "huge": "more than the limit of 1,000,000",
    "noise": "not a message of this version",
    "stale": "sent a reply to another request",
}


@pytest.fixture
def federation(tmp_path: Path) -> Iterator[Federation]:
    made = Federation(tmp_path / "trial")
    yield made
    made.stop()
    assert not [p for kit in made.started for p in processes.members(kit)], "a process was left behind"


@pytest.fixture(scope="module")
def harmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """A federation whose site-2 does harm when a file says so."""
    made = Federation(tmp_path_factory.mktemp("harmed") / "trial")
    made.make(MEMORY[0], 8, *MEMORY[1:], timeout=15.0, grace=15.0, minimum=2, most_bytes=1_000_000)
    path = f"PYTHONPATH={HARMFUL}:{os.environ.get('PYTHONPATH', '')}"
    made.start("localhost", "site-1", "site-3")
    made.start("site-2", before=("env", path, f"FEDSADDLE_HARM={made.folder / 'harm'}"))
    yield made
    made.stop()


@pytest.mark.parametrize(("harm", "reason"), LEFT_OUT.items(), ids=LEFT_OUT)
def test_a_site_is_left_out_counted_named_and_asked_again_when_it(harm, reason, harmed):
    (harmed.folder / "harm").write_text(harm)
    ends(harmed.submit(harm))
    assert not (harmed.folder / "harm").exists(), "it was done"
    summary, log = harmed.summary(harm), (harmed.folder / harm / "log.txt").read_text()
    assert summary["rounds"] == 8
    line = summary["sites"]["site-2"]
    assert [(reason in why, n) for why, n in line["left_out"].items()] == [(True, 1)]
    assert f"round 3, exchange 1: site-2 left out: {next(iter(line['left_out']))}" in log
    assert line["answered"] == summary["sites"]["site-1"]["answered"] - 2, "both exchanges of that round, and no more"
    assert summary["sites"]["site-1"]["left_out"] == summary["sites"]["site-3"]["left_out"] == {}
    assert "patient 4711" not in log + harmed.log("localhost"), "an error's text stays at its site"


def test_the_process_of_a_job_dies_at_a_site(harmed):
    """NVFlare then ends the job; the run is submitted again, and forgets nothing."""
    (harmed.folder / "harm").write_text("dies")
    assert "submitting it again (1 of 5)" in ends(harmed.submit("dies"))
    same_model(harmed, "dies")


REMEMBERING = {name: ALGORITHMS[name] for name in ("Local SGDA+, memory", "CODASCA", "FedX2")}


@pytest.mark.parametrize("given", REMEMBERING.values(), ids=REMEMBERING)
def test_a_site_is_killed_and_started_again_while_the_run_waits_for_it(given, federation):
    """It comes back with what its client remembers: the model is that of a run without faults."""
    federation.make(given[0], 30, *given[1:], minimum=3, timeout=10.0)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 5, 600, run)
    federation.kill("site-2")
    assert list((federation.kit("site-2") / "fedsaddle").rglob("*.memory"))
    federation.start("site-2")
    ends(run)
    same_model(federation)


def test_a_site_is_killed_and_started_again_while_the_others_go_on(federation):
    federation.make(DRFA, 60, timeout=20.0, grace=20.0)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 5, 600, run)
    federation.kill("site-2")
    federation.start("site-2")
    ends(run)
    sites = federation.summary()["sites"]
    assert federation.summary()["rounds"] == 60
    assert sites["site-2"]["answered"] > 20
    assert sites["site-1"]["left_out"] == {}


def test_fewer_sites_than_the_minimum_end_the_run_after_the_patience(federation):
    federation.make(DRFA, 200, minimum=3, timeout=3.0, patience=10.0, grace=0.0, resubmit=1)
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 3, 600, run)
    federation.kill("site-3")
    said = ends(run, code=3)
    assert "error: " in said
    assert "site" in said.splitlines()[-1]


def test_the_server_is_killed_and_started_again(federation):
    federation.make(MEMORY[0], 40, *MEMORY[1:])
    federation.start()
    run = federation.submit()
    wait(lambda: federation.rounds() >= 5, 600, run)
    federation.kill("localhost")
    federation.start("localhost")
    said = ends(run)
    assert "submitting it again (1 of 5)" in said
    same_model(federation)


@pytest.mark.parametrize("harm", ["of another federation", "of another federation, though it trusts ours", "missing"])
def test_a_site_is_refused_whose_certificate_is(harm, federation, tmp_path):
    federation.make(DRFA, 4, patience=25.0)
    startup = federation.kit("site-3") / "startup"
    if harm != "missing":
        other = Federation(tmp_path / "other")
        other.make(DRFA, 4)
        for name in ("client.crt", "client.key", *(() if "trusts" in harm else ("rootCA.pem",))):
            shutil.copyfile(other.kit("site-3") / "startup" / name, startup / name)
    else:
        (startup / "client.crt").unlink()
    federation.start()
    said = ends(federation.submit(), code=3)
    assert "2 of at least 3 sites are connected; start site-3" in said


def test_a_site_with_another_config_refuses(federation):
    federation.make(DRFA, 4)
    toml = federation.kit("site-2") / "local" / "fedsaddle.toml"
    toml.write_text(toml.read_text().replace("local_steps = 3", "local_steps = 4"))
    federation.start()
    said = ends(federation.submit(), code=3)
    assert "site-2 refused: this site's [algorithm] differs from the run's" in said.splitlines()[-1]
