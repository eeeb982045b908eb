"""Kits, submitted runs and the trial on one machine, with a stand-in for NVFlare: what the commands themselves do."""

from __future__ import annotations

import json
import os
import signal
import sys
import tomllib
from pathlib import Path

import pytest
import stand_in_engine
import typer
from real import DRFA, Federation

from fedsaddle.commands.deploy import audit, flower, kit_of, start
from fedsaddle.commands.deploy import provision as provision_command
from fedsaddle.commands.deploy_try import try_deployment
from fedsaddle.commands.deploy_withdraw import withdraw
from fedsaddle.commands.run_deployed import RunEnded, run_deployed
from fedsaddle.commands.simulation import run_config
from fedsaddle.config.schema import read_config
from fedsaddle.deployment.nvflare import processes
from fedsaddle.deployment.nvflare.provision import ALLOWED, nvflare_project, provision
from fedsaddle.deployment.project import read_project
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData


@pytest.fixture
def federation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Federation:
    stand_in_engine.use(monkeypatch)
    made = Federation(tmp_path / "trial")
    made.prepare(DRFA, 4)
    return made


def local(federation: Federation, name: str, file: str) -> dict:
    return json.loads((federation.kit(name) / "local" / file).read_text())


def test_kits_say_what_each_may_do_and_where_its_rows_are(federation, capsys):
    provision_command(federation.folder)
    assert capsys.readouterr().out.count("made ") == 5
    for name in ("localhost", "site-1"):
        resources = local(federation, name, "resources.json")
        assert resources["class_allow_list"] == ALLOWED
        assert resources["class_list_enforcement_mode"] == "enforce"
        assert "log_receiver" not in [c["id"] for c in resources["components"]]
        assert local(federation, name, "authorization.json")["permissions"]["lead"]["byoc"] == "none"
    assert local(federation, "site-1", "resources.json")["allow_log_streaming"] is False
    assert local(federation, "site-2", "fedsaddle.json")["data"] == str(federation.folder / "data" / "site-2.npz")
    assert local(federation, "localhost", "fedsaddle.json")["sites"] == ["site-1", "site-2", "site-3"]
    assert (federation.kit("site-3") / "local" / "fedsaddle.toml").read_text() == (
        federation.folder / "fedsaddle.toml"
    ).read_text()


def test_a_server_keeps_its_jobs_in_its_kit_wherever_that_lies(federation, tmp_path):
    provision(read_project(federation.folder), federation.folder)
    moved = federation.kit("localhost").rename(tmp_path / "elsewhere")
    line = processes.command(moved)
    resources = json.loads((moved / "local" / "resources.json").read_text())
    assert resources["components"][-1]["args"]["uri_root"] == str(moved / "store" / "jobs")
    assert "nvflare.private.fed.app.server.server_train" in line


def test_a_site_has_its_name_from_its_kit_and_not_from_the_folder(federation, tmp_path):
    provision(read_project(federation.folder), federation.folder)
    moved = federation.kit("site-2").rename(tmp_path / "elsewhere")
    assert "uid=site-2" in processes.command(moved)
    assert kit_of(moved, "site-2") == moved
    with pytest.raises(BadInput, match="belongs to site 'site-2'"):
        kit_of(moved, "site-1")
    with pytest.raises(BadInput, match="belongs to site 'site-2'"):
        kit_of(moved, None)
    with pytest.raises(BadInput, match="belongs to the server"):
        kit_of(federation.kit("localhost"), "site-1")


def test_a_kit_is_known_where_nvflare_and_psutil_are_not_installed(federation, monkeypatch):
    provision(read_project(federation.folder), federation.folder)
    monkeypatch.delitem(sys.modules, "fedsaddle.deployment.nvflare.processes")
    monkeypatch.setitem(sys.modules, "psutil", None)
    monkeypatch.setattr("fedsaddle.deployment.project.find_spec", lambda name: None)
    kit = kit_of(federation.kit("site-2"), "site-2")
    with pytest.raises(MissingData, match="NVFlare is not installed"):
        start(kit)


def test_a_site_more_gets_a_kit_and_the_others_keep_theirs(federation, capsys):
    provision(read_project(federation.folder), federation.folder)
    mark = federation.kit("site-1") / "startup" / "mark"
    mark.touch()
    path = federation.folder / "deployment.toml"
    path.write_text(path.read_text() + '\n[sites.site-9]\ndata = "rows.csv"\n')
    new = provision(read_project(federation.folder), federation.folder)
    assert [kit.name for kit in new] == ["site-9"]
    assert mark.exists()
    assert local(federation, "site-9", "fedsaddle.json")["data"] == str(federation.folder / "rows.csv")
    assert local(federation, "localhost", "fedsaddle.json")["sites"][-1] == "site-9"
    provision_command(federation.folder)
    assert "updated their settings" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("key", "value"), [("port", "1"), ("server", '"fl.example.org"'), ("admin_port", "2"), ("name", '"other"')]
)
def test_kits_are_for_one_address(key, value, federation):
    provision(read_project(federation.folder), federation.folder)
    path = federation.folder / "deployment.toml"
    lines = [f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in path.read_text().splitlines()]
    path.write_text("\n".join(lines))
    with pytest.raises(BadInput, match=rf"deployment\..*{key}.* = .*: the kits were made for .* remove .*kits and"):
        provision(read_project(federation.folder), federation.folder)


def test_kits_without_a_config(federation):
    (federation.folder / "fedsaddle.toml").unlink()
    with pytest.raises(MissingData, match="does not exist; write the config first"):
        provision(read_project(federation.folder), federation.folder)


def test_what_nvflare_is_told_of_a_project(federation):
    project = read_project(federation.folder)
    told = nvflare_project(project)
    server, *sites, admin = told["participants"]
    assert (server["fed_learn_port"], server["admin_port"]) == (project.deployment.port, project.deployment.admin_port)
    assert [site["name"] for site in sites] == ["site-1", "site-2", "site-3"]
    assert not any(site["allow_log_streaming"] for site in sites)
    assert admin["role"] == "lead"
    assert {"root_valid_days": 360} in [builder.get("args") for builder in told["builders"]]


def test_an_app_for_flower_holds_no_code(federation, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.asymmetric", None)  # as where it is not installed
    flower(federation.folder)
    assert "no certificates made: for Flower's, run `pip install" in capsys.readouterr().out
    files = {str(p.relative_to(federation.folder / "flower")) for p in (federation.folder / "flower").rglob("*.*")}
    local = {f"site-{i}/local/fedsaddle.{end}" for i in (1, 2, 3) for end in ("json", "toml")}
    assert files == {"app/pyproject.toml", *local, *(f"site-{i}/site-policy.toml" for i in (1, 2, 3))}
    app = tomllib.loads((federation.folder / "flower" / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"]
    assert app["components"]["clientapp"] == "fedsaddle.deployment.flower.app:client"
    assert app["config"]["project"] == str(federation.folder.resolve())
    settings = json.loads((federation.folder / "flower" / "site-2" / "local" / "fedsaddle.json").read_text())
    assert settings["data"] == str(federation.folder / "data" / "site-2.npz")


def test_a_folder_that_is_no_kit(tmp_path):
    with pytest.raises(MissingData, match="no start-up kit there"):
        processes.command(tmp_path)


def test_a_submitted_run_leaves_the_folder_and_the_tables_of_a_simulation(federation, capsys):
    provision(read_project(federation.folder), federation.folder)
    out = federation.folder / "out"
    assert run_deployed(federation.config, federation.folder / "fedsaddle.toml", out, resume=False) == 0
    said = capsys.readouterr().out
    assert "DRFA: 4 rounds, finished" in said
    assert "Visible to the server per site: LocalLoss.loss" in said
    files = {path.name for path in out.iterdir()}
    assert {"model.safetensors", "summary.json", "metrics.jsonl", "progress.png", "clients.png", "agreed.json"} <= files
    assert f"report: {out / 'report.html'}" in said
    assert "What left each site" in (out / "report.html").read_text()
    with pytest.raises(BadInput, match="holds a run already; resume it"):
        run_deployed(federation.config, federation.folder / "fedsaddle.toml", out, resume=False)
    assert run_deployed(federation.config, federation.folder / "fedsaddle.toml", out, resume=True) == 0


def test_a_run_without_kits_leaves_no_folder(federation, monkeypatch):
    class NoKit(stand_in_engine.Session):
        def __init__(self, *given):
            raise MissingData("there is no kit")

    monkeypatch.setattr(sys.modules["fedsaddle.deployment.nvflare.session"], "NVFlareSession", NoKit)
    with pytest.raises(MissingData, match="there is no kit"):
        run_deployed(federation.config, federation.folder / "fedsaddle.toml", federation.folder / "out", resume=False)
    assert not (federation.folder / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda n: n.name)
def test_a_run_that_is_interrupted_ends_its_job(number, federation, monkeypatch, capsys):
    ended, sent = [], []

    class Interrupted(stand_in_engine.Session):
        def status(self, job):
            assert not sent, "the signal was not heeded"
            sent.append(number)
            os.kill(os.getpid(), number)
            return "RUNNING"

        def abort(self, job):
            ended.append(job)

    provision(read_project(federation.folder), federation.folder)
    monkeypatch.setattr(sys.modules["fedsaddle.deployment.nvflare.session"], "NVFlareSession", Interrupted)
    path = federation.folder / "fedsaddle.toml"
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # whoever started the tests may have it ignored, as nohup does
    try:
        assert run_config(path, ['engine.name="nvflare"'], federation.folder / "out", resume=False) == 130
        assert "interrupted; the job was aborted. Continue with --resume" in capsys.readouterr().err
        assert ended == ["1"]
        assert signal.getsignal(number) == usual
    finally:
        signal.signal(number, before)


def test_a_run_is_resumed_with_fewer_sites_where_the_minimum_allows(federation, monkeypatch):
    provision(read_project(federation.folder), federation.folder)
    given = (federation.config, federation.folder / "fedsaddle.toml", federation.folder / "out")
    run_deployed(*given, resume=False)

    class OneAway(stand_in_engine.Session):
        def sites(self):
            return {"site-1": 0.0, "site-3": 0.0}

    monkeypatch.setattr(sys.modules["fedsaddle.deployment.nvflare.session"], "NVFlareSession", OneAway)
    path = federation.folder / "deployment.toml"
    path.write_text(path.read_text().replace("patience = 300.0", "patience = 0.0"))
    assert run_deployed(*given, resume=True) == 0


def test_a_run_is_resumed_with_the_config_it_began_with(federation):
    provision(read_project(federation.folder), federation.folder)
    path, out = federation.folder / "fedsaddle.toml", federation.folder / "out"
    run_deployed(federation.config, path, out, resume=False)
    longer = read_config(path, ["run.rounds=6"])
    assert run_deployed(longer, path, out, resume=True) == 0
    with pytest.raises(BadCheckpoint, match=r"data.test_share = 0.5: the run in .* has 0.2; resume with the same"):
        run_deployed(read_config(path, ["data.test_share=0.5"]), path, out, resume=True)


def test_a_run_notes_its_config_before_it_is_submitted(federation, monkeypatch):
    class Interrupted(stand_in_engine.Session):
        def submit(self, job):
            raise KeyboardInterrupt

    provision(read_project(federation.folder), federation.folder)
    monkeypatch.setattr(sys.modules["fedsaddle.deployment.nvflare.session"], "NVFlareSession", Interrupted)
    path, out = federation.folder / "fedsaddle.toml", federation.folder / "out"
    with pytest.raises(KeyboardInterrupt):
        run_deployed(federation.config, path, out, resume=False)
    with pytest.raises(BadCheckpoint, match=r"run.seed = 7: the run in .* has 0"):
        run_deployed(read_config(path, ["run.seed=7"]), path, out, resume=True)


def test_nothing_to_resume(federation):
    with pytest.raises(MissingData, match="no deployed run to resume there"):
        run_deployed(federation.config, federation.folder / "fedsaddle.toml", federation.folder / "out", resume=True)


def test_an_error_at_the_server_is_the_error_of_the_command(federation):
    provision(read_project(federation.folder), federation.folder)
    (federation.folder / "data" / "site-2.npz").unlink()
    with pytest.raises(RunEnded, match="site-2 refused: cannot read its data file: no such file; see") as reason:
        run_deployed(federation.config, federation.folder / "fedsaddle.toml", federation.folder / "out", resume=False)
    assert reason.value.exit_code == 3


class Process:
    """Of a kit: notes that it was waited for."""

    def __init__(self, ended: list[str], name: str) -> None:
        self.ended, self.name = ended, name

    def wait(self) -> int:
        self.ended.append(self.name)
        return 0


def trial(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str], list[str]]:
    """Names of kits that were started, stopped and waited for."""
    started, stopped, ended = [], [], []
    stand_in_engine.use(monkeypatch)
    monkeypatch.setattr(
        processes, "start", lambda kit, log, threads: started.append(kit.name) or Process(ended, kit.name)
    )  # fmt: skip
    monkeypatch.setattr(processes, "stop", lambda kit: stopped.append(kit.name))
    return started, stopped, ended


def test_the_trial_ends_with_the_models_compared_and_stops_what_it_started(tmp_path, monkeypatch, capsys):
    started, stopped, ended = trial(monkeypatch)
    assert try_deployment(3, None, tmp_path / "out") == 0
    said = capsys.readouterr().out
    assert "largest difference of the models: 0.0e+00" in said
    assert started == ["localhost", "site-1", "site-2", "site-3"]
    assert sorted(stopped) == sorted(ended) == started
    audit(tmp_path / "out" / "sites" / "site-1", None)
    assert "models were measured 3 times" in capsys.readouterr().out, "the sites' logs are there after the trial"


def test_a_trial_that_is_private_keeps_the_ledgers_and_no_secret(tmp_path, monkeypatch, capsys):
    pytest.importorskip("dp_accounting")
    trial(monkeypatch)
    made = Federation(tmp_path / "trial", sites=3)
    made.prepare('name = "FedAvg"\nlocal_steps = 1\nbatch_size = 8', 1)
    monkeypatch.setattr("fedsaddle.privacy.private.Private.noise", lambda self, units: 20.0)
    assert try_deployment(3, made.folder / "fedsaddle.toml", tmp_path / "out", secure=True, epsilon=8.0) == 0
    assert "the server saw sums over sites only: LocalModel.final" in capsys.readouterr().out
    kept = tmp_path / "out" / "sites" / "site-3"
    assert {path.name for path in kept.rglob("*") if path.is_file()} == {"audit.jsonl", "privacy.json"}
    audit(kept, None)
    said = capsys.readouterr().out
    assert "sum only" in said
    assert "of 8 spent" in said


def test_the_trial_stops_what_it_started_when_it_is_interrupted(tmp_path, monkeypatch):
    started, stopped, ended = trial(monkeypatch)

    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("fedsaddle.commands.run_deployed.run_deployed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        try_deployment(2, None, tmp_path / "out")
    assert sorted(stopped) == sorted(ended) == started == ["localhost", "site-1", "site-2"]


@pytest.mark.parametrize(
    ("sites", "config", "complaint"),
    [(1, None, "at least two"), (3, "", "split of the config makes 2 clients")],
    ids=["one site", "another number of clients"],
)
def test_bad_trials(sites, config, complaint, tmp_path, monkeypatch):
    trial(monkeypatch)
    if config is not None:
        made = Federation(tmp_path / "trial", sites=2)
        made.prepare(DRFA, 4)
        config = made.folder / "fedsaddle.toml"
    with pytest.raises(BadInput, match=complaint):
        try_deployment(sites, config, tmp_path / "out")


def test_a_secure_trial_of_two_sites_starts_nothing(tmp_path, monkeypatch):
    started, _, _ = trial(monkeypatch)
    with pytest.raises(BadInput, match="needs at least 3"):
        try_deployment(2, None, tmp_path / "out", secure=True)
    assert not started


def test_a_trial_into_a_folder_that_is_not_empty(tmp_path, monkeypatch):
    trial(monkeypatch)
    with pytest.raises(BadInput, match="is not empty"):
        try_deployment(2, None, Path(__file__).parent)


def test_a_site_leaves_and_a_run_is_trained_again_without_it(federation, capsys):
    provision(read_project(federation.folder), federation.folder)
    out = federation.folder / "out"
    assert run_deployed(federation.config, federation.folder / "fedsaddle.toml", out, resume=False) == 0
    with pytest.raises(typer.Exit) as ended:
        withdraw("site-2", federation.folder, "consent", again=out)
    assert ended.value.exit_code == 0
    (recorded,) = json.loads((federation.folder / "withdrawals.json").read_text())["withdrawals"]
    assert (recorded["site"], recorded["reason"]) == ("site-2", "consent")
    again = federation.folder / "out-without-site-2"
    summary = json.loads((again / "summary.json").read_text())
    assert list(summary["sites"]) == ["site-1", "site-3"]
    before, after = (json.loads((folder / "config.json").read_text()) for folder in (out, again))
    assert before == after, "from the agreed plan"
    settings = federation.folder / "kits" / "localhost" / "local" / "fedsaddle.json"
    assert json.loads(settings.read_text())["sites"] == ["site-1", "site-3"]
    assert "site-2" not in read_project(federation.folder).names
    with pytest.raises(BadInput, match="is no site of deployment"):
        withdraw("nobody", federation.folder)
