"""Kits: for their owners alone, started once, renewed in time; a run that another attaches to."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import stand_in_engine
from real import DRFA, Federation

from fedsaddle.commands.deploy import check_run, flower, renew, start
from fedsaddle.commands.deploy import provision as provision_command
from fedsaddle.commands.run_deployed import attach_to, run_deployed
from fedsaddle.deployment import project as certificates
from fedsaddle.deployment.messages import Answer
from fedsaddle.deployment.nvflare import processes
from fedsaddle.deployment.nvflare.provision import provision
from fedsaddle.deployment.nvflare.supervise import Waiting
from fedsaddle.deployment.project import Project, only_for_owner, read_project, take_from_others
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.federation.wire import Message, pack, unpack

posix = pytest.mark.skipif(os.name != "posix", reason="Windows has other rights")


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    stand_in_engine.use(monkeypatch)
    made = Federation(tmp_path / "trial")
    made.prepare(DRFA, 4)
    return made


def open_to_others(folder: Path) -> list[Path]:
    return [p for p in (folder, *folder.rglob("*")) if p.lstat().st_mode & 0o077 and not p.is_symlink()]


@posix
def test_kits_are_for_their_owners_from_the_moment_they_are_made(federation, monkeypatch):
    """Looked at while they are made: a key that is readable for an instant is readable."""
    seen = []

    def watched(project: Project, folder: Path) -> Path:
        seen.append(stat.S_IMODE((folder / "provision").stat().st_mode))
        made = stand_in_engine.made(project, folder / "provision")
        state = folder / "provision" / "state"
        state.mkdir()
        (state / "cert.json").write_text("{}")  # as NVFlare writes it
        seen.extend(stat.S_IMODE(p.lstat().st_mode) & 0o077 for p in (folder / "provision").rglob("*"))
        return made

    monkeypatch.setattr("fedsaddle.deployment.nvflare.provision._run_provisioning", watched)
    before = os.umask(0o022)
    try:
        provision(read_project(federation.folder), federation.folder)
        assert os.umask(0o022) == 0o022, "the mask is what it was"
    finally:
        os.umask(before)
    assert seen[0] == 0o700
    assert not any(seen[1:])
    assert open_to_others(federation.folder / "kits") == open_to_others(federation.folder / "provision") == []


@posix
def test_what_an_earlier_version_left_open_is_closed(federation):
    provision(read_project(federation.folder), federation.folder)
    state = federation.folder / "provision" / "state"
    state.mkdir(mode=0o755)
    (state / "cert.json").write_text("{}")
    (state / "cert.json").chmod(0o644)
    (federation.kit("site-1") / "local" / "fedsaddle.json").chmod(0o666)
    provision(read_project(federation.folder), federation.folder)
    assert open_to_others(federation.folder / "kits") == open_to_others(federation.folder / "provision") == []


@posix
def test_links_are_not_followed(tmp_path):
    (tmp_path / "other").write_text("x")
    (tmp_path / "other").chmod(0o644)
    with only_for_owner():
        (tmp_path / "kits").mkdir()
        (tmp_path / "kits" / "link").symlink_to(tmp_path / "other")
    assert take_from_others(tmp_path / "kits") == []
    assert stat.S_IMODE((tmp_path / "other").stat().st_mode) == 0o644


def test_provision_says_who_gets_what_and_what_to_guard(federation, capsys):
    provision_command(federation.folder)
    said = capsys.readouterr().out
    assert f"hand {federation.kit('site-2')} to site site-2 and to nobody else" in said
    assert f"hand {federation.kit('localhost')} to who runs the server" in said
    assert f"hand {federation.kit('lead@trial.local')} to who submits runs" in said
    assert f"guard {federation.folder / 'provision'}: whoever reads it can make kits" in said


@pytest.mark.parametrize(("select", "warned"), [("auroc", True), ("worst loss", False), (None, False)])
def test_provision_warns_of_a_choice_by_what_sites_give_bounds_of(federation, capsys, select, warned):
    config = federation.folder / read_project(federation.folder).deployment.config
    chosen = "" if select is None else f'[run]\nselect = "{select}"\n'
    config.write_text(config.read_text().replace("[run]\n", chosen or "[run]\n"))
    check_run(read_project(federation.folder), federation.folder)
    assert ("sites with a minimum_cell above 1 send bounds of it" in capsys.readouterr().err) is warned


def test_renewed_kits_keep_their_settings_and_runs(federation, capsys):
    with pytest.raises(MissingData, match="no kits to renew there"):
        renew(federation.folder)
    provision(read_project(federation.folder), federation.folder)
    kit = federation.kit("site-1")
    (kit / "startup" / "client.key").write_text("old")
    (kit / "fedsaddle").mkdir()
    (kit / "fedsaddle" / "memory").write_text("kept")
    settings = (kit / "local" / "fedsaddle.json").read_text()
    renew(federation.folder)
    assert "stop everything, replace `startup` in each kit" in capsys.readouterr().out
    assert not (kit / "startup" / "client.key").exists()
    assert (kit / "fedsaddle" / "memory").read_text() == "kept"
    assert (kit / "local" / "fedsaddle.json").read_text() == settings
    assert [p.read_text() for p in kit.glob("startup-until-*/client.key")] == ["old"]
    assert len(list(federation.folder.glob("provision-until-*"))) == 1


def certificate(path: Path, days: float) -> None:
    """A certificate that ends in so many days."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    name = x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, "x")])
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now - timedelta(days=400)).not_valid_after(now + timedelta(days=days))
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM))


def test_a_kit_whose_certificate_has_ended_is_not_started(federation, capsys, monkeypatch):
    provision(read_project(federation.folder), federation.folder)
    kit = federation.kit("site-1")
    monkeypatch.setattr(processes, "serve", lambda kit: 7)
    certificate(kit / "startup" / "rootCA.pem", 300)
    assert start(kit) == 7
    assert capsys.readouterr().err == ""
    certificate(kit / "startup" / "client.crt", 20.5)
    assert start(kit) == 7
    assert "warning: the certificate client.crt ends on" in (said := capsys.readouterr().err)
    assert "in 20 days; fedsaddle deploy renew" in said
    certificate(kit / "startup" / "client.crt", -1)
    with pytest.raises(BadInput, match=r"client.crt': ended on 20.*; ask who made the kit for a new one"):
        start(kit)


def test_a_clock_that_is_behind_is_named(federation):
    provision(read_project(federation.folder), federation.folder)
    kit = federation.kit("site-1")
    certificate(kit / "startup" / "rootCA.pem", 300)
    said = r"clock = '2001-02-03 04:05 UTC': the certificate rootCA.pem begins only at 20.*; set the clock of this"
    with pytest.raises(BadInput, match=said):
        certificates.check_kit(kit, datetime(2001, 2, 3, 4, 5, tzinfo=UTC))


def test_a_job_is_one_run():
    app = pytest.importorskip("fedsaddle.deployment.nvflare.app")
    site = app.OneRun(lambda content: b"answered")
    say = lambda run: site.answer(pack(Message({"run": run, "do": "facts"})))  # noqa: E731
    assert site.answer(b"nonsense") == b"answered"
    assert say("first") == say("first.fedavg-0.1") == say("first") == b"answered"
    told = Answer.read(unpack(say("second"), {}).about).failure
    assert told is not None
    assert told.detail == "this job is run first, and not second; submit each run as a job of its own"


def test_a_run_with_a_certificate_that_has_ended_is_not_submitted(federation):
    provision(read_project(federation.folder), federation.folder)
    certificate(federation.kit("lead@trial.local") / "startup" / "client.crt", -1)
    with pytest.raises(BadInput, match="ended on"):
        run_deployed(federation.config, federation.folder / "fedsaddle.toml", federation.folder / "out", resume=False)
    assert not (federation.folder / "out").exists()


def test_a_certificate_that_cannot_be_read(tmp_path):
    pytest.importorskip("cryptography")
    (tmp_path / "server.crt").write_text("no certificate")
    with pytest.raises(BadInput, match="cannot be read; get the kit again"):
        certificates.first_to_end([tmp_path])


@posix
def test_keys_for_flower_are_for_their_owners(federation, capsys):
    pytest.importorskip("cryptography")
    flower(federation.folder)
    assert open_to_others(federation.folder / "flower") == []
    said = capsys.readouterr().out
    assert "site-1.key to site site-1 and to nobody else" in said
    assert "server.key is for the server alone" in said
    assert "ends on" in said


SERVES = """
import sys
from pathlib import Path
from fedsaddle.deployment.nvflare import processes
processes.command = lambda kit: [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
sys.exit(processes.serve(Path(sys.argv[1])))
"""


@posix
def test_a_kit_that_runs_is_not_started_again(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "command", lambda kit: [sys.executable, "-c", "raise SystemExit(3)"])
    first = subprocess.Popen([sys.executable, "-c", SERVES, str(tmp_path)])
    try:
        until = time.monotonic() + 30
        while not processes.members(tmp_path):
            assert time.monotonic() < until
            time.sleep(0.05)
        running = processes.members(tmp_path)
        with pytest.raises(BadInput, match=rf"runs already \(process {running[0]}\), and goes on; stop that one first"):
            processes.serve(tmp_path)
        assert processes.members(tmp_path) == running, "the first one goes on"
        first.kill()
        first.wait()
        assert processes.serve(tmp_path) == 3, "what a killed one left behind does not bar the next"
        assert processes.members(tmp_path) == []
    finally:
        first.kill()
        first.wait()
        processes.kill(tmp_path)


def test_another_attaches_to_a_run_and_fetches_its_results(federation, capsys):
    provision(read_project(federation.folder), federation.folder)
    first = federation.folder / "first"
    run_deployed(federation.config, federation.folder / "fedsaddle.toml", first, resume=False)
    name = json.loads((first / "deployment.json").read_text())["run"]
    capsys.readouterr()
    assert attach_to(name, federation.folder, federation.folder / "second") == 0
    assert "DRFA: 4 rounds, finished" in capsys.readouterr().out
    for file in ("model.safetensors", "metrics.jsonl", "config.json", "deployment.json"):
        assert (federation.folder / "second" / file).read_bytes() == (first / file).read_bytes(), file
    assert attach_to(name, federation.folder, None) == 0
    assert (federation.folder / "runs" / name / "model.safetensors").exists()
    with pytest.raises(MissingData, match=f"'other': the server knows no such run; the last ones are: {name}"):
        attach_to("other", federation.folder, federation.folder / "third")
    assert not (federation.folder / "third").exists()
    with pytest.raises(BadInput, match="is no name of a run; give the one that `fedsaddle run` printed"):
        attach_to("../x", federation.folder, None)


def test_who_attaches_and_leaves_ends_nothing(federation, monkeypatch):
    provision(read_project(federation.folder), federation.folder)
    run_deployed(federation.config, federation.folder / "fedsaddle.toml", federation.folder / "first", resume=False)
    name = json.loads((federation.folder / "first" / "deployment.json").read_text())["run"]

    class Leaves(stand_in_engine.Session):
        def status(self, job):
            raise KeyboardInterrupt

        def abort(self, job):
            raise AssertionError("the job was ended")

    monkeypatch.setattr(sys.modules["fedsaddle.deployment.nvflare.session"], "NVFlareSession", Leaves)
    with pytest.raises(KeyboardInterrupt):
        attach_to(name, federation.folder, federation.folder / "second")


def test_what_is_waited_for_is_said_seldom():
    said: list[str] = []
    waiting = Waiting(said.append)
    for second in range(200):
        waiting.sites({"b": float(second)})
    assert said == [f"waiting for b since {n} s" for n in (10, 20, 40, 80, 160)]
    waiting.sites({f"s{n}": 11.0 for n in range(7)})
    assert said[-1] == "waiting for s0, s1, s2, s3, s4 and 2 more since 11 s"
    waiting.over()
    waiting.sites({"b": 12.0})
    assert said[-1] == "waiting for b since 12 s"
