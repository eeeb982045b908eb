"""`--json`: one document on standard output, as the schema says, whatever happens; and `--quiet`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_command import fedsaddle, no_pictures
from pydantic import ValidationError

from fedsaddle.commands import documents
from fedsaddle.commands.documents import RunDocument
from fedsaddle.commands.info import adapter, all_documents, json_schema, texts
from fedsaddle.commands.output import json_text, json_wanted
from fedsaddle.own_code import Plugin
from fedsaddle_papers.commands.reproduce import FiguresDocument


def document(kind: Any, *arguments: object, code: int = 0) -> dict[str, Any]:
    """What a command prints with --json, checked against the schema."""
    outcome = fedsaddle(*arguments, "--json")
    assert outcome.code == code, outcome.err
    found = json.loads(outcome.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    adapter(kind).validate_python(found)
    return found


def test_a_run_and_what_comes_after_it(config, quick):
    said = document(RunDocument, "run", config, "--out", "a", "--set", "run.rounds=2")
    assert said["summary"] == json.loads(Path("a/summary.json").read_text())
    assert (said["kind"], said["folder"], said["report"]) == ("simulation", "a", "a/report.html")
    again = document(documents.ErrorDocument, "run", config, "--out", "a", code=2)
    assert again["error"]["type"] == "BadInput"
    assert (again["error"]["key"], again["error"]["value"]) == ("out", "a")
    compared = document(documents.CompareDocument, "compare", "a")
    assert compared["runs"] == {"a": said["summary"]}
    assert document(documents.ReportDocument, "report", "a")["report"] == "a/report.html"


def test_an_interrupted_run_has_a_document_too(config, quick, monkeypatch):
    from fedsaddle.processes import Interruption

    monkeypatch.setattr(Interruption, "__enter__", lambda self: setattr(self, "requested", True) or self)
    said = document(RunDocument, "run", config, "--out", "a", code=130)
    assert (said["summary"]["stopped"], said["summary"]["rounds"]) == ("interrupted", 1)


def test_a_run_that_diverges(config, quick):
    wild = ("data.name=diabetes", "problem.loss=square", "algorithm.name=FedAvg", "algorithm.primal_step=1e9")
    changes = [word for change in wild for word in ("--set", change)]
    said = document(documents.ErrorDocument, "run", config, "--out", "a", *changes, code=3)
    assert said["error"]["type"] == "Diverged"
    assert said["error"]["exit_code"] == 3


def test_small_documents(config):
    assert document(documents.LinesDocument, "init", "new.toml")["folder"] == "new.toml"
    assert set(document(documents.ListDocument, "list", "splits")["names"]) == {"splits"}
    assert document(FiguresDocument, "reproduce")["figures"]
    made = document(documents.LinesDocument, "deploy", "init", "project")
    assert made["lines"][-1].startswith("written to project")
    schema = document(documents.SchemaDocument, "schema")["documents"]
    assert list(schema) == [kind.__name__ for kind in all_documents()]
    assert {"RunDocument", "ReproduceDocument"} <= schema.keys()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "--bogus"], "there is no such option"),
        (["run"], "FILE is missing"),
        (["nothing"], "there is no such command"),
        (["run", "none.toml"], "does not exist"),
        (["list", "nothing"], "choose one of"),
    ],
)
def test_errors_are_documents(config, arguments, said):
    found = document(documents.ErrorDocument, *arguments, code=2)
    assert said in found["error"]["message"]
    assert found["error"]["exit_code"] == 2
    assert said in fedsaddle(*arguments, "--json").err


def test_commands_of_a_package_that_is_not_installed(monkeypatch):
    monkeypatch.setattr("fedsaddle.own_code._read", lambda path: {})
    for command in ("reproduce", "benchmark"):
        outcome = fedsaddle(command, "x")
        assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
        assert f"command = '{command}': is in fedsaddle-papers: run `pip install ./papers`" in outcome.err
    assert "reproduce" not in fedsaddle("--help").out


def test_commands_of_a_damaged_package(monkeypatch):
    broken = (Plugin("reproduce", "fedsaddle_papers.no_such:reproduce", "fedsaddle-papers 0.2.0"),)
    monkeypatch.setattr("fedsaddle.own_code._read", lambda path: {"commands": broken})
    assert "fedsaddle-papers 0.2.0 is damaged" in fedsaddle("reproduce").err


def test_a_fault_of_the_program_is_a_document_and_a_traceback(config, monkeypatch, capsys):
    monkeypatch.setattr("fedsaddle.commands.init.EXAMPLE", 3)
    with pytest.raises(AttributeError):
        fedsaddle("init", "a.toml", "--json")


def test_what_is_not_finite_is_null():
    text = json_text({"a": [float("nan"), {"b": (float("inf"), 1.5)}], 3: "é"})
    assert json.loads(text) == {"a": [None, {"b": [None, 1.5]}], "3": "é"}


def test_json_is_wanted_only_as_an_option():
    assert json_wanted(["run", "a", "--json"])
    assert not json_wanted(["run", "--", "--json"])
    assert not json_wanted(["run", "a"])


def test_every_key_of_the_schema_can_be_missed():
    """The check of these tests is able to fail."""
    for kind in all_documents():
        with pytest.raises(ValidationError):
            adapter(kind).validate_python({"schema": 1, "command": "x", "unknown": 1})
        assert json_schema(kind)["additionalProperties"] is False
        assert kind.__doc__
    assert texts(RunDocument)["folder"] == "where the files are"


def test_quiet_leaves_results_and_errors(config):
    with no_pictures():
        loud = fedsaddle("run", config, "--out", "a", "--set", "run.rounds=1")
        still = fedsaddle("run", config, "--out", "b", "--set", "run.rounds=1", "--quiet")
    assert "5 clients" in loud.err
    assert still.err == ""
    assert still.out.splitlines()[0] == loud.out.splitlines()[0]
    assert fedsaddle("run", config, "--out", "b", "-q").err.startswith("error: out = 'b'")


def test_the_next_command_starts_anew(config):
    fedsaddle("list", "--json")
    assert fedsaddle("list", "splits").out.startswith("splits\n")
