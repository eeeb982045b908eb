"""What a run writes for its reader: clients and classes in the summary, the split, report.html."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from run_cases import drfa, iris

import fedsaddle as fs
from fedsaddle.errors import BadInput
from fedsaddle.metrics.evaluation import class_counts
from fedsaddle.report.stored_run import read_run
from fedsaddle.runs.run import run


def test_the_summary_lists_the_clients_of_the_kept_model(tmp_path):
    result = run(drfa(), iris(), 3, out=tmp_path / "a")
    listed = json.loads((tmp_path / "a" / "summary.json").read_text())["clients"]["test"]
    test = iris().test
    assert listed["rows"] == test.sizes.tolist()
    right = (result.module()(test.x).argmax(1) == test.y).double().numpy()
    each = [right[a:b].mean() for a, b in zip(test.offsets[:-1], test.offsets[1:], strict=True)]
    assert listed["measures"]["accuracy"] == pytest.approx(each)


def test_classes_are_counted_over_all_clients(tmp_path):
    result = run(drfa(), iris(), 3, out=tmp_path / "a")
    found, test = result.summary["classes"], iris().test
    right = result.module()(test.x).argmax(1) == test.y
    assert found["part"] == "test"
    for code, name in enumerate(iris().classes):
        own = test.y == code
        assert found["counts"][name] == {"rows": int(own.sum()), "correct": int(right[own].sum())}


def test_rows_without_classes_are_not_counted():
    rows = fs.Stacked(torch.zeros(4, 2), torch.rand(4), np.array([0, 2, 4]))
    problem = fs.Supervised(fs.models.logistic_regression(2, 1), loss=fs.losses.Square())
    assert class_counts(problem, problem.initial(), rows, 3) is None


def test_many_clients_are_told_by_deciles(tmp_path):
    data = fs.load("digits", split="iid", clients=250)
    problem = fs.Supervised(fs.models.logistic_regression(64, 10))
    result = run(fs.FedAvg(problem=problem), data, 2, out=tmp_path / "a")
    listed = result.summary["clients"]["test"]
    there = data.test.sizes > 0
    assert (listed["clients"], listed["rows"]) == (int(there.sum()), len(data.test.y))
    deciles = listed["deciles"]["accuracy"]
    assert len(deciles) == 11
    assert deciles == sorted(deciles)
    assert deciles[0] == result.final("accuracy", "worst")
    assert deciles[-1] == result.final("accuracy", "best")


def test_a_folder_has_a_report_unless_it_is_not_wanted(tmp_path):
    run(drfa(), iris(), 2, out=tmp_path / "a")
    page = (tmp_path / "a" / "report.html").read_text()
    assert "Each client" in page
    assert "Each class" in page
    assert read_run(tmp_path / "a").split.classes == list(iris().classes)
    run(drfa(), iris(), 2, out=tmp_path / "b", options=fs.RunOptions(report=False))
    assert not {"report.html", "split.json"} & {p.name for p in (tmp_path / "b").iterdir()}
    with pytest.raises(BadInput, match="report"):
        run(drfa(), iris(), 2, out=tmp_path / "c", options=fs.RunOptions(report=3))


def test_an_interrupted_run_has_a_report_that_says_so(tmp_path):
    done = []
    run(
        drfa(),
        iris(),
        9,
        out=tmp_path / "a",
        callbacks=[
            fs.LambdaCallback(on_round=lambda k, record: done.append(k)),
            fs.LambdaCallback(on_round=lambda *_: len(done) > 2),
        ],
    )
    assert "was interrupted" in (tmp_path / "a" / "report.html").read_text()


def test_a_result_writes_its_own_page(tmp_path):
    result = run(drfa(), iris(), 2)
    page = result.report(tmp_path / "mine.html")
    assert "How training went" in page.read_text()
    with pytest.raises(BadInput, match="is a folder"):
        result.report(tmp_path)
