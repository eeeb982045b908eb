"""The one who submits a run stays with it: what ends a job early, and how often it is submitted again."""

from __future__ import annotations

import json
from contextlib import contextmanager

import pytest
from in_process import config

from fedsaddle.deployment.nvflare.supervise import JobFailed, JobGone, ServerLost, Supervisor
from fedsaddle.deployment.project import Deployment, Project, ProjectSite
from fedsaddle.errors import TooFewAnswered

NAMES = ("a", "b", "c")


class Engine:
    """Plays a script: for each job, what each look at it finds."""

    def __init__(self, tmp_path, *scripts):
        self.scripts = [iter(script) for script in scripts]
        self.jobs, self.aborted, self.connected = [], [], 0
        self.results_in, self.clock = tmp_path / "results", 0.0
        self.there = dict.fromkeys(NAMES, 0.0)
        self.told = {"records": []}
        self.with_the_job = set(NAMES)

    @contextmanager
    def session(self):
        self.connected += 1
        yield self

    def submit(self, job):
        self.jobs.append(json.loads((job / "meta.json").read_text())["name"])
        return str(len(self.jobs))

    def status(self, job):
        if job in self.aborted:
            return "FINISHED:ABORTED"
        look = next(self.scripts[int(job) - 1])
        if isinstance(look, Exception):
            raise look
        if callable(look):
            look(self)
            return "RUNNING"
        return look

    def query(self, job, topic, data):
        if self.told is None:
            raise JobGone
        return {**self.told, "records": self.told["records"][data["seen"] :]}

    def sites(self):
        return self.there

    def runs(self, job, site):
        return site in self.with_the_job

    def abort(self, job):
        self.aborted.append(job)

    def results(self, job, folder):
        (self.results_in / "fedsaddle").mkdir(parents=True, exist_ok=True)
        (self.results_in / "fedsaddle" / "outcome.json").write_text('{"code": 0, "message": ""}')
        return self.results_in

    def sleep(self, seconds):
        self.clock += seconds


def supervisor(engine, said=None, heard=None, resubmit=2, **more):
    deployment = Deployment(name="t", minimum=2, patience=10.0, resubmit=resubmit)
    project = Project(deployment=deployment, sites={name: ProjectSite(data="x") for name in NAMES})
    return Supervisor(
        project, engine.session, config({"name": "DRFA"}), "run-1", (said if said is not None else []).append,
        (heard if heard is not None else []).append, now=lambda: engine.clock, sleep=engine.sleep,
        **more,
    )  # fmt: skip


DONE = "FINISHED:COMPLETED"


def test_records_are_passed_on_once(tmp_path):
    def grows(engine):
        engine.told["records"].append({"round": len(engine.told["records"]) + 1})

    heard, engine = [], Engine(tmp_path, [grows, "RUNNING", grows, grows, DONE])
    assert supervisor(engine, heard=heard).go(tmp_path / "out") == {"code": 0, "message": ""}
    assert [r["round"] for r in heard] == [1, 2, 3]
    assert (tmp_path / "out" / "outcome.json").exists()


@pytest.mark.parametrize("end", ["FINISHED:EXECUTION_EXCEPTION", "FINISHED:ABORTED", "FINISHED:ABNORMAL"])
def test_a_job_that_ends_early_is_submitted_again(tmp_path, end):
    said, engine = [], Engine(tmp_path, ["RUNNING", end], [end], ["RUNNING", DONE])
    supervisor(engine, said).go(tmp_path / "out")
    assert engine.jobs == ["run-1"] * 3, "under the same name, so that it resumes"
    assert said == [f"the job ended early; submitting it again ({n} of 2)" for n in (1, 2)]


def test_but_not_for_ever(tmp_path):
    engine = Engine(tmp_path, *[["FINISHED:ABORTED"]] * 9)
    with pytest.raises(JobFailed, match="submitted 3 times") as reason:
        supervisor(engine).go(tmp_path / "out")
    assert len(engine.jobs) == 3
    assert reason.value.exit_code == 3


def test_a_lost_connection_does_not_submit_a_second_job(tmp_path):
    engine = Engine(tmp_path, ["RUNNING", ServerLost("gone"), ServerLost("gone"), "RUNNING", DONE])
    supervisor(engine).go(tmp_path / "out")
    assert engine.jobs == ["run-1"]
    assert engine.connected == 3


def test_a_job_that_is_said_to_run_but_answers_nobody(tmp_path):
    """What NVFlare says of a job after its server was killed and started again."""

    def dies(engine):
        engine.told = None

    def lives(engine):
        engine.told = {"records": []}

    engine = Engine(tmp_path, ["RUNNING", dies, *["RUNNING"] * 50], [lives, DONE])
    supervisor(engine).go(tmp_path / "out")
    assert engine.aborted == ["1"]
    assert len(engine.jobs) == 2


def test_a_short_silence_is_forgotten_once_the_job_answers_again(tmp_path):
    def dies(engine):
        engine.told = None

    def lives(engine):
        engine.told = {"records": []}

    looks = ["RUNNING", *([dies, *["RUNNING"] * 2, lives, *["RUNNING"] * 20] * 3), DONE]
    engine = Engine(tmp_path, looks)
    supervisor(engine).go(tmp_path / "out")
    assert engine.aborted == []
    assert len(engine.jobs) == 1


def silent(heard, with_the_job=False):
    """ProjectSite b has not answered since 100 and was heard of at `heard`; whether it has the job."""

    def look(engine):
        engine.told["silent"] = {"b": 100.0}
        engine.there["b"] = heard
        engine.with_the_job = set(NAMES) - (set() if with_the_job else {"b"})

    return look


RETURNS = {  # what looks at the job find -> how many of the jobs are ended to let b in
    "started again": ([silent(90), silent(104)], 1),
    "not heard of since": ([silent(90), silent(99)], 0),
    "slow, with the job": ([silent(104, True), silent(219, True)], 0),
    "stuck, with the job": ([silent(104, True), silent(221, True)], 1),
}


@pytest.mark.parametrize(("looks", "ended"), RETURNS.values(), ids=RETURNS)
def test_a_silent_site_that_is(looks, ended, tmp_path):
    said, engine = [], Engine(tmp_path, [*looks, "RUNNING", DONE], [DONE])
    supervisor(engine, said, resubmit=0).go(tmp_path / "out")
    assert engine.aborted == ["1"][:ended]
    assert said == ["b is back; submitting the run again to readmit it"][:ended]
    assert len(engine.jobs) == 1 + ended, "and that is no failure"


def test_a_site_that_falls_silent_again_is_let_in_after_longer(tmp_path):
    engine = Engine(tmp_path, [silent(104)], [silent(104), silent(123), silent(125), "RUNNING"], [DONE])
    supervisor(engine, resubmit=0).go(tmp_path / "out")
    assert engine.aborted == ["1", "2"]


def test_a_job_that_cannot_begin(tmp_path):
    """The engine still believes in a site that was killed, and waits for it."""
    engine = Engine(tmp_path, ["SUBMITTED"] * 100)
    with pytest.raises(TooFewAnswered, match="fewer than 2 sites started within 40 s"):
        supervisor(engine).go(tmp_path / "out")
    assert engine.aborted == ["1"]


def test_sites_that_are_not_there(tmp_path):
    engine = Engine(tmp_path, [DONE])
    del engine.there["c"]
    with pytest.raises(TooFewAnswered, match="2 of at least 3 sites are connected; start c"):
        supervisor(engine).go(tmp_path / "out")
    assert engine.jobs == []


def test_a_resumed_run_waits_for_the_minimum_only(tmp_path):
    engine = Engine(tmp_path, [DONE])
    del engine.there["c"]
    supervisor(engine, resumed=True).go(tmp_path / "out")
    assert engine.jobs == ["run-1"]
    del engine.there["b"]
    with pytest.raises(TooFewAnswered, match="1 of at least 2 sites are connected; start b, c"):
        supervisor(engine, resumed=True).go(tmp_path / "out")


def test_progress_is_passed_on(tmp_path):
    def tells(engine):
        engine.told |= {"progress": {"round": 3, "sites": {"a": "up"}}, "waiting": {"b": 4.0}}

    heard = []
    supervisor(Engine(tmp_path, ["RUNNING", tells, DONE]), on_progress=heard.append).go(tmp_path / "out")
    assert heard == [{"round": 3, "sites": {"a": "up"}, "waiting": {"b": 4.0}}]
