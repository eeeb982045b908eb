"""`--groups`: what the options say, what predictions.csv has, and what resuming checks."""

from __future__ import annotations

import json

import pytest
from cli_command import fedsaddle, no_pictures
from table_runs import PATIENTS, ROLES, lines, searched

from fedsaddle.commands.options import table_of
from fedsaddle.report.sections.subgroups import worst_group
from fedsaddle.report.stored_run import read_run


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("groups") / "out"
    said = searched(PATIENTS, out, "--groups", "sex,age", "--groups", "unit", "--drop", "sex")
    assert said.code == 0, said.err
    return out


def test_predictions_have_the_groups_of_the_file(finished):
    rows, file = lines(finished / "predictions.csv"), lines(PATIENTS)
    heads = [*["row", "part", "site", "label", "score", "probability", "fedavg_score", "fedavg_probability", "unit"]]
    assert list(rows[0]) == [*heads, "group:sex", "group:age", "group:unit"]
    patients = {}
    for row in rows:
        there = file[int(row["row"])]
        assert row["group:sex"] == (there["sex"] or "(missing)")
        assert row["group:unit"] == there["unit"]
        patients.setdefault(there["patient"], row["unit"])
        assert patients[there["patient"]] == row["unit"]  # a patient has one number
    assert len(set(patients.values())) == len(patients)
    assert not {there["patient"] for there in file} & {row["unit"] for row in rows}


def test_a_dropped_group_is_no_feature_and_the_config_names_it(finished):
    features = json.loads((finished / "features.json").read_text())
    assert all(feature["column"] != "sex" for feature in features)
    assert 'groups = ["sex", "age", "unit"]' in (finished / "fedsaddle.toml").read_text()
    assert json.loads((finished / "search.json").read_text())["groups"] == ["sex", "age", "unit"]


def test_resuming_wants_the_same_groups(finished):
    said = searched(PATIENTS, finished, "--resume", "--drop", "sex", "--groups", "age")
    assert said.code != 0
    assert "--groups" in said.err


def test_a_search_of_a_version_without_groups_is_resumed(tmp_path):
    out = tmp_path / "out"
    assert searched(PATIENTS, out).code == 0
    asked = json.loads((out / "search.json").read_text())
    del asked["groups"]
    (out / "search.json").write_text(json.dumps(asked))
    assert searched(PATIENTS, out, "--resume").code == 0
    assert worst_group(read_run(out)) is None


@pytest.mark.parametrize(
    ("groups", "said"),
    [
        ("sxe", "did you mean 'sex'"),
        ("died", "another role"),
        ("hospital", "another role"),
        ("patient", "another role"),
    ],
)
def test_columns_that_cannot_be_groups_are_refused_in_one_line(tmp_path, groups, said):
    found = fedsaddle("run", PATIENTS, *ROLES, "--groups", groups, "--out", tmp_path / "out")
    assert found.code == 2
    assert "--groups" in found.err
    assert said in found.err
    assert not (tmp_path / "out").exists()


def test_groups_without_a_table_are_refused(tmp_path):
    config = tmp_path / "c.toml"
    config.write_text("")
    found = fedsaddle("run", config, "--groups", "sex")
    assert found.code == 2
    assert "--groups" in found.err


def test_one_algorithm_has_groups_too(tmp_path):
    out = tmp_path / "out"
    with no_pictures():
        words = ("--groups", "sex", "--drop", "sex", "--algorithm", "FedAvgM", "--set", "run.rounds=4")
        assert fedsaddle("run", PATIENTS, *ROLES, *words, "--out", out).code == 0
    heads = ["row", "part", "site", "label", "score", "probability", "unit", "group:sex"]
    assert list(lines(out / "predictions.csv")[0]) == heads


def test_names_with_commas_stand_in_quotes():
    made = table_of(PATIENTS, "hospital", "died", groups=['"weight, kg",sex', "sex"])
    assert made.groups == ("weight, kg", "sex")
