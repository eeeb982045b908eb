"""What shells complete, colours, and progress without a terminal."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
from rich.console import Console

from fedsaddle.commands import info, options, run
from fedsaddle.commands.options import after_equals, complete_changes
from fedsaddle.commands.progress import RoundProgress, has_bar
from fedsaddle.report.tables import console
from fedsaddle.report.words import duration
from fedsaddle.runs.folder import seconds_per_round
from fedsaddle.studies.aims import AIMS

BASH = {"_FEDSADDLE_COMPLETE": "complete_bash"}


def bash(*words: str) -> dict[str, str]:
    return BASH | {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}


def test_names_after_an_equals_sign_in_bash():
    assert after_equals(bash("fedsaddle", "run", "--set", "algorithm.name", "=", "DRFA-")) == ["DRFA-GA", "DRFA-Prox"]
    assert "digits" in (after_equals(bash("fedsaddle", "run", "--set", "data.name", "=")) or [])
    assert "Local\\ SGDA" in (after_equals(bash("fedsaddle", "run", "--set", "algorithm.name", "=", "Local")) or [])
    for words in (("fedsaddle", "li"), ("fedsaddle", "run", "--set", "algorithm"), ("fedsaddle", "run", "a", "=", "b")):
        assert after_equals(bash(*words)) is None
    assert after_equals({}) is None


def test_names_elsewhere():
    assert complete_changes("data.name=dig") == ["data.name=digits"]
    assert complete_changes("algorithm.name=FedAvg,DRFA-P") == ["algorithm.name=FedAvg,DRFA-Prox"]
    assert complete_changes("run.ro") == ["run.rounds="]
    assert complete_changes("run.rounds=") == []
    assert [name for name, _ in options.complete_algorithms("q-")] == ["q-FedAvg"]
    assert info.complete_kinds("d") == ["datasets"]
    assert run.complete_aims("") == list(AIMS)
    assert run.complete_engines("v") == ["vectorised"]


def test_keys_that_are_completed_are_there():
    from fedsaddle.config.schema import Config

    for key in options.KEYS:
        section, _, name = key.partition(".")
        kind = Config.model_fields[section].annotation
        open_section = section in ("algorithm", "problem", "split")
        assert open_section or name in kind.model_fields, key


@pytest.mark.parametrize(
    ("shell", "more"),
    [
        ("bash", bash("fedsaddle", "list", "dat")),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "fedsaddle list dat"}),
        ("fish", {"_TYPER_COMPLETE_ARGS": "fedsaddle list dat", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}),
    ],
)
def test_shells_are_answered_without_the_heavy_parts(shell, more, monkeypatch):
    code = (
        "import sys, atexit; atexit.register(lambda: print([m for m in ('torch', 'numpy') if m in sys.modules],"
        " file=sys.stderr)); from fedsaddle.cli import main; main()"
    )
    for key, value in {**more, "_FEDSADDLE_COMPLETE": f"complete_{shell}"}.items():
        monkeypatch.setenv(key, value)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "datasets" in done.stdout
    assert done.stderr == "[]\n"


def test_help_of_every_command_is_quick_and_in_the_words_of_the_field():
    code = (
        "import sys; from fedsaddle.cli import COMMANDS, main\n"
        "for command in ('', *COMMANDS, 'deploy init', 'deploy try', 'deploy audit', 'deploy attach'):\n"
        "    sys.argv = ['fedsaddle', *command.split(), '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "heavy = ('torch', 'numpy', 'scipy', 'pandas', 'fedsaddle.documents.summary')\n"
        "print([m for m in heavy if m in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"COLUMNS": "80"}
    )
    assert done.stderr == "[]\n"
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert not any(word in done.stdout for word in ("<str>", "<int>", "<float>", "<path>", "list["))
    panels = [done.stdout.index(f"─ {panel} ─") for panel in ("Your table", "What to train", "Config", "Output")]
    assert all(panels)


def test_force_color_makes_no_bar_in_a_file(monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    log = Console(file=io.StringIO())
    assert log.is_terminal
    assert not has_bar(log)
    assert console().width == 120
    monkeypatch.delenv("FORCE_COLOR")
    assert has_bar(Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "xterm"}))


def test_no_color(monkeypatch):
    text = io.StringIO()
    Console(file=text, force_terminal=True, _environ={"NO_COLOR": "1", "TERM": "xterm-256color"}).print("[red]a[/]")
    assert "31m" not in text.getvalue()


class Log:
    """What a run of so many rounds writes to a log, by a clock that tests set."""

    def __init__(self, monkeypatch, rounds, pace=None):
        self.now, self.out = 0.0, io.StringIO()
        monkeypatch.setattr("fedsaddle.commands.progress.time.monotonic", lambda: self.now)
        self.progress = RoundProgress(rounds, "DRFA", Console(file=self.out, width=200), quiet=False, pace=pace)

    def at(self, now, done, record=None):
        self.now = now
        self.progress(done, record)

    @property
    def lines(self):
        return self.out.getvalue().splitlines()


def test_lines_in_a_log_have_the_time_left(monkeypatch):
    log = Log(monkeypatch, 100)
    for now, done in ((1.0, 1), (31.0, 20), (40.0, 30), (62.0, 50)):
        log.at(now, done, {"round": done, "test": {"accuracy": {"worst": 0.5}}})
    assert log.lines == [
        "DRFA: round 20 of 100, worst accuracy 0.500, about 2 min left",
        "DRFA: round 50 of 100, worst accuracy 0.500, about 62 s left",
    ]
    assert duration(7200) == "2.0 h"


def test_a_run_that_was_resumed_knows_its_own_speed(monkeypatch):
    log = Log(monkeypatch, 110)
    log.at(1.0, 91)
    log.at(40.0, 100)
    assert log.lines == ["DRFA: round 100 of 110, about 40 s left"]


def test_the_time_left_of_a_deployed_run_is_at_the_servers_pace(monkeypatch):
    """Half a minute for sites to connect, then 20 rounds in 10 s: 80 more take 40 s, not 53 min."""
    pace = None
    log = Log(monkeypatch, 100, lambda: pace)
    log.at(35.0, 20)
    pace = seconds_per_round({"round": 20, "after": 0, "began": 1030.0, "updated": 1040.0})
    log.at(70.0, 20)
    assert log.lines == ["DRFA: round 20 of 100", "DRFA: round 20 of 100, about 40 s left"]
    assert seconds_per_round({"round": 20, "after": 20, "began": 1030.0, "updated": 1040.0}) is None
    assert seconds_per_round({}) is None


def test_quiet_progress_says_warnings_only():
    text = io.StringIO()
    with RoundProgress(3, "FedAvg", Console(file=text, width=200), quiet=True) as progress:
        progress.say("a note")
        progress(1, None)
        progress.warn("take care")
    assert text.getvalue() == "warning: take care\n"
