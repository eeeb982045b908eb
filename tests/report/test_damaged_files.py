"""A damaged file is named once, with its first invalid key, and the rest of the run is still on the page."""

from __future__ import annotations

import json

import pytest
from stored_by_hand import digits, round_of, search

from fedsaddle.documents.files import RunFiles
from fedsaddle.documents.summary import OtherVersion
from fedsaddle.errors import MissingData
from fedsaddle.report.page.render import render
from fedsaddle.report.run_report import page_of, write_report
from fedsaddle.report.stored_run import read_run

FEATURES = [{"column": "age", "kind": "number"}]
PROVENANCE = {"finished": "2026-11-19T04:00:00", "command": None, "versions": {"torch": "2.13"}, "machine": "m"}


@pytest.fixture
def folder(tmp_path):
    """The folder of a search, with a file of each kind."""
    run, files = search(), RunFiles(tmp_path)
    files.write_summary(run.summary)
    documents = {
        files.split: run.split.to_dict(),
        files.roc: run.roc.to_dict(),
        files.search: run.search.to_dict(),
        files.provenance: PROVENANCE,
        files.features: FEATURES,
        files.config: {"run": {"seed": 3}},
    }
    for path, content in documents.items():
        path.write_text(json.dumps(content))
    lines = [round_of({"round": k, "mixture": [0.5, 0.5]}).to_dict() for k in (1, 2)]
    files.metrics.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def change(path, *keys, value):
    """Another value at a key of a JSON file."""
    content = json.loads(path.read_text())
    place = content
    for key in keys[:-1]:
        place = place[key]
    place[keys[-1]] = value
    path.write_text(json.dumps(content))


def test_a_whole_folder_has_no_damage(folder):
    run = read_run(folder)
    assert run.damage == ()
    assert run.search_summary.choice == search().summary.choice
    assert [len(part) for part in (run.history, run.features)] == [2, 1]


@pytest.mark.parametrize(
    ("name", "keys", "value", "said"),
    [
        ("summary", ["pooled", "choice", "auroc", "value"], "x", "pooled.choice.auroc.value: input should be"),
        ("summary", ["threshold", "probability"], 7, "threshold.probability: input should be less than or equal to 1"),
        ("summary", ["ledger"], None, "ledger: input should be"),
        ("split", ["train_sizes"], "x", "train_sizes: input should be a valid list"),
        ("split", ["train_sizes"], [1], "sizes or label counts are of another number of clients than the names"),
        ("roc", ["models", "FedAvgM", "clients", 0, "auroc"], 3, "models.FedAvgM.clients.0.auroc: input should be"),
        ("roc", ["models"], {}, "models: dictionary should have at least 1 item"),
        ("search", ["label"], None, "label: input should be a valid string"),
        ("provenance", ["versions"], [1], "versions: input should be a valid dictionary"),
        ("features", [0, "std"], "x", "0.std: input should be a valid number"),
    ],
)  # fmt: skip
def test_the_file_and_the_key_are_named_once(folder, name, keys, value, said):
    path, warnings = folder / f"{name}.json", []
    change(path, *keys, value=value)
    write_report(folder, warnings.append)
    (line,) = warnings
    assert line.startswith(f"{path.name} is damaged (")
    assert said in line
    page = page_of(read_run(folder))
    assert page.cautions[0] == f"{line[0].upper()}{line[1:]}: it is left out of this page."
    assert render(page)


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b"\xff", b"[" * 100_000])
@pytest.mark.parametrize("name", ["summary", "split", "roc", "search", "provenance", "config"])
def test_a_file_that_is_no_json_object_is_left_out(folder, name, content):
    (folder / f"{name}.json").write_bytes(content)
    run = read_run(folder)
    (line,) = run.damage
    assert line.startswith(f"{name}.json is damaged (")
    assert render(page_of(run))


@pytest.mark.parametrize(
    ("change_of", "said"),
    [
        ({"test": {"loss": {"mean": 1.0}}}, "test.loss: value error, global is missing"),
        ({"mixture": [1.0]}, "the weights are of another number of clients"),
        ({"bytes_up": "x"}, "bytes_up: input should be a valid integer"),
    ],
)
def test_a_damaged_line_is_left_out(folder, change_of, said):
    line = {**round_of({"round": 3, "mixture": [0.5, 0.5]}).to_dict(), **change_of}
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")
    run = read_run(folder)
    assert len(run.history) == 2
    (damage,) = run.damage
    assert damage.startswith("metrics.jsonl: round 3 lacks figures that a run writes (")
    assert said in damage


def test_other_versions_and_empty_folders_are_refused(folder, tmp_path):
    change(folder / "summary.json", "schema_version", value=0)
    with pytest.raises(OtherVersion, match="another version of fedsaddle wrote it"):
        read_run(folder)
    with pytest.raises(MissingData, match="holds no run"):
        read_run(tmp_path / "none")


def test_a_bug_is_shown_as_a_bug(monkeypatch):
    def broken(run):
        raise KeyError("a bug")

    monkeypatch.setattr("fedsaddle.report.run_report.SECTIONS", (broken,))
    with pytest.raises(KeyError, match="a bug"):
        page_of(digits())
