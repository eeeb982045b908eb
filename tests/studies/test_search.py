"""`fs.search`: what it chooses, that it can be stopped, resumed and spread over processes, and what it refuses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

import fedsaddle as fs
from fedsaddle.data.splits import Natural
from fedsaddle.errors import BadCheckpoint, BadInput
from fedsaddle.studies import search as module
from fedsaddle.studies.aims import Rows
from fedsaddle.studies.candidates import AVERAGED, BASE, FEDAVG, GROWN, HINGES, TREES, Facts, candidates
from fedsaddle.studies.pool import Interrupted
from fedsaddle.studies.search import Choice, trials_csv
from fedsaddle.studies.site_questions import SimulatedSites

SHORT = {"rounds": 8, "steps": (0.1, 0.3)}


def slow(name):
    return pytest.param(name, marks=pytest.mark.slow)


def table(n: int, odds, seed: int = 0) -> fs.FederatedData:
    """Four sites; `odds(x)` are the log odds of n rows with three numbers."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    y = rng.random(n) < 1 / (1 + np.exp(-odds(x)))
    frame = pd.DataFrame({"site": rng.choice(list("ABCD"), n), "a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y})
    made = fs.from_frame(frame, site="site", label="y", site_intercept=True, hinges=3)
    return fs.federate(made, Natural("site"), 0, 0.2, True, 0.2)


def slope(x):
    return 1.5 * x[:, 0] - x[:, 1]


@pytest.fixture
def short(monkeypatch):
    """Candidates with few rounds and steps."""
    real = module.candidates
    monkeypatch.setattr(module, "candidates", lambda *facts: [replace(c, **SHORT) for c in real(*facts)])
    monkeypatch.setattr(module, "EXTENSIONS", 0)


def plain(choice: Choice) -> tuple:
    """What must be the same; times differ."""
    lines = [replace(record, seconds=0.0) for record in choice.trials]
    return choice.name, choice.reason, choice.chosen.vector.tolist(), choice.fedavg.vector.tolist(), lines


@pytest.mark.usefixtures("short")
def test_a_search_repeats_itself():
    data, threads = table(200, slope), torch.get_num_threads()
    test = data.test.x.clone()
    once = fs.search(data, basic=True)
    assert torch.get_num_threads() == threads
    assert plain(fs.search(data, basic=True)) == plain(once)
    other = fs.search(data, seed=1, basic=True)
    assert other.fedavg.vector.tolist() != once.fedavg.vector.tolist()
    assert other.default.vector.tolist() == once.default.vector.tolist(), "exact: no draw decides it"
    assert torch.equal(data.test.x, test)


@pytest.mark.usefixtures("short")
def test_a_search_is_the_same_on_two_processes():
    data, told = table(200, slope), []
    here = fs.search(data, workers=1, basic=True)
    there = fs.search(data, workers=2, basic=True, tell=lambda trial, done, best: told.append(trial.candidate.name))
    assert plain(there) == plain(here)
    assert set(told) == {FEDAVG, BASE}


@pytest.mark.usefixtures("short")
def test_test_rows_do_not_matter():
    data = table(300, slope)
    assert data.test is not None
    changed = replace(data, test=replace(data.test, x=-9 * data.test.x, y=1 - data.test.y))
    found = [plain(fs.search(one, basic=True)) for one in (data, changed, data.without_test())]
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_stopped_search_goes_on_to_the_same_choice(tmp_path, workers):
    data, calls = table(200, slope), []
    whole = fs.search(data, out=tmp_path / "whole", workers=workers)
    with pytest.raises(Interrupted, match="Continue with --resume") as stopped:
        fs.search(
            data,
            out=tmp_path / "parts",
            workers=workers,
            tell=lambda trial, done, best: calls.append((trial.candidate.name, done)),
            stop=lambda: any(name != FEDAVG and done >= 5 for name, done in calls),
        )
    assert stopped.value.exit_code == 130
    kept = sorted(p.name for p in (tmp_path / "parts").iterdir())
    assert kept
    assert len(kept) < len(list((tmp_path / "whole").iterdir()))
    assert plain(fs.search(data, out=tmp_path / "parts", workers=workers)) == plain(whole)


def ways(choice: Choice) -> set[str]:
    return {record.candidate for record in choice.trials if record.rounds}


class Killed(BaseException):
    """What a search does not handle."""


@pytest.mark.usefixtures("short")
def test_a_search_that_its_budget_ended_goes_on_to_the_same_choice(tmp_path, monkeypatch):
    """The time is used up in the first trial beside FedAvg and the default; the process is killed in or after it."""
    data, past = table(200, slope), [0.0]
    monkeypatch.setattr(module.Clock, "seconds", property(lambda clock: clock.before + past[0]))

    def searched(out, budget=100, killed_after=None):
        def tell(trial, done, best):
            if trial.candidate.name not in (FEDAVG, BASE) and past[0] < 100:
                past[0] += 500
            if killed_after is not None and trial.candidate.name not in (FEDAVG, BASE) and done >= killed_after:
                raise Killed

        return fs.search(data, out=tmp_path / out, workers=1, budget=budget, tell=tell)

    whole = searched("whole")
    assert ways(whole) == {FEDAVG, BASE, HINGES, AVERAGED}
    assert whole.seconds == 500
    past[0] = 0.0
    assert plain(searched("whole")) == plain(whole)  # also where it is asked again
    assert past[0] == 0.0, "no trial ran again"
    for killed_after in (1, 2):
        past[0] = 0.0
        with pytest.raises(Killed):
            searched(f"killed {killed_after}", killed_after=killed_after)
        past[0] = 0.0
        assert plain(searched(f"killed {killed_after}")) == plain(whole)
    more = searched("whole", budget=10_000)
    assert ways(more) > ways(whole)


@pytest.mark.usefixtures("short")
def test_a_damaged_clock(tmp_path):
    (tmp_path / "clock.json").write_text('{"seconds": ')
    with pytest.raises(BadCheckpoint, match=r"clock\.json cannot be read .*; remove it"):
        fs.search(table(100, slope), out=tmp_path, basic=True)


@pytest.mark.usefixtures("short")
def test_the_folder_of_another_search_is_refused(tmp_path):
    data = table(100, slope)
    fs.search(data, out=tmp_path, basic=True)
    with pytest.raises(BadCheckpoint, match="other rows, options or seed; choose another --out"):
        fs.search(data, out=tmp_path, basic=True, seed=1)
    with pytest.raises(BadCheckpoint):
        fs.search(table(300, slope, seed=5), out=tmp_path, basic=True)


@pytest.mark.parametrize("law", ["square", slow("noise"), slow("interaction"), slow("line")])
def test_what_is_truly_better_is_chosen(law, monkeypatch):
    real = module.candidates
    fewer = {"rounds": 24, "steps": (1.0,)}
    monkeypatch.setattr(module, "candidates", lambda *facts: [replace(c, **fewer) for c in real(*facts)])
    odds = {
        "square": lambda x: 2 * (x[:, 0] ** 2 - 1),
        "interaction": lambda x: 3 * x[:, 0] * x[:, 1],
        "noise": lambda x: np.zeros(len(x)) - 1,
        "line": slope,
    }[law]
    choice = fs.search(table(2000, odds, seed=2), workers=1)
    bent = {"FedAvgM, MLP", TREES, GROWN}
    expected = {"square": {HINGES, AVERAGED, *bent}, "interaction": bent}
    assert choice.name in expected.get(law, {BASE, AVERAGED})
    assert choice.reason.startswith("ahead of the default by +" if law == "interaction" else ("ahead", "the default"))
    if law in ("noise", "line"):
        assert choice.reason.startswith("the default")
    validation = table(2000, odds, seed=2).validation
    rows = Rows.of(validation.y.numpy(), validation.offsets)
    value = module.aim_of("auroc").value
    if law in expected:
        assert value(choice.chosen.scores, rows) > value(choice.fedavg.scores, rows) + 0.15


@pytest.mark.usefixtures("short")
def test_the_averaged_model_scores_as_the_mean_of_both(tmp_path):
    data = table(600, lambda x: 2 * (x[:, 0] ** 2 - 1))
    with module.trial_pool(data, 1) as pool:
        aim, clock = module.aim_of("auroc"), module.Clock(tmp_path / "clock.json", None)
        made = module.Search(SimulatedSites(data, aim, 0, pool), aim, 0, clock, tmp_path, lambda: False)
        both = made._tune(module.candidates(Facts.of(data), "auroc")[1:3], {}, always=True)
        mean = made._averaged(both[BASE], both[HINGES])
    assert mean.rank(mean.data.validation.x) == pytest.approx(mean.scores, abs=1e-5)


@pytest.mark.usefixtures("short")
def test_without_time_only_fedavg_and_the_default_are_run():
    choice = fs.search(table(300, slope), budget=0)
    ran = {record.candidate for record in choice.trials if record.rounds}
    assert ran == {FEDAVG, BASE}
    left = [record for record in choice.trials if not record.rounds]
    assert {record.note for record in left} == {"not run: budget"}
    assert len(left) >= 3
    assert set(choice.cut) == {record.candidate for record in left}
    basic = fs.search(table(300, slope), basic=True)
    assert basic.chosen.vector.tolist() == choice.chosen.vector.tolist()
    assert {record.candidate for record in basic.trials} == {FEDAVG, BASE}


@pytest.mark.usefixtures("short")
@pytest.mark.parametrize("aim", ["average-precision", slow("worst-site"), slow("partial-auroc"), slow("accuracy")])
def test_every_aim(aim):
    told = []
    choice = fs.search(
        table(300, slope), aim, tell=lambda trial, done, best: told.append(trial.candidate.name), workers=1
    )
    names = {record.candidate for record in choice.trials}
    extra = {"average-precision": "FedX2", "partial-auroc": "CODASCA", "worst-site": "DRFA", "accuracy": "MLP"}[aim]
    assert any(extra in name for name in names), names
    assert set(told) == {record.candidate for record in choice.trials if record.selected_round}
    assert choice.aim == aim
    steps = {r.candidate: {s.step for s in choice.trials if s.candidate == r.candidate} for r in choice.trials}
    assert steps[FEDAVG] == steps[BASE] == set(SHORT["steps"])  # tuned alike


@pytest.mark.parametrize(
    ("steps", "further"),
    [((0.001, 0.003), (0.01, 0.03)), ((30.0, 10.0), (3.0, 1.0)), ((0.1, 0.03, 0.3), ())],
)
def test_a_grid_whose_end_is_best_is_extended(steps, further, monkeypatch):
    """For FedAvg and the candidates alike, as long as there is time."""
    real = module.candidates
    alike = {"rounds": 4, "steps": steps}
    monkeypatch.setattr(module, "candidates", lambda *facts: [replace(c, **alike) for c in real(*facts)])
    monkeypatch.setattr(module, "CHANCE", 0.0)
    if not further:
        monkeypatch.setattr(module.Search, "_best_step", lambda self, own: next(o for o in own if o.trial.step == 0.1))
    else:  # the step that is nearest to the first new one is the best
        near = lambda o: abs(np.log(o.trial.step / further[0]))  # noqa: E731
        monkeypatch.setattr(module.Search, "_best_step", lambda self, own: min(own, key=near))
    data = table(200, slope)
    choice = fs.search(data, basic=True, workers=1)
    for name in (FEDAVG, BASE):
        tried = {record.step for record in choice.trials if record.candidate == name}
        assert tried == {*steps, *further}
    assert choice.cut == ()
    short = fs.search(data, basic=True, workers=1, budget=0)
    assert {record.step for record in short.trials} == set(steps)
    assert set(short.cut) == ({FEDAVG, BASE} if further else set())


def test_trials_as_csv_are_safe_to_open():
    record = module.TrialRecord("=cmd()", 0.1, 3, 2, 0.5, note="@more")
    assert trials_csv([record]).decode().splitlines()[1] == "'=cmd(),0.1,3,2,0.500000,,,0.00,'@more"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"aim": "speed"}, "aim = 'speed'"),
        ({"seed": -1}, "seed = -1"),
        ({"budget": -2.0}, "budget = -2.0"),
        ({"budget": "2m"}, "budget = '2m'"),
        ({"workers": 0}, "workers = 0"),
        ({"basic": "yes"}, "basic = 'yes'"),
        ({"stop": 3}, "stop = 3"),
        ({"tell": lambda trial: None}, "tell = "),
        ({"out": 3}, "out = 3"),
        ({"data": 3}, "data = 3"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_wrong_arguments_are_named(wrong, said):
    with pytest.raises(BadInput) as refused:
        fs.search(**{"data": table(60, slope), **wrong})
    assert str(refused.value).startswith(said)


def test_data_that_cannot_be_searched():
    iris = fs.load("iris", split="iid", clients=3)
    with pytest.raises(BadInput, match="hold some out"):
        fs.search(iris)
    with pytest.raises(BadInput, match="3 classes"):
        fs.search(fs.load("iris", split="iid", clients=3, validation_share=0.2))


def test_trees_are_candidates_where_there_are_rows_enough():
    many = Facts(rows=4000, rare=400, features={"number": 5}, pictures=False, clients=4, batch=64, shape=(5,))
    names = [c.name for c in candidates(many, "auroc")]
    assert names.index(BASE) < names.index(TREES) < names.index(GROWN)
    for few in (replace(many, rare=99), replace(many, clients=201)):
        assert not {TREES, GROWN} & {c.name for c in candidates(few, "auroc")}


@pytest.mark.usefixtures("short")
def test_trees_start_from_the_default_and_find_what_it_lacks(monkeypatch, tmp_path):
    real = module.candidates
    only = (FEDAVG, BASE, TREES, GROWN)
    monkeypatch.setattr(module, "candidates", lambda *facts: [c for c in real(*facts) if c.name in only])
    data = table(2000, lambda x: 3 * np.sign(x[:, 0]) * x[:, 1] + x[:, 2], seed=2)
    choice = fs.search(data, out=tmp_path, workers=1)
    assert choice.name in (TREES, GROWN)
    grown = choice.chosen.algorithm.problem.module(choice.chosen.vector)
    assert set(grown.importances().argsort(descending=True)[:2].tolist()) == {0, 1}
    if choice.name == GROWN:
        assert grown.weight.abs().max() > 0.1
