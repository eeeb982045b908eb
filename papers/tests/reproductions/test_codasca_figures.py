"""CODASCA's figures and tables: their lines are comparable, their claims judge the right lines, small runs work."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from some_slow import some_slow

import fedsaddle as fs
from fedsaddle.data.sets.pictures import FINE
from fedsaddle_papers.reproductions.codasca import (
    CIFAR,
    CIFAR_10,
    CIFAR_30,
    CODA_PLUS,
    CODASCA,
    FASHION_10,
    FASHION_30,
    ITERATIONS,
    SITE_ITERATIONS,
    SITES,
    SOURCES_ADDED,
    WINDOWS,
    harmless,
    label,
    largest_harmless,
    line,
)
from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.figure import Figure, FinalValues
from fedsaddle_papers.reproductions.jobs import Job, first_sources, run_job
from fedsaddle_papers.reproductions.outcome import draw

WINDOWED = {"1": FASHION_10, "2": CIFAR_10, "3": FASHION_30, "4": CIFAR_30}
FIGURES = {**WINDOWED, "table 3": SITES, "table 4": SOURCES_ADDED}
SMALL = {"name": "digits", "split": "imbalanced", "imratio": 0.2, "clients": 5}


def made_up(figure: Figure, ends: dict[str, float]) -> Runs:
    """Runs of three seeds that end where `ends` says, the others at 0.8; seeds differ by far more than lines."""
    return Runs.of(
        [
            RunCurves(x.label, seed, {"auroc": [0.5, ends.get(x.label, 0.8) + 0.05 * seed + 1e-4 * (seed == 1)]})
            for x in figure.lines
            for seed in (0, 1, 2)
        ]
    )


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_all_lines_take_as_many_local_iterations(figure: Figure) -> None:
    for x in figure.lines:
        assert x.rounds * x.options["local_steps"] == (SITE_ITERATIONS if figure is SITES else ITERATIONS)
        assert x.rounds >= 30
        assert x.options["stage_steps"] % x.options["local_steps"] == 0


@pytest.mark.parametrize("figure", WINDOWED.values(), ids=WINDOWED)
def test_every_window_has_both_methods_and_panels_know_their_lines(figure: Figure) -> None:
    labels = [x.label for x in figure.lines]
    clients = sorted({x.data["clients"] for x in figure.lines}, reverse=True)
    assert labels == [
        label(m, w, f"K = {k}")
        for k in clients
        for w in WINDOWS
        for m in ((CODA_PLUS,) if w == 1 else (CODASCA, CODA_PLUS))
    ]
    for panel in figure.panels:
        shown = (
            [name for s in panel.series.values() for _, name in s] if isinstance(panel, FinalValues) else panel.lines
        )
        assert set(shown) < set(labels)
        assert len({name.split(",")[0] for name in shown}) == 1


def test_positives_of_cifar100_are_half_of_its_classes() -> None:
    assert len(set(CIFAR["positive"])) == 50
    assert set(CIFAR["positive"]) < set(FINE)


def test_with_a_window_of_one_both_methods_are_the_same() -> None:
    setting = replace(FASHION_10.setting, data=SMALL, model_options={"hidden": [6]})
    one = replace(line(CODA_PLUS, 1), rounds=30, evaluate_every=10)
    runs = [run_job(Job(setting, replace(one, algorithm=m), 0)) for m in (CODA_PLUS, CODASCA)]
    assert runs[0].columns["auroc"] == pytest.approx(runs[1].columns["auroc"], abs=1e-3)
    assert runs[0].columns["bytes"] != runs[1].columns["bytes"]


def test_a_window_is_harmless_up_to_a_point() -> None:
    where = "K = 5"
    runs = made_up(FASHION_10, {label(CODASCA, 4, where): 0.795, label(CODASCA, 16, where): 0.785})
    assert harmless(runs, CODASCA, 4, "", where).holds
    assert not harmless(runs, CODASCA, 16, "", where).holds
    assert harmless(runs, CODASCA, 64, "", where).holds
    assert largest_harmless(runs, CODASCA, WINDOWS, where) == 4  # all shorter ones must be harmless too
    assert largest_harmless(runs, CODA_PLUS, WINDOWS, where) == 64


def test_a_window_that_fails_for_want_of_seeds_is_not_called_harmful() -> None:
    where, name = "K = 5", label(CODA_PLUS, 4, "K = 5")
    runs = made_up(FASHION_10, {}).by_label
    wide = tuple(replace(t, columns={"auroc": [0.5, t.columns["auroc"][-1] + 0.03 * (t.seed - 1)]}) for t in runs[name])
    runs = Runs({**runs, name: wide})
    assert largest_harmless(runs, CODA_PLUS, WINDOWS, where) == 1
    assert largest_harmless(runs, CODA_PLUS, WINDOWS, where, by_means=True) == 64
    assert not [c for c in FASHION_10.claims(runs) if "largest" in c.claim and c.holds]


def test_claims_of_the_windows() -> None:
    poor = {label(CODA_PLUS, w, f"K = {k}"): 0.7 for w in (16, 64) for k in (16, 8)}
    claims = CIFAR_10.claims(made_up(CIFAR_10, poor))
    held = {claim.claim for claim in claims if claim.holds}
    for k in (16, 8):
        assert f"CODASCA's largest harmless window is larger than CODA+'s, K = {k}" in held
        assert f"CODASCA ends with a higher AUC than CODA+ at I = 64, K = {k}" in held
        assert f"CODASCA ends with a higher AUC than CODA+ at I = 4, K = {k}" not in held
    windows = "CODASCA at least 64, CODA+ 4"
    assert f"{windows} (by intervals); {windows} (by means)" in {claim.measured for claim in claims}
    turned = {label(CODASCA, w, f"K = {k}"): 0.7 for w in WINDOWS for k in (16, 8)}
    assert not any("largest" in c.claim and c.holds for c in CIFAR_10.claims(made_up(CIFAR_10, turned)))


def test_claims_of_the_sources() -> None:
    runs = made_up(SOURCES_ADDED, {"3 sources": 0.9, "5 sources": 0.7})
    assert [c.holds for c in SOURCES_ADDED.claims(runs)] == [False, True, False, False]


def test_the_first_sources_train_and_all_test_rows_stay() -> None:
    data = fs.load("digits", split="dirichlet", clients=5, alpha=1.0)
    assert data.test is not None
    kept = first_sources(data, 2)
    assert kept.test is not None
    np.testing.assert_array_equal(kept.train.sizes, data.train.sizes[:2])
    assert kept.train.client(1)[0].equal(data.train.client(1)[0])
    assert kept.test.x.equal(data.test.x)
    assert kept.test.sizes.tolist() == [data.test.sizes[0], data.test.sizes[1:].sum()]
    assert len(kept.names) == kept.count == 2
    assert first_sources(data, 5).train.x.equal(data.train.x)


@pytest.mark.parametrize("figure", some_slow(FIGURES))
def test_small_runs_their_claims_and_picture(figure: Figure, tmp_path: Path) -> None:
    """Two evaluations of every line on small data; sources and noise stay what they are."""
    kept = {key: figure.setting.data[key] for key in ("noise",) if key in figure.setting.data}
    setting = replace(figure.setting, data={**SMALL, **kept}, model_options={"hidden": [4]})
    small = [
        replace(x, rounds=2, evaluate_every=1, data={k: min(v, 5) for k, v in x.data.items()}) for x in figure.lines
    ]
    runs = Runs.of([run_job(Job(setting, x, seed)) for seed in (0, 1) for x in small])
    claims = figure.claims(runs)
    assert len({claim.claim for claim in claims}) == len(claims) >= 4
    assert draw(figure, runs, tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
