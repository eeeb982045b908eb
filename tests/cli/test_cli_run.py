"""What `fedsaddle run` leaves in its folder, and how runs end."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from cli_command import IRIS, fedsaddle, no_pictures, run
from safetensors.torch import load_file
from torch import nn

from fedsaddle.config.build import load
from fedsaddle.documents.files import RunFiles

WILD = ("data.name=diabetes", "problem.loss=square", "algorithm.name=FedAvg", "run.rounds=60")


def summary(out: Path) -> dict:
    return json.loads((out / "summary.json").read_text())


def story(out: Path) -> list[dict]:
    """The records of a run, but for the time they took."""
    return [{**record, "seconds": None} for record in RunFiles(out).history()]


def same_end(a: Path, b: Path) -> bool:
    model = "model.safetensors"
    return (a / model).read_bytes() == (b / model).read_bytes() and story(a) == story(b)


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> tuple[Path, str]:
    """A whole run, with pictures, and what it printed."""
    home = tmp_path_factory.mktemp("digits")
    config = home / "digits.toml"
    config.write_text(IRIS.replace('"iris"', '"digits"').replace('"iid"\nclients = 5', '"by-class"\nclients = 10'))
    outcome = run(config, "run.rounds=5", out=home / "out")
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[0] == "digits: 10 clients, 1,438 training and 359 test rows"
    return home / "out", outcome.out


def test_every_file_is_there(digits):
    out, _ = digits
    assert sorted(p.name for p in out.iterdir()) == sorted(
        ["MODEL_CARD.md", "checkpoints", "clients.png", "config.json", "load_model.py", "metrics.jsonl", "mixture.png",
         "model.safetensors", "progress.png", "provenance.json", "report.html", "split.json", "split.png",
         "summary.json", "metrics.csv", "progress.json"]
    )  # fmt: skip
    kept = ["00000004.json", "00000004.safetensors", "00000005.json", "00000005.safetensors"]
    assert sorted(p.name for p in (out / "checkpoints").iterdir()) == kept
    for picture in out.glob("*.png"):
        assert picture.read_bytes().startswith(b"\x89PNG\r\n")
        assert picture.stat().st_size > 5000


def test_the_model_is_plain_pytorch(digits):
    out, _ = digits
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    module.load_state_dict(load_file(out / "model.safetensors"))
    test = load("digits", split="by-class", clients=10).test
    right = (module(test.x).argmax(1) == test.y).double()
    each = [float(right[a:b].mean()) for a, b in pairwise(test.offsets)]
    said = summary(out)["test"]["accuracy"]
    assert said["global"] == pytest.approx(float(right.mean()), abs=1e-12)
    assert said["worst"] == pytest.approx(min(each), abs=1e-12)
    assert said["mean"] == pytest.approx(np.mean(each), abs=1e-12)
    last = RunFiles(out).history()[-1]
    assert last["clients"]["test"]["accuracy"] == pytest.approx(each, abs=1e-12)
    assert last["test"] == summary(out)["test"]


def test_the_records(digits):
    out, _ = digits
    records = RunFiles(out).history()
    assert [r["round"] for r in records] == [1, 2, 3, 4, 5]
    assert [r["local_steps"] for r in records] == [3, 6, 9, 12, 15]
    assert [r["exchanges"] for r in records] == [2, 4, 6, 8, 10]
    for key in ("bytes_down", "bytes_up", "samples", "seconds"):
        assert all(a[key] < b[key] for a, b in pairwise(records)), key
    for record in records:
        assert len(record["mixture"]) == 10
        assert sum(record["mixture"]) == pytest.approx(1)
        assert set(record["test"]) == {"loss", "accuracy"}
    ledger = summary(out)["ledger"]
    assert {k: ledger[k] for k in ("exchanges", "bytes_down", "bytes_up", "samples")} == {
        k: records[-1][k] for k in ("exchanges", "bytes_down", "bytes_up", "samples")
    }


def test_the_summary_and_the_table(digits):
    out, printed = digits
    said = summary(out)
    assert (said["algorithm"], said["stopped"], said["rounds"]) == ("DRFA", "finished", 5)
    assert (said["target"], said["target_round"]) == (None, None)
    lines = printed.splitlines()
    assert lines[0].strip() == "DRFA: 5 rounds, finished"
    assert lines[-2:] == [f"written to {out}", f"report: {out / 'report.html'}"]
    for part in ("test", "train"):
        for measure in ("loss", "accuracy"):
            row = next(line for line in lines if f"{part} {measure}" in line)
            assert f"{said[part][measure]['worst']:.4f}" in row


def test_the_split_and_the_config(digits):
    out, _ = digits
    split = json.loads((out / "split.json").read_text())
    assert split["clients"] == 10
    assert sum(split["train_sizes"]) == 1438
    assert np.array(split["label_counts"]).shape == (10, 10)
    config = json.loads((out / "config.json").read_text())
    assert config["run"]["rounds"] == 5
    shares = {"test_share": 0.2, "validation_share": 0.0, "positives_per_batch": None}
    assert config["data"] == {"name": "digits", **shares, "stratify": False, "test_clients": [], "minimum_cell": 1}
    assert config["algorithm"]["local_steps"] == 3


def test_the_bar_is_silent_where_nobody_looks(digits, config, quick):
    _, printed = digits
    outcome = run(config, out=Path("quiet"))
    assert outcome.err.splitlines() == [
        "iris: 5 clients, 120 training and 30 test rows",
        "largest client / smallest client 1.0; heterogeneity 0.108 (0 = alike)",
    ]
    assert "\x1b" not in outcome.err + outcome.out + printed
    assert "\r" not in outcome.err + outcome.out


def test_the_serial_engine_gives_the_same(config, quick):
    fast, slow = run(config, out=Path("fast")), run(config, "engine.name=serial", out=Path("slow"))
    assert fast.code == slow.code == 0
    a, b = load_file("fast/model.safetensors"), load_file("slow/model.safetensors")
    assert all(torch.allclose(a[k], b[k], atol=1e-5) for k in a)
    assert summary(Path("slow"))["engine"] == {"name": "serial"}


def test_double_precision(config, quick):
    outcome = run(config, "run.dtype=float64", "model={name='mlp', hidden=[4]}", out=Path("double"))
    assert outcome.code == 0
    assert {v.dtype for v in load_file("double/model.safetensors").values()} == {torch.float64}
    assert torch.get_default_dtype() == torch.float32


ALGORITHMS = [
    ("FedAvg",),
    ("FedAvg", "algorithm.output=average", "algorithm.projection={name='ball', radius=1}"),
    ("q-FedAvg",),
    ("AFL",),
    ("DRFA", "algorithm.output=average"),
    ("DRFA-Prox", "algorithm.regulariser={name='kl', strength=0.1}"),
    ("DRFA-GA", "algorithm.regulariser={name='quadratic', strength=0.1}"),
]


@pytest.mark.parametrize("changes", ALGORITHMS, ids=str)
def test_every_algorithm_stops_and_goes_on(config, quick, changes):
    """One name, then whatever else it needs; half of the rounds and a resume give the whole run."""
    name, *others = changes
    base = IRIS.replace('"DRFA"', f'"{name}"')
    config.write_text(base.replace("local_steps = 3\n", "") if name == "AFL" else base)
    lossy = (*others, "run.lost_replies=0.3")
    assert run(config, *lossy, out=Path("whole")).code == 0
    assert run(config, *lossy, "run.rounds=3", out=Path("half")).code == 0
    assert not same_end(Path("half"), Path("whole"))
    assert run(config, *lossy, out=Path("half"), resume=True).code == 0
    assert same_end(Path("half"), Path("whole"))
    assert summary(Path("half"))["algorithm"] == name


def test_more_rounds_off_the_beat_of_evaluation(config, quick):
    """The record of the old last round is not one that a longer run would have."""
    run(config, "run.evaluate_every=4", out=Path("short"))
    assert [r["round"] for r in story(Path("short"))] == [4, 6]
    longer = ("run.evaluate_every=4", "run.rounds=10")
    run(config, *longer, out=Path("long"))
    assert run(config, *longer, out=Path("short"), resume=True).code == 0
    assert [r["round"] for r in story(Path("short"))] == [4, 8, 10]
    assert same_end(Path("short"), Path("long"))


def test_a_finished_run_can_be_resumed_in_vain(config, quick):
    run(config, out=Path("out"))
    before = (story(Path("out")), Path("out/model.safetensors").read_bytes())
    assert run(config, out=Path("out"), resume=True).code == 0
    assert before == (story(Path("out")), Path("out/model.safetensors").read_bytes())


CHANGED = [
    ("run.seed=1", "run.seed = 1: the run in out has 0"),
    ("run.lost_replies=0.1", "run.lost_replies = 0.1: the run in out has 0.0"),
    ("run.evaluate_every=2", "run.evaluate_every = 2: the run in out has 1"),
    ("algorithm.primal_step=0.2", "algorithm.primal_step = 0.2: the run in out has None"),
    ("algorithm.name=AFL", "algorithm.name = 'AFL': the run in out has 'DRFA'"),
    ("data.name=wine", "data.name = 'wine': the run in out has 'iris'"),
    ("split.clients=6", "split.clients = 6: the run in out has 5"),
    ("problem.l2=0.1", "problem.l2 = 0.1: the run in out has None"),
    ("engine.name=serial", "engine.name = 'serial': the run in out has 'vectorised'"),
]


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    home = tmp_path_factory.mktemp("done")
    (home / "small.toml").write_text(IRIS)
    with no_pictures():
        assert run(home / "small.toml", out=home / "out").code == 0
    return home


@pytest.mark.parametrize(("change", "said"), CHANGED)
def test_a_changed_config_is_refused(done, monkeypatch, change, said):
    monkeypatch.chdir(done)
    before = {p: p.read_bytes() for p in Path("out").rglob("*") if p.is_file()}
    outcome = run(Path("small.toml"), change, out=Path("out"), resume=True)
    assert outcome.code == 2
    *notes, error = outcome.err.splitlines()
    assert error == f"error: {said}; resume with the same config, or choose another --out"
    assert all(note.startswith("note: algorithm.") and change.startswith("algorithm.name=") for note in notes)
    assert {p: p.read_bytes() for p in Path("out").rglob("*") if p.is_file()} == before


def test_a_run_of_a_machine_with_another_rule(config, quick, monkeypatch):
    """What the rule chose there must be said here, and may be."""
    with monkeypatch.context() as there:
        there.setattr("fedsaddle.engines.choose.MAX_CLIENTS", 3)
        run(config, out=Path("whole"))
        run(config, "run.rounds=3", out=Path("out"))
    outcome = run(config, out=Path("out"), resume=True)
    assert outcome.code == 2
    assert outcome.err.splitlines()[-1].endswith("'chunk': 3}; resume with the same")
    assert run(config, "engine.chunk=3", out=Path("out"), resume=True).code == 0
    assert same_end(Path("out"), Path("whole"))


def test_a_damaged_config_of_the_old_run(config, quick):
    run(config, out=Path("out"))
    Path("out/config.json").write_text('{"data": ')
    outcome = run(config, out=Path("out"), resume=True)
    assert outcome.code == 2
    assert outcome.err.startswith("error: out/config.json is damaged")


def test_a_run_that_ended_before_it_wrote_its_config(config, quick):
    """Killed between its first two files: neither the one way nor the other may be a dead end."""
    run(config, out=Path("whole"))
    Path("out").mkdir()
    Path("out/metrics.jsonl").write_text("")
    assert run(config, out=Path("out"), resume=True).code == 0
    assert same_end(Path("out"), Path("whole"))


@pytest.mark.parametrize(
    ("target", "part", "reached"),
    [
        ("worst accuracy >= 0.5", ("accuracy", "worst"), lambda v: v >= 0.5),
        ("std accuracy < 0.2", ("accuracy", "std"), lambda v: v < 0.2),
        ("bottom10 accuracy > 0.6", ("accuracy", "bottom10"), lambda v: v > 0.6),
        ("mean loss <= 0.8", ("loss", "mean"), lambda v: v <= 0.8),
    ],
)
def test_a_target_stops_the_run(config, quick, target, part, reached):
    slow = ("split.name=by-class", "algorithm.primal_step=0.05", "run.rounds=60")
    outcome = run(config, *slow, f"run.target='{target}'", out=Path("out"))
    assert outcome.code == 0
    values = [r["test"][part[0]][part[1]] for r in story(Path("out"))]
    said = summary(Path("out"))
    assert said["stopped"] == "target"
    assert said["target_round"] == said["rounds"] == len(values) < 60
    assert [reached(v) for v in values] == [False] * (len(values) - 1) + [True]
    assert f"DRFA: {len(values)} rounds, target ({target} in round {len(values)})" in outcome.out
    run(config, *slow, f"run.rounds={len(values)}", out=Path("plain"))
    assert same_end(Path("out"), Path("plain"))


def test_a_target_that_is_never_reached(config, quick):
    outcome = run(config, "run.target='worst accuracy > 1'", out=Path("out"))
    said = summary(Path("out"))
    assert (outcome.code, said["stopped"], said["target_round"]) == (0, "finished", None)
    assert said["target"] == "worst accuracy > 1"


def test_divergence(config, quick):
    """The round, the client and a hint; the last good checkpoint stands, and going on diverges again."""
    step = "algorithm.primal_step=2"
    outcome = run(config, *WILD, step, out=Path("out"))
    assert outcome.code == 3
    *_, line = outcome.err.splitlines()
    said = summary(Path("out"))
    assert (said["algorithm"], said["stopped"]) == ("FedAvg", "diverged")
    assert line.startswith(f"error: round {said['round']}: client {said['client']} sent a ")
    assert "try a smaller step, scale the features, or bound the model" in line
    assert said["round"] > 2
    last = (said["round"] - 1) // 2 * 2
    newest = Path(f"out/checkpoints/{last:08d}.safetensors")
    assert sorted(Path("out/checkpoints").iterdir())[-1] == newest
    assert all(torch.isfinite(v).all() for v in load_file(newest).values())
    assert [r["round"] for r in story(Path("out"))] == list(range(1, said["round"]))
    assert not Path("out/model.safetensors").exists()
    again = run(config, *WILD, step, out=Path("out"), resume=True)
    assert (again.code, again.err.splitlines()[-1]) == (3, line)
    assert summary(Path("out")) == said


HUGE = [
    ("FedAvg",),
    ("q-FedAvg",),
    ("DRFA",),
    ("DRFA", "algorithm.weighting=weight"),
    ("DRFA-Prox", "algorithm.regulariser={name='kl', strength=0.1}"),
    ("DRFA-Prox", "algorithm.regulariser={name='quadratic', strength=0.1}"),
    ("DRFA-GA",),
    ("DRFA-GA", "algorithm.regulariser={name='kl', strength=0.1}"),
]


@pytest.mark.parametrize("changes", HUGE, ids=str)
def test_a_huge_step_never_ends_in_a_traceback(config, quick, changes):
    name, *others = changes
    for step in ("1e10", "1e30"):
        huge = (f"algorithm.name={name}", *others, f"algorithm.primal_step={step}")
        wild = run(config, *WILD, *huge, out=Path(f"wild{step}"))
        assert wild.code == 3
        assert "round 1: client " in wild.err.splitlines()[-1]
        bounded = run(config, *huge, out=Path(f"out{step}"))
        assert bounded.code in (0, 3)  # the gradient of the cross-entropy is bounded, so 1e30 may stay finite


def test_nobody_answers(config, quick):
    outcome = run(config, "run.lost_replies=0.999999", "run.rounds=30", out=Path("out"))
    assert outcome.code == 3
    assert outcome.err.splitlines()[-1].startswith("error: no reply in 20 rounds in a row; the last one: all ")
    assert len(story(Path("out"))) == 19
    again = run(config, "run.lost_replies=0.999999", "run.rounds=30", out=Path("out"), resume=True)
    assert (again.code, again.err.splitlines()[-1]) == (3, outcome.err.splitlines()[-1])
    assert len(story(Path("out"))) == 19


HOSPITALS = ("Nord", "Süd [/b]", "$Ost$ {", "_West")


def test_a_csv_of_hospitals(tmp_path, monkeypatch):
    """A user's own file from end to end, whatever the hospitals are called."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    rows = ["age,dose,ward,hospital,outcome"]
    for i in range(200):
        ill = int(rng.random() < 0.5)
        at = i % 4
        rows.append(
            f"{rng.normal(50 + 5 * ill):.2f},{rng.normal(at):.2f},{'AB'[i % 2]},{HOSPITALS[at]},{['no', 'yes'][ill]}"
        )
    Path("patients.csv").write_text("\n".join(rows) + "\n")
    Path("mine.toml").write_text(
        '[data]\nname = "file"\npath = "patients.csv"\ntarget = "outcome"\nclient = "hospital"\n'
        '[split]\nname = "natural"\ncolumn = "hospital"\n'
        '[model]\nname = "logistic"\n[problem]\nloss = "logistic"\n[algorithm]\nname = "DRFA"\n[run]\nrounds = 15\n'
    )
    outcome = run(Path("mine.toml"), out=Path("out [/x]"))
    assert outcome.code == 0, outcome.err
    assert outcome.err.startswith("patients: 4 clients, 160 training and 40 test rows\n")
    assert outcome.out.endswith("written to out [/x]\nreport: out [/x]/report.html\n")
    assert json.loads(Path("out [/x]/split.json").read_text())["names"] == sorted(HOSPITALS)
    assert summary(Path("out [/x]"))["test"]["accuracy"]["global"] > 0.9
    drawn = {p.stem for p in Path("out [/x]").glob("*.png")}
    assert drawn == {"split", "progress", "clients", "mixture", "roc", "auroc"}
    assert {k: tuple(v.shape) for k, v in load_file("out [/x]/model.safetensors").items()} == {
        "1.weight": (1, 3),  # one feature for the two wards
        "1.bias": (1,),
    }


ROWS = """[data]
name = "file"
path = "rows.csv"
{more}
[split]
name = "natural"
[model]
name = "logistic"
[problem]
name = "auc"
[algorithm]
name = "CODASCA"
local_steps = 2
[run]
rounds = 3
"""


def test_test_rows_of_one_class(tmp_path, monkeypatch):
    """The run ends with a report; figures that need both classes are left out, with a caution."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{i % 5},h{i % 3},{i % 2}" for i in range(60)]
    Path("rows.csv").write_text("\n".join(["a,b,client,y", *rows]))
    Path("later.csv").write_text("\n".join(["a,b,client,y", *(row for row in rows if row.endswith("0"))]))
    Path("mine.toml").write_text(ROWS.format(more='test_path = "later.csv"'))
    for resume in (False, True):
        outcome = run(Path("mine.toml"), out=Path("out"), resume=resume)
        assert outcome.code == 0, outcome.err
        assert (
            "warning: all test rows are '0': there is no AUROC or average precision without both classes" in outcome.err
        )
        assert "one class only" in outcome.out
        assert "All test rows are" in Path("out/report.html").read_text()


def test_a_run_that_explodes_but_stays_finite(tmp_path, monkeypatch, quick):
    """Columns that are not scaled: exit code 3, and the same words on the terminal, in the summary and the report."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{300 * (i % 7)},{500 * (i % 5)},h{i % 3},{i * i % 2}" for i in range(60)]
    Path("rows.csv").write_text("\n".join(["a,b,client,y", *rows]))
    Path("mine.toml").write_text(
        ROWS.format(more="standardise = false").replace("auc", "supervised").replace("CODASCA", "FedAvg")
    )
    for resume in (False, True):
        outcome = run(Path("mine.toml"), out=Path("out"), resume=resume)
        assert outcome.code == 3
        assert "warning: the run diverged: the loss ended at " in outcome.err
        assert "at the start, and the model is of no use; try a smaller step, scale the features" in outcome.err
    (warning,) = summary(Path("out"))["warnings"]
    assert warning["kind"] == "exploded"
    assert "Do not use this model yet" in Path("out/report.html").read_text()


def test_other_rows_in_the_same_file(tmp_path, monkeypatch, quick):
    """The config is the same, the data are not: the checkpoints belong to another run."""
    monkeypatch.chdir(tmp_path)
    rows = [f"{i % 7},{i % 5},h{i % 3},{i % 2}" for i in range(60)]
    Path("rows.csv").write_text("\n".join(["a,b,client,y", *rows]))
    Path("mine.toml").write_text(
        IRIS.replace('"iris"', '"file"\npath = "rows.csv"').replace('"iid"\nclients = 5', '"natural"')
    )
    assert run(Path("mine.toml"), out=Path("out")).code == 0
    Path("rows.csv").write_text("\n".join(["a,b,client,y", *rows[:-1], "9,9,h2,1"]))
    outcome = run(Path("mine.toml"), "run.rounds=8", out=Path("out"), resume=True)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "belongs to another run (different: " in outcome.err
    assert "features" in outcome.err
    assert "no checkpoint in out/checkpoints is usable" in outcome.err


def test_a_damaged_checkpoint_is_passed_over(config, quick):
    run(config, out=Path("whole"))
    run(config, "run.rounds=4", out=Path("out"))
    newest = Path("out/checkpoints/00000004.safetensors")
    newest.write_bytes(newest.read_bytes()[:-3])
    outcome = run(config, out=Path("out"), resume=True)
    assert outcome.code == 0
    (warning,) = [line for line in outcome.err.splitlines() if line.startswith("warning")]
    assert "00000004" in warning
    assert "damaged" in warning
    assert warning.endswith("using the checkpoint before it")
    assert same_end(Path("out"), Path("whole"))


def test_no_good_checkpoint_is_left(config, quick):
    run(config, out=Path("out"))
    for path in Path("out/checkpoints").glob("*.json"):
        path.write_text("{")
    before = Path("out/metrics.jsonl").read_text()
    outcome = run(config, "run.rounds=9", out=Path("out"), resume=True)
    assert outcome.code == 2
    assert outcome.err.startswith("error: no checkpoint in out/checkpoints is usable: 00000006.json is damaged")
    assert outcome.err.count("\n") == 1
    assert Path("out/metrics.jsonl").read_text() == before


def test_the_default_folder(config, quick):
    assert fedsaddle("run", config, "--engine", "serial").code == 0
    assert summary(Path("runs/small"))["engine"] == {"name": "serial"}


def test_a_problem_of_plain_vectors_has_no_model_to_load(tmp_path):
    """The simulation of FedSGDA's paper: the solution is written as a vector, and there is no load_model.py."""
    config = tmp_path / "pl.toml"
    config.write_text(
        '[data]\nname = "nonconvex-pl"\nclients = 6\nrows = 5\ndimension = 3\n[split]\nname = "natural"\n'
        '[model]\nname = "none"\n[problem]\nname = "nonconvex-pl"\n[algorithm]\nname = "FedSGDA-MB"\n'
        "[run]\nrounds = 2\n"
    )
    with no_pictures():
        outcome = run(config, out=tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert list(load_file(tmp_path / "out" / "model.safetensors")) == ["x"]
    assert not (tmp_path / "out" / "load_model.py").exists()
