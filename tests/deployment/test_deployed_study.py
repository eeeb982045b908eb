"""A study at sites in this process: it decides as on the same rows in one place, and survives what sites do."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from typer.testing import CliRunner

import fedsaddle as fs
from fedsaddle.cli import app
from fedsaddle.config.schema import DataSection, PrivacySection
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Encoded
from fedsaddle.deployment.courier import InProcess, Patience
from fedsaddle.deployment.deployed_study import DeployedStudy
from fedsaddle.deployment.messages import Answer, Ask, Request
from fedsaddle.deployment.secure_site import read_identity, write_site_keys
from fedsaddle.deployment.site_policy import SitePolicy
from fedsaddle.deployment.site_rows import SiteSettings
from fedsaddle.deployment.study_questions import ScoredModel, StudyQuestions
from fedsaddle.deployment.study_site import StudySite, units_of
from fedsaddle.errors import BadCheckpoint, BadInput, MissingData, TooFewAnswered
from fedsaddle.federation.tasks import records_of
from fedsaddle.federation.wire import Message, pack, unpack
from fedsaddle.metrics.ranking import rank
from fedsaddle.studies.aims import aim_of
from fedsaddle.studies.candidates import Facts, candidates
from fedsaddle.studies.search import Clock, Search, trial_pool
from fedsaddle.studies.site_questions import SimulatedSites
from fedsaddle.studies.study_plan import StudyPlan, StudySection, plan_of

SITES = ("north", "south", "east", "west")
OPEN = SitePolicy(minimum_cell=1, minimum_rows=1, minimum_sites=1, draws="seed", most_runs=1000)
COLUMNS = ["a", "b", "c"]


def write_rows(folder: Path, rows: int = 160, seed: int = 0) -> dict[str, Path]:
    """A CSV file for each site, with log odds of 1.5 a - b - 1."""
    folder.mkdir(parents=True, exist_ok=True)
    rng, found = np.random.default_rng(seed), {}
    for name in SITES:
        x = rng.normal(size=(rows, 3))
        y = rng.random(rows) < 1 / (1 + np.exp(1 - 1.5 * x[:, 0] + x[:, 1]))
        frame = pd.DataFrame(x, columns=COLUMNS).round(4).assign(patient=np.arange(rows) // 2, died=y.astype(int))
        found[name] = folder / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


def small_plan(cell: int = 1, secure: bool = False, **study: object) -> StudyPlan:
    """FedAvg, the default and a second stage, with few rounds and steps."""
    facts = Facts(640, 200, {"number": 3, "site": 4}, False, 4, 64, (7,))
    every = candidates(facts, "auroc")
    listed = [*every[:2], next(c for c in every if c.algorithm == "CODASCA")]
    short = [
        replace(c, rounds=8, steps=c.steps[:2], evaluations=0, patience=None) if len(c.steps) > 1
        else replace(c, evaluations=0) for c in listed
    ]  # fmt: skip
    data = DataSection(
        name="file", target="died", together="patient", features=COLUMNS, numeric=COLUMNS, site_intercept=True,
        test_share=0.25, validation_share=0.25, stratify=True, minimum_cell=cell,
    )  # fmt: skip
    made = StudyPlan(StudySection(**study), data, PrivacySection(secure_aggregation=secure), tuple(short))
    return plan_of(tomllib.loads(made.to_toml()))


def sites_of(plan: StudyPlan, folder: Path, policy: SitePolicy = OPEN, rows: int = 160) -> dict[int, StudySite]:
    files = write_rows(folder / "data", rows)
    return {
        i: StudySite(plan, SiteSettings(name, files[name], folder / f"disk-{i}"), policy)
        for i, name in enumerate(SITES)
    }


def with_keys(made: dict[int, StudySite], folder: Path) -> dict[int, StudySite]:
    """The sites with signing keys, as their kits have them."""
    kits = {name: folder / "kits" / name for name in SITES}
    write_site_keys(kits, SITES)
    return {i: replace(s, identity=read_identity(kits[s.settings.name], s.settings.name)) for i, s in made.items()}


def study(plan: StudyPlan, made: dict[int, StudySite], out: Path, **patience: float):
    transport = InProcess({i: site.answer for i, site in made.items()})
    return DeployedStudy(plan, "trial", SITES, out, Patience(**{"patience": 0.0, **patience})).go(transport)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    folder = tmp_path_factory.mktemp("study")
    plan = small_plan()
    made = sites_of(plan, folder)
    return study(plan, made, folder / "out"), plan, made, folder


def pooled(made: dict[int, StudySite]) -> FederatedData:
    """The sites' own split rows in one place."""
    studies = [made[i]._studies["trial"] for i in sorted(made)]
    parts = {}
    for part in ("train", "validation", "test"):
        tables = [own.tables[part] for own in studies]
        ends = np.cumsum([0, *(len(t.x) for t in tables)])
        x, y = (np.concatenate([getattr(t, key) for t in tables]) for key in ("x", "y"))
        parts[part] = Stacked(torch.from_numpy(x), torch.from_numpy(y), ends)
    units = {}
    for part in ("validation", "test"):
        own = [(units_of(one.site._rows(), part), k) for k, one in enumerate(studies)]
        if all(u is not None for u, _ in own):
            units[f"{part}_units"] = np.concatenate([u + 10_000 * k for u, k in own])
    encoding = tuple(Encoded.from_dict(f) for f in studies[0].payload["agreed"]["features"])
    names = tuple(f.name for f in encoding)
    return FederatedData("rows", parts["train"], parts["test"], SITES, ("0", "1"), names, encoding=encoding,
                         validation=parts["validation"], **units)  # fmt: skip


def test_the_decision_is_that_of_the_same_rows_in_one_place(found, tmp_path):
    result, plan, made, _ = found
    data, aim = pooled(made), aim_of("auroc")
    with trial_pool(data, 1) as pool:
        sites = SimulatedSites(data, aim, 0, pool)
        here = Search(sites, aim, 0, Clock.at(tmp_path, None), tmp_path, lambda: False, listed=plan.candidates).go()
    assert (result.choice.name, result.choice.reason) == (here.name, here.reason)
    ours, theirs = ({(t.candidate, t.step, t.rounds, t.note): t for t in c.trials} for c in (result.choice, here))
    assert ours.keys() == theirs.keys()
    for key, trial in ours.items():
        assert trial.value == pytest.approx(theirs[key].value, abs=0.002), key
        if trial.error is not None:  # a closed form, and 200 draws
            assert trial.error == pytest.approx(theirs[key].error, rel=0.3, abs=2e-4), key
    for name, model in (("choice", here.chosen), ("FedAvg", here.fedavg)):
        test = rank(model.rank(model.data.test.x), data.test.y.numpy(), data.test.offsets, SITES, units=data.test_units)
        exact = test.pooled.auroc
        told = result.summary.to_dict()["pooled"][name]["auroc"]
        assert told["value"] == pytest.approx(exact.value, abs=0.003)
        assert told["interval"] == pytest.approx([exact.low, exact.high], abs=0.005)
    rows = result.summary.rows
    for part in ("train", "validation", "test"):
        own = getattr(data, part)
        assert (rows[part].rows, rows[part].positives) == (len(own.y), int(own.y.sum()))


def test_a_study_that_was_stopped_ends_with_the_same_bits(found, tmp_path):
    """The server is killed in a trial, and a site begins anew; every answer to a question is asked for once."""
    result, plan, _, _ = found
    made = sites_of(plan, tmp_path)

    class Killed(BaseException):
        pass

    def once(limit):
        rounds = iter(range(limit))

        def watch(trial, done):
            if next(rounds, None) is None:
                raise Killed

        transport = InProcess({i: site.answer for i, site in made.items()})
        return DeployedStudy(plan, "trial", SITES, tmp_path / "out", Patience(patience=0.0)).go(transport, watch=watch)

    for limit in (5, 9):
        with pytest.raises(Killed):
            once(limit)
        made = sites_of(plan, tmp_path)  # new processes, with the same disks
    again = once(10_000)
    assert again.choice.name == result.choice.name
    assert torch.equal(again.choice.chosen.vector, result.choice.chosen.vector)
    assert [replace(t, seconds=0.0) for t in again.choice.trials] == [
        replace(t, seconds=0.0) for t in result.choice.trials
    ]
    assert again.summary.pooled == result.summary.pooled
    with pytest.raises(BadCheckpoint, match=r"another study\.toml"):
        study(replace(plan, study=plan.study.model_copy(update={"looks": 2})), made, tmp_path / "out")


def asked(site: StudySite, do: str | None, run: str, payload: object, plan: StudyPlan, **about: object) -> Answer:
    """The answer of a site to one message."""
    header = {"run": run, "fingerprint": plan.digest()[:16], "nonce": "n1"}
    if do is None:
        ask = Ask(**header, round=about.pop("round", 0), exchange=0, task="count_scores", starts={}, keep={}, **about)
        content = pack(Message(ask.to_dict(), payload))
    else:
        content = pack(Message(Request(do=do, **header).to_dict(), payload))
    return Answer.read(unpack(site.answer(content), records_of(StudyQuestions({}))).about)


def test_what_is_not_in_the_plan_is_refused(found, tmp_path):
    _, plan, made, folder = found
    site = StudySite(plan, made[0].settings, OPEN)  # a new process
    chosen = found[0].choice.chosen
    number = list(plan.trials).index(chosen.trial.name)

    def why(*given, **about) -> str:
        failure = asked(site, *given, plan, **about).failure
        assert failure is not None
        assert failure.kind == "refused" or "agreed" in failure.detail
        return failure.detail

    assert "has no trial 'fedavg-0.7'" in why("begin", "trial.fedavg-0.7", {"start": None, "start_trial": None})
    assert "start from no other" in why("begin", f"trial.{chosen.trial.name}", {"start": chosen.vector})
    assert "no request 'rows'" in why("rows", "trial", {})
    assert "not agreed to study" in why("begin", "other.fedavg-0.1", {"start": None})
    another = ScoredModel(chosen.vector + 1.0, number)
    assert "not compared on validation" in why(None, "trial.test", another)
    assert asked(site, None, "trial.validation", another, plan, round=99).failure is None
    assert "looks = 1" in why(None, "trial.test", another, round=9)
    measure = {"w": chosen.vector, "dual": None, "part": "test", "rounds": 0}
    assert "when all trials are done" in why("measure", f"trial.{chosen.trial.name}", measure)
    assert (folder / "disk-0" / "audit.jsonl").exists()


def test_sites_with_another_plan_do_not_take_part(tmp_path):
    plan = small_plan()
    made = sites_of(plan, tmp_path)
    made[2] = replace(made[2], plan=small_plan(looks=2), _studies={})
    with pytest.raises(TooFewAnswered, match=r"east refused: this site's study\.toml differs"):
        study(plan, made, tmp_path / "out")


def test_a_policy_that_refuses_a_candidate_costs_that_candidate_only(tmp_path):
    plan = small_plan()
    made = sites_of(plan, tmp_path)
    names = sorted({c.algorithm for c in plan.candidates} - {"CODASCA"})
    made[1] = replace(made[1], policy=OPEN.model_copy(update={"algorithms": names}), _studies={})
    result = study(plan, made, tmp_path / "out")
    said = {t.note for t in result.choice.trials if "CODASCA" in t.candidate}
    assert len(said) == 1
    assert "south refused: this site's policy says algorithms" in said.pop()
    assert len(result.notes) == 2  # one for each step


def test_counts_are_summed_behind_masks(tmp_path):
    """Small cells leave no site; only the sum over all is merged to five."""
    plan = small_plan(cell=5, secure=True)
    policy = SitePolicy(minimum_rows=10)
    plain = replace(small_plan(), candidates=plan.candidates)
    result = study(plan, with_keys(sites_of(plan, tmp_path, policy), tmp_path), tmp_path / "out")
    exact = study(plain, sites_of(plain, tmp_path / "exact", OPEN), tmp_path / "exact" / "out")
    assert result.choice.name == exact.choice.name
    for name in ("choice", "FedAvg"):
        ours, theirs = (one.summary.to_dict()["pooled"][name]["auroc"] for one in (result, exact))
        assert ours["value"] == pytest.approx(theirs["value"], abs=0.003)
        assert ours["interval"] == pytest.approx(theirs["interval"], abs=0.005)
    without = replace(plan, privacy=PrivacySection())
    with pytest.raises(TooFewAnswered, match=r"minimum_cell = 5; score counts of a study leave in sums"):
        study(without, sites_of(without, tmp_path / "without", policy), tmp_path / "without" / "out")
    audit = (tmp_path / "disk-0" / "audit.jsonl").read_text().splitlines()
    seen = {json.loads(line)["visibility"] for line in audit if json.loads(line)["request"] == "count_scores"}
    assert seen == {"sum only"}


def test_each_site_keeps_the_model_and_learns_about_its_own_rows(found):
    """Predictions of its own rows are those of the loader, and its figures are exact."""
    result, _, made, folder = found
    threshold, sites = result.summary.threshold.probability, result.summary.scores.sites
    for i, name in enumerate(SITES):
        home = folder / f"disk-{i}" / "trial" / "model"
        names = {
            "MODEL_CARD.md",
            "features.json",
            "load_model.py",
            "model.safetensors",
            "predictions.csv",
            "report.html",
        }
        assert {path.name for path in home.iterdir()} == names
        assert (home / "model.safetensors").read_bytes() == (folder / "out" / "model.safetensors").read_bytes()
        told = pd.read_csv(home / "predictions.csv")
        rows = pd.read_csv(made[i].settings.data)
        assert len(told) == len(rows)
        assert (rows["died"][told["row"]].to_numpy() == told["label"]).all()
        assert ((told["probability"] >= threshold) == (told["called_positive"] == 1)).mean() > 0.99
        spec = importlib.util.spec_from_file_location(f"loader_of_{name}", home / "load_model.py")
        loader = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(loader)
        theirs = np.array(loader.predict(rows[COLUMNS].assign(client=name)))
        np.testing.assert_allclose(theirs[told["row"]], told["probability"], rtol=0, atol=2e-6)
        test = told[told["part"] == "test"]
        own = rank(
            test["score"], test["label"], [0, len(test)], [name], units=rows["patient"][test["row"]]
        ).pooled.auroc
        assert sites[name].auroc.value == pytest.approx(own.value, abs=1e-6)
        assert list(sites[name].auroc.interval) == pytest.approx([own.low, own.high], abs=1e-6)
        assert 0.5 < result.summary.alone[name].value < 1
        assert "Is the federation worth it here?" in (home / "report.html").read_text()
    assert set(result.summary.alone) == set(SITES)
    page = (folder / "out" / "report.html").read_text()
    assert "A run at real sites" in page
    assert "AUROC of each site" in page or "north" in page


def test_a_site_that_leaves_before_the_end_loses_nothing(tmp_path):
    """It misses the comparisons and the model; the others end the study, and a line says so."""
    plan = small_plan()
    plan = replace(plan, candidates=plan.candidates[:2])
    made = sites_of(plan, tmp_path)
    gone = {"now": False}

    def last(content: bytes) -> bytes:
        if gone["now"]:
            raise ConnectionError
        return made[3].answer(content)

    class Leaving(InProcess):
        def exchange(self, clients, content, least, timeout):
            gone["now"] = gone["now"] or (b'"count_scores"' in content and b"trial.test" in content)
            there = [i for i in clients if not (i == 3 and gone["now"])]
            return super().exchange(there, content, least, timeout)

    transport = Leaving({**{i: site.answer for i, site in made.items()}, 3: last})
    result = DeployedStudy(plan, "trial", SITES, tmp_path / "out", Patience(patience=0.0, minimum=3)).go(transport)
    assert result.notes == ("west did not take the model; hand it over, or resume when the site is there",)
    assert result.summary.rows["test"].rows == pytest.approx(3 * 40, abs=6)
    assert result.summary.scores.without_counts == ["west"]
    assert not (tmp_path / "disk-3" / "trial" / "model").exists()
    again = study(plan, made, tmp_path / "out")
    assert again.notes == ()
    assert (tmp_path / "disk-3" / "trial" / "model" / "report.html").exists()
    assert again.summary.pooled == result.summary.pooled


class Unsteady(InProcess):
    """A network that loses one site's messages of the first trials."""

    lost: int = 3
    until: bytes = b""  # a word of the first message that arrives again
    back: bool = False

    def exchange(self, clients, content, least, timeout):
        self.back = self.back or self.until in content
        begun = b'"facts"' in content or b'"counts"' in content or b'"study"' in content
        there = [i for i in clients if i != self.lost or self.back or begun]
        return super().exchange(there, content, least, timeout)


def test_a_site_that_joins_late_takes_part_from_then_on(tmp_path):
    plan = small_plan()
    plan = replace(plan, candidates=plan.candidates[:2])
    made = sites_of(plan, tmp_path)
    transport = Unsteady({i: site.answer for i, site in made.items()})
    transport.until = b"trial.logistic"
    result = DeployedStudy(plan, "trial", SITES, tmp_path / "out", Patience(patience=0.0, minimum=3)).go(transport)
    assert result.notes == ()
    told = result.summary.sites["west"]
    assert any(reason.startswith("did not answer") for reason in told.left_out)
    assert told.answered > 0
    assert set(result.summary.scores.sites) == set(SITES)
    assert (tmp_path / "disk-3" / "trial" / "model" / "report.html").exists()


def test_a_candidate_that_diverges_is_a_line_of_the_trials(tmp_path):
    plan = small_plan()
    wild = replace(plan.candidates[2], name="wild", steps=(9e5, 8e5), start=None, step_form="constant",
                   algorithm="FedAvg", options={"local_steps": 8, "batch_size": 32},
                   problem={"name": "supervised", "loss": "logistic", "l2": 1.0})  # fmt: skip
    plan = replace(plan, candidates=(*plan.candidates[:2], wild))
    result = study(plan, sites_of(plan, tmp_path), tmp_path / "out")
    said = [t.note for t in result.choice.trials if t.candidate == "wild"]
    assert said
    assert all("diverged" in note for note in said), said
    assert result.choice.name == plan.candidates[1].name


def test_a_site_without_test_positives_counts_in_the_sum_only(tmp_path):
    plan = small_plan()
    plan = replace(plan, candidates=plan.candidates[:2])
    made = sites_of(plan, tmp_path)
    path = made[2].settings.data
    rows = pd.read_csv(path)
    keep = rows[rows["died"] == 1].index[:1]  # one patient's, which is for training
    rows["died"] = 0
    rows.loc[keep, "died"] = 1
    rows.to_csv(path, index=False)
    result = study(plan, made, tmp_path / "out")
    own = result.summary.scores.sites["east"]
    assert (own.positives, own.auroc) == (0, None)
    assert own.negatives > 0
    assert result.summary.to_dict()["pooled"]["choice"]["auroc"]["value"] > 0.6
    page = (tmp_path / "disk-2" / "trial" / "model" / "report.html").read_text()
    assert "rows of one class only" in page


def test_two_sites_have_no_masks_and_say_so(tmp_path):
    plan = small_plan(cell=5, secure=True)
    made = sites_of(plan, tmp_path, SitePolicy(minimum_rows=10, minimum_sites=1))
    transport = InProcess({i: made[i].answer for i in (0, 1)})
    two = DeployedStudy(plan, "trial", SITES[:2], tmp_path / "out", Patience(patience=0.0))
    with pytest.raises(BadInput, match=r"sites = 2: secure aggregation needs at least 3 in each sum"):
        two.go(transport)
    plan = small_plan()
    plan = replace(plan, candidates=plan.candidates[:2])
    made = sites_of(plan, tmp_path / "open")
    transport = InProcess({i: made[i].answer for i in (0, 1)})
    result = DeployedStudy(plan, "trial", SITES[:2], tmp_path / "open" / "out", Patience(patience=0.0)).go(transport)
    assert len(result.summary.scores.sites) == 2


def test_the_same_study_over_files_in_this_process(tmp_path):
    """From Python and by the command, with default policies and masks; what a site keeps is in a folder of its own."""
    plan = small_plan(cell=5, secure=True)
    plan = replace(plan, candidates=plan.candidates[:2])
    project = tmp_path / "project"
    files = write_rows(project / "rows")
    (project / "study.toml").write_text(plan.to_toml())
    listed = "".join(f'[sites.{name}]\ndata = "rows/{name}.csv"\n' for name in SITES)
    (project / "deployment.toml").write_text(f'[deployment]\nname = "trial"\nconfig = "study.toml"\n{listed}')
    found = fs.study_at_sites(project / "study.toml", files, out=tmp_path / "python")
    words = ["run", str(project / "study.toml"), "--engine", "serial", "--out", str(tmp_path / "command")]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    summary = json.loads((tmp_path / "command" / "summary.json").read_text())
    assert summary["pooled"]["choice"] == found.summary.to_dict()["pooled"]["choice"]  # FedAvg's draws are secret
    models = [(tmp_path / name / "model.safetensors").read_bytes() for name in ("python", "command")]
    assert models[0] == models[1]
    homes = {path.parent.name for path in (tmp_path / "python" / "sites").glob("*/study")}
    assert homes == set(SITES)
    with pytest.raises(BadInput, match="holds a study already; resume it"):
        fs.study_at_sites(project / "study.toml", files, out=tmp_path / "python")
    again = fs.study_at_sites(project / "study.toml", files, out=tmp_path / "python", resume=True)
    assert again.summary.pooled == found.summary.pooled
    with pytest.raises(BadInput, match="name two sites or more"):
        fs.study_at_sites(project / "study.toml", {"north": files["north"]}, out=tmp_path / "one")
    with pytest.raises(MissingData, match="site 'south': there is no file"):
        fs.study_at_sites(project / "study.toml", {**files, "south": "none.csv"}, out=tmp_path / "one")
