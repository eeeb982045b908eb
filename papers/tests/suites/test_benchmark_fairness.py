"""What the comparison promises: tuning sees no test rows, costs are counted, statistics are those of the books."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from scipy.special import expit, logit
from small_suite import DIGITS, METHODS, SMALL, TUMOURS

from fedsaddle_papers.reproductions.curves import RunCurves
from fedsaddle_papers.suites import jobs
from fedsaddle_papers.suites.jobs import final_job, run_job, tuning_jobs
from fedsaddle_papers.suites.ranking import near_best, ranked
from fedsaddle_papers.suites.run import Results, Tuned, at_the_edge
from fedsaddle_papers.suites.suite import PRIMAL, SERVER, Method, Suite, each, steps

PAIRWISE = {"name": "pairwise", "risk": "auc"}


@pytest.mark.parametrize("task", [DIGITS, replace(TUMOURS, measures=("auroc", "test worst"))], ids=["rows", "pooled"])
def test_test_rows_play_no_part_in_tuning(task, monkeypatch):
    """The curves of a candidate are the same with the labels of all test rows wrong; those of a final run are not."""
    made = {
        "tuning": tuning_jobs(SMALL, task, METHODS[0], 1)[0],
        "final": final_job(SMALL, task, METHODS[0], METHODS[0].candidates[1], 0),
    }
    before = {name: run_job(job).columns[task.measures[0]] for name, job in made.items()}
    plain = jobs._federated

    def wrong(text, dtype):
        data = plain(text, dtype)
        test = data.test
        return replace(data, test=replace(test, y=test.y.max() - test.y))

    monkeypatch.setattr(jobs, "_federated", wrong)
    after = {name: run_job(job).columns[task.measures[0]] for name, job in made.items()}
    assert after["tuning"] == before["tuning"]
    assert after["final"] != before["final"]


@pytest.mark.parametrize(
    ("method", "exchanges", "vectors"),
    [
        (Method("a", {"name": "FedAvg"}, steps(1.0)), 6, 6 * 2),
        (Method("b", {"name": "AFL", "weighting": "weight"}, steps(1.0), exchanges=2), 6, 3 * 4),  # and snapshots
        (Method("c", {"name": "TERM"}, steps(1.0), exchanges=2), 6, 3 * 3),
        (Method("d", {"name": "FedGDA-GT"}, steps(1.0), {"name": "class-fair"}, exchanges=2), 6, 3 * (2 + 3)),
        (Method("e", {"name": "FedX1"}, steps(1.0), PAIRWISE), 7, None),  # and one that opens the run
    ],
    ids=lambda value: value.label if isinstance(value, Method) else None,
)
def test_exchanges_and_bytes_are_counted(method, exchanges, vectors):
    """A model has 62 numbers (31 with one score) of 4 bytes; what is no model is small."""
    curves = run_job(final_job(SMALL, TUMOURS, method, method.candidates[0], 0))
    assert curves.columns["exchanges"][-1] == exchanges
    if vectors is not None:
        numbers = curves.columns["bytes"][-1] / 4 / 3  # of each of three clients
        assert vectors * 62 <= numbers <= vectors * 62 + 20 * exchanges


def holm_by_hand(p: list[float], level: float) -> list[bool]:
    """The smallest is compared with level / k, the next with level / (k - 1), until one is not below."""
    order, rejected = sorted(range(len(p)), key=p.__getitem__), [False] * len(p)
    for place, i in enumerate(order):
        if p[i] > level / (len(p) - place):
            break
        rejected[i] = True
    return rejected


@pytest.mark.parametrize("draw", range(8))
def test_marks_are_those_of_paired_t_tests_with_holms_procedure(draw):
    rng = np.random.default_rng(draw)
    scores = rng.normal(0, 2, 5) + rng.normal(0, 0.5, (6, 5)) + np.linspace(0, 1.5, 6)[:, None]
    top = int(scores.mean(1).argmax())
    others = [i for i in range(6) if i != top]
    p = [float(stats.ttest_rel(scores[top], scores[i], alternative="greater").pvalue) for i in others]
    worse = {i for i, one in zip(others, holm_by_hand(p, 0.05), strict=True) if one}
    assert near_best(scores) == [i not in worse for i in range(6)]
    assert 0 < len(worse) < 6


def results_of(levels: dict[str, dict[str, list[float | None]]], suite: Suite) -> Results:
    """Runs of one evaluation each; None diverged before it had any."""
    curves = {
        (task, method): tuple(
            RunCurves(method, seed, {}, diverged=1)
            if value is None
            else RunCurves(method, seed, {"test worst": [value], "exchanges": [8.0]})
            for seed, value in enumerate(values)
        )
        for task, own in levels.items()
        for method, values in own.items()
    }  # fmt: skip
    return Results(suite, {key: Tuned(steps(1.0)[0], (0.0,), processor=30.0) for key in curves}, curves, {})


def test_ranks_by_hand():
    """Two tasks and three seeds: ties share ranks, and a run without a figure is last in its seed."""
    suite = replace(SMALL, seeds=3)
    found = {
        "digits": {"FedAvg": [0.9, 0.8, 0.7], "FedAvg, tiny steps": [0.5, 0.8, 0.2], "DRFA": [0.7, 0.9, None]},
        "tumours": {"FedAvg": [0.5, 0.5, 0.5], "FedAvg, tiny steps": [0.6, 0.6, 0.6], "DRFA": [0.4, 0.4, 0.4]},
    }
    results = results_of(found, suite)
    ranking = ranked(results)
    wanted = {
        "FedAvg": (1 + 2.5 + 1 + 2 + 2 + 2) / 6,
        "FedAvg, tiny steps": (3 + 2.5 + 2 + 1 + 1 + 1) / 6,
        "DRFA": (2 + 1 + 3 + 3 + 3 + 3) / 6,
    }
    assert {name: rank.mean for name, rank in ranking.ranks.items()} == pytest.approx(wanted)
    assert list(ranking.ranks) == sorted(wanted, key=wanted.__getitem__)
    assert [ranking.ranks[name].best_on for name in wanted] == [1, 2, 0]
    by_task = np.array([[1.5, 2.5, 2.0], [2.0, 1.0, 3.0]])
    assert ranking.friedman == pytest.approx(stats.friedmanchisquare(*by_task.T).pvalue)
    assert results.notes == ["digits, DRFA: diverged with 1 of 3 seeds; last figures stand, 1 had none and rank last"]
    assert results.processor == 6 * 30.0
    cell = ranking.cells["digits", "FedAvg"]
    slope = 1 / (0.8 * 0.2)  # of the log odds: the interval of an accuracy stays within 0 and 1
    low, high = expit(stats.t.interval(0.95, 2, logit(0.8), slope * stats.sem([0.9, 0.8, 0.7])))
    assert (cell.mean, cell.low, cell.high) == pytest.approx((0.8, low, high))
    assert np.isnan(ranking.cells["digits", "DRFA"].low)  # of two figures
    apart = np.array([0.5, 0.8, 0.2]) - np.array([0.9, 0.8, 0.7])
    low, high = stats.t.interval(0.95, 2, apart.mean(), stats.sem(apart))
    assert ranking.cells["digits", "FedAvg, tiny steps"].gain == pytest.approx((apart.mean(), low, high))
    assert np.isnan(ranking.cells["digits", "DRFA"].gain).all()  # of two pairs
    assert ranking.ranks["DRFA"].costs["exchanges"] == 8  # of the runs that have figures


def test_the_edge_is_that_of_the_servers_step_where_the_clients_is_given():
    grid = each(each(steps(1.0), SERVER, 0.1, 0.3, 1.0), "algorithm.freedom", 0.1, 1.0)
    found = [at_the_edge(grid, [0.9 if i == at else 0.1 for i in range(6)], at) for at in range(6)]
    assert found == [True, True, False, False, True, True]
    assert {one[PRIMAL] for one in grid} == {1.0}
