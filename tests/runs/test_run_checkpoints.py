"""Checkpoints that are damaged or foreign are refused with a reason, and the one before is used."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass

import pytest
import torch
from run_cases import drfa, iris, same_end
from torch import Tensor

import fedsaddle as fs
from fedsaddle.errors import BadCheckpoint, CannotWrite
from fedsaddle.files import write_atomically
from fedsaddle.runs.checkpoints import FORMAT, Checkpoints, RunIdentity, restore_record
from fedsaddle.runs.run import run


def cut(path):
    path.write_bytes(path.read_bytes()[:-5])


def flip(path, at=-2):
    content = bytearray(path.read_bytes())
    content[at] ^= 1
    path.write_bytes(bytes(content))


def edit(path, **changes):
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


DAMAGE = {
    "tensors cut": lambda stem: cut(stem.with_suffix(".safetensors")),
    "tensors flipped": lambda stem: flip(stem.with_suffix(".safetensors")),
    "tensors' header flipped": lambda stem: flip(stem.with_suffix(".safetensors"), 3),
    "tensors empty": lambda stem: stem.with_suffix(".safetensors").write_bytes(b""),
    "tensors missing": lambda stem: stem.with_suffix(".safetensors").unlink(),
    "json cut": lambda stem: cut(stem.with_suffix(".json")),
    "json empty": lambda stem: stem.with_suffix(".json").write_text(""),
    "json no object": lambda stem: stem.with_suffix(".json").write_text("[1, 2]"),
    "json a word": lambda stem: stem.with_suffix(".json").write_text('"hello"'),
    "json binary": lambda stem: stem.with_suffix(".json").write_bytes(b"\xff\xfe"),
    "json without keys": lambda stem: stem.with_suffix(".json").write_text("{}"),
    "json with another round": lambda stem: edit(stem.with_suffix(".json"), rounds=99),
    "json with other notes": lambda stem: edit(stem.with_suffix(".json"), notes={}),
    "json with another state": lambda stem: edit(stem.with_suffix(".json"), server={"rounds": 5}),
    "another format": lambda stem: edit(stem.with_suffix(".json"), format=FORMAT + 1),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    home = tmp_path_factory.mktemp("runs")
    run(drfa(), iris(), 5, out=home / "half", options=fs.RunOptions(checkpoint_every=3))
    run(drfa(), iris(), 8, out=home / "whole", options=fs.RunOptions(checkpoint_every=3))
    run(drfa(), iris(), 5, seed=1, out=home / "foreign", options=fs.RunOptions(checkpoint_every=3))
    return home


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_one_is_passed_over(runs, tmp_path, damage):
    shutil.copytree(runs / "half", tmp_path / "out")
    DAMAGE[damage](tmp_path / "out" / "checkpoints" / "00000005")
    said = []
    run(
        drfa(),
        iris(),
        8,
        out=tmp_path / "out",
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(checkpoint_every=3),
    )
    assert len(said) == 1
    assert said[0].startswith("00000005.json ")
    assert said[0].endswith("; using the checkpoint before it")
    assert same_end(tmp_path / "out", runs / "whole")


@pytest.mark.parametrize("damage", DAMAGE)
def test_none_is_left(runs, tmp_path, damage):
    shutil.copytree(runs / "half", tmp_path / "out")
    for rounds in (3, 5):
        DAMAGE[damage](tmp_path / "out" / "checkpoints" / f"{rounds:08d}")
    with pytest.raises(BadCheckpoint, match=r"no checkpoint in .* is usable: 00000005.*; 00000003") as caught:
        run(drfa(), iris(), 8, out=tmp_path / "out", resume=True)
    assert "\n" not in str(caught.value)


def test_a_warning_by_default(runs, tmp_path):
    shutil.copytree(runs / "half", tmp_path / "out")
    flip(tmp_path / "out" / "checkpoints" / "00000005.safetensors")
    with pytest.warns(UserWarning, match="00000005.* is damaged .*; using the checkpoint before it"):
        run(drfa(), iris(), 8, out=tmp_path / "out", resume=True)


def test_a_foreign_one_is_passed_over(runs, tmp_path):
    shutil.copytree(runs / "half", tmp_path / "out")
    for end in ("json", "safetensors"):
        shutil.copy(runs / "foreign" / "checkpoints" / f"00000005.{end}", tmp_path / "out" / "checkpoints")
    said = []
    run(
        drfa(),
        iris(),
        8,
        out=tmp_path / "out",
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(checkpoint_every=3),
    )
    (reason,) = said
    assert "00000005.json belongs to another run (different: seed = 1 there, 0 here)" in reason
    assert same_end(tmp_path / "out", runs / "whole")


def test_refused_ones_of_later_rounds_do_not_push_out_the_new(runs, tmp_path):
    shutil.copytree(runs / "half", tmp_path / "out")
    folder = tmp_path / "out" / "checkpoints"
    for rounds in ("00000050", "00000060"):
        for end in ("json", "safetensors"):
            shutil.copy(runs / "foreign" / "checkpoints" / f"00000005.{end}", folder / f"{rounds}.{end}")
    said = []
    run(
        drfa(),
        iris(),
        8,
        out=tmp_path / "out",
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(checkpoint_every=3),
    )
    assert len(said) == 2
    assert sorted(p.stem for p in folder.glob("*.json")) == ["00000006", "00000008", "00000050", "00000060"]
    assert same_end(tmp_path / "out", runs / "whole")


def test_a_half_written_one_is_no_checkpoint(runs, tmp_path):
    """Tensors without their JSON, and drafts: neither is used nor complained about, and both are removed."""
    shutil.copytree(runs / "half", tmp_path / "out")
    folder = tmp_path / "out" / "checkpoints"
    (folder / "00000004.safetensors").write_bytes(b"half")
    ended = subprocess.Popen(["true"])
    ended.wait()
    for draft in (folder / f".00000006.json.{ended.pid}.tmp", tmp_path / "out" / f".report.html.{ended.pid}.tmp"):
        draft.write_text("{")
    ours = tmp_path / "out" / f".mine.{os.getppid()}.tmp"  # of a process that still runs
    ours.write_text("{")
    said = []
    run(
        drfa(),
        iris(),
        8,
        out=tmp_path / "out",
        resume=True,
        callbacks=[fs.LambdaCallback(on_warning=said.append)],
        options=fs.RunOptions(checkpoint_every=3),
    )
    assert said == []
    assert same_end(tmp_path / "out", runs / "whole")
    assert list((tmp_path / "out").rglob(".*.tmp")) == [ours]
    assert sorted(p.stem for p in folder.glob("*.safetensors")) == sorted(p.stem for p in folder.glob("*.json"))


@dataclass(frozen=True)
class State:
    w: Tensor
    rounds: int = 0
    mean: Tensor | None = None
    scale: float = 1.0


@dataclass(frozen=True)
class Own:
    a: Tensor
    b: Tensor


def test_what_is_saved_comes_back(tmp_path):
    folder = Checkpoints(tmp_path, RunIdentity("mine"))
    state = State(torch.tensor([0.1, -0.0, 1e-40]), 3, None, 0.1 + 0.2)
    memory = {
        7: Own(torch.arange(3.0, dtype=torch.float64), torch.tensor(5)),
        12: Own(torch.zeros(2, 2), torch.tensor(1)),
    }
    folder.save(3, state, memory, {"note": [1.5, None]})
    found, refused = folder.newest()
    assert refused == []
    assert (found.rounds, found.notes) == (3, {"note": [1.5, None]})
    back = restore_record(State(torch.zeros(3)), found.server)
    assert torch.equal(back.w, state.w)
    assert (back.rounds, back.mean, back.scale) == (3, None, 0.1 + 0.2)
    assert found.memory.keys() == memory.keys()
    for i, own in memory.items():
        for name, value in found.memory[i].items():
            assert torch.equal(value, getattr(own, name))
            assert value.dtype == getattr(own, name).dtype


def test_only_the_last_ones_are_kept(tmp_path):
    folder = Checkpoints(tmp_path, RunIdentity("mine"), keep=2)
    for rounds in (1, 2, 3, 10):
        folder.save(rounds, State(torch.full((2,), float(rounds))), {}, {})
    assert sorted(p.stem for p in tmp_path.glob("*.safetensors")) == ["00000003", "00000010"]
    assert sorted(p.stem for p in tmp_path.glob("*.json")) == ["00000003", "00000010"]
    assert folder.newest()[0].rounds == 10


def test_no_checkpoint_yet(tmp_path):
    assert Checkpoints(tmp_path / "none", RunIdentity("mine")).newest() == (None, [])


def test_a_state_of_another_version():
    with pytest.raises(BadCheckpoint, match=r"it has \['w'\], expected \['mean', 'rounds', 'scale', 'w'\]"):
        restore_record(State(torch.zeros(1)), {"w": torch.zeros(1)})


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "a.json"
    write_atomically(path, b"old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(CannotWrite, match=r"a\.json: cannot be written \(No space left on device\); make room"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]
