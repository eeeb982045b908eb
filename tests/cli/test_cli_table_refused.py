"""`fedsaddle run TABLE` with options or tables that cannot be: one line, exit code 2, nothing written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_command import fedsaddle
from table_runs import PATIENTS, ROLES, lines, searched, short, summary

from fedsaddle.commands.options import seconds_of
from fedsaddle.errors import BadInput
from fedsaddle.runs.folder import only_writer


def refused(outcome, said: str, out: Path) -> None:
    assert outcome.code == 2, outcome.err
    assert outcome.out == ""
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert said in outcome.err
    assert not out.exists()


WRONG = {
    "aim": (("--for", "speed"), "--for = 'speed': choose one of auroc, average-precision"),
    "budget": (("--budget", "soon"), "--budget = 'soon': give a time such as 90s, 2m or 1h"),
    "no budget": (("--budget", "0m"), "--budget = '0m'"),
    "empty budget": (("--budget", ""), "--budget = ''"),
    "sensitivity": (("--sensitivity", "2"), "--sensitivity = 2.0"),
    "no sensitivity": (("--sensitivity", "0"), "--sensitivity = 0.0"),
    "test site": (("--test-site", "H99"), "--test-site = 'H99': is no client; did you mean"),
    "both": (("--test-site", "H01", "--leave-one-site-out"), "--leave-one-site-out = True: tests every site"),
    "seed": (("--seed", "-1"), "seed = -1"),
    "algorithm": (("--algorithm", "FedAvgg"), "--algorithm = 'FedAvgg'"),
    "aim of one": (("--algorithm", "CODASCA", "--for", "accuracy"), "--for = 'accuracy': is for a search"),
    "sensitivity of one": (("--algorithm", "CODASCA", "--sensitivity", "0"), "--sensitivity = 0.0: is for a search"),
    "budget of a set": (("--set", "run.rounds=3", "--budget", "1m"), "--budget = '1m': is for a search"),
    "positive": (
        ("--positive", "maybe"),
        "--positive = 'maybe': is not a value of column 'died'; there are",
    ),
    "drop": (("--drop", "heigth"), "heigth"),
    "resume": (("--resume",), "--resume = True: there is no search in"),
}


@pytest.mark.parametrize(("words", "said"), WRONG.values(), ids=WRONG)
def test_options(words, said, tmp_path):
    refused(fedsaddle("run", PATIENTS, *ROLES, "--out", tmp_path / "out", *words), said, tmp_path / "out")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--site", "hospital"), "--label is missing: name a column of patients.csv, one of "),
        (("--label", "died"), "--site is missing: name a column of patients.csv, one of "),
        (("--site", "clinic", "--label", "died"), "--site = 'clinic': there is no such column"),
        (("--site", "hospital", "--label", "dead"), "--label = 'dead': there is no such column"),
        (("--site", "hospital", "--label", "patient"), "--label = 'patient': has 281 values"),
        (("--site", "hospital", "--label", "age", "--family", "x"), "--family = 'x': "),
        (("--site", "hospital", "--time", "age"), "--event is missing"),
        (("--site", "hospital", "--time", "age", "--event", "died", "--dry-run"), "is for a study that is run at once"),
        (
            ("--site", "hospital", "--label", "age", "--family", "poisson", "--algorithm", "DRFA"),
            "--family = 'poisson'",
        ),
        (("--site", "hospital", "--time", "age", "--event", "sex"), "column 'sex' = '': an empty cell says nothing"),
        (("--site", "died", "--label", "died"), "--site = 'died': is --label too; a column has one role"),
        (("--site", "hospital", "--label", "died", "--patient", "hospital"), "--patient = 'hospital': is --site too"),
        (("--site", "hospital", "--label", "died", "--drop", "died"), "died"),
        (("--site", "hospital", "--label", "died", "--patient", "nobody"), "--patient = 'nobody'"),
    ],
)
def test_roles(words, said, tmp_path):
    refused(fedsaddle("run", PATIENTS, "--out", tmp_path / "out", *words), said, tmp_path / "out")


def table(path: Path, labels, sites="ABC") -> Path:
    rows = (f"{sites[i % len(sites)]},{i * 7 % 13},{label}\n" for i, label in enumerate(labels))
    path.write_text("s,a,y\n" + "".join(rows))
    return path


TABLES = {
    "one class": ({"labels": [1] * 60}, "a single class leaves nothing to learn"),
    "no label": ({"labels": [""] * 60}, "has no label at all"),
    "one site": ({"labels": [0, 1] * 30, "sites": "A"}, "one "),
    "one positive": ({"labels": [1] + [0] * 89}, "rows with label '1' = 0: training and measuring need rows of both"),
    "few rows": ({"labels": [0, 1, 1, 0]}, "rows"),
}


@pytest.mark.parametrize(("made", "said"), TABLES.values(), ids=TABLES)
def test_tables(made, said, tmp_path):
    path, out = table(tmp_path / "t.csv", **made), tmp_path / "out"
    refused(fedsaddle("run", path, "--site", "s", "--label", "y", "--out", out), said, out)


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), (" 1.5 h", 5400), ("2m", 120), ("0.5s", 0.5)])
def test_times(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["-1s", "1d", "1m30s", "inf", "nan", "1e3", "s", "0", "٣m"])
def test_what_is_no_time(text):
    with pytest.raises(BadInput, match="--budget"):
        seconds_of(text)


def test_a_folder_with_a_run_and_other_options(tmp_path):
    out = tmp_path / "out"
    assert searched(PATIENTS, out, "--budget", "0.001s").code == 0
    before = {p: p.stat().st_mtime_ns for p in out.rglob("*")}
    again = searched(PATIENTS, out)
    assert (again.code, again.err.count("\n")) == (2, 1)
    assert "holds a run already; resume it, or choose another folder" in again.err
    other = searched(PATIENTS, out, "--resume", "--for", "accuracy")
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "--for = 'accuracy': the search in" in other.err
    with only_writer(out):
        locked = searched(PATIENTS, out, "--resume")
    assert locked.code == 2
    assert "another run (process" in locked.err
    (out / "search.json").write_text("{")
    damaged = searched(PATIENTS, out, "--resume")
    assert (damaged.code, damaged.err.count("\n")) == (2, 1)
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.name != "search.json"}.items() <= before.items()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs signals")
def test_ctrl_c_and_resume_end_as_if_nothing_had_been(tmp_path):
    """A process of its own gets SIGINT while its first trials run."""
    script = (
        "import sys; sys.path.insert(0, sys.argv.pop(1))\n"
        "from table_runs import short; from fedsaddle.cli import main\n"
        "with short(60, (0.1, 0.3)): main()"
    )
    words = ["run", str(PATIENTS), *ROLES, "--budget", "0.001s", "--out"]
    child = subprocess.Popen(
        [sys.executable, "-c", script, str(Path(__file__).parent), *words, str(tmp_path / "a")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until = time.monotonic() + 120
    while not list((tmp_path / "a").glob("trials/*/metrics.jsonl")) and time.monotonic() < until:
        time.sleep(0.02)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 130, err
    assert out == ""
    assert "interrupted; what is done is kept. Continue with --resume" in err
    assert "Traceback" not in err
    assert not (tmp_path / "a" / "summary.json").exists()
    with short(60, (0.1, 0.3)):
        second = fedsaddle(*words, tmp_path / "a", "--resume")
        whole = fedsaddle(*words, tmp_path / "b")
    assert (second.code, whole.code) == (0, 0), second.err

    def told(folder: Path):
        return {k: v for k, v in summary(folder).items() if k not in ("seconds", "ledger")}

    assert told(tmp_path / "a") == told(tmp_path / "b")
    for name in ("predictions.csv", "features.json", "model.safetensors"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_names_that_would_move_the_cursor_or_be_formulas(tmp_path):
    rows = lines(PATIENTS)
    names = {"H01": "=cmd()", "H02": "Lake\x1b[2J[/red]\u202e", "H03": "[bold]none"}
    path = tmp_path / "p.csv"
    head = ["hospital", "age", "creatinine", "died"]
    body = [[names.get(r["hospital"], "none"), r["age"], r["creatinine"], r["died"]] for r in rows]
    path.write_text("\n".join(",".join(cells) for cells in [["hospital", "a\x1bge", *head[2:]], *body]) + "\n")
    said = searched(path, tmp_path / "out", "--leave-one-site-out", roles=("--site", "hospital", "--label", "died"))
    assert said.code == 0, said.err
    for text in (said.out, said.err):
        assert "\x1b" not in text
        assert "\u202e" not in text
    assert "Lake\\x1b[2J[/red]" in said.out
    for file in ("predictions.csv", "leave-one-site-out.csv"):
        sites = {row["site"] for row in lines(tmp_path / "out" / file)}
        assert "'=cmd()" in sites
        assert "=cmd()" not in sites
