"""FedSGDA's figures: the paper's tables, panels that show lines there are, and tiny runs of the simulation."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.fedsgda import COHORT, GRID, PHI, TABLE_1
from fedsaddle_papers.reproductions.fedsgda_auc import EXCHANGES, FIVE, SORTED, TABLE_2, TEN, TWENTY
from fedsaddle_papers.reproductions.figure import Figure, Line, Panel
from fedsaddle_papers.reproductions.jobs import Job, _federated, run_job, set_up
from fedsaddle_papers.reproductions.outcome import draw

FIGURES = {"1": COHORT, "2": FIVE, "3": GRID, "4": TEN, "5": TWENTY, "6": SORTED}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_line_is_shown_somewhere_and_every_panel_shows_lines_there_are(figure: Figure) -> None:
    labels = {line.label for line in figure.lines}
    assert len(labels) == len(figure.lines)
    assert set().union(*(panel.lines for panel in figure.panels)) == labels
    assert len(figure.panels) % figure.rows == 0
    assert figure.seeds >= 3


def test_the_lines_cover_the_tables() -> None:
    assert {(s, k) for s, k in TABLE_1} == {(s, k) for s in (5, 10, 20) for k in (5, 10, 20)}
    drawn = [(line.options["sampled_clients"], line.options["local_steps"]) for line in GRID.lines]
    assert sorted(drawn) == sorted([*TABLE_1, *TABLE_1])
    assert all(line.rounds >= 1500 and line.options["batch_size"] == 5 for line in GRID.lines)
    drawn3 = [
        tuple(line.options[key] for key in ("sampled_clients", "local_steps", "batch_size"))
        for figure in (FIVE, TEN, TWENTY)
        for line in figure.lines[:12]
    ]
    assert sorted(drawn3) == sorted([*TABLE_2, *TABLE_2])


def test_steps_are_those_of_the_tables_and_scores_go_through_a_sigmoid() -> None:
    line = next(x for x in FIVE.lines if x.label == "MB, K = 20, batch 10")
    assert (line.options["primal_step"], line.options["dual_step"]) == TABLE_2[5, 20, 10][0]
    for figure in (FIVE, TEN, TWENTY, SORTED):
        assert figure.setting.problem_options == {"sigmoid": True}
        assert figure.setting.data["clients"] == 100


@pytest.mark.data
@pytest.mark.slow
def test_the_papers_network_takes_whole_pictures() -> None:
    line = next(x for x in FIVE.lines if x.label.endswith("CNN"))
    one = replace(line, rounds=1, evaluate_every=1, options={**line.options, "local_steps": 1, "sampled_clients": 2})
    assert 0 < run_job(Job(FIVE.setting, one, 0)).columns["auroc"][0] < 1


def test_coda_gets_as_many_exchanges() -> None:
    both = [line for line in SORTED.lines if line.data == {"clients": 50}]
    assert [line.algorithm for line in both] == ["FedSGDA-MB"] * 2 + ["FedSGDA-STORM"] * 2 + ["CODA"] * 3
    assert {line.rounds * (1 if line.algorithm == "CODA" else 2) for line in both} == {EXCHANGES}
    assert all("sampled_clients" not in line.options for line in both)


def test_the_schedules_of_storm() -> None:
    line = next(line for line in GRID.lines if line.label == "STORM, S = 5, K = 10")
    small = {**GRID.setting.data, "options": {"clients": 3, "rows": 4, "dimension": 2}}
    job = Job(replace(GRID.setting, data=small), line, 0)
    made = set_up(job, _federated(json.dumps(small), 0)).algorithm
    assert made.primal_step.at(7) == pytest.approx(1e-3 / 2)
    assert made.dual_step.at(26) == pytest.approx(1e-2 / 3)
    assert [made.estimator.alpha.at(t) for t in (0, 7, 124)] == pytest.approx([1, 1, 10 / 25])


def test_a_tiny_simulation_runs_and_is_judged() -> None:
    """Five clients of six rows in three dimensions; all rows are trained on and measured."""
    data = {**COHORT.setting.data, "options": {"clients": 25, "rows": 6, "dimension": 3}}
    setting = replace(COHORT.setting, data=data, evaluate_every=2)
    lines = [replace(line, rounds=8) for line in COHORT.lines]
    runs = Runs.of([run_job(Job(setting, line, seed)) for seed in (0, 1) for line in lines])
    first, second = runs["MB, S = 5, K = 5"]
    assert first.columns["round"] == [2, 4, 6, 8]
    assert first.columns["exchanges"] == [4, 8, 12, 16]
    assert first.columns[PHI] != second.columns[PHI]
    assert all(v > 0 for v in first.columns[PHI])
    claims = COHORT.claims(runs)
    assert len(claims) == 8 + 3 + 6 + 1
    assert len({claim.claim for claim in claims}) == len(claims)


def _curves(label: str, seed: int, values: list[float]) -> RunCurves:
    columns = {"round": [50.0 * (i + 1) for i in range(len(values))], PHI: values}
    return RunCurves(label, seed, columns)


def test_rest_and_fall_are_told_apart() -> None:
    """MB flat from the middle on, STORM halving every quarter."""
    flat, falling = [8, 4, 2, 2.0], [8, 4, 2, 1.0]
    runs = []
    for line in COHORT.lines:
        shape = flat if line.algorithm == "FedSGDA-MB" else falling
        for seed in (0, 1, 2):
            noise = 1 + 0.001 * np.random.default_rng(seed).normal(size=4)
            runs.append(_curves(line.label, seed, (np.array(shape) * noise).tolist()))
    found = {c.claim: c.holds for c in COHORT.claims(Runs.of(runs))}
    rests = [holds for claim, holds in found.items() if "come to rest" in claim]
    falls = [holds for claim, holds in found.items() if "goes on falling" in claim]
    assert rests == falls == [True] * 3
    swapped = [replace(c, label=c.label.replace("MB", "x").replace("STORM", "MB").replace("x", "STORM")) for c in runs]
    found = {c.claim: c.holds for c in COHORT.claims(Runs.of(swapped))}
    assert not any(holds for claim, holds in found.items() if "come to rest" in claim or "goes on falling" in claim)


def test_panels_in_federated_show_their_own_lines(tmp_path: Path) -> None:
    lines = tuple(Line(name, "FedSGDA-MB", {}, 4, colour) for colour, name in enumerate("abc"))
    own = [Panel("round", PHI, name, log=True, lines=(name,)) for name in "abc"]
    figure = replace(COHORT, lines=lines, panels=(*own, Panel("round", PHI, "all")), rows=2)
    runs = Runs.of([_curves(name, seed, [4, 3, 2, 1.0 + seed]) for name in "abc" for seed in (0, 1)])
    assert draw(figure, runs, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.data
def test_a_line_may_have_fewer_clients() -> None:
    mb = next(line for line in SORTED.lines if line.label == "MB, 50 clients")
    track = run_job(Job(SORTED.setting, replace(mb, rounds=1, options={**mb.options, "local_steps": 1}), 0))
    assert track.columns["exchanges"] == [2]
    assert 0 < track.columns["auroc"][0] < 1
