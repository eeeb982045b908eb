"""Files that grow are read piece by piece, whatever state they are in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

import pytest
from watched_runs import progress, record, store, summary

from fedsaddle.files import read_object
from fedsaddle.runs.folder import is_held, only_writer
from fedsaddle.watching import state
from fedsaddle.watching.state import Found, Records, Watched, last_record, read_small, tail


def rounds(records):
    return [r.round for r in records.history]


def test_records_are_read_as_they_come(tmp_path):
    path, records = tmp_path / "metrics.jsonl", Records(tmp_path / "metrics.jsonl")
    records.read()
    assert (rounds(records), records.last) == ([], None)
    whole = "".join(json.dumps(record(k)) + "\n" for k in (1, 2, 3))
    for size in (len(whole) // 2, len(whole) - 1, len(whole)):
        path.write_text("")
        with path.open("w") as file:
            file.write(whole[:size])
        records.read()
        assert rounds(records) == list(range(1, 1 + whole[:size].count("\n")))
    assert not records.history[0].clients
    assert records.last.clients["test"]["loss"]
    version = records.version
    records.read()
    assert records.version == version


def test_what_is_no_record_is_passed_over(tmp_path):
    path, records = tmp_path / "metrics.jsonl", Records(tmp_path / "metrics.jsonl")
    odd = [
        "",
        "[]",
        "{",
        '{"round": true}',
        '{"round": -1}',
        '{"round": 1e400}',
        "[" * 100_000,
        "\x00",
        '{"round": "2"}',
    ]
    some = ['{"round": 1, "test": {"loss": NaN}}', '{"round": 1}', json.dumps(record(1)), "é", ""]
    path.write_bytes("\n".join([*odd, *some]).encode("latin-1"))
    records.read()
    assert rounds(records) == [1]
    assert records.damaged == len(odd) + 3


def test_a_file_that_is_replaced_is_read_again(tmp_path):
    records = Records(store(tmp_path, 5) / "metrics.jsonl")
    records.read()
    assert rounds(records) == [1, 2, 3, 4, 5]
    draft = store(tmp_path / "new", 3) / "metrics.jsonl"
    os.replace(draft, tmp_path / "metrics.jsonl")
    records.read()
    assert rounds(records) == [1, 2, 3]
    (tmp_path / "metrics.jsonl").unlink()
    records.read()
    assert rounds(records) == []


def test_huge_files_are_read_in_bounded_pieces(tmp_path, monkeypatch):
    monkeypatch.setattr(state, "PIECE", 1000)
    monkeypatch.setattr(state, "LONGEST", 3000)
    monkeypatch.setattr(state, "MOST_RECORDS", 16)
    path = tmp_path / "metrics.jsonl"
    lines = [json.dumps(record(k)) for k in range(1, 200)]
    lines.insert(100, json.dumps(record(100, x="y" * 10_000)))
    path.write_text("\n".join(lines) + "\n")
    records, readings = Records(path), 0
    records.read()
    while records.behind:
        assert len(records._rest) <= 4000
        readings += 1
        records.read()
    assert readings >= 10
    assert len(records.history) <= 17
    assert rounds(records)[0] == 1
    assert rounds(records)[-1] == 199
    assert last_record(path).round == 199


def test_small_files_and_logs(tmp_path, monkeypatch):
    path = tmp_path / "summary.json"
    assert read_small(path, read_object) is None
    for content in (b"", b"{", b"[1]", b"\xff", b"[" * 100_000):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"Expecting|no JSON object|UTF-8|too deeply"):
            read_small(path, read_object)
    path.write_text('{"a": 1}')
    assert read_small(path, read_object) == {"a": 1}
    monkeypatch.setattr(state, "LARGEST_OBJECT", 3)
    with pytest.raises(ValueError, match="too large"):
        read_small(path, read_object)
    log = tmp_path / "log.txt"
    assert tail(log) == []
    log.write_bytes(b"\n".join(b"line %d \x1b[2J\xff" % k for k in range(10_000)))
    lines = tail(log)
    assert len(lines) == state.TAIL_LINES
    assert lines[-1].startswith("line 9999 ")
    assert all(line.isprintable() for line in lines)


def watched(folder):
    found = Watched(folder, "run")
    found.read()
    return found


def test_states(tmp_path):
    assert watched(tmp_path / "none").state.word == "waiting"
    folder = store(tmp_path / "a", progress=progress(6))
    assert watched(folder).state.word == "killed"
    with only_writer(folder):
        run = watched(folder)
        assert (run.state.word, run.done, run.rounds) == ("running", 6, 10)
        assert run.seconds_left == pytest.approx(8, abs=0.5)
        (folder / "progress.json").write_text(json.dumps(progress(8, after=6, resumed=True)))
        run.read()
        assert run.state.word == "resumed"
        assert "after round 6" in run.state.words
    for stopped, word in (("finished", "finished"), ("target", "finished"), ("interrupted", "interrupted")):
        store(tmp_path / stopped, progress=progress(6), summary=summary(stopped, rounds=6))
        assert watched(tmp_path / stopped).state.word == word
    diverged = store(tmp_path / "d", summary=summary("diverged"))
    assert watched(diverged).state.word == "diverged"
    further = store(tmp_path / "f", progress=progress(8), summary=summary(rounds=6))
    assert watched(further).state.word == "killed", "resumed for more rounds after it had finished"


def test_a_killed_process_holds_nothing(tmp_path):
    code = (
        "import sys, time; from pathlib import Path; from fedsaddle.runs.folder import only_writer\n"
        "with only_writer(Path(sys.argv[1])): print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    assert is_held(tmp_path) is True
    process.kill()
    process.wait()
    process.stdout.close()
    assert (tmp_path / ".lock").exists()
    assert is_held(tmp_path) is False
    (tmp_path / ".lock").unlink()
    assert is_held(tmp_path) is False


def test_a_lock_of_another_machine(tmp_path):
    store(tmp_path, progress=progress(3))
    (tmp_path / ".lock").write_text("process 1 on elsewhere\n")
    assert is_held(tmp_path) is None
    assert watched(tmp_path).state.word == "running"
    store(tmp_path, progress=progress(3, updated=time.time() - 100))
    assert watched(tmp_path).state.word == "lost"


def test_to_look_takes_no_lock(tmp_path):
    """A run that begins while somebody watches must not find its folder in use."""
    (tmp_path / ".lock").write_text("process 1 on elsewhere\n")
    for _ in range(50):
        is_held(tmp_path)
        with only_writer(tmp_path):
            assert is_held(tmp_path) is True


def test_runs_below_a_folder_are_found(tmp_path, monkeypatch):
    for name in ("b", "a", "deep/er/c", "a/trials/t1", "a/fedavg", "fedavg", "a/checkpoints/x", ".hidden/d"):
        store(tmp_path / "runs" / name)
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "runs")
    found = Found([tmp_path / "runs", tmp_path / "later"])
    found.look()
    names = [run.name for run in found.runs.values()]
    assert names == ["runs/a", "runs/a/trials/t1", "runs/b", "runs/deep/er/c", "runs/fedavg", "later"]
    kept = dict(found.runs)
    store(tmp_path / "later" / "x")
    found.look()
    assert [run.name for run in found.runs.values()][-1] == "later/x"
    assert all(found.runs[key] is run for key, run in kept.items() if key in found.runs)
    monkeypatch.setattr("fedsaddle.watching.state.MOST", 2)
    found.look()
    assert (len(found.runs), found.more) == (2, True)
