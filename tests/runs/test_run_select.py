"""Validation rows: watched during the run; the best round is kept, and test rows are looked at once."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from run_cases import drfa, fedavg, same_end, same_result, timeless

import fedsaddle as fs
from fedsaddle.config.build import load
from fedsaddle.errors import BadInput
from fedsaddle.metrics.selection import Selection
from fedsaddle.problems.losses import Logistic
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.run import run


def iris():
    return load("iris", split="iid", clients=4, validation_share=0.2, seed=3)


class Counted(fs.Supervised):
    """A problem that counts how often it sees each of the test rows."""

    def __init__(self, test, **options):
        super().__init__(fs.models.logistic_regression(4, 3), **options)
        object.__setattr__(self, "seen", [])
        object.__setattr__(self, "test", test)

    def row_measures(self, w, rows, labels, dual=None):
        self._look(rows)
        return super().row_measures(w, rows, labels, dual)

    def pooled_measures(self, w, dual, rows):
        self._look(rows.x)
        return super().pooled_measures(w, dual, rows)

    def _look(self, rows):
        if len(rows) == len(self.test.x) and torch.equal(rows, self.test.x):
            self.seen.append(len(rows))


@pytest.mark.parametrize("options", [{}, {"select": "worst loss"}, {"target": "worst accuracy >= 0.1"}])
def test_test_rows_are_measured_at_the_end_only(options):
    data = iris()
    problem = Counted(data.test)
    algorithm = fs.FedAvg(problem=problem, local_steps=2, batch_size=8)
    seen = []
    run(
        algorithm,
        data,
        5,
        callbacks=[fs.LambdaCallback(on_round=lambda done, record: seen.append(len(problem.seen)))],
        options=fs.RunOptions(evaluate_train=True),
        **options,
    )
    assert set(seen) == {0}
    assert len(problem.seen) == 2  # client by client, and pooled
    problem.seen.clear()
    run(algorithm, replace(data, validation=None), 5)
    assert len(problem.seen) > 5, "without validation rows the test rows are watched"


def test_records_have_validation_figures_and_the_summary_all():
    result = run(fedavg(), iris(), 4, options=fs.RunOptions(evaluate_train=True))
    for record in result.history:
        assert {"validation", "train"} <= record.keys()
        assert "test" not in record
        assert set(record["clients"]) == {"validation", "train"}
    assert {"validation", "test", "train"} <= result.summary.keys()
    assert result.summary["validation"] == result.history[-1]["validation"]
    assert "selected_round" not in result.summary
    assert result.final("loss") == result.summary["test"]["loss"]["worst"]


def breast_cancer():
    return load("breast-cancer", split="iid", clients=4, validation_share=0.2, stratify=True)


def test_pooled_figures_of_each_part():
    problem = fs.Supervised(fs.models.logistic_regression(30, 1), loss=Logistic())
    data = breast_cancer()
    result = run(fs.FedAvg(problem=problem), data, 3, select="auroc")
    assert all("auroc" in r["pooled_validation"] and "pooled" not in r for r in result.history)
    figures = [r["pooled_validation"]["auroc"] for r in result.history]
    assert result.summary["selected"] == max(figures) == result.summary["pooled_validation"]["auroc"]
    assert result.summary["selected_round"] == 1 + figures.index(max(figures))
    exact = problem.pooled_measures(result.model, None, data.test)["auroc"]
    assert result.summary["pooled"]["auroc"] == exact


@pytest.mark.parametrize(
    ("text", "better", "worse"),
    [
        ("auroc", 0.9, 0.8),
        ("worst accuracy", 0.9, 0.8),
        ("worst loss", 0.8, 0.9),
        ("std accuracy", 0.1, 0.2),
        ("robust_loss", 0.1, 0.2),
        ("robust_accuracy", 0.2, 0.1),
        ("duality_gap", 0.1, 0.2),
        ("squared_gradient_of_phi", 0.1, 0.2),
    ],
)
def test_what_is_better(text, better, worse):
    selection = Selection.parse(text)
    assert str(selection) == text
    assert selection.better(better, worse)
    assert not selection.better(worse, better)
    assert not selection.better(better, better)


@pytest.mark.parametrize(
    ("select", "remedy"),
    [
        ("", "write it like"),
        (3, "write it like"),
        ("worst accuracy please", "write it like"),
        ("loss", "say which client"),
        ("worst", "say which client"),
        ("worst auroc", "the measure is accuracy or loss"),
        ("least loss", "the statistic is one of"),
        ("auroc", "is not measured on the validation rows"),
    ],
)
def test_a_measure_that_cannot_choose_is_refused(select, remedy, tmp_path):
    with pytest.raises(BadInput, match=f"^select = .*{remedy}"):
        run(fedavg(), iris(), 2, select=select, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_choosing_needs_validation_rows_and_patience_a_measure():
    with pytest.raises(BadInput, match=r"select = 'worst loss'.*validation_share = 0.16"):
        run(fedavg(), load("iris", clients=4), 2, select="worst loss")
    with pytest.raises(BadInput, match=r"patience = 3.*select"):
        run(fedavg(), iris(), 2, patience=3)
    with pytest.raises(BadInput, match="patience"):
        run(fedavg(), iris(), 2, select="worst loss", patience=0)


def test_of_equal_rounds_the_earliest_is_kept():
    result = run(
        fedavg(primal_step=1e-7), iris(), 8, select="mean accuracy", callbacks=[fs.LambdaCallback(on_warning=print)]
    )  # of steps that do nothing
    figures = [r["validation"]["accuracy"]["mean"] for r in result.history]
    assert figures.count(max(figures)) > 1, "otherwise nothing is shown"
    assert result.summary["selected_round"] == 1 + figures.index(max(figures))
    assert not torch.equal(result.model, result.algorithm.model(result.server))


def test_patience_ends_the_run(tmp_path):
    """With a step that is far too long the loss goes up and down."""
    free = run(drfa(primal_step=3.0), iris(), 40, select="worst loss", evaluate_every=2)
    losses = [r["validation"]["loss"]["worst"] for r in free.history]
    best = stop = 0
    for i, loss in enumerate(losses):
        best, stop = (i, i) if loss < losses[best] or i == 0 else (best, i)
        if stop - best == 3:
            break
    assert stop < len(losses) - 1, "otherwise nothing is shown"
    options = {"select": "worst loss", "evaluate_every": 2, "patience": 3}
    result = run(drfa(primal_step=3.0), iris(), 40, **options)
    assert result.summary["stopped"] == "patience"
    assert (result.summary["rounds"], result.summary["selected_round"]) == (2 * stop + 2, 2 * best + 2)
    run(drfa(primal_step=3.0), iris(), 2 * stop + 1, out=tmp_path / "parts", **options)
    resumed = run(drfa(primal_step=3.0), iris(), 40, out=tmp_path / "parts", resume=True, **options)
    assert resumed.summary["stopped"] == "patience"
    assert same_result(resumed, result)
    again = run(drfa(primal_step=3.0), iris(), 40, out=tmp_path / "parts", resume=True, **options)
    assert again.summary["stopped"] == "patience"
    assert timeless(again.history) == timeless(resumed.history)


@pytest.mark.parametrize("first", [5, 7, 9])
def test_a_run_that_is_made_longer_chooses_as_if_it_had_been_long(first, tmp_path):
    """Its former last round was evaluated only because it was the last, and may not be chosen."""
    options = {"select": "worst loss", "evaluate_every": 4, "options": fs.RunOptions(checkpoint_every=3)}
    whole = run(drfa(primal_step=3.0), iris(), 12, out=tmp_path / "whole", **options)
    run(drfa(primal_step=3.0), iris(), first, out=tmp_path / "parts", **options)
    parts = run(drfa(primal_step=3.0), iris(), 12, out=tmp_path / "parts", resume=True, **options)
    assert same_result(parts, whole)
    assert same_end(tmp_path / "parts", tmp_path / "whole")
    assert parts.summary["selected_round"] == whole.summary["selected_round"]


def test_a_last_round_that_was_the_best_is_forgotten_when_the_run_goes_on(tmp_path):
    options = {"select": "worst loss", "evaluate_every": 50}
    for first in range(1, 9):
        out = tmp_path / str(first)
        alone = run(drfa(primal_step=3.0), iris(), first, out=out, **options)
        assert alone.summary["selected_round"] == first
        longer = run(drfa(primal_step=3.0), iris(), 9, out=out, resume=True, **options)
        assert longer.summary["selected_round"] == 9


def test_another_measure_cannot_take_over(tmp_path):
    run(fedavg(), iris(), 4, out=tmp_path, select="worst loss")
    for other in ("mean loss", None):
        with pytest.raises(BadInput, match=r"select = .*started with worst loss"):
            run(fedavg(), iris(), 6, out=tmp_path, resume=True, select=other)


def test_an_interrupted_run_does_not_look_at_its_test_rows(tmp_path):
    done = []
    options = {"select": "worst loss", "out": tmp_path}
    stopped = run(
        fedavg(),
        iris(),
        6,
        callbacks=[
            fs.LambdaCallback(on_round=lambda n, r: done.append(n)),
            fs.LambdaCallback(on_round=lambda *_: len(done) == 3),
        ],
        **options,
    )
    assert stopped.summary["stopped"] == "interrupted"
    assert "test" not in stopped.summary
    assert stopped.final("loss") == stopped.summary["validation"]["loss"]["worst"]
    result = run(fedavg(), iris(), 6, resume=True, **options)
    assert same_result(result, run(fedavg(), iris(), 6, select="worst loss"))
    assert RunFolder(tmp_path).read_summary().test is not None


def test_a_target_watches_the_validation_rows():
    free = run(drfa(primal_step=0.02), iris(), 30)
    first = next(r["round"] for r in free.history if r["validation"]["loss"]["worst"] <= 0.8)
    stopped = run(drfa(primal_step=0.02), iris(), 30, target="worst loss <= 0.8")
    assert stopped.summary["target_round"] == first


def test_clients_for_the_test_only_are_measured():
    data = load("iris", split="iid", clients=4, validation_share=0.2, test_clients=["client 2"])
    result = run(fedavg(), data, 2)
    assert data.count == 3
    assert len(result.history[-1]["clients"]["validation"]["loss"]) == 3
    plain = run(fedavg(), replace(data, validation=None), 2)
    assert len(plain.history[-1]["clients"]["test"]["loss"]) == 4
    assert plain.summary["test"] == result.summary["test"]
