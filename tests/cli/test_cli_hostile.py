"""Damaged and hostile files, impossible sizes and places: one line, the right exit code, and nothing written."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
import struct
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from cli_command import fedsaddle, run
from PIL import Image

from fedsaddle.runs.folder import only_writer

LONG = "x" * 5000
DEEP = "[" * 5000 + "]" * 5000


def one_line(outcome, code: int, *parts: str) -> None:
    assert outcome.code == code, outcome
    assert outcome.err.count("\n") == 1, outcome.err
    assert outcome.err.startswith("error: ")
    assert outcome.err[:-1].isprintable()
    for part in parts:
        assert part in outcome.err


def files() -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in Path().rglob("*") if p.is_file()}


# --- .npz


def npy(array: np.ndarray, **header: object) -> bytes:
    """An array as a .npy file, with some of the header's facts replaced by lies."""
    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {**np.lib.format.header_data_from_array_1_0(array), **header})
    return out.getvalue() + array.tobytes()


def npz(x: bytes, how: int = zipfile.ZIP_STORED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as archive:
        archive.writestr("x.npy", x)
        for name in ("y", "client"):
            archive.writestr(f"{name}.npy", npy(np.arange(12) % 2))
    return out.getvalue()


def encrypted(content: bytes) -> bytes:
    """The flag that says so, in both headers of the first member."""
    marked = bytearray(content)
    marked[6] |= 1
    at = content.index(b"PK\x01\x02")
    marked[at + 8] |= 1
    return bytes(marked)


def broken_deflate() -> bytes:
    content = bytearray(npz(npy(np.random.default_rng(0).normal(size=(12, 50))), zipfile.ZIP_DEFLATED))
    content[60:200] = b"\xff" * 140
    return bytes(content)


def bomb() -> bytes:
    """A member that claims, in the list of members, to unpack to 2^60 bytes."""
    content = bytearray(npz(npy(np.zeros((12, 2)))))
    at = content.index(b"PK\x01\x02")
    name = struct.unpack_from("<H", content, at + 28)[0]
    extra = struct.pack("<HHQ", 1, 8, 1 << 60)
    struct.pack_into("<I", content, at + 24, 0xFFFFFFFF)
    struct.pack_into("<H", content, at + 30, len(extra))
    content[at + 46 + name : at + 46 + name] = extra
    end = content.index(b"PK\x05\x06")
    struct.pack_into("<I", content, end + 12, struct.unpack_from("<I", content, end + 12)[0] + len(extra))
    return bytes(content)


def objects() -> bytes:
    out = io.BytesIO()
    np.savez(out, x=np.array([[object()]] * 12, dtype=object), allow_pickle=True)
    return out.getvalue()


NPZ = {
    "header that lies": (npz(npy(np.zeros((12, 2)), shape=(10**12, 2))), "does not fit its shape (1000000000000, 2)"),
    "negative shape": (npz(npy(np.zeros((12, 2)), shape=(-12, -2))), "does not fit its shape"),
    "header of nonsense": (npz(b"\x93NUMPY\x01\x00\x10\x00" + b"(" * 16), "cannot be read"),
    "another version": (npz(b"\x93NUMPY\x09\x00\x10\x00" + b"(" * 16), "cannot be read"),
    "a .npy": (npy(np.zeros((12, 2))), "it holds one array"),
    "broken deflate": (broken_deflate(), "cannot be read"),
    "encrypted": (encrypted(npz(npy(np.zeros((12, 2))))), "is encrypted"),
    "objects": (objects(), "Python objects"),
    "a bomb": (bomb(), "GB are available"),
    "cut off": (npz(npy(np.zeros((12, 2))))[:-30], "cannot be read"),
    "no archive": (b"PK\x03\x04 and then nothing", "cannot be read"),
    "empty": (b"", "cannot be read"),
}


@pytest.mark.parametrize("what", NPZ)
def test_npz(config, what):
    content, why = NPZ[what]
    Path("rows.npz").write_bytes(content)
    before = files()
    outcome = run(config, "data={name='file', path='rows.npz'}", "split={name='natural'}", out=Path("out"))
    one_line(outcome, 2, "data.path = 'rows.npz': cannot be read (", why, "np.savez")
    assert files() == before
    assert not Path("out").exists()


# --- pictures


def png(width: int = 8, height: int = 8) -> bytes:
    out = io.BytesIO()
    Image.new("L", (width, height), 77).save(out, "PNG")
    return out.getvalue()


def huge_png() -> bytes:
    """A header of 60,000 x 60,000 pixels before few bytes; the checksum of the header is right."""
    import zlib

    content = bytearray(png())
    struct.pack_into(">II", content, 16, 60_000, 60_000)
    struct.pack_into(">I", content, 29, zlib.crc32(bytes(content[12:29])))
    return bytes(content)


def noise_png() -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), dtype=np.uint8)).save(out, "PNG")
    return out.getvalue()


PICTURES = {
    "a bomb": ("bad.png", huge_png(), "cannot be read as a picture"),
    "cut off": ("bad.png", noise_png()[:900], "cannot be read as a picture"),
    "no picture": ("bad.png", b"nothing", "cannot be read as a picture"),
    "PostScript": ("bad.eps", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n", "PostScript"),
    "a folder": ("below", None, "it is no file"),
    "the folder itself": ("below/..", None, "is outside of"),
    "outside": ("../small.toml", None, "is outside of"),
    "absolute": ("/etc/hostname", None, "is outside of"),
    "outside by a detour": ("below/../../small.toml", None, "is outside of"),
    "missing": ("none.png", None, "there is no such file"),
    "a long name": (f"{LONG[:900]}.png", None, "cannot be read as a picture"),
}


@pytest.mark.parametrize("what", PICTURES)
def test_pictures(config, what):
    name, content, why = PICTURES[what]
    Path("scans/below").mkdir(parents=True)
    Path("scans/good.png").write_bytes(png())
    if content is not None:
        Path("scans", name).write_bytes(content)
    lines = [f"good.png,{i % 2},h{i % 3}" for i in range(12)]
    Path("scans/table.csv").write_text("\n".join(["file,label,site", *lines[:3], f"{name},1,h0", *lines[3:]]) + "\n")
    data = "data={name='pictures', path='scans/table.csv', size=8}"
    outcome = run(config, data, "split={name='natural', column='site'}", out=Path("out"))
    one_line(outcome, 2, "row 4, column 'file' = ", why)
    assert not Path("out").exists()


# --- configs


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"v = {DEEP}", "is not valid TOML: more than 30 levels in each other"),
        (f"v = {'[' * 40}{']' * 40}", "is not valid TOML: more than 30 levels in each other"),
        (f"[{'a.' * 4000}a]\n", "is not valid TOML"),
        ("v = " + "9" * 5000, "is not valid TOML"),
        ("v = '\x00'", "is not valid TOML"),
    ],
)
def test_toml(config, text, said):
    Path("bad.toml").write_text(text)
    one_line(run(Path("bad.toml"), out=Path("out")), 2, "config = 'bad.toml': ", said)
    Path("deployment.toml").write_text(text)
    one_line(fedsaddle("deploy", "flower", "."), 2, "deployment = 'deployment.toml': ", said)
    assert not Path("out").exists()
    assert not Path("flower").exists()


def test_a_huge_toml(config):
    with Path("bad.toml").open("wb") as file:
        file.truncate(100_000_000)
    one_line(run(Path("bad.toml"), out=Path("out")), 2, "config = 'bad.toml': has more than 10 MB")
    if os.path.exists("/dev/zero"):
        one_line(run(Path("/dev/zero"), out=Path("out")), 2, "config = '/dev/zero': has more than 10 MB")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ((f"run.rounds={10**30}",), f"run.rounds = {10**30}: "),
        ((f"run.checkpoint_every={10**30}",), "run.checkpoint_every"),
        ((f"algorithm.batch_size={10**12}",), "algorithm.batch_size = 1000000000000: "),
        ((f"engine.workers={10**12}",), "engine.workers = 1000000000000: "),
        (("model.name=mlp", f"model.hidden=[{10**9}]"), "model.hidden = [1000000000]: "),
        (("model.name=mlp", f"model.hidden=[{10**7}, {10**7}]"), "model.hidden = [10000000, 10000000]: "),
        ((f"run.seed={DEEP}",), "--set = "),
        ((f"{'a.' * 5000}a=1",), "--set = "),
        (("data.name=\x1b[2Jred\u202e",), "data.name = '\\x1b[2Jred\\u202e': "),
        (("run.\x1b[2J=1",), "run.\\x1b[2J = 1: unknown key"),
        (("data.name=file", f"data.path={LONG}.csv"), "xxx"),
        (("data.name=file", f"data.path={LONG}.npz"), "xxx"),
        (("data.name=file", r'data.path="a\u0000b.csv"'), "a\\x00b.csv"),
    ],
)
def test_values(config, changes, said):
    one_line(run(config, *changes, out=Path("out")), 2, said)
    assert not Path("out").exists()


# --- places


PATHS = {
    "run": (("run", "PATH"), "config"),
    "run --out": (("run", "small.toml", "--out", "PATH"), "out"),
    "run TABLE": (("run", "PATH.csv", "--site", "a", "--label", "b"), "config"),
    "init": (("init", "PATH"), "path"),
    "init --csv": (("init", "--csv", "PATH", "--site", "a", "--label", "b"), "csv"),
    "compare": (("compare", "PATH"), "folders"),
    "compare --out": (("compare", "none", "--out", "PATH"), "out"),
    "demo": (("demo", "--out", "PATH"), "out"),
    "reproduce": (("reproduce", "drfa-fig3", "--out", "PATH"), "out"),
    "deploy init": (("deploy", "init", "PATH"), "folder"),
    "deploy provision": (("deploy", "provision", "PATH"), "folder"),
    "deploy flower": (("deploy", "flower", "PATH"), "folder"),
    "deploy start-server": (("deploy", "start-server", "PATH"), "folder"),
    "deploy start-site": (("deploy", "start-site", "a", "PATH"), "folder"),
    "deploy try --out": (("deploy", "try", "--out", "PATH"), "out"),
    "deploy try --config": (("deploy", "try", "--config", "PATH"), "config"),
}


@pytest.mark.parametrize("command", PATHS)
def test_very_long_paths(config, command):
    arguments, key = PATHS[command]
    before = files()
    outcome = fedsaddle(*(a.replace("PATH", LONG) for a in arguments))
    one_line(outcome, 2, f"{key} = 'xxx", "is no path that can be used (File name too long)")
    assert files() == before


WRITING = ("run --out", "demo", "reproduce", "deploy init")


@pytest.mark.parametrize("command", WRITING)
@pytest.mark.parametrize("place", ["taken", "taken/below", "taken/far/below", "broken", "broken/below"])
def test_something_in_the_way(config, command, place):
    Path("taken").write_text("mine")
    Path("broken").symlink_to("nowhere")
    before = files()
    arguments, _ = PATHS[command]
    outcome = fedsaddle(*(a.replace("PATH", place) for a in arguments))
    why = "is a file" if place.startswith("taken") else "is a broken link"
    one_line(outcome, 2, f"= '{place}", "cannot write there (", f"{why}); choose another folder")
    assert files() == before
    assert not Path("nowhere").exists()


@pytest.mark.parametrize("command", [*WRITING, "init"])
def test_no_permission(config, command, monkeypatch):
    """Root may write everywhere, so that the system is made to say no."""
    Path("closed").mkdir()
    monkeypatch.setattr(os, "access", lambda path, how: Path(path).name != "closed")
    before = files()
    arguments, _ = PATHS[command]
    outcome = fedsaddle(*(a.replace("PATH", "closed/mine") for a in arguments))
    one_line(outcome, 2, "cannot write there (no permission in 'closed'); choose another folder")
    assert files() == before
    assert not any(Path("closed").iterdir())


def test_init_does_not_follow_a_link(config):
    Path("mine.toml").symlink_to("elsewhere.toml")
    one_line(fedsaddle("init", "mine.toml"), 2, "path = 'mine.toml': already exists")
    assert not Path("elsewhere.toml").exists()


# --- errors of the machine


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files", "a\nb"), 3, "a\\nb: Too many open files (OSError); "),
        (PermissionError(errno.EACCES, "Permission denied", "model"), 3, "model: Permission denied"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "long"), 2, "long: File name too long"),
        (MemoryError(), 3, "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), 3, "not enough memory"),
        (RecursionError("maximum recursion depth exceeded"), 3, "nested too deeply"),
        (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), 3, "invalid start byte"),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("traced", [False, True])
def test_unexpected_errors(config, monkeypatch, error, code, said, traced):
    def failing(_):
        raise error

    monkeypatch.setattr("fedsaddle.commands.simulation.build", failing)
    monkeypatch.setenv("FEDSADDLE_TRACEBACK", "1" if traced else "")
    outcome = run(config, out=Path("out"))
    assert outcome.code == code
    assert said in outcome.err.splitlines()[-1]
    assert ("Traceback" in outcome.err) == traced
    assert traced or outcome.err.count("\n") == 1


def test_faults_of_the_program_are_not_hidden(config, monkeypatch):
    def failing(_):
        raise RuntimeError("a bug")

    monkeypatch.setattr("fedsaddle.commands.simulation.build", failing)
    with pytest.raises(RuntimeError, match="a bug"):
        run(config, out=Path("out"))


def test_a_terminal_without_the_characters(config, monkeypatch):
    """A table's lines are not in ASCII; a run does not fail for that at its end."""
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["fedsaddle", "list", "algorithms"])
    from fedsaddle import cli

    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    print("\u202eé")
    sys.stdout.flush()
    assert b"\\u202e\\xe9" in sys.stdout.buffer.getvalue()


# --- damaged runs


@pytest.fixture
def finished(config, quick):
    assert run(config, out=Path("out")).code == 0
    return Path("out")


BAD_LINES = {
    "garbage": (lambda lines: [*lines[:2], b"\xff\x00garbage", *lines[3:]], 3, "damaged (it is not UTF-8 text"),
    "no object": (lambda lines: [*lines[:2], b"[1, 2]", *lines[3:]], 3, "damaged (it is no JSON object"),
    "no round": (lambda lines: [lines[0], b'{"test": {}}', *lines[2:]], 2, "damaged (it has no round"),
    "a round that is none": (lambda lines: [b'{"round": true}', *lines[1:]], 1, "damaged (it has no round"),
    "deep": (lambda lines: [lines[0], DEEP.encode() * 20, *lines[2:]], 2, "damaged (it "),
    "twice": (lambda lines: [lines[0], lines[0], *lines[2:]], 2, "damaged (its round 1 is not after 1"),
    "cut off": (lambda lines: [*lines[:5], lines[5][:40]], 6, "incomplete ("),
}


@pytest.mark.parametrize("what", BAD_LINES)
def test_damaged_records(config, finished, what):
    change, number, why = BAD_LINES[what]
    lines = (finished / "metrics.jsonl").read_bytes().splitlines()
    bad = b"\n".join(change(lines)) + (b"" if what == "cut off" else b"\n")
    (finished / "metrics.jsonl").write_bytes(bad)
    said = f"line {number} of out/metrics.jsonl is {why}"
    one_line(fedsaddle("compare", "out"), 2, "folders = 'out': ", said)
    outcome = run(config, "run.rounds=8", out=finished, resume=True)
    assert outcome.code == 0
    warnings = [line for line in outcome.err.splitlines() if line.startswith("warning: ")]
    assert len(warnings) == 1
    assert said in warnings[0]
    assert warnings[0].endswith("; it is left out")
    assert fedsaddle("compare", "out").code == 0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff", b"3", DEEP.encode() * 20])
def test_damaged_config_and_summary(config, finished, content):
    before = {name: (finished / name).read_bytes() for name in ("config.json", "summary.json")}
    (finished / "summary.json").write_bytes(content)
    one_line(fedsaddle("compare", "out"), 2, "folders = 'out': has a damaged summary.json (")
    (finished / "summary.json").write_bytes(before["summary.json"])
    (finished / "config.json").write_bytes(content)
    one_line(run(config, out=finished, resume=True), 2, "out/config.json is damaged (")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("summary.json", b'{"schema_version": 1, "algorithm": 5}', "has a damaged summary.json (algorithm: "),
        ("summary.json", b'{"schema_version": 1, "stopped": "diverged"}', "has a damaged summary.json (algorithm: "),
        ("metrics.jsonl", b'{"round": 1}\n', "has a damaged metrics.jsonl (round 1 lacks figures that a run writes ("),
        (
            "metrics.jsonl",
            b'{"round": 1, "test": {"accuracy": {"worst": "x"}}}\n',
            "has a damaged metrics.jsonl (round 1 lacks figures that a run writes (",
        ),
    ],
)
def test_files_that_lack_figures(config, finished, file, content, said):
    (finished / file).write_bytes(content)
    one_line(fedsaddle("compare", "out"), 2, f"folders = 'out': {said}")


def test_a_folder_of_another_version(config, finished):
    summary = json.loads((finished / "summary.json").read_text())
    del summary["schema_version"]
    (finished / "summary.json").write_text(json.dumps(summary))
    one_line(fedsaddle("compare", "out"), 2, "out/summary.json: another version of fedsaddle wrote it")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("split.json", {"train_sizes": -1.5, "names": 3}, "split.json is damaged (data: field required)"),
        ("split.json", [1], "split.json is damaged (it is no JSON object)"),
        ("provenance.json", {"versions": ["x"], "table": "x"}, "provenance.json is damaged (finished: field required)"),
        ("config.json", {"data": None, "problem": "x", "run": [3]}, None),
    ],
)
def test_a_report_of_damaged_files_has_no_traceback(config, finished, file, content, said):
    (finished / file).write_text(json.dumps(content))
    outcome = fedsaddle("report", "out")
    assert outcome.code == 0, outcome.err
    assert "Traceback" not in outcome.err
    if said is not None:
        assert outcome.err.startswith("warning: ")
        assert said in outcome.err
    assert "## Versions" in (finished / "MODEL_CARD.md").read_text()


# --- names that would change the screen

ESCAPES = ("\x1b[2J", "\x9b2J", "\u202e", "\u2066", "\x07", "\x08")


def test_names_are_shown_escaped(config):
    """Of sites, columns, labels and files: on the screen, in errors and in a comparison."""
    site, label = "h\x1b[2J\u202e", "ill\x07"
    rows = "".join(f"{i % 7},{i % 5},{site if i % 3 else 'h2'},{label if i % 2 else 'well'}\n" for i in range(80))
    name = "ro\u202ews\x1b[2J.csv"
    Path(name).write_text("age,dose\x9b2J,hospital,state\n" + rows)
    options = ("--site", "hospital", "--label", "state", "--positive", label)
    outcome = fedsaddle("run", name, *options, "--set", "run.rounds=2", "--out", "o\x1b[2Jut")
    assert outcome.code == 0, outcome.err
    shown = outcome.out + outcome.err
    shown += fedsaddle("compare", "o\x1b[2Jut").out
    shown += fedsaddle("run", name, "--site", "hospitl", "--label", "state").err
    shown += fedsaddle("run", name, *options[:4], "--positive", "x\u202e").err
    for escape in ESCAPES:
        assert escape not in shown
    assert "h\\x1b[2J\\u202e" in shown
    assert "dose\\x9b2J" in shown


def test_formulas_in_site_names(config, quick):
    rows = "".join(f"{i % 7},{i % 5},{('=1+1', '@sum', '-3', 'h')[i % 4]},{int(i % 3 == 0)}\n" for i in range(120))
    Path("rows.csv").write_text("age,dose,hospital,ill\n" + rows)
    options = ("--site", "hospital", "--label", "ill", "--set", "run.rounds=2", "--out", "out")
    assert fedsaddle("run", "rows.csv", *options).code == 0
    first = {line.split(",")[0] for line in Path("out/roc.csv").read_text().splitlines()}
    assert {"'=1+1", "'@sum", "-3", "h"} <= first


# --- one writer, a full disk


def test_another_process_writes_there(config, finished, monkeypatch):
    """The second one is refused before it loads its data."""
    monkeypatch.setattr("fedsaddle.commands.simulation.build", lambda _: pytest.fail("too late"))
    with only_writer(finished):
        before = files()
        who = f"process {os.getpid()} on {socket.gethostname()}"
        one_line(run(config, out=finished, resume=True), 2, "out = 'out': another run (", who, "wait for its end")
        assert files() == before


def test_a_full_disk(config, quick, monkeypatch):
    sync, calls = os.fsync, []

    def full(file):
        calls.append(file)
        if len(calls) == 8:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", full)
        outcome = run(config, out=Path("out"))
    assert outcome.code == 3
    assert outcome.out == ""
    assert "cannot be written (No space left on device); make room there, then resume" in outcome.err.splitlines()[-1]
    assert not list(Path("out").rglob("*.tmp"))
    assert run(config, out=Path("out"), resume=True).code == 0
    assert run(config, out=Path("whole")).code == 0
    assert Path("out/model.safetensors").read_bytes() == Path("whole/model.safetensors").read_bytes()


# --- links


@pytest.mark.parametrize("file", ["metrics.jsonl", "summary.json", "config.json", "checkpoints", "fedavg"])
def test_links_in_the_folder(config, file):
    Path("out").mkdir()
    Path("secret").mkdir()
    Path("secret/kept").write_text("mine")
    Path("out", file).symlink_to(Path("secret" if file in ("checkpoints", "fedavg") else "secret/kept").resolve())
    before = files()
    one_line(run(config, out=Path("out")), 2, f"out = 'out': '{file}' in it is a symbolic link; remove it")
    assert files() == before


def test_a_folder_that_is_a_link(config, quick):
    """It is the user's own word where to write."""
    Path("disk").mkdir()
    Path("out").symlink_to("disk")
    assert run(config, out=Path("out")).code == 0
    assert Path("disk/summary.json").exists()
    assert not Path("disk/.lock").exists()


def test_a_plot_over_a_link_replaces_it(config):
    Path("kept.png").write_text("mine")
    Path("out").mkdir()
    Path("out/split.png").symlink_to(Path("kept.png").resolve())
    assert run(config, "run.rounds=1", out=Path("out")).code == 0
    assert Path("kept.png").read_text() == "mine"
    assert not Path("out/split.png").is_symlink()
