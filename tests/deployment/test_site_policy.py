"""site-policy.toml, the columns of a sample, and the command that prints the log."""

from __future__ import annotations

import json
import stat
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from in_process import config, deployed, sites

from fedsaddle.commands.deploy import audit, init, sample_columns
from fedsaddle.commands.output import output
from fedsaddle.config.schema import validate_config
from fedsaddle.data.tables.judge import by_name
from fedsaddle.deployment.messages import Answer, Request
from fedsaddle.deployment.project import KIT_CONFIG, KIT_SETTINGS
from fedsaddle.deployment.site import SiteService, SiteSettings
from fedsaddle.deployment.site_policy import EXAMPLE, FILE, SitePolicy, read_policy, write_default_policy
from fedsaddle.errors import BadInput, MissingData, TooFewAnswered
from fedsaddle.federation.wire import Message, pack, unpack


def test_the_default_file_has_the_default_rules(tmp_path):
    write_default_policy(tmp_path)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o600
    assert read_policy(tmp_path) == SitePolicy() == read_policy(tmp_path / "nowhere")
    shown = [line[2:] for line in EXAMPLE.splitlines() if line.startswith("# ") and " = " in line]
    rules = tomllib.loads("\n".join(shown))
    assert rules.keys() == SitePolicy.model_fields.keys(), "each rule stands there, as a comment"
    (tmp_path / FILE).write_text("\n".join(shown))
    assert read_policy(tmp_path).minimum_rows == 20


def test_a_policy_is_not_overwritten(tmp_path):
    (tmp_path / FILE).write_text("minimum_cell = 10\n")
    write_default_policy(tmp_path)
    assert read_policy(tmp_path).minimum_cell == 10


DIGEST = "sha256:" + 64 * "0"
BAD = {
    "an unknown rule": ("minimum_cel = 3", r"minimum_cel = 3: unknown key; did you mean 'minimum_cell'\?"),
    "no number": ("minimum_rows = 'few'", "minimum_rows = 'few'"),
    "none": ("minimum_cell = 0", "minimum_cell = 0"),
    "no rounds": ("most_rounds = 0", "most_rounds = 0"),
    "an algorithm nobody knows": ("algorithms = ['FedAvgg']", "did you mean 'FedAvg'"),
    "noise": ("noise = 1.0", "noise = 1.0: noise is asked for by epsilon_at_most; take it out"),
    "modules that are a list": ("modules = []", "modules = \\[\\]: must be a section"),
    "a module without a digest": ("modules = { mine = 'abc' }", "modules.mine = 'abc': string should match pattern"),
    "a module that is none": (f"modules = {{ '../mine' = '{DIGEST}' }}", "is no module of other people's code"),
    "our own modules": (f"modules = {{ 'fedsaddle.errors' = '{DIGEST}' }}", "is no module of other people's code"),
    "no TOML": ("minimum_cell", "is not valid TOML"),
}


@pytest.mark.parametrize(("text", "complaint"), BAD.values(), ids=BAD)
def test_a_policy_that_cannot_be_used(tmp_path, text, complaint):
    (tmp_path / FILE).write_text(text)
    with pytest.raises(BadInput, match=complaint):
        read_policy(tmp_path)


def test_a_site_with_a_bad_policy_answers_nothing(tmp_path):
    (tmp_path / KIT_CONFIG).parent.mkdir()
    (tmp_path / KIT_SETTINGS).write_text(json.dumps({"data": "rows.csv"}))
    (tmp_path / KIT_CONFIG).write_text(
        '[data]\nname = "iris"\n[split]\nname = "iid"\nclients = 3\n[model]\nname = "logistic"\n'
        '[algorithm]\nname = "FedAvg"\n'
    )
    (tmp_path / FILE).write_text("minimum_cel = 1")
    site = SiteService.from_kit(tmp_path, "site-1")
    for do in ("facts", "measure", "agree"):
        request = Request(do=do, run="trial", fingerprint="", nonce="n")
        answer = Answer.read(unpack(site.answer(pack(Message(request.to_dict(), {}))), {}).about)
        assert answer.failure.detail == "this site's site-policy.toml cannot be used; see the site's log"
    assert "did you mean 'minimum_cell'" in (tmp_path / "fedsaddle" / "log.txt").read_text()


def test_limits_follow_the_sites_config():
    given = config({"name": "FedAvg"}, rounds=100, evaluate_every=10, evaluate_train=True)
    assert SitePolicy().rounds(given) == 100
    assert SitePolicy().evaluations(given) == 25 + 6
    assert SitePolicy(most_evaluations=7).evaluations(given) == 7
    held = given.model_copy(update={"data": given.data.model_copy(update={"minimum_cell": 9})})
    assert (SitePolicy().cell(given), SitePolicy().cell(held)) == (5, 9)


SAMPLE = "patient_id,PatientName,dob,age,ward,note,visit,hospital,died,ZipCode,city,lab,const,rare\n" + "".join(
    f'{100 + n},Name {n},19{40 + n}-01-11,{20 + n * 7 % 50},{"abc"[n % 3]},"a long story of patient {n} that nobody '
    f'should see",2026-01-{10 + n % 15},{"XY"[n % 2]},{n % 2},{1000 + n % 5},{"pq"[n % 2]},{n / 7:.3f},1,r{n % 30}\n'
    for n in range(60)
)


@pytest.fixture
def sample(tmp_path) -> Path:
    path = tmp_path / "sample.csv"
    path.write_text(SAMPLE)
    return path


def test_a_sample_gives_columns_without_names_identifiers_text_and_dates(sample):
    found = sample_columns(sample, "died", "hospital", None)
    assert found.numeric == ("age", "lab")
    assert found.categorical == {"ward": 3}
    assert found.left_out.keys() == {
        "patient_id", "PatientName", "dob", "note", "visit", "ZipCode", "city", "const", "rare",
    }  # fmt: skip
    assert "identifier" in found.left_out["patient_id"]
    assert "free text" in found.left_out["note"]
    assert found.left_out["visit"] == "it holds dates"
    assert found.left_out["rare"] == "no value of it occurs 5 times"


def patients(rows: int = 686) -> pd.DataFrame:
    """Rows of patients, some of whom came often, and measurements that look like numbers of patients but are none."""
    chance = np.random.default_rng(0)
    who = np.concatenate([np.arange(595), chance.integers(0, 20, rows - 595)])
    return pd.DataFrame(
        {
            "patient": [f"002-{w}" for w in who],
            "enrolled": [f"e{w}" for w in who],
            "token": 400_000 + 37 * who,
            "listed": 1000 + who,
            "ward": chance.choice([f"w{i}" for i in range(12)], rows),
            "creatinine": chance.lognormal(0, 0.5, rows),
            "platelets": chance.normal(250, 80, rows).round(),
            "cost": chance.lognormal(9, 1.5, rows).round(),
            "leukocytes": 1000 * chance.integers(100, 999, rows),
            "age": chance.integers(18, 95, rows),
            "died": (chance.random(rows) < 0.3).astype(int),
        }
    )


MEASURED = ["age", "cost", "creatinine", "leukocytes", "platelets"]


def test_numbers_of_patients_are_left_out_of_a_sample_and_measurements_are_not(tmp_path):
    patients().to_csv(tmp_path / "t.csv", index=False)
    found = sample_columns(tmp_path / "t.csv", "died", None, None)
    assert sorted(found.numeric) == MEASURED
    assert found.categorical == {"ward": 12}
    assert found.left_out == {
        "patient": "its name says 'patient'",
        "enrolled": "it has 595 categories in 686 rows, like an identifier",
        "token": "it has 595 different whole numbers in 686 rows of 6 digits, like an identifier",
        "listed": "it has 595 different whole numbers in 686 rows that are consecutive, like an identifier",
    }


def file_config(features: list[str], **more):
    data = {"name": "file", "path": "x.csv", "target": "died", "features": features, "test_share": 0.2}
    return validate_config(
        {
            "data": data | more,
            "split": {"name": "natural"},
            "model": {"name": "logistic"},
            "algorithm": {"name": "FedAvg", "batch_size": 8},
            "run": {"rounds": 1},
        }
    )


def test_a_site_leaves_out_what_looks_like_an_identifier_unless_its_policy_lists_it(tmp_path):
    names = ["patient", "enrolled", "token", "listed", "ward", *MEASURED]
    given, rows = file_config(names), patients()
    rows.to_csv(tmp_path / "t.csv", index=False)

    def made(folder: Path, policy: SitePolicy):
        return {
            i: SiteService(given, SiteSettings(f"s{i}", tmp_path / "t.csv", folder / f"{i}"), policy) for i in (0, 1)
        }

    strict = SitePolicy(minimum_sites=1)
    deployed(given, made(tmp_path / "strict", strict), tmp_path / "out")
    for path in (tmp_path / "out" / "agreed.json", tmp_path / "strict" / "0" / "trial" / "agreed.json"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert "002-" not in path.read_text()
        assert "e17" not in path.read_text()
    stored = json.loads((tmp_path / "out" / "agreed.json").read_text())
    assert {f["column"] for f in stored["agreed"]["features"]} == {"ward", *MEASURED}
    assert "column 'enrolled' is left out: at s0, s1 it looks like an identifier or free text" in stored["notes"]
    log = (tmp_path / "strict" / "0" / "log.txt").read_text()
    assert "column 'token' is left out: it has 595 different whole numbers" in log
    assert "list it in `columns` of site-policy.toml to allow it" in log
    open_ = strict.model_copy(update={"columns": names})
    deployed(given, made(tmp_path / "open", open_), tmp_path / "again")
    stored = json.loads((tmp_path / "again" / "agreed.json").read_text())
    assert {"token", "listed"} <= {f["column"] for f in stored["agreed"]["features"]}


def test_a_site_with_nothing_but_identifiers_refuses(tmp_path):
    patients().to_csv(tmp_path / "t.csv", index=False)
    given = file_config(["patient", "token"])
    made = {i: SiteService(given, SiteSettings(f"s{i}", tmp_path / "t.csv", tmp_path / f"{i}")) for i in range(3)}
    with pytest.raises(
        TooFewAnswered, match="all columns of the run look like identifiers here \\('patient', 'token'\\)"
    ):
        deployed(given, made, tmp_path / "out")


def test_init_writes_the_columns_of_a_sample(sample, tmp_path, capsys):
    init(tmp_path / "study", 3, "localhost", sample, "died", "hospital", "patient_id")
    text = (tmp_path / "study" / "study.toml").read_text()
    given = tomllib.loads(text)
    options = given["data"]
    assert sorted(options["features"]) == ["age", "lab", "ward"]
    assert (options["target"], options["together"]) == ("died", "patient_id")
    assert options["minimum_cell"] == 5
    assert given["privacy"]["secure_aggregation"] is True, "with three sites or more"
    assert '"dob"' in text
    assert "Name 1" not in text
    assert "long story" not in text
    with pytest.raises(BadInput, match="--label is missing: name the column to predict"):
        init(tmp_path / "other", 3, "localhost", sample)


@pytest.mark.parametrize(
    "name",
    [
        "Surname",
        "patient_name",
        "eMail",
        "homephone",
        "birthYear",
        "MRN",
        "file",
        "ssn",
        "patient",
        "Subject",
        "person_no",
        "case number",
        "stay",
        "encounter",
        "patientunitstayid",
        "CaseNo",
    ],
)
def test_names_that_give_a_column_away(name):
    assert by_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "age",
        "creatinine",
        "idiopathic",
        "diagnosis",
        "bmi",
        "anaemia",
        "filtration",
        "length_of_stay",
        "patient_age",
        "stays",
        "admission_type",
        "admissionheight",
        "encounters",
        "visits",
        "numbness",
    ],
)
def test_names_that_do_not(name):
    assert not by_name(name)


def test_the_log_as_a_table_and_as_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    given = config({"name": "DRFA", "sampled_clients": 4, "local_steps": 3}, rounds=3)
    deployed(given, sites(given, tmp_path), tmp_path / "out")
    capsys.readouterr()
    audit(tmp_path / "disk-0", None)
    text = capsys.readouterr().out
    for word in ("local_sgd", "averaged", "local_loss", "per client", "target.counts", "measure", "run trial"):
        assert word in text
    assert "bytes left this site from 20" in text
    monkeypatch.setattr(output, "json", True)
    audit(tmp_path / "disk-0", "trial")
    monkeypatch.setattr(output, "json", False)
    lines = json.loads(capsys.readouterr().out)["entries"]
    assert {"time", "run", "round", "exchange", "request", "field", "shape", "dtype", "bytes", "visibility"} <= set(
        lines[0]
    )
    with pytest.raises(MissingData, match="run 'other': nothing of it left this site; the log has: trial"):
        audit(tmp_path / "disk-0", "other")
    with pytest.raises(MissingData, match="nothing has left this site"):
        audit(tmp_path / "out", None)
