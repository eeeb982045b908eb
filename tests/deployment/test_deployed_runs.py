"""Deployed runs from configs and files: the same numbers as a simulation, resumed, refused, measured by histograms."""

from __future__ import annotations

import errno
import json
import os
import re

import numpy as np
import pytest
import torch
from in_process import OPEN, config, deployed, simulated, sites

from fedsaddle.config.build import build
from fedsaddle.config.schema import Config, validate_config
from fedsaddle.deployment.agreement import digests
from fedsaddle.deployment.courier import Arrival, InProcess
from fedsaddle.deployment.messages import Answer, Request
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.errors import BadCheckpoint, BadInput, Diverged, TooFewAnswered
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.numerics.roc import ranking_measures
from fedsaddle.robust.settings import Robust
from fedsaddle.runs.checkpoints import shared_fingerprint, versions
from fedsaddle.runs.folder import FolderInUse, only_writer
from fedsaddle.runs.settings import RunOptions

AUC = {"data": "breast-cancer", "problem": {"name": "auc"}}
CASES = {
    "DRFA": config({"name": "DRFA", "sampled_clients": 3, "local_steps": 3}),
    "FedSGDA-STORM": config({"name": "FedSGDA-STORM", "local_steps": 3, "sampled_clients": 3}, **AUC),
    "Local SGDA+, memory": config(
        {"name": "Local SGDA+", "local_steps": 3, "snapshot_every": 2}, problem={"name": "class-fair"}
    ),
    "CODASCA": config({"name": "CODASCA"}, **AUC),
    "Anderson": config(
        {"name": "Extragradient", "batch_size": None, "dual_step": 0.1, "primal_step": 0.1, "anderson": 4},
        problem={"name": "class-fair"},
    ),
    "single precision": config({"name": "FedAvg", "local_steps": 3}, dtype="float32"),
}


@pytest.mark.parametrize("given", CASES.values(), ids=CASES)
def test_a_deployed_run_is_the_simulated_one(given, tmp_path):
    found = deployed(given, sites(given, tmp_path), tmp_path / "out")
    expected = simulated(given)
    assert torch.equal(found.model, expected.model)
    assert found.summary["rounds"] == 6
    for part in ("test", "train"):
        for measure, statistics in expected.summary[part].items():
            assert found.summary[part][measure] == pytest.approx(
                statistics, abs=1e-9 if given.run.dtype == "float64" else 1e-6
            )
    assert [r["round"] for r in found.history] == [r["round"] for r in expected.history]
    ours, theirs = dict(found.summary["ledger"]), dict(expected.summary["ledger"])
    assert ours == theirs


def test_pooled_figures_lie_within_their_bounds(tmp_path):
    given = CASES["FedSGDA-STORM"]
    found = deployed(given, sites(given, tmp_path), tmp_path / "out").summary["pooled"]
    result, test = simulated(given), build(given).data.test
    problem = build(given).algorithm.problem
    exact = ranking_measures(problem.ranking(result.model, test.x), test.y)
    assert exact["auroc"] == result.summary["pooled"]["auroc"]
    for name, value in exact.items():
        assert abs(found[name] - value) <= found[f"{name}_error"] + 1e-12, name
        assert found[f"{name}_error"] < 0.05, name
    own = [ranking_measures(problem.ranking(result.model, x), y)["auroc"] for x, y in map(test.client, range(4))]
    expected = {"worst": min(own), "best": max(own), "std": np.std(own)}
    for name, value in expected.items():
        assert found[f"{name}_site_auroc"] == pytest.approx(value, abs=0.02), name


class Misreports(InProcess):
    """Site 2 tells something else when it is to measure a model."""

    def __init__(self, made, told):
        super().__init__({i: site.answer for i, site in made.items()})
        self.told = told

    def exchange(self, clients, content, least, timeout):
        arrivals = super().exchange(clients, content, least, timeout)
        if about(content).get("do") != "measure":
            return arrivals
        return [self._spoilt(a) if a.client == 1 else a for a in arrivals]

    def _spoilt(self, arrival):
        message = unpack(arrival.content, {})
        return Arrival(1, pack(Message(message.about, self.told(message.record))))


MISREPORTS = {
    "nothing": (lambda told: None, "the reply has no number of rows"),
    "a number of rows that is none": (lambda told: told | {"rows": -3}, "the reply has no number of rows"),
    "no means": (lambda told: {"rows": told["rows"]}, "the reply lacks the means of accuracy, loss"),
    "other means": (lambda told: told | {"means": {"loss": 1.0}}, "the reply lacks the means of accuracy, loss"),
    "a loss that is NaN": (
        lambda told: told | {"means": {"loss": float("nan"), "accuracy": 1.0}}, "sent a 'loss' that is not finite",
    ),
    "too few counts": (
        lambda told: told | {"scores": [[1], [2]]}, "the reply's score counts are not two lists of 1000",
    ),
    "counts below 0": (
        lambda told: told | {"scores": [[-1] * 1000, [1] * 1000]}, "the reply's score counts are not two lists of 1000",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("told", "reason"), MISREPORTS.values(), ids=MISREPORTS)
def test_a_site_is_left_out_that_tells_of_a_model(told, reason, tmp_path):
    given = config({"name": "FedAvg", "local_steps": 3}, data="breast-cancer", evaluate_every=6)
    made = sites(given, tmp_path)
    result = deployed(given, made, tmp_path / "out", Misreports(made, told))
    assert any(reason in why for why in result.summary["sites"]["site-2"]["left_out"])
    line = rf"measure: site-2 left out: (sent a bad message: )?{re.escape(reason)}"
    assert re.search(line, (tmp_path / "out" / "log.txt").read_text())
    assert result.summary["rounds"] == 6
    assert np.isnan(result.history[-1]["clients"]["test"]["loss"][1] or np.nan)
    assert result.summary["pooled"]["auroc"] > 0.5


def test_a_model_that_no_site_can_measure_has_diverged(tmp_path):
    given = config({"name": "FedAvg", "local_steps": 3}, evaluate_every=6)
    made = sites(given, tmp_path)

    class AllMisreport(Misreports):
        def exchange(self, clients, content, least, timeout):
            arrivals = super().exchange(clients, content, least, timeout)
            if about(content).get("do") != "measure":
                return arrivals
            return [self._spoilt(a)._replace(client=a.client) for a in arrivals]

    bad = AllMisreport(made, lambda told: told | {"means": {"loss": float("inf"), "accuracy": 1.0}})
    with pytest.raises(Diverged, match="client 0 sent a 'loss' that is not finite"):
        deployed(given, made, tmp_path / "out", bad)


@pytest.mark.parametrize(
    ("section", "asked", "complaint"),
    [
        ("run", {"measures": ["duality-gap"]}, r"run.measures = \['duality-gap'\]: work in simulations only"),
        ("noise", {"variance": 0.04}, r"noise = \{'variance': 0.04\}: works in simulations only"),
        ("attack", {"name": "scale"}, r"attack.name = 'scale': works in simulations only"),
    ],
    ids=["measures", "noise", "attack"],
)
def test_what_only_a_simulation_can_do_is_refused(section, asked, complaint, tmp_path):
    given = validate_config(
        {
            "data": {"name": "file", "path": "rows.csv"},
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "DRFA"},
            section: asked,
        }
    )
    with pytest.raises(BadInput, match=complaint):
        deployed(given, {}, tmp_path / "out", InProcess({}))


def test_noise_of_a_named_data_set_is_in_the_rows_that_are_dealt_out(tmp_path):
    given = with_(CASES["DRFA"], "noise", flipped_labels=0.3, mean_step=0.1, variance=0.04)
    found = deployed(given, sites(given, tmp_path), tmp_path / "out")
    assert torch.equal(found.model, simulated(given).model)
    assert not torch.equal(found.model, simulated(CASES["DRFA"]).model)


def test_the_folder_is_that_of_a_simulation(tmp_path):
    given = CASES["DRFA"]
    deployed(given, sites(given, tmp_path), tmp_path / "out")
    simulated(given, out=tmp_path / "simulated", options=RunOptions(report=False))
    names = {p.name for p in (tmp_path / "simulated").iterdir()}
    assert names <= {p.name for p in (tmp_path / "out").iterdir()}
    model = [(tmp_path / folder / "model.safetensors").read_bytes() for folder in ("out", "simulated")]
    assert model[0] == model[1]
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert summary["sites"]["site-2"]["left_out"] == {}
    assert summary["sites"]["site-2"]["bytes_up"] > 1000


class Dies(InProcess):
    """The server's process ends at an exchange of a round."""

    def __init__(self, made, round, exchange):
        super().__init__({i: site.answer for i, site in made.items()})
        self.at = (round, exchange)

    def exchange(self, clients, content, least, timeout):
        said = about(content)
        arrivals = super().exchange(clients, content, least, timeout)
        if (said.get("round"), said.get("exchange")) == self.at:
            raise KeyboardInterrupt
        return arrivals


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("at", [(3, 0), *(pytest.param(at, marks=pytest.mark.slow) for at in ((0, 0), (5, 0)))])
def test_a_server_that_dies_goes_on_to_the_same_model(name, at, tmp_path):
    given = CASES[name]
    made = sites(given, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        deployed(given, made, tmp_path / "out", Dies(made, *at))
    restarted = sites(given, tmp_path)  # the sites' processes are new as well; their disks are not
    found = deployed(given, restarted, tmp_path / "out")
    assert torch.equal(found.model, simulated(given).model)


PAIRS = config({"name": "FedX2", "local_steps": 3}, data="breast-cancer", problem={"name": "pairwise"})
REMEMBERING = {name: CASES[name] for name in ("Local SGDA+, memory", "CODASCA")} | {"FedX2": PAIRS}


@pytest.mark.parametrize("given", REMEMBERING.values(), ids=REMEMBERING)
@pytest.mark.parametrize("when", ["between two rounds", "before it answers"])
def test_a_site_that_is_killed_in_the_middle_comes_back_with_its_memory(given, when, tmp_path):
    """Before it answers: it has run the task and written what it remembers, and nobody heard of it."""
    made = sites(given, tmp_path)
    killed = []

    class Restarts(InProcess):
        def exchange(self, clients, content, least, timeout):
            found = super().exchange(clients, content, least, timeout)
            if about(content).get("round") == 2 and 1 in clients and not killed:
                killed.append(1)
                self.sites = {**self.sites, 1: sites(given, tmp_path)[1].answer}
                return found if when == "between two rounds" else [a for a in found if a.client != 1]
            return found

    transport = Restarts({i: s.answer for i, s in made.items()})
    found = deployed(given, made, tmp_path / "out", transport, minimum=4, pause=0.0)
    assert killed
    assert list((tmp_path / "disk-1").rglob("*.memory"))
    assert torch.equal(found.model, simulated(given).model)


def with_(config: Config, section: str, **changes) -> Config:
    old = getattr(config, section)
    return config.model_copy(update={section: type(old)(**{**old.model_dump(), **changes})})


@pytest.mark.parametrize(
    ("section", "change"),
    [
        ("algorithm", {"primal_step": 0.5}),
        ("model", {"name": "mlp", "hidden": [3]}),
        ("run", {"seed": 9}),
        ("problem", {"l2": 0.1}),
    ],
    ids=["algorithm", "model", "seed", "problem"],
)
def test_a_site_with_another_config_refuses(section, change, tmp_path):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    made[1].config = with_(given, section, **change)
    with pytest.raises(
        TooFewAnswered, match=rf"facts: 3 of at least 4 .*site-2 refused: this site's \[{section}\] differs"
    ):
        deployed(given, made, tmp_path / "out", patience=10_000)  # it will not change its mind
    assert not (tmp_path / "out" / "metrics.jsonl").exists()


def test_other_versions_at_a_site_are_named(tmp_path, monkeypatch):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    real = digests
    monkeypatch.setattr(
        "fedsaddle.deployment.site.digests",
        lambda config: real(config) | {"versions": "fedsaddle 0.1.0, torch 2.4.0, numpy 1.26.0"},
    )
    with pytest.raises(TooFewAnswered) as reason:
        deployed(given, made, tmp_path / "out", patience=0.0)
    said = str(reason.value)
    told = (
        f"this site has fedsaddle 0.1.0, torch 2.4.0, numpy 1.26.0, and the server has {versions()}; install the same"
    )
    assert f"site-2 refused: {told} versions at both" in said
    assert "lower the minimum" not in said
    assert "\n" not in said


@pytest.mark.parametrize("module", ["fedsaddle.runs.checkpoints", "torch", "numpy"])
def test_the_fingerprint_of_a_deployed_run_has_the_versions(module, monkeypatch):
    algorithm = build(CASES["DRFA"]).algorithm
    before = shared_fingerprint(algorithm, 4, 0)
    assert shared_fingerprint(algorithm, 4, 0) == before
    monkeypatch.setattr(f"{module}.__version__", "0.0.1")
    assert shared_fingerprint(algorithm, 4, 0) != before


@pytest.mark.parametrize("where", ["before the first round", "in a round", "its log, too"])
def test_a_full_disk_of_a_site_is_named_with_its_remedy(tmp_path, monkeypatch, where):
    """The reason names neither path nor content, and no error escapes to the engine."""
    given = CASES["Local SGDA+, memory"]
    made = sites(given, tmp_path)
    opened, full = os.open, "disk-1/trial/memory" if where == "in a round" else "disk-1/"

    def open_(path, *arguments, **options):
        if full in str(path):
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        return opened(path, *arguments, **options)

    def mkdir(path, *arguments, **options):
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr("fedsaddle.files.os.open", open_)
    if where == "its log, too":
        monkeypatch.setattr("fedsaddle.deployment.audit.logging.FileHandler._open", lambda handler: mkdir("log.txt"))
    with pytest.raises(TooFewAnswered) as reason:
        deployed(given, made, tmp_path / "out", patience=0.0, minimum=4)
    said = str(reason.value)
    assert "site-2 failed: it cannot write to its disk (No space left on device); make room there, then resume" in said
    assert "disk-1" not in said
    assert ("or lower the minimum" in said) == (where == "in a round")


def test_rows_never_cross(tmp_path):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    crossed: list[bytes] = []

    class Tapped(InProcess):
        def exchange(self, clients, content, least, timeout):
            arrivals = super().exchange(clients, content, least, timeout)
            crossed.extend([content, *(a.content for a in arrivals)])
            return arrivals

    deployed(given, made, tmp_path / "out", Tapped({i: s.answer for i, s in made.items()}))
    wire = b"".join(crossed)
    for site in made.values():
        for x in site._rows().sources[0].features.x:
            assert x.astype("float64").tobytes() not in wire
            assert x.astype("float32").tobytes() not in wire


def test_a_missing_site_does_not_stop_a_resumed_run(tmp_path):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        deployed(given, made, tmp_path / "out", Dies(made, 3, 0))

    class Absent(InProcess):
        def exchange(self, clients, content, least, timeout):
            return super().exchange([i for i in clients if i != 2], content, least, timeout)

    result = deployed(
        given, made, tmp_path / "out", Absent({i: s.answer for i, s in made.items()}), minimum=2, timeout=1
    )
    assert result.summary["rounds"] == 6
    assert result.summary["sites"]["site-3"]["left_out"]["did not answer in 1 s"] >= 1


def test_what_fails_at_a_site_is_told_in_its_own_log_alone(tmp_path):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    made[1].settings.data.unlink()
    with pytest.raises(TooFewAnswered, match="site-2 refused: cannot read its data file: no such file; see the site's"):
        deployed(given, made, tmp_path / "out", patience=10_000)  # a file does not come back by asking again
    assert "site-2.npz does not exist" in (tmp_path / "disk-1" / "log.txt").read_text()
    log = (tmp_path / "out" / "log.txt").read_text()
    assert log.count("facts: site-2 left out: refused: cannot read its data file: no such file") == 1
    assert "the run ended: facts: 3 of at least 4" in log
    assert "npz" not in log


def test_other_sites_are_another_run(tmp_path):
    given = CASES["DRFA"]
    made = sites(given, tmp_path)
    deployed(given, made, tmp_path / "out")
    made[0], made[1] = made[1], made[0]
    with pytest.raises(BadCheckpoint, match="belongs to the sites"):
        deployed(given, made, tmp_path / "out")


def test_another_server_writes_there(tmp_path, monkeypatch):
    """It is told at once, unless a time to wait is given."""
    given, out = CASES["DRFA"], tmp_path / "out"
    made = sites(given, tmp_path)
    out.mkdir()
    monkeypatch.setattr("fedsaddle.runs.folder.time.sleep", lambda seconds: pytest.fail("it waits"))
    with only_writer(out), pytest.raises(FolderInUse, match=f"process {os.getpid()} on"):
        deployed(given, made, out)
    assert list(out.iterdir()) == []
    deployed(given, made, out)


@pytest.mark.parametrize("content", ["{", "[]", '{"names": []}'])
def test_a_damaged_agreement(tmp_path, content):
    given, out = CASES["DRFA"], tmp_path / "out"
    made = sites(given, tmp_path)
    deployed(given, made, out)
    (out / "agreed.json").write_text(content)
    with pytest.raises(BadCheckpoint, match=r"agreed\.json is damaged \(.*; start a new run"):
        deployed(given, made, out)


def test_a_stranger_cannot_choose_folders(tmp_path):
    given = CASES["DRFA"]
    site = sites(given, tmp_path)[0]
    for do, run in (("measure", "../../etc"), ("agree", "../x"), ("shell", "trial")):
        request = Request(do=do, run=run, fingerprint="", nonce="n")
        answer = Answer.read(unpack(site.answer(pack(Message(request.to_dict(), {}))), {}).about)
        assert answer.failure
    assert not (tmp_path / "x").exists()


HEAD = "age,ward,dose,label"


def own_rows(site: int, rows: int, seed: int = 3) -> list[str]:
    """Rows with gaps; a site's wards are not those of the others, and its third has the dose in other units."""
    chance = np.random.default_rng((seed, site))
    made = []
    for _ in range(rows):
        age = "" if chance.random() < 0.3 else str(chance.integers(20, 90))
        ward = chance.choice(["a", "b", "c", ""][: site + 2])
        dose = chance.normal(10, 1) * (1000 if site == 4 else 1)
        made.append(f"{age},{ward},{dose:.3f},{chance.choice(['ill', 'well'])}")
    return made


def own_files(folder, count=5):
    """The files of each site, and one file with all rows and a client column; the same for the test."""
    for name, rows, seed in (("rows", 30, 3), ("test", 12, 4)):
        pooled = []
        for i in range(count):
            own = own_rows(i, rows + 5 * i, seed)
            (folder / f"{name}-{i + 1}.csv").write_text("\n".join([HEAD, *own]) + "\n")
            pooled += [f"{line},site-{i + 1}" for line in own]
        (folder / f"{name}.csv").write_text("\n".join([f"{HEAD},client", *pooled]) + "\n")


def of_files(folder, **data) -> Config:
    named = {"features": ["age", "ward", "dose"], "test_share": 0.0, **data}
    return validate_config(
        {
            "data": {"name": "file", "path": str(folder / "rows.csv"), "target": "label", **named},
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "DRFA", "local_steps": 3, "batch_size": 4},
            "run": {"rounds": 5, "dtype": "float64"},
        }
    )


def with_own_files(config: Config, folder, count=5, policy=OPEN) -> dict[int, SiteService]:
    def settings(i: int) -> SiteSettings:
        name = f"site-{i + 1}"
        return SiteSettings(name, folder / f"rows-{i + 1}.csv", folder / f"disk-{i}", folder / f"test-{i + 1}.csv")

    return {i: SiteService(config, settings(i), policy) for i in range(count)}


OWN = {
    "plain": {},
    "hinges and intercepts": {"hinges": 3, "site_intercept": True},
    "listed, one positive": {"features": ["dose", "ward"], "positive": "ill"},
    "as they are": {"standardise": False, "categorical": ["age"]},
}


LISTED = OPEN.model_copy(update={"columns": ["age", "ward", "dose"]})  # ages as categories are many for few rows


@pytest.mark.parametrize("data", OWN.values(), ids=OWN)
def test_files_of_the_sites_own(tmp_path, data):
    """Each site has CSV files; the run is that of a simulation on one file with all rows, to the bit."""
    own_files(tmp_path)
    pooled = of_files(tmp_path, test_path=str(tmp_path / "test.csv"), **data)
    made = with_own_files(of_files(tmp_path, **data), tmp_path, policy=LISTED)
    bounds = None if data.get("standardise", True) else Robust(bounds=True)  # one site has other units: ×1000
    found, expected = deployed(pooled, made, tmp_path / "out"), simulated(pooled, robust=bounds)
    assert torch.equal(found.model, expected.model)
    assert bool(found.summary["robust"]["bounded"]) == (bounds is not None)
    for part in ("test", "train"):
        assert found.summary[part]["loss"] == pytest.approx(expected.summary[part]["loss"], abs=1e-9)
    features = json.loads((tmp_path / "out" / "features.json").read_text())
    assert features == json.loads(json.dumps([feature.to_dict() for feature in build(pooled).data.encoding]))


def test_a_run_on_tables_goes_on_after_its_server_died(tmp_path):
    own_files(tmp_path)
    given = of_files(tmp_path, site_intercept=True)
    whole = deployed(given, with_own_files(given, tmp_path), tmp_path / "whole")
    made = with_own_files(given, tmp_path)
    with pytest.raises(KeyboardInterrupt):
        deployed(given, made, tmp_path / "out", Dies(made, 3, 0))
    found = deployed(given, with_own_files(given, tmp_path), tmp_path / "out")
    assert torch.equal(found.model, whole.model)


def test_the_server_warns_of_sites_that_differ(tmp_path):
    own_files(tmp_path)
    (tmp_path / "rows-2.csv").write_text("\n".join([HEAD, *(f"{r.rpartition(',')[0]},ill" for r in own_rows(1, 9))]))
    given = of_files(tmp_path)
    deployed(given, with_own_files(given, tmp_path), tmp_path / "out")
    log = (tmp_path / "out" / "log.txt").read_text()
    assert re.search(r"column 'dose' at site 'site-5' is far from the other sites \(mean [\d.e+]+, elsewhere \d+", log)
    assert "site 'site-2' has training rows of one class only" in log
    assert "site 'site-2' has fewer than 10 training rows" in log


@pytest.mark.parametrize("data", [{"features": ["age", "dose"]}, {}], ids=["listed", "not listed"])
def test_a_site_that_lacks_a_column_is_named(tmp_path, data):
    own_files(tmp_path)
    lacking = [line.split(",") for line in (tmp_path / "rows-2.csv").read_text().splitlines()]
    (tmp_path / "rows-2.csv").write_text("\n".join(",".join([*c[:2], *c[3:]]) for c in lacking) + "\n")
    (tmp_path / "test-2.csv").write_text((tmp_path / "rows-2.csv").read_text())
    given = of_files(tmp_path, **data)
    with pytest.raises((TooFewAnswered, BadInput)) as reason:
        deployed(given, with_own_files(given, tmp_path), tmp_path / "out", patience=10_000)
    assert re.search(
        r"site-2 refused: the file here has no column 'dose'|columns of site-2 = \"no 'dose'\"", str(reason.value)
    )
    assert "optional_columns" in str(reason.value)
    agreed = of_files(tmp_path, optional_columns=["dose"], **data)
    assert deployed(agreed, with_own_files(agreed, tmp_path), tmp_path / "out").summary["rounds"] == 5


class SaysOdd(InProcess):
    """Site 2 says something else before the first round."""

    def __init__(self, made, do, change):
        super().__init__({i: site.answer for i, site in made.items()})
        self.do, self.change = do, change

    def exchange(self, clients, content, least, timeout):
        arrivals = super().exchange(clients, content, least, timeout)
        if about(content).get("do") != self.do:
            return arrivals
        return [self._odd(a) if a.client == 1 else a for a in arrivals]

    def _odd(self, arrival):
        message = unpack(arrival.content, {})
        return Arrival(1, pack(Message(message.about, self.change(message.record))))


ODD = {
    "nothing": ("facts", lambda told: None, "a message whose '' is None"),
    "text for rows": ("facts", lambda told: told | {"rows": "many"}, "a message whose 'rows' is 'many'"),
    "no labels": ("facts", lambda told: {k: v for k, v in told.items() if k != "target"}, "a message without 'target'"),
    "its rows": ("facts", lambda told: told | {"cells": [1.0]}, "a message with an unknown 'cells'"),
    "another sum": ("counts", lambda told: {"counts": told["counts"] + 1}, "counts that do not sum up"),
    "too few bins": ("counts", lambda told: {"counts": told["counts"][:, :1]}, "counts of shape (2, 1), not (2, 400)"),
    "too few columns": (
        "counts",
        lambda told: {"counts": told["counts"][1:]},
        "counts of shape (1, 400), not (2, 400)",
    ),
}


@pytest.mark.parametrize(("do", "change", "reason"), ODD.values(), ids=ODD)
def test_a_site_that_says_something_odd_before_the_first_round(tmp_path, do, change, reason):
    own_files(tmp_path)
    given = of_files(tmp_path)
    made = with_own_files(given, tmp_path)
    with pytest.raises(
        TooFewAnswered, match=rf"{do}: 4 of at least 5 .*site-2 sent a bad message: {re.escape(reason)}"
    ):
        deployed(given, made, tmp_path / "out", SaysOdd(made, do, change), patience=0)
    assert not (tmp_path / "out" / "agreed.json").exists()


def test_another_target_is_another_run(tmp_path):
    """The encoding was agreed for one column of labels: another must not slip in."""
    for i in range(3):
        rows = [f"{0.1 * n + i},{n % 2},{n % 3 // 2}" for n in range(12)]
        (tmp_path / f"site-{i + 1}.csv").write_text("\n".join(["dose,ill,old", *rows]) + "\n")

    def given(target: str) -> Config:
        return validate_config(
            {
                "data": {"name": "file", "path": "rows.csv", "target": target, "features": ["dose"], "test_share": 0.0},
                "split": {"name": "natural"},
                "model": {"name": "logistic"},
                "algorithm": {"name": "FedAvg", "local_steps": 3, "batch_size": 4},
                "run": {"rounds": 5, "checkpoint_every": 2},
            }
        )

    def made(config: Config) -> dict[int, SiteService]:
        paths = [(f"site-{i + 1}", tmp_path / f"site-{i + 1}.csv", tmp_path / f"disk-{i}") for i in range(3)]
        return {i: SiteService(config, SiteSettings(*each), OPEN) for i, each in enumerate(paths)}

    first, other = made(given("ill")), made(given("old"))
    with pytest.raises(KeyboardInterrupt):
        deployed(given("ill"), first, tmp_path / "out", Dies(first, 3, 0))
    with pytest.raises(BadCheckpoint, match=r"data.target = 'old': the run in .* has 'ill'; resume with the same"):
        deployed(given("old"), other, tmp_path / "out")


def test_deployed_runs_have_bounds_unless_they_are_switched_off(tmp_path):
    for bounds in (None, False):
        given = config({"name": "FedAvg", "local_steps": 3}, evaluate_every=6)
        given = given.model_copy(update={"robust": given.robust.model_copy(update={"bounds": bounds})})
        folder = tmp_path / str(bounds)
        summary = deployed(given, sites(given, folder), folder / "out").summary
        assert ("robust" in summary) == (bounds is None)
        assert summary.get("robust", {}).get("bounded", {}) == {}
