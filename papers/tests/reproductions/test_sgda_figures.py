"""Local SGDA's figures: their lines say what the paper's tables say, and small runs of them work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from some_slow import some_slow

import fedsaddle as fs
from fedsaddle.data.store import Stacked
from fedsaddle.problems.fair import ClassFair
from fedsaddle_papers.reproductions.claims import SeedValues
from fedsaddle_papers.reproductions.curves import RunCurves, Runs
from fedsaddle_papers.reproductions.figure import Figure
from fedsaddle_papers.reproductions.jobs import Job, run_job
from fedsaddle_papers.reproductions.sgda import (
    BOX,
    CIFAR_ACCURACY,
    CIFAR_LOSS,
    FAIR,
    FAIR_ROUNDS,
    FASHION,
    GAPS,
    VARIANTS,
    fewer_rounds,
    label,
    lines,
)

FIGURES = {"1": FAIR, "2": CIFAR_ACCURACY, "3": CIFAR_LOSS, "4": FASHION}
DIGITS = {"name": "digits", "split": "dirichlet", "clients": 4, "alpha": 1.0}


@pytest.mark.parametrize("figure", FIGURES.values(), ids=FIGURES)
def test_every_gap_comes_in_every_variant(figure: Figure) -> None:
    made = {line.label: line.options for line in figure.lines}
    gaps = {label(gap, suffix): gap for gap in GAPS for suffix in VARIANTS.values()} | {label(5, BOX): 5}
    assert {name: made[name]["local_steps"] for name in made} == gaps
    assert figure.setting.data["clients"] == 20
    assert figure.setting.data["alpha"] == 0.1


def test_figure_1_has_the_steps_of_table_3() -> None:
    for line in FAIR.lines:
        scale = 10 if "usual" in line.label or "tenfold" in line.label or "momentum, tuned" in line.label else 1
        for key, first in (("primal_step", 0.02), ("dual_step", 0.016)):
            stages = line.options[key]["stages"]
            assert [rounds for rounds, _ in stages] == [FAIR_ROUNDS // 2, FAIR_ROUNDS // 4, FAIR_ROUNDS // 4]
            assert [step for _, step in stages] == pytest.approx([scale * first / 10**k for k in range(3)])


def test_snapshots_are_taken_every_tau_squared_iterations() -> None:
    for line in CIFAR_LOSS.lines:
        assert line.options["snapshot_every"] == line.options["local_steps"] ** 2
    assert not any("snapshot_every" in line.options for line in FAIR.lines)


def test_figures_2_and_3_are_the_same_runs() -> None:
    assert CIFAR_ACCURACY.setting == CIFAR_LOSS.setting
    assert CIFAR_ACCURACY.lines == CIFAR_LOSS.lines


def test_fewer_rounds_compares_the_right_lines() -> None:
    """Every τ a speed of its own, and the usual momentum twice as quick."""

    def rounds(name: str) -> SeedValues:
        quick = 2 if name.endswith(("(usual)", "momentum, tuned")) else 1
        return SeedValues(name, np.array([60.0, 61.0, 62.0]) / int(name.split()[2].rstrip(",")) / quick)

    claims = {claim.claim: claim.holds for claim in fewer_rounds(rounds, "somewhere", "fig. 0")}
    assert len(claims) == 2 * len(VARIANTS) + 3 * len(GAPS) + 1
    assert all(holds for text, holds in claims.items() if text.startswith("τ"))
    assert all(holds == ("as boxed" not in text) for text, holds in claims.items() if not text.startswith("τ"))


@pytest.mark.parametrize("figure", some_slow(FIGURES))
def test_small_runs_and_their_claims(figure: Figure) -> None:
    options = {k: v for k, v in figure.setting.problem_options.items() if k != "attack_rows"}
    setting = replace(figure.setting, data=DIGITS, model_options={"hidden": [6]}, problem_options=options)
    setting = replace(setting, evaluate_every=1)
    runs = Runs.of([run_job(Job(setting, replace(x, rounds=3), seed)) for seed in (0, 1) for x in figure.lines])
    for panel in figure.panels:
        assert len(runs["τ = 5"][0].columns[panel.y]) == 3
    claims = figure.claims(runs)
    assert len({claim.claim for claim in claims}) == len(claims) >= 12


def test_a_reset_at_every_iteration_stands_still() -> None:
    """Algorithm 5 sets d = 0 at a synchronisation: with τ = 1 nothing moves after the first step."""
    box = next(x for x in lines("Local SGDA+", 4, snapshots=True) if x.label == "τ = 5, momentum (box)")
    line = replace(box, options={**box.options, "local_steps": 1, "snapshot_every": 1})
    setting = replace(FASHION.setting, data=DIGITS, model_options={"hidden": [6]}, evaluate_every=1)
    curves: RunCurves = run_job(Job(setting, line, 0))
    assert len(set(curves.columns["test loss mean"])) == 1
    usual = replace(line, options={**line.options, "momentum_at_sync": "keep"})
    assert len(set(run_job(Job(setting, usual, 0)).columns["test loss mean"])) == 4


def test_the_robust_level_is_that_of_one_step_without_momentum() -> None:
    """A line that falls below what τ = 1 ends with gets there; the others never do."""
    falling = {name: [1.0, 0.9, 0.8] for name in (x.label for x in CIFAR_LOSS.lines)} | {"τ = 5": [1.0, 0.7, 0.6]}
    runs = Runs.of(
        [
            RunCurves(name, seed, {"round": [10.0, 20.0, 30.0], "robust_loss": [v + 0.1 * seed for v in values]})
            for name, values in falling.items()
            for seed in (0, 1, 2)
        ]
    )
    held = [claim.claim for claim in CIFAR_LOSS.claims(runs) if claim.holds]
    assert held == [
        "τ = 5 needs fewer rounds than τ = 1 to the robust loss that τ = 1 without momentum ends with, no momentum"
    ]


@pytest.mark.data
@pytest.mark.slow
def test_vgg11_learns_class_fair_fashion_mnist_in_a_few_rounds() -> None:
    """The paper's network, whole, on a few pictures a client: too dear for more on a CPU."""
    data = fs.load("fashion-mnist", clients=4, options={"images": True})
    keep = [np.arange(start, start + 32) for start in data.train.offsets[:-1]]
    rows = Stacked.of(data.train.x, data.train.y, keep)
    torch.manual_seed(0)
    problem = ClassFair(model=fs.models.Vgg11(1, 10), classes=10)
    algorithm = fs.LocalSgda(problem=problem, local_steps=1, batch_size=32, primal_step=0.002)
    losses = [r["train"]["loss"]["global"] for r in fs.run(algorithm, rows, 4).history]
    assert losses[-1] < min(losses[0], np.log(10))
