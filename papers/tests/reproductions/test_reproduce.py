from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_figure import SENTENCES, SMALL

from fedsaddle.commands.output import output
from fedsaddle.config.registry import Entry, find
from fedsaddle.errors import BadInput, MissingData
from fedsaddle.studies.pool import WorkFailed
from fedsaddle_papers.commands import benchmark as benchmark_command
from fedsaddle_papers.commands import reproduce as reproduce_command
from fedsaddle_papers.commands.reproduce import FIRST_SEED, run_figure
from fedsaddle_papers.commands.reproduce import reproduce_figures as reproduce
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.figure import Figure, Line, Setting
from fedsaddle_papers.reproductions.hypotheses_of_papers import of_figure, papers
from fedsaddle_papers.reproductions.jobs import (
    Job,
    _federated,
    run_job,
    run_jobs,
    set_up,
    standing_still,
)
from fedsaddle_papers.reproductions.names import FIGURES
from fedsaddle_papers.reproductions.store import Store
from fedsaddle_papers.reproductions.tuning import budget_of, candidates, find_log, tuned_lines, with_tuned


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FIGURES, "small", Entry("small_figure:SMALL", "digits", "nobody"))
    monkeypatch.setattr("fedsaddle_papers.reproductions.hypotheses_of_papers.PAPERS", {"nobody": SENTENCES})
    monkeypatch.setattr("fedsaddle_papers.commands.reproduce.MAX_WORKERS", 1)


def without_clock(runs: Runs) -> dict[str, list[dict[str, list[float]]]]:
    return {
        label: [{k: v for k, v in t.columns.items() if k != "seconds"} for t in seeds]
        for label, seeds in runs.by_label.items()
    }


def test_every_name_stands_for_a_figure() -> None:
    assert [f"drfa-fig{n}" for n in range(1, 7)] == [n for n in FIGURES if n.startswith("drfa")]
    assert [f"sgda-fig{n}" for n in range(1, 5)] == [n for n in FIGURES if n.startswith("sgda")]
    for name in FIGURES:
        figure = find(FIGURES, "reproduce", name)
        assert isinstance(figure, Figure)
        labels = [line.label for line in figure.lines]
        assert len(set(labels)) == len(labels)
        assert figure.seeds >= 3
        assert figure.all_looks[0] == figure.seeds
        named = {part for h in of_figure(name) for pair in h.pairs for side in pair for part in side.split(" | ")}
        assert named <= set(labels)
        if figure.tuning is not None:
            assert {line.tuned for line in figure.lines} - {""} <= set(labels)
            assert min(figure.tuning.seeds) >= max(figure.all_looks)
            assert max(figure.all_looks) + FIRST_SEED < min(figure.tuning.seeds)
            tried = {len(candidates(x, figure.tuning, budget_of(figure, figure.tuning))) for x in tuned_lines(figure)}
            assert len(tried) == 1  # the same budget for every method
        if figure.tuned_by:
            tuned = {line.label for line in find(FIGURES, "reproduce", figure.tuned_by).lines}
            assert {line.tuned for line in figure.lines} - {""} <= tuned


def test_names_are_completed() -> None:
    assert "drfa-fig1" in dict(reproduce_command._figures("drfa"))
    assert dict(benchmark_command._suites("g")).keys() == {"games"}


def test_the_list_imports_nothing_heavy() -> None:
    code = "from fedsaddle_papers.commands.reproduce import reproduce_figures; import sys; from pathlib import Path"
    code += "; reproduce_figures('', False, Path('none'))"
    code += "; assert not {'torch', 'matplotlib', 'scipy'} & set(sys.modules)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    *names, headline = shown.splitlines()
    assert [line.split()[0] for line in names] == list(FIGURES)
    assert headline.split(",")[0].endswith("hold")
    assert "sentences of the papers" in headline


@pytest.mark.usefixtures("as_json")
def test_the_list_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("", False, Path())
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["figures"]] == list(FIGURES)


def test_an_unknown_name_shows_the_names(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"did you mean 'drfa-fig2'\? choose one of drfa-fig1, drfa-fig2"):
        reproduce("drfa-fig22", False, tmp_path)


@pytest.mark.usefixtures("small", "as_json")
def test_json_is_one_document_and_nothing_else(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    reproduce("small", True, tmp_path)
    out, err = capfd.readouterr()
    said = json.loads(out)
    assert [list(claim) for claim in said["claims"]] == [["claim", "paper", "measured", "verdict", "holds"]] * 2
    assert all(claim["holds"] is claim["verdict"] is None for claim in said["claims"])
    assert [(s["key"], s["verdict"], s["seeds"]) for s in said["sentences"]] == [("small-1", None, 2)]
    assert said["notes"][-1] == "with --quick there are too few seeds and rounds for a verdict"
    assert said["notes"][-1] in err


@pytest.mark.usefixtures("small")
def test_a_quick_run_has_no_verdict_anywhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("small", True, tmp_path)
    shown, page = capsys.readouterr().out, (tmp_path / "small" / "report.html").read_text()
    results = json.loads((tmp_path / "small/results.json").read_text())
    assert {one["verdict"] for one in (*results["sentences"], *results["claims"])} == {None}
    visible = re.sub(r"<(style|script).*?</\1>|<[^>]*>", " ", page, flags=re.S)
    assert "nothing gets a verdict" in visible
    for said in (shown, visible):
        assert not re.search(r"\b(holds?|held|undecided|refuted|no data)\b", said.replace("Do the claims hold?", ""))
    assert "verdict" not in shown
    assert "DRFA is sooner" in shown


@pytest.fixture
def as_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(output, "json", True)


@pytest.mark.usefixtures("small")
def test_results_and_plot_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("small", False, tmp_path)
    shown = capsys.readouterr().out
    assert "DRFA is sooner" in shown
    assert "written to" in shown
    assert (tmp_path / "small/plot.png").read_bytes().startswith(b"\x89PNG")
    results = json.loads((tmp_path / "small/results.json").read_text())
    assert [(r["label"], r["seed"]) for r in results["runs"]] == [
        (a, s) for a in ("DRFA", "FedAvg") for s in range(100, 103)
    ]
    assert results["runs"][0]["columns"]["round"] == [2, 4, 6, 8, 10, 12]
    assert results["setting"]["data"]["name"] == "digits"
    assert {"torch", "numpy", "fedsaddle", "python"} <= set(results["versions"])
    assert results["machine"]["cores"] >= 1
    assert len(results["claims"]) == 2
    assert f"report: {tmp_path / 'small' / 'report.html'}" in shown
    page = (tmp_path / "small" / "report.html").read_text()
    held = sum(claim["verdict"] == "holds" for claim in results["claims"])
    assert f"Of 2 secondary claims, which are not counted, {held} hold." in page
    assert results["sentences"][0]["verdict"] in page
    summary = json.loads((tmp_path / "small/summary.json").read_text())
    assert summary == {k: v for k, v in results.items() if k != "runs"}
    assert all(claim["measured"].split(":")[0] in page for claim in results["claims"])


def test_quick_is_shorter_and_may_have_smaller_data() -> None:
    quick = SMALL.quick()
    assert (quick.seeds, [line.rounds for line in quick.lines]) == (2, [6, 3])
    assert quick.setting == SMALL.setting


def test_one_process_and_two_give_the_same() -> None:
    figure = SMALL.quick()
    one, two = (run_figure(figure, "small", workers) for workers in (1, 2))
    assert without_clock(one) == without_clock(two)


def test_another_seed_is_another_run() -> None:
    runs = run_figure(SMALL.quick(), "small", 1)["DRFA"]
    assert runs[0].columns["test mean"] != runs[1].columns["test mean"]


def test_a_setting_may_name_a_min_max_problem() -> None:
    """With its own options, steps that change by stages, pooled measures and two exchanges a round."""
    setting = Setting(
        {"name": "digits", "split": "dirichlet", "clients": 5, "alpha": 1.0},
        "mlp",
        {"hidden": [5]},
        problem="class-fair",
        problem_options={"penalty": 0.5},
    )
    step = {"name": "staged", "stages": [[1, 0.1], [1, 0.01]]}
    line = Line("FedSGDA", "FedSGDA-MB", {"batch_size": 10, "primal_step": step}, 2)
    track = run_job(Job(setting, line, 0))
    assert track.columns["exchanges"] == [2, 4]
    assert track.columns["bytes"][1] == 2 * track.columns["bytes"][0]
    assert 0 <= track.columns["worst_class_accuracy"][-1] <= track.columns["test global"][-1]
    made = set_up(Job(setting, line, 0), _federated(json.dumps(dict(setting.data)), 0)).algorithm
    assert made.problem.penalty == 0.5
    assert [made.primal_step.at(t) for t in (0, 1)] == [0.1, 0.01]


def test_missing_data_is_said_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDSADDLE_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    setting = Setting({"name": "adult", "split": "by-column", "column": "sex", "clients": 10}, "logistic")
    jobs = [Job(setting, Line("FedAvg", "FedAvg", {}, 1), seed) for seed in (0, 1)]
    with pytest.raises(MissingData, match=r"adult\.data"):
        run_job(jobs[0])
    with pytest.raises(WorkFailed, match=r"adult\.data") as caught:
        run_jobs(jobs, 2, lambda stored: None)
    assert caught.value.exit_code == 2


@pytest.mark.usefixtures("small")
def test_what_is_stored_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store(tmp_path)
    first = run_figure(replace(SMALL, seeds=2), "small", 1, store)
    monkeypatch.setattr("fedsaddle_papers.reproductions.jobs.run_job", lambda *_: pytest.fail("run again"))
    again = run_figure(replace(SMALL, seeds=2, lines=tuple(replace(x, colour=3) for x in SMALL.lines)), "x", 1, store)
    assert without_clock(first) == without_clock(again)
    other = replace(SMALL.lines[0], options={**SMALL.lines[0].options, "dual_step": 0.02})
    assert store.find(Job(SMALL.setting, other, 0)) is None
    for file in tmp_path.iterdir():
        file.write_text("{")
    assert store.find(Job(SMALL.setting, SMALL.lines[0], 0)) is None


@pytest.mark.usefixtures("small")
def test_all_figures_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = replace(SMALL, setting=replace(SMALL.setting, model="gru"))
    for name in [name for name in reversed(FIGURES) if name != "small"]:  # undone in the other order
        monkeypatch.delitem(FIGURES, name)
    monkeypatch.setattr("small_figure.BROKEN", broken, raising=False)
    monkeypatch.setitem(FIGURES, "broken", Entry("small_figure:BROKEN", "digits", "nobody"))
    assert reproduce("", False, tmp_path, every=True) == 3
    shown = capsys.readouterr()
    assert "of 1 sentences of the papers" in shown.out
    assert "failed: broken" in shown.err
    reproduce("", False, tmp_path)
    assert capsys.readouterr().out.splitlines()[-1] in shown.out
    with pytest.raises(BadInput, match="does not go with the name"):
        reproduce("small", False, tmp_path, every=True)
    with pytest.raises(BadInput, match="--quick"):
        reproduce("", True, tmp_path)


@pytest.mark.usefixtures("small")
def test_tuned_values_are_kept_and_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce("small", False, tmp_path, tune=True)
    assert "DRFA: primal_step" in capsys.readouterr().out
    log = json.loads((tmp_path / "tuning/small.json").read_text())
    tried = log["lines"]["DRFA"]["candidates"]
    assert [c["values"] for c in tried] == [{"primal_step": s, "dual_step": 0.01} for s in (1e-4, 0.1, 1e30)]
    assert tried[2]["scores"] == [None]
    assert log["lines"]["DRFA"]["chosen"]["primal_step"] == 0.1
    figure, notes = with_tuned(SMALL, find_log("small", tmp_path / "tuning"))
    assert figure.lines[0].options["primal_step"] == 0.1
    assert not notes
    assert with_tuned(SMALL, None)[1] == ["DRFA: not tuned yet, it has the values that the figure starts from"]
    (tmp_path / "tuning/small.json").write_text("[]")
    with pytest.raises(BadInput, match="tune again"):
        find_log("small", tmp_path / "tuning")


def test_every_sentence_has_a_key_of_its_own_and_a_figure() -> None:
    every = [h for own in papers().values() for h in own]
    assert len({h.key for h in every}) == len(every) > 30
    assert all(h.figure in FIGURES and h.place and h.sentence and h.delta >= 0 for h in every)


QUICKEST = {
    "drfa-fig4",
    "fedsgda-fig1",
    "codasca-table4",
}  # one a paper where that takes seconds; the others are slow


@pytest.mark.data
@pytest.mark.parametrize(
    "name", [name if name in QUICKEST else pytest.param(name, marks=pytest.mark.slow) for name in FIGURES]
)
def test_the_real_figures_run(name: str) -> None:
    """Two rounds of every line on the real data, and all claims."""
    figure = find(FIGURES, "reproduce", name).quick()
    runs = Runs.of(
        [run_job(Job(figure.setting, replace(line, rounds=2), seed)) for seed in (0, 1) for line in figure.lines]
    )
    claims = figure.claims(runs)
    assert claims
    assert all(claim.claim and claim.paper and claim.measured for claim in claims)
    assert len({claim.claim for claim in claims}) == len(claims)


def growing(first: float) -> Job:
    """The step grows a thousandfold in round 5, and again in round 9."""
    setting = Setting({"name": "breast-cancer", "split": "iid", "clients": 4}, "logistic", problem="auc")
    step = {"name": "geometric", "first": first, "factor": 1000.0}
    return Job(setting, Line("CODA+", "CODA+", {"primal_step": step, "stage_rounds": 4}, 14, evaluate_every=2), 0)


def test_a_line_that_diverges_before_it_was_measured_keeps_its_last_sound_round() -> None:
    wild = growing(1e-2)
    late, unsound = run_job(replace(wild, line=replace(wild.line, evaluate_every=13))), run_job(wild).diverged
    assert late.diverged is not None
    assert unsound is not None
    assert late.columns["round"] == [unsound - 1, 14]
    sound = run_job(replace(wild, line=replace(wild.line, rounds=unsound - 1, evaluate_every=1)))
    assert late.columns["auroc"] == [sound.columns["auroc"][-1]] * 2


def test_a_line_that_diverges_does_not_end_the_figure() -> None:
    calm, wild = run_job(growing(1e-9)), run_job(growing(1e-2))
    assert calm.diverged is None
    assert wild.diverged is not None
    assert 4 < wild.diverged <= 12
    assert wild.columns["round"] == calm.columns["round"]
    last = (wild.diverged - 1) // 2 - 1  # the evaluation before
    assert set(wild.columns["auroc"][last:]) == {wild.columns["auroc"][last]}
    assert len(set(wild.columns["auroc"][: last + 1])) > 1


def test_a_line_that_diverges_at_once_stays_where_it_starts() -> None:
    wild = run_job(growing(1e6))
    calm = run_job(replace(growing(1e-12), line=standing_still(growing(1e-12).line)))
    assert wild.diverged == 1
    assert len(wild.columns["round"]) == 7
    assert set(wild.columns["auroc"]) == set(calm.columns["auroc"])


def test_a_line_that_diverges_keeps_the_round_that_was_best_on_validation_rows() -> None:
    job = growing(1e-2)
    setting = replace(job.setting, data={**job.setting.data, "validation_share": 0.2}, select="auroc")
    wild = run_job(replace(job, setting=setting))
    assert wild.diverged is not None
    assert wild.columns["round"][-1] == 14
    last = wild.columns["round"][(wild.diverged - 1) // 2 - 1]
    sound = run_job(replace(job, setting=setting, line=replace(job.line, rounds=int(last))))
    assert wild.selected == sound.selected
    assert wild.selected["auroc"] > 0.5
