"""`fedsaddle run patients.csv`: what a search on a table writes, says and leaves out."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace
from unittest import mock

import numpy as np
import pytest
from cli_command import fedsaddle
from PIL import Image
from rich.console import Console
from sklearn.metrics import average_precision_score, roc_auc_score
from table_runs import PATIENTS, ROLES, lines, loaded, searched, short, summary

from fedsaddle.commands.progress import SearchProgress
from fedsaddle.data import pictures
from fedsaddle.report.stored_run import read_run
from fedsaddle.studies.aims import aim_of
from fedsaddle.studies.candidates import BASE, FEDAVG, HINGES, Facts, candidates
from fedsaddle.studies.leave_one_out import _recipe, _without
from fedsaddle.studies.pool import Interrupted
from fedsaddle.studies.search import Choice, Clock, Search, trial_pool
from fedsaddle.studies.site_questions import SimulatedSites
from fedsaddle.studies.table_config import TableConfig

FIGURES = ("auroc", "within_site_auroc", "average_precision", "partial_auroc")


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("search") / "out"
    said = searched(PATIENTS, out)
    assert said.code == 0, said.err
    return out, said


def test_every_file_is_there(finished):
    out, said = finished
    names = {p.name for p in out.iterdir()}
    text = ("features.json", "fedsaddle.toml", "load_model.py", "predictions.csv", "roc.csv", "search.json")
    assert {*text, "model.safetensors", "roc.json", "summary.json", "trials", "trials.csv", "config.json"} <= names
    assert {"report.html", "split.json"} <= names
    assert ".lock" not in names
    assert "FedAvg, tuned alike" in said.out
    assert said.out.endswith(f"report: {out / 'report.html'}\n")
    assert "note: column 'bilirubin': read '>20' as the bare number" in said.err


def test_held_out_rows_are_written_once_with_the_numbers_of_the_file(finished):
    out, _ = finished
    rows, file = lines(out / "predictions.csv"), lines(PATIENTS)
    heads = "row part site label score probability fedavg_score fedavg_probability unit"
    assert list(rows[0]) == heads.split()
    assert len({row["row"] for row in rows}) == len(rows)
    counts = summary(out)["rows"]
    for part in ("validation", "test"):
        own = [row for row in rows if row["part"] == part]
        assert len(own) == counts[part]["rows"]
        assert sum(row["label"] == "1" for row in own) == counts[part]["positives"]
    assert len(rows) + counts["train"]["rows"] == len(file)
    for row in rows:
        there = file[int(row["row"])]
        assert row["site"] == there["hospital"]
        assert row["label"] == str(int(there["died"] == "yes"))
        assert 0 < float(row["probability"]) < 1


def test_load_model_gives_the_probability_of_every_held_out_row(finished):
    out, _ = finished
    made, file = loaded(out), lines(PATIENTS)
    for row in lines(out / "predictions.csv"):
        score = made.model(made.encoded(file[int(row["row"])]))
        assert score.item() == pytest.approx(float(row["score"]), abs=2e-5)
        assert made.probability(score).item() == pytest.approx(float(row["probability"]), abs=1e-5)
    assert summary(out)["threshold"]["probability"] == made.THRESHOLD


def test_the_summary_has_the_figures_of_the_predictions(finished):
    out, _ = finished
    said = summary(out)
    test = [row for row in lines(out / "predictions.csv") if row["part"] == "test"]
    y, s = ([float(row[key]) for row in test] for key in ("label", "score"))
    pooled = said["pooled"]
    assert pooled["choice"]["auroc"]["value"] == pytest.approx(roc_auc_score(y, s))
    assert pooled["choice"]["average_precision"]["value"] == pytest.approx(average_precision_score(y, s))
    assert pooled["choice"]["partial_auroc"]["value"] == pytest.approx(roc_auc_score(y, s, max_fpr=0.3))
    for figure in FIGURES:
        for side in ("choice", "FedAvg", "difference"):
            low, high = pooled[side][figure]["interval"]
            assert low <= pooled[side][figure]["value"] <= high
        gap = pooled["choice"][figure]["value"] - pooled["FedAvg"][figure]["value"]
        assert pooled["difference"][figure]["value"] == pytest.approx(gap)
    p = np.array([float(row["probability"]) for row in test])
    assert said["probabilities"]["brier_score"] == pytest.approx(np.mean((p - y) ** 2), abs=1e-6)
    called, positive = p >= said["threshold"]["probability"], np.array(y) > 0
    assert said["threshold"]["test"]["specificity"] == pytest.approx(1 - called[~positive].mean())
    assert said["positive"] == "yes"
    assert said["choice"] in {row["candidate"] for row in lines(out / "trials.csv")}


def test_shares_of_missing_cells_by_column_and_site(finished):
    out, _ = finished
    missing, file = summary(out)["missing"], lines(PATIENTS)
    held = {int(row["row"]) for row in lines(out / "predictions.csv")}
    train = [row for number, row in enumerate(file) if number not in held]
    for column in ("lactate", "sex"):
        gaps = [row[column] == "" for row in train]
        assert missing[column]["share"] == pytest.approx(np.mean(gaps))
        for site in {row["hospital"] for row in train}:
            own = [gap for gap, row in zip(gaps, train, strict=True) if row["hospital"] == site]
            assert missing[column]["sites"].get(site, 0) == pytest.approx(np.mean(own), abs=1e-4)
    assert missing["lactate"]["sites"]["H05"] == 1.0
    assert "admitted" not in missing


def test_every_trial_is_in_the_table_of_trials(finished):
    out, _ = finished
    trials = lines(out / "trials.csv")
    assert len(trials) == summary(out)["trials"]
    names = {row["candidate"] for row in trials if row["rounds"] != "0" and not row["gain"]}
    folders = [p.name for p in (out / "trials").iterdir() if p.is_dir()]
    assert len(folders) == len(names) >= 4
    assert {FEDAVG, BASE} <= names


def test_rows_that_are_held_out_do_not_touch_features_or_model(finished, tmp_path):
    """Other cells in test rows change nothing; in validation rows they change what is chosen at most."""
    out, _ = finished
    test = {int(row["row"]) for row in lines(out / "predictions.csv") if row["part"] == "test"}
    table = PATIENTS.read_text().splitlines()
    names = table[0].split(",")
    for number in test:
        cells = table[number + 1].split(",")
        for column in ("age", "heart_rate", "creatinine", "lactate"):
            cells[names.index(column)] = "1e6"
        cells[names.index("sex")] = "other"
        table[number + 1] = ",".join(cells)
    changed = tmp_path / "patients.csv"
    changed.write_text("\n".join(table) + "\n")
    said = searched(changed, tmp_path / "out")
    assert said.code == 0, said.err
    for name in ("features.json", "model.safetensors", "trials.csv"):
        ours, theirs = ((folder / name).read_bytes() for folder in (out, tmp_path / "out"))
        if name == "trials.csv":
            ours, theirs = ([{**row, "seconds": ""} for row in lines(f / name)] for f in (out, tmp_path / "out"))
        assert ours == theirs, name
    assert (out / "predictions.csv").read_text() != (tmp_path / "out" / "predictions.csv").read_text()


def test_rows_without_a_label_are_left_out_and_the_numbers_stay(tmp_path):
    table = PATIENTS.read_text().splitlines()
    for number in range(5, 200, 9):
        table[number] = table[number].rsplit(",", 1)[0] + ","
    path = tmp_path / "p.csv"
    path.write_text("\n".join(table) + "\n")
    said = searched(path, tmp_path / "out", "--budget", "0.001s")
    assert said.code == 0, said.err
    assert "22 rows have no label in column 'died' and are left out" in said.err
    file = lines(path)
    for row in lines(tmp_path / "out" / "predictions.csv"):
        there = file[int(row["row"])]
        assert (row["site"], row["label"]) == (there["hospital"], str(int(there["died"] == "yes")))


@pytest.mark.parametrize("aim", ["average-precision", "partial-auroc", "worst-site", "accuracy"])
def test_every_aim(aim, tmp_path):
    said = searched(PATIENTS, tmp_path / "out", "--for", aim, "--budget", "0.001s")
    assert said.code == 0, said.err
    assert summary(tmp_path / "out")["aim"] == aim
    assert f"chosen for {aim}: " in said.out


def test_a_test_site_is_not_trained_on_and_a_sensitivity_is_kept(tmp_path):
    words = ("--test-site", "H02", "--test-site", "H05", "--sensitivity", ".8", "--budget", "0.001s")
    said = searched(PATIENTS, tmp_path / "out", *words)
    assert said.code == 0, said.err
    rows = lines(tmp_path / "out" / "predictions.csv")
    file = lines(PATIENTS)
    assert {row["site"] for row in rows if row["part"] == "test"} == {"H02", "H05"}
    assert sum(row["part"] == "test" for row in rows) >= sum(row["hospital"] in ("H02", "H05") for row in file)
    sites = {f["category"] for f in json.loads((tmp_path / "out" / "features.json").read_text()) if f["kind"] == "site"}
    assert not sites & {"H02", "H05"}
    assert len(sites) == 10
    validation = [row for row in rows if row["part"] == "validation" and row["label"] == "1"]
    cut = summary(tmp_path / "out")["threshold"]["probability"]
    found = [float(row["probability"]) >= cut - 1e-9 for row in validation]
    assert np.mean(found) >= 0.8
    assert "finds 80% of the positives" in said.out
    made = loaded(tmp_path / "out")  # a new site has the mean intercept
    known = {f["category"]: f["unknown"] for f in made.FEATURES if f["kind"] == "site"}
    assert sum(known.values()) == pytest.approx(1)
    new = made.encoded({**file[0], "hospital": "elsewhere"})[0]
    assert [v for f, v in zip(made.FEATURES, new.tolist(), strict=True) if f["kind"] == "site"] == pytest.approx(
        list(known.values()), abs=1e-6
    )


def test_each_site_is_scored_by_a_model_without_it(tmp_path):
    table = tmp_path / "few.csv"
    rows = PATIENTS.read_text().splitlines()
    table.write_text("\n".join([rows[0], *(r for r in rows[1:] if r[:3] in ("H01", "H02", "H03"))]) + "\n")
    said = searched(table, tmp_path / "out", "--leave-one-site-out", "--budget", "0.001s")
    assert said.code == 0, said.err
    found, file = lines(tmp_path / "out" / "leave-one-site-out.csv"), lines(table)
    assert sorted(int(row["row"]) for row in found) == list(range(len(file)))
    for row in found:
        there = file[int(row["row"])]
        assert (row["site"], row["label"]) == (there["hospital"], str(int(there["died"] == "yes")))
    left = summary(tmp_path / "out")["leave_one_site_out"]
    y, s = ([float(row[key]) for row in found] for key in ("label", "score"))
    first = next(iter(left))
    assert left[first]["auroc"]["value"] == pytest.approx(roc_auc_score(y, s))
    assert left["FedAvg"]["auroc"]["value"] != left[first]["auroc"]["value"]
    assert "AUROC at sites that were not trained on" in said.out
    assert first == summary(tmp_path / "out")["choice"], "what is delivered"
    shown = f"{left[first]['auroc']['value']:.3f}"
    for file_name in ("report.html", "MODEL_CARD.md"):
        text = (tmp_path / "out" / file_name).read_text()
        assert "At a site that was not trained on" in text
        assert re.search(rf"tested on the site that was left out: AUROC {shown} ", text.replace("\\", ""))


def test_what_is_left_out_is_what_is_delivered(tmp_path):
    """Both models of an average, and both stages of a model that starts from another."""
    rng, path = np.random.default_rng(0), tmp_path / "t.csv"
    x = rng.normal(size=(360, 2))
    y = rng.random(360) < 1 / (1 + np.exp(1 - x[:, 0] ** 2 - x[:, 1]))
    rows = [f"{'ABC'[i % 3]},{a:.4f},{b:.4f},{int(label)}" for i, ((a, b), label) in enumerate(zip(x, y, strict=True))]
    path.write_text("\n".join(["site,a,b,y", *rows]) + "\n")
    table = TableConfig(path, "site", "y")
    dataset = table.dataset()
    data = table.federated(dataset)
    listed = [replace(c, rounds=5, steps=(0.3,)) for c in candidates(Facts.of(data), "auroc")]
    with trial_pool(data, 1) as pool:
        aim = aim_of("auroc")
        sites = SimulatedSites(data, aim, 0, pool)
        made = Search(sites, aim, 0, Clock.at(tmp_path, None), tmp_path, lambda: False)
        models = made._tune([c for c in listed if c.start is None], {}, always=True)
        models |= made._tune([c for c in listed if "then" in c.name][:1], models, always=True)
    average = made._averaged(models[BASE], models[HINGES])
    second = list(models)[-1]
    assert "then" in second

    apart = replace(table, test_sites=("B",)).federated(dataset)

    def left(chosen, stopped=False):
        choice = Choice("auroc", chosen, models[FEDAVG], models[BASE], (), "", 0.0)
        return _without(apart, _recipe(choice), models[BASE].trial, lambda: stopped)[0]

    straight, bent, both = (left(m) for m in (models[BASE], models[HINGES], average))
    assert len(both) == 120
    assert both == pytest.approx((straight + bent) / 2)
    assert not np.allclose(left(models[second]), straight)
    with pytest.raises(Interrupted):
        left(average, stopped=True)


def test_a_search_that_the_clock_cut_says_so(tmp_path):
    said = searched(PATIENTS, tmp_path / "out", "--budget", "0.001s")
    assert said.code == 0, said.err
    cut = summary(tmp_path / "out")["cut"]
    assert len(cut) > 1
    line = next(line for line in said.err.splitlines() if "budget" in line)
    assert line.startswith(f"warning: the time budget of 0.001 s ended the search before {len(cut)} candidates had all")
    assert line.endswith("Search again with more time, such as --budget 2m, in another folder.")
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.index("ended the search before") < page.index("Telling the classes apart")
    assert "ended the search before" in (tmp_path / "out" / "MODEL_CARD.md").read_text()


def test_a_finished_search_is_left_alone(finished):
    """Also with more time: it would look at its test rows again."""
    out, first = finished
    before = {p: p.read_bytes() for p in out.rglob("*") if p.is_file()}
    with short(12, (0.1, 0.3)):
        again = fedsaddle("run", PATIENTS, *ROLES, "--out", out, "--resume", "--budget", "90s")
    assert again.code == 0, again.err
    assert {p: p.read_bytes() for p in out.rglob("*") if p.is_file()} == before
    assert "is finished, and nothing was trained or changed; choose another --out" in again.err
    assert set(again.out.splitlines()) <= set(first.out.splitlines())
    assert f"report: {out / 'report.html'}" in again.out


def test_other_test_rows_are_noticed(finished, tmp_path):
    out, _ = finished
    half = tmp_path / "half"
    shutil.copytree(out, half)
    (half / "summary.json").unlink()  # as if it had been killed before its end
    rows = lines(PATIENTS)
    tested = {int(row["row"]) for row in lines(out / "predictions.csv") if row["part"] == "test"}
    number = min(tested)
    rows[number]["age"] = str(float(rows[number]["age"] or 50) + 3)
    table = tmp_path / PATIENTS.name
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)
    asked = json.loads((half / "search.json").read_text())
    (half / "search.json").write_text(json.dumps({**asked, "table": str(table)}))
    with short():
        said = fedsaddle("run", table, *ROLES, "--out", half, "--resume", "--budget", "9s")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert "began with other test rows (different: test features); resume with the same table" in said.err


def test_the_report_has_fedavgs_curve_and_trials_have_no_report(finished):
    out, _ = finished
    run = read_run(out)
    other = summary(out)["choice"] != "FedAvg"
    assert bool(run.baseline) == other
    page = (out / "report.html").read_text()
    assert ("FedAvg, trained on the same rows, is shown for comparison" in page) == other
    assert not list((out / "trials").rglob("report.html"))


def test_a_finished_search_is_compared_with_another_row_by_row(finished, tmp_path):
    out, _ = finished
    other, page = tmp_path / "other", tmp_path / "both.html"
    shutil.copytree(out, other, ignore=shutil.ignore_patterns("trials"))
    said = fedsaddle("compare", out, other, "--html", page)
    assert said.code == 0, said.err
    assert "other against" in page.read_text()
    assert "no difference in AUROC." in page.read_text()


def test_a_finished_search_can_be_compared_with_another(finished):
    out, _ = finished
    said = fedsaddle("compare", out, out, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)["figures"]
    stored = summary(out)
    for own in found.values():
        assert own["auroc"] == pytest.approx(stored["pooled"]["choice"]["auroc"]["value"], abs=1e-6)
        assert own["brier_score"] == pytest.approx(stored["probabilities"]["brier_score"], abs=1e-6)
        sizes, accuracies = (stored["clients"]["test"][k] for k in ("rows", "measures"))
        enough = [a for a, n in zip(accuracies["accuracy"], sizes, strict=True) if n >= 5]
        assert own["worst"] == min(enough)


def test_pictures_are_searched_too(tmp_path):
    rng, rows = np.random.default_rng(0), ["name,illness,clinic"]
    for i in range(60):
        sick = i % 3 == 0
        pixels = np.clip(rng.normal(90 + 60 * sick, 20, (8, 8)), 0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{i}.png")
        rows.append(f"{i}.png,{int(sick)},{'AB'[i % 2]}")
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    roles = ("--site", "clinic", "--label", "illness", "--image", "name")
    with short(1), mock.patch.object(pictures, "_read", wraps=pictures._read) as read:
        said = fedsaddle("run", tmp_path / "t.csv", *roles, "--out", tmp_path / "out", "--budget", "0.001s")
    assert said.code == 0, said.err
    assert read.call_count == 60  # once each
    found = summary(tmp_path / "out")
    assert found["choice"] in ("FedAvgM", "FedAvg")
    assert found["missing"] == {}
    assert len(lines(tmp_path / "out" / "predictions.csv")) == sum(
        found["rows"][p]["rows"] for p in ("validation", "test")
    )


def test_progress_shows_names_as_they_are():
    screen = io.StringIO()
    with SearchProgress(60, console=Console(file=screen, force_terminal=True, width=120)) as progress:
        progress.step("without [/red]\x07[bold]", 1, 3)
        progress.bar.refresh()
    assert "without [/red]\\x07[bold]" in screen.getvalue()
    assert "\x07" not in screen.getvalue()


def test_the_time_left_follows_the_clock(monkeypatch):
    """Also between two reports of a trial; and what began goes on when the budget is used up."""
    now, screen = [1000.0], io.StringIO()
    monkeypatch.setattr("fedsaddle.commands.progress.time.monotonic", lambda: now[0])
    trial = SimpleNamespace(name="fedavg-0.1", rounds=40, step=0.1, candidate=SimpleNamespace(name="FedAvg"))
    progress = SearchProgress(30, used=10, console=Console(file=screen, width=120))
    progress(trial, 1, None)
    assert progress.left() == "20 s of the budget left"
    now[0] += 15
    assert progress.left() == "5 s of the budget left"
    now[0] += 45
    progress(trial, 11, 0.7)
    assert progress.left() == "budget used up, last trials: this one takes about 3 min more"
