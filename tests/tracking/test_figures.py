"""Flat figures: keys that trackers accept, and metrics.csv."""

from __future__ import annotations

import csv
import json
import re

import pytest
from tracked_runs import NAMES, Crash, small_run

import fedsaddle as fs
from fedsaddle.runs.figures import append_columns, flat_figures, key_names, write_columns
from fedsaddle.runs.folder import RunFolder

RECORD = {
    "round": 2,
    "seconds": 0.25,
    "test": {"loss": {"mean": 0.5, "worst": float("nan")}},
    "pooled": {"my measure": float("inf"), "auroc": 0.75},
    "mixture": [0.25, 0.75],
    "clients": {"test": {"loss": [0.25, None]}},
    "not_reached": ["phi"],
}


def test_keys_are_valid_and_figures_are_finite():
    assert flat_figures(RECORD, ["a/b"]) == {
        "cost/seconds": 0.25,
        "test/loss/mean": 0.5,
        "pooled/auroc": 0.75,
        "mixture/a_b": 0.25,
        "mixture/client-2": 0.75,
        "clients/test/loss/a_b": 0.25,
    }


def test_names_stay_different():
    names = [*NAMES, "a.b", "A.B", "", "..", "x" * 300, "x" * 301, "client-7", "A_B-2", "\u202e"]
    keys = key_names(names)
    assert len({key.casefold() for key in keys}) == len(names)
    assert all(re.fullmatch(r"[\w.-]+", key) and key.strip(".") and len(key) < 120 for key in keys)


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_the_table_of_a_run_says_what_its_records_say(tmp_path):
    result = small_run(out=tmp_path)
    rows = rows_of(tmp_path / "metrics.csv")
    assert [int(row["round"]) for row in rows] == [record["round"] for record in result.history]
    for row, record in zip(rows, result.history, strict=True):
        assert float(row["test.loss.worst"]) == record["test"]["loss"]["worst"]
        assert float(row["mixture.A/B"]) == record["mixture"][0]
        assert float(row[r"clients.test.loss.<script>alert(1)</script>\x1b[2J"]) == record["clients"]["test"]["loss"][2]
        assert float(row["bytes_up"]) == record["bytes_up"]


def test_a_resumed_run_has_every_round_once(tmp_path):
    with pytest.raises(Crash):
        small_run(7, out=tmp_path)
    small_run(out=tmp_path, resume=True)
    assert [int(row["round"]) for row in rows_of(tmp_path / "metrics.csv")] == list(range(1, 9))


def test_new_columns_and_odd_files(tmp_path):
    path = tmp_path / "metrics.csv"
    write_columns(path, [])
    append_columns(path, {"round": 1, "pooled": {"=a": 1.5}})
    append_columns(path, {"round": 2})
    append_columns(path, {"round": 3, "pooled": {"=a": 2.5, "b": 1}, "mixture": [1.0, 2.0]}, ["=x", "=x"])
    assert rows_of(path) == [
        {"round": "1", "pooled.=a": "1.5", "pooled.b": "", "mixture.=x": "", "mixture.=x (2)": ""},
        {"round": "2", "pooled.=a": "", "pooled.b": "", "mixture.=x": "", "mixture.=x (2)": ""},
        {"round": "3", "pooled.=a": "2.5", "pooled.b": "1", "mixture.=x": "1.0", "mixture.=x (2)": "2.0"},
    ]
    path.write_bytes(b"\xff\x00damaged")
    append_columns(path, {"round": 4})
    assert rows_of(path) == [{"round": "4"}]


def test_links_are_not_followed(tmp_path):
    folder = RunFolder(tmp_path / "out")
    folder.begin([])
    (tmp_path / "other").write_text("kept")
    for name in ("progress.json", "track.json"):
        (folder.path / name).symlink_to(tmp_path / "other")
        with pytest.raises(Exception, match=f"'{name}' in it is a symbolic link"):
            small_run(out=folder.path, resume=True)
        (folder.path / name).unlink()
    assert (tmp_path / "other").read_text() == "kept"


def test_progress_is_written_between_evaluations(tmp_path, monkeypatch):
    monkeypatch.setattr("fedsaddle.runs.folder.SECONDS", 0.0)
    seen = []

    def stop():
        seen.append(json.loads((tmp_path / "progress.json").read_text()))
        return False

    small_run(out=tmp_path, evaluate_every=8, callbacks=[fs.LambdaCallback(on_round=lambda *_: stop())])
    assert [(p["round"], p["rounds"], p["resumed"]) for p in seen] == [(k, 8, False) for k in range(1, 9)]
    small_run(out=tmp_path, evaluate_every=8, resume=True)
    last = json.loads((tmp_path / "progress.json").read_text())
    assert (last["round"], last["after"], last["resumed"]) == (8, 8, True)


def test_progress_is_written_once_a_second_at_most(tmp_path, monkeypatch):
    written = []
    monkeypatch.setattr("fedsaddle.runs.folder.write_progress", lambda path, content: written.append(content))
    monkeypatch.setattr("fedsaddle.runs.folder.SECONDS", 1e9)
    small_run(out=tmp_path)
    assert [content["round"] for content in written] == [0, 8]
