"""Processes of a kit: started, found by their mark, and ended with all that they started."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedsaddle.deployment.nvflare import processes
from fedsaddle.errors import BadInput
from fedsaddle.processes import terminate_as_interrupt
from fedsaddle.runs.folder import FolderInUse, only_writer

pytestmark = pytest.mark.skipif(os.name != "posix", reason="expects the exit codes of POSIX signals")
SLEEPS = "import time; time.sleep(60)"
PARENT = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {SLEEPS!r}]); time.sleep(60)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); {SLEEPS}"


@pytest.fixture
def kit(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    processes.kill(tmp_path)


def runs(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    monkeypatch.setattr(processes, "command", lambda kit: [sys.executable, "-S", "-c", code])


def until(condition) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_children_carry_the_mark_and_end_with_their_parent(kit, monkeypatch):
    runs(monkeypatch, PARENT)
    process = processes.start(kit, kit / "log")
    until(lambda: len(processes.members(kit)) == 2)
    processes.stop(kit)
    assert process.wait() == -signal.SIGTERM
    assert processes.members(kit) == []


def test_other_kits_are_left_alone(kit, monkeypatch, tmp_path):
    runs(monkeypatch, SLEEPS)
    other = tmp_path / "other"
    other.mkdir()
    mine, theirs = processes.start(kit, kit / "log"), processes.start(other, other / "log")
    until(lambda: processes.members(kit))
    processes.kill(kit)
    assert mine.wait() == -signal.SIGKILL
    until(lambda: processes.members(other) == [theirs.pid])
    processes.stop(other)
    theirs.wait()


def test_one_that_does_not_listen_is_killed(kit, monkeypatch):
    runs(monkeypatch, STUBBORN)
    process = processes.start(kit, kit / "log")
    until(lambda: "ready" in (kit / "log").read_text())
    processes.stop(kit, seconds=0.3)
    assert process.wait() == -signal.SIGKILL


def test_a_kit_that_is_started_again_runs_once(kit, monkeypatch):
    runs(monkeypatch, SLEEPS)
    first = processes.start(kit, kit / "log")
    until(lambda: processes.members(kit))
    second = processes.start(kit, kit / "log")
    assert first.wait() == -signal.SIGKILL
    until(lambda: processes.members(kit) == [second.pid])
    processes.kill(kit)
    second.wait()


def test_in_the_foreground_until_it_ends(kit, monkeypatch):
    runs(monkeypatch, "raise SystemExit(7)")
    assert processes.serve(kit) == 7


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "Ctrl-C"])
def test_in_the_foreground_until_it_is_told_to_stop(number, kit, monkeypatch):
    runs(monkeypatch, SLEEPS)

    def tells() -> None:
        until(lambda: processes.members(kit))
        os.kill(os.getpid(), number)

    threading.Thread(target=tells).start()
    assert processes.serve(kit) == 0
    assert processes.members(kit) == []


def test_words_before_the_command(kit, monkeypatch):
    runs(monkeypatch, "import os; print(os.environ['HARM'])")
    process = processes.start(kit, kit / "log", before=("env", "HARM=none"))
    assert process.wait() == 0
    assert (kit / "log").read_text() == "none\n"
    assert isinstance(process, subprocess.Popen)


def test_a_port_that_is_taken(kit, monkeypatch):
    runs(monkeypatch, SLEEPS)
    (kit / "startup").mkdir()
    with socket.socket() as taken, socket.socket() as other:
        for each in (taken, other):
            each.bind(("127.0.0.1", 0))
        taken.listen()
        port, admin_port = taken.getsockname()[1], other.getsockname()[1]
        other.close()
        about = {"service": {"target": f"localhost:{port}"}, "admin_port": admin_port}
        (kit / "startup" / "fed_server.json").write_text(json.dumps({"servers": [about]}))
        with pytest.raises(BadInput, match=f"port = {port}: address already in use; stop the program that uses it"):
            processes.start(kit, kit / "log")
    assert processes.members(kit) == []
    process = processes.start(kit, kit / "log")
    until(lambda: processes.members(kit) == [process.pid])
    processes.kill(kit)
    process.wait()


def test_marks_are_found_without_proc(kit, monkeypatch):
    """macOS and Windows have no /proc."""
    runs(monkeypatch, SLEEPS)
    monkeypatch.setattr(Path, "glob", lambda self, pattern: iter(()))
    process = processes.start(kit, kit / "log")
    until(lambda: processes.members(kit) == [process.pid])
    processes.kill(kit)
    process.wait()


def test_a_system_without_sighup(monkeypatch):
    """Windows has none."""
    monkeypatch.delattr(signal, "SIGHUP")
    with terminate_as_interrupt():
        pass


HOLDS = """
import sys, time
from pathlib import Path
from fedsaddle.runs.folder import only_writer
with only_writer(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(60)
"""


def test_one_job_at_a_time_writes_to_a_folder(tmp_path):
    """The lock ends with the process that holds it, even if that is killed."""
    holder = subprocess.Popen([sys.executable, "-c", HOLDS, str(tmp_path)], stdout=subprocess.PIPE)
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(FolderInUse, match=f"another run .process {holder.pid} on"), only_writer(tmp_path, 0.1):
            pass
    finally:
        holder.kill()
        holder.communicate()
    with only_writer(tmp_path, seconds=5.0):
        pass
