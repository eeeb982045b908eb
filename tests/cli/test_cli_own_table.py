"""A table with a site column and one algorithm: a model, ROC curves and a comparison with FedAvg."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from cli_command import fedsaddle, no_pictures
from PIL import Image

from fedsaddle.config.build import build
from fedsaddle.config.schema import validate_config

SITES = {"Central": 120, "North": 80, "Lake": 30, "Hut": 12}
ROUNDS = ("--set", "run.rounds=6", "--set", "run.evaluate_every=3")
SHORT = ("--algorithm", "CODASCA", *ROUNDS)


def patients(path: Path, labels=("alive", "died"), share: float = 0.15) -> Path:
    """Four hospitals; at the Hut nobody dies."""
    rng = np.random.default_rng(3)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["hospital", "age", "sex", "marker", "outcome"])
        for hospital, n in SITES.items():
            for i in range(n):
                sick = hospital != "Hut" and rng.random() < share
                marker = round(float(rng.normal() + 2 * sick), 3)
                out.writerow([hospital, rng.integers(20, 90), "fm"[i % 2], marker, labels[int(sick)]])
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    table, out = patients(folder / "patients.csv"), folder / "out"
    said = fedsaddle("run", table, "--site", "hospital", "--label", "outcome", "--out", out, *SHORT)
    assert said.code == 0, said.err
    return table, out, said


def test_what_one_command_leaves(finished):
    _, out, said = finished
    for name in ("model.safetensors", "load_model.py", "features.json", "fedsaddle.toml", "roc.csv", "roc.json"):
        assert (out / name).stat().st_size > 0
    for name in ("roc.png", "auroc.png", "split.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
    assert (out / "fedavg" / "model.safetensors").exists()
    assert "CODASCA" in said.out
    assert "FedAvg" in said.out
    assert "AUROC pooled, CODASCA minus FedAvg" in said.out


def test_the_table_by_site(finished):
    _, out, said = finished
    rows = {row["site"]: row for row in csv.DictReader((out / "roc.csv").read_text().splitlines())}
    assert list(rows) == ["Central", "Hut", "Lake", "North", "pooled", "within sites"]
    assert rows["Hut"]["positives"] == "0"
    assert rows["Hut"]["CODASCA AUROC"] == rows["Hut"]["FedAvg AUROC low"] == ""
    assert "1 of 4 sites have a single class" in said.out
    assert next(line for line in said.out.splitlines() if "Hut" in line).count("one class only") == 2
    pooled = rows["pooled"]
    assert int(pooled["rows"]) == sum(int(r["rows"]) for s, r in rows.items() if s not in ("pooled", "within sites"))
    for name in ("CODASCA", "FedAvg"):
        for place, key in ((pooled, "AUROC"), (pooled, "average precision"), (rows["within sites"], "AUROC")):
            low, value, high = (float(place[f"{name} {key}{bound}"]) for bound in (" low", "", " high"))
            assert low <= value <= high
            assert low < high
    summary = json.loads((out / "summary.json").read_text())
    assert summary["roc"]["CODASCA"]["auroc"]["value"] == pytest.approx(summary["pooled"]["auroc"])
    assert summary["roc"]["single_class_clients"] == 1
    assert float(pooled["CODASCA AUROC"]) == pytest.approx(summary["pooled"]["auroc"], abs=1e-6)
    curve = json.loads((out / "roc.json").read_text())["models"]["CODASCA"]["curve"]
    assert (curve["false_positive_rate"][0], curve["true_positive_rate"][-1]) == (0.0, 1.0)


def test_plain_pytorch_loads_the_model_and_scores_rows_of_the_file(finished):
    table, out, _ = finished
    code = (
        "import csv, json, sys; sys.path.insert(0, sys.argv[1]); from load_model import encoded, model; "
        "assert not any(m.startswith('fedsaddle') for m in sys.modules); "
        "print(json.dumps([float(model(encoded(row))) for row in csv.DictReader(open(sys.argv[2]))]))"
    )
    said = subprocess.run(
        [sys.executable, "-c", code, str(out), str(table)], capture_output=True, text=True, check=True
    )
    scores = json.loads(said.stdout)
    assert len(scores) == sum(SITES.values())
    built = build(validate_config(json.loads((out / "config.json").read_text())))
    module = built.algorithm.problem.model
    from safetensors.torch import load_file

    module.load_state_dict(load_file(out / "model.safetensors"))
    ours = np.concatenate(
        [module(rows.x).detach().numpy().ravel() for rows in (built.data.train, built.data.validation, built.data.test)]
    )
    assert np.sort(scores) == pytest.approx(np.sort(ours), abs=1e-5)


def test_the_baseline_has_the_same_rounds_steps_and_batches(finished):
    _, out, _ = finished
    ours, theirs = (json.loads((f / "config.json").read_text()) for f in (out, out / "fedavg"))
    assert theirs["algorithm"]["name"] == "FedAvg"
    assert theirs["problem"] == {"name": "supervised", "loss": "logistic"}
    for key in ("local_steps", "batch_size"):
        assert theirs["algorithm"][key] == ours["algorithm"][key]
    assert theirs["run"]["rounds"] == 6
    assert theirs["data"] == ours["data"]
    said = fedsaddle("compare", out, out / "fedavg", "--out", out / "both.png")
    assert said.code == 0, said.err
    assert "AUROC" in said.out
    assert "worst loss" not in said.out  # of other problems
    assert "losses are not compared" in said.out
    assert (out / "both.png").exists()
    found = json.loads(fedsaddle("compare", out, out / "fedavg", "--json").out)
    assert found["measure"] is None
    for name, folder in zip(found["figures"], (out, out / "fedavg"), strict=True):
        stored = json.loads((folder / "summary.json").read_text())
        assert found["figures"][name]["auroc"] == pytest.approx(stored["pooled"]["auroc"], abs=1e-4)


def test_one_algorithm_says_that_it_is_not_tuned(finished):
    _, out, said = finished
    assert "not tuned: CODASCA and FedAvg have the steps of their configs" in said.out
    assert json.loads((out / "summary.json").read_text())["tuned"] is False
    page = (out / "report.html").read_text()
    assert "CODASCA is not tuned" in page
    assert "Against FedAvg on the same rows, not tuned" in page


def test_resuming_a_finished_run_says_the_same(finished):
    table, out, first = finished
    again = fedsaddle("run", table, "--site", "hospital", "--label", "outcome", "--out", out, *SHORT, "--resume")
    assert again.code == 0, again.err
    last = [line for line in first.out.splitlines() if "minus" in line]
    assert last == [line for line in again.out.splitlines() if "minus" in line]


def test_init_writes_what_run_ran_and_the_comparison_can_be_switched_off(finished, tmp_path):
    table, out, _ = finished
    config = tmp_path / "mine.toml"
    said = fedsaddle(
        "init", config, "--csv", table, "--site", "hospital", "--label", "outcome", "--algorithm", "CODASCA"
    )
    assert said.code == 0, said.err
    assert config.read_text() == (out / "fedsaddle.toml").read_text()
    written = tomllib.loads(config.read_text())
    assert (written["data"]["positive"], written["algorithm"]["name"]) == ("died", "CODASCA")
    alone = fedsaddle("run", config, "--out", tmp_path / "alone", *ROUNDS, "--set", "run.compare=false")
    assert alone.code == 0, alone.err
    assert not (tmp_path / "alone" / "fedavg").exists()
    assert "FedAvg" not in alone.out
    same = [json.loads((f / "summary.json").read_text())["pooled"] for f in (out, tmp_path / "alone")]
    assert same[0] == same[1]


def test_the_rarer_label_is_the_positive_one_unless_named(tmp_path):
    table = patients(tmp_path / "p.csv", labels=("survived", "died"), share=0.2)
    for extra, positive in (((), "died"), (("--positive", "survived"), "survived")):
        config = tmp_path / f"{positive}.toml"
        said = fedsaddle("init", config, "--csv", table, "--site", "hospital", "--label", "outcome", *extra)
        assert said.code == 0, said.err
        assert build(validate_config(tomllib.loads(config.read_text()))).data.classes[1] == positive


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--site", "hospital"), "--label is missing: name a column of"),
        (("--label", "outcome"), "--site is missing: name a column of"),
        (("--site", "clinic", "--label", "outcome"), "--site = 'clinic': there is no such column"),
        (("--site", "hospital", "--label", "outcom"), "did you mean 'outcome'?"),
        (("--site", "hospital", "--label", "outcome", "--positive", "ill"), "--positive = 'ill': is not a value"),
        (("--site", "hospital", "--label", "outcome", "--image", "file"), "--image = 'file': there is no such column"),
    ],
)
def test_bad_input_is_one_line(finished, tmp_path, words, said):
    for command in (("run", finished[0], "--out", tmp_path / "o"), ("init", tmp_path / "c.toml", "--csv", finished[0])):
        outcome = fedsaddle(*command, *words)
        assert outcome.code == 2
        assert outcome.err.startswith("error: ")
        assert said in outcome.err
        assert outcome.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_no_positives_at_all_and_one_site_only(tmp_path):
    table = patients(tmp_path / "p.csv", labels=("alive", "alive"))
    said = fedsaddle("run", table, "--site", "hospital", "--label", "outcome")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "a single class leaves nothing to learn" in said.err
    table.write_text("site,a,y\n" + "".join(f"x,{i % 7},{i % 2}\n" for i in range(20)))
    said = fedsaddle("run", table, "--site", "site", "--label", "y")
    assert said.err.startswith("error: clients in column 'site' = ['x']: one client is no federation")


def test_the_options_of_a_table_are_refused_for_a_config(tmp_path):
    config = tmp_path / "c.toml"
    assert fedsaddle("init", config).code == 0
    said = fedsaddle("run", config, "--label", "outcome")
    assert said.err.startswith("error: --label = 'outcome': needs your own table")


def test_pictures_with_a_table(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["name,illness,clinic"]
    for i in range(60):
        sick = i % 5 == 0
        pixels = np.clip(rng.normal(90 + 80 * sick, 20, (12, 10)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        lines.append(f"{i}.png,{int(sick)},{'ABC'[i % 3]}")
    table = tmp_path / "table.csv"
    table.write_text("\n".join(lines) + "\n")
    words = ("--site", "clinic", "--label", "illness", "--image", "name")
    model = ("--set", "model.name=logistic", "--set", "data.size=8", "--set", "run.compare=false")
    out = tmp_path / "out"
    said = fedsaddle("run", table, *words, "--out", out, *SHORT, *model)
    assert said.code == 0, said.err
    assert json.loads((out / "summary.json").read_text())["pooled"]["auroc"] > 0.9
    (tmp_path / "7.png").write_bytes(b"no picture")
    said = fedsaddle("run", table, *words, "--out", tmp_path / "o", *model)
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "row 8, column 'name' = '7.png': cannot be read as a picture" in said.err.replace("data.", "")


def test_an_interrupted_comparison_can_be_resumed(finished, tmp_path, monkeypatch):
    """Ctrl-C while the baseline runs: exit code 130, no comparison; with --resume it is made."""
    from fedsaddle.commands import simulation as command

    whole = command.simulate_config

    def interrupted(config, built, **options):
        if options["out"].name != "fedavg":
            return whole(config, built, **options)
        short = config.run.model_copy(update={"rounds": config.run.rounds // 2})
        result = whole(config.model_copy(update={"run": short}), built, **options)
        result.document.stopped = "interrupted"  # as Ctrl-C leaves it
        return result

    table, reference, _ = finished
    words = ("run", table, "--site", "hospital", "--label", "outcome", "--out", tmp_path / "out", *SHORT)
    with no_pictures():
        monkeypatch.setattr(command, "simulate_config", interrupted)
        first = fedsaddle(*words)
        assert first.code == 130
        assert "continue with --resume" in first.err
        assert not (tmp_path / "out" / "roc.csv").exists()
        monkeypatch.setattr(command, "simulate_config", whole)
        second = fedsaddle(*words, "--resume")
    assert second.code == 0, second.err
    assert (tmp_path / "out" / "roc.csv").read_text() == (reference / "roc.csv").read_text()
