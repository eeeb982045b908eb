"""Two processes, full disks and links: the folder of a run stays whole, and the run can go on."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from run_cases import drfa, files, iris, same_end

import fedsaddle as fs
from fedsaddle import files as atomic
from fedsaddle.errors import BadInput, CannotWrite
from fedsaddle.files import append_line, write_atomically
from fedsaddle.runs.folder import LOCK, FolderInUse, RunFolder, only_writer, require_unused
from fedsaddle.runs.run import run

OPTIONS: dict[str, Any] = {
    "engine": fs.Vectorised(workers=1),
    "options": fs.RunOptions(checkpoint_every=2, report=False),
}
HOLDS = """
import sys, time
from pathlib import Path
from fedsaddle.runs.folder import only_writer
with only_writer(Path(sys.argv[1])):
    print("ready", flush=True)
    time.sleep(120)
"""


@contextmanager
def other_process(folder: Path):
    """Another process that holds the folder's lock."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(folder)], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_second_process_is_refused_and_a_killed_one_does_not_block(tmp_path):
    run(drfa(), iris(), 4, out=tmp_path, **OPTIONS)
    before = files(tmp_path)
    with other_process(tmp_path) as process:
        for resume in (True, False):
            said = "holds a run already" if not resume else f"process {process.pid} on {socket.gethostname()}"
            with pytest.raises(BadInput, match=said):
                run(drfa(), iris(), 6, out=tmp_path, resume=resume, **OPTIONS)
        assert {k: v for k, v in files(tmp_path).items() if k != LOCK} == before
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).exists()  # left behind, and harmless
    run(drfa(), iris(), 6, out=tmp_path, resume=True, **OPTIONS)
    assert not (tmp_path / LOCK).exists()


def test_a_second_run_in_the_same_process_is_refused(tmp_path):
    said = []

    def begun():
        with pytest.raises(FolderInUse, match=f"process {os.getpid()} on") as refused:
            run(drfa(), iris(), 2, out=tmp_path, resume=True)
        said.append(str(refused.value))

    run(drfa(), iris(), 2, out=tmp_path, callbacks=[fs.LambdaCallback(on_begin=lambda _: begun())])
    assert len(said) == 1


def test_the_lock_is_released_after_a_failure(tmp_path):
    def failing(*_):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run(drfa(), iris(), 2, out=tmp_path, callbacks=[fs.LambdaCallback(on_round=failing)])
    assert not (tmp_path / LOCK).exists()
    run(drfa(), iris(), 2, out=tmp_path, resume=True)


def test_the_lock_goes_from_one_to_the_next(tmp_path):
    """Many threads that take and remove the lock: never two at once."""
    inside, most = [], []

    def take():
        for _ in range(20):
            with only_writer(tmp_path, seconds=30):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(most) == 80
    assert set(most) == {1}


def test_a_lock_that_is_a_link_or_of_garbage(tmp_path):
    (tmp_path / "kept").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "kept")
    with pytest.raises(BadInput, match="cannot write there"), only_writer(tmp_path):
        pass
    assert (tmp_path / "kept").read_text() == "mine"
    (tmp_path / LOCK).unlink()
    (tmp_path / LOCK).write_bytes(b"\xff\x1b[2J" * 1000)
    require_unused(tmp_path)
    with only_writer(tmp_path), pytest.raises(FolderInUse):
        require_unused(tmp_path)


def full_after(monkeypatch, count: int, number: int) -> None:
    """The n-th write to a file, of whatever kind, puts half of it on the disk and fails."""
    calls = []
    sync, write = os.fsync, os.write

    def fails() -> bool:
        calls.append(1)
        return len(calls) >= count

    def fsync(file):
        if fails():
            os.ftruncate(file, os.fstat(file).st_size // 2)
            raise OSError(number, os.strerror(number))
        sync(file)

    def half(file, content):
        if fails():
            write(file, content[: len(content) // 2])
            raise OSError(number, os.strerror(number))
        return write(file, content)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(atomic.os, "write", half)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_at_every_write(tmp_path, monkeypatch, number):
    """One error with the exit code 3, no drafts, no half lines; with room again, the run ends as one in peace."""
    run(drfa(), iris(), 5, out=tmp_path / "whole", **OPTIONS)
    for count in range(1, 60):
        out = tmp_path / str(count)
        with monkeypatch.context() as broken:
            full_after(broken, count, number)
            try:
                run(drfa(), iris(), 5, out=out, **OPTIONS)
                break
            except CannotWrite as reason:
                said = (reason.exit_code, os.strerror(number) in str(reason))
        assert said == (3, True)
        assert not list(out.rglob("*.tmp"))
        metrics = out / "metrics.jsonl"
        assert not metrics.exists() or metrics.read_bytes()[-1:] in (b"", b"\n")
        run(drfa(), iris(), 5, out=out, resume=metrics.exists(), **OPTIONS)
        assert same_end(out, tmp_path / "whole"), count
    assert count > 8


@pytest.fixture
def tiny_disk(tmp_path):
    """A file system of 64 kB."""
    place = tmp_path / "tiny"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False)
    except OSError:
        pytest.skip("there is no mount")
    if made.returncode:
        pytest.skip("mounting is not permitted")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_disk_that_is_really_full(tiny_disk, tmp_path):
    """Half of the disk is taken; the run stops, and goes on when that is removed."""
    (tiny_disk / "filler").write_bytes(b"x" * 34_000)
    with pytest.raises(CannotWrite, match="No space left on device"):
        run(drfa(), iris(), 20, out=tiny_disk / "run", **OPTIONS)
    assert list((tiny_disk / "run" / "checkpoints").glob("*.json"))
    assert not list(tiny_disk.rglob("*.tmp"))
    (tiny_disk / "filler").unlink()
    run(drfa(), iris(), 20, out=tiny_disk / "run", resume=True, **OPTIONS)
    run(drfa(), iris(), 20, out=tmp_path / "whole", **OPTIONS)
    assert same_end(tiny_disk / "run", tmp_path / "whole")


def test_drafts_are_no_way_through(tmp_path):
    """A draft left behind is replaced; a link in its place is not followed, and neither is one at the file's."""
    kept, path = tmp_path / "kept", tmp_path / "a.json"
    kept.write_text("mine")
    draft = tmp_path / f".a.json.{os.getpid()}.tmp"
    draft.symlink_to(kept)
    path.symlink_to(kept)
    write_atomically(path, b"new")
    assert (kept.read_text(), path.read_text(), path.is_symlink()) == ("mine", "new", False)
    draft.write_text("of an earlier process")
    write_atomically(path, b"newer")
    assert path.read_text() == "newer"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.json", "kept"]
    write_atomically(tmp_path / ("n" * 250), b"a long name")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError, match="directory"):
        write_atomically(tmp_path / "folder", b"new")
    assert not list(tmp_path.glob(".*"))


def test_lines_are_not_appended_through_a_link(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine\n")
    append_line(kept, "yours")
    assert kept.read_text() == "mine\nyours\n"
    (tmp_path / "metrics.jsonl").symlink_to(kept)
    with pytest.raises(BadInput, match=r"'metrics\.jsonl' in it has become a symbolic link"):
        RunFolder(tmp_path).append({"round": 1})
    assert kept.read_text() == "mine\nyours\n"


def test_a_link_made_during_the_run(tmp_path):
    kept = tmp_path / "kept"
    kept.write_text("mine\n")

    def replaced(done, record):
        metrics = tmp_path / "out" / "metrics.jsonl"
        metrics.unlink()
        metrics.symlink_to(kept)

    with pytest.raises(BadInput, match="symbolic link"):
        run(drfa(), iris(), 3, out=tmp_path / "out", callbacks=[fs.LambdaCallback(on_round=replaced)])
    assert kept.read_text() == "mine\n"


def test_a_disk_that_is_full_at_the_report_costs_a_warning(tmp_path, monkeypatch):
    from fedsaddle.report import run_report

    def full(path, content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(run_report, "write_atomically", full)
    said = []
    result = run(drfa(), iris(), 3, out=tmp_path / "a", callbacks=[fs.LambdaCallback(on_warning=said.append)])
    assert result.summary["stopped"] == "finished"
    assert (tmp_path / "a" / "summary.json").exists()
    assert not (tmp_path / "a" / "report.html").exists()
    assert len(said) == 1
    assert "report.html could not be made" in said[0]
    assert "No space left on device" in said[0]
