"""Beyond CODASCA's paper: which part pays, the AUC loss or the control variates.

Fashion-MNIST-IH over 5 clients with windows of 64, at 1 and at 10 % positives: CODASCA (both parts), CODA+ (the loss),
SCAFFOLD (cross-entropy with control variates) and FedAvg (neither), with steps tuned alike.
"""

from __future__ import annotations

from fedsaddle_papers.reproductions.claims import Claim, higher
from fedsaddle_papers.reproductions.codasca import CODA_PLUS, CODASCA, FASHION, SOURCE, TUNING, final_auc
from fedsaddle_papers.reproductions.curves import Runs
from fedsaddle_papers.reproductions.figure import Figure, Line, Options, Panel, Setting

SCAFFOLD, FEDAVG = "SCAFFOLD", "FedAvg"
METHODS = (CODASCA, CODA_PLUS, SCAFFOLD, FEDAVG)
PERCENTS = (1, 10)
WINDOW, ROUNDS = 64, 32
_PAIRS = (
    (CODASCA, FEDAVG, "both parts against neither"),
    (CODASCA, CODA_PLUS, "control variates, beside the AUC loss"),
    (SCAFFOLD, FEDAVG, "control variates, beside cross-entropy"),
    (CODASCA, SCAFFOLD, "the AUC loss, beside control variates"),
    (CODA_PLUS, FEDAVG, "the AUC loss alone"),
)


def label(percent: int, method: str) -> str:
    """The label of a line, such as "1 %: CODASCA"."""
    return f"{percent} %: {method}"


def line(percent: int, method: str) -> Line:
    """A method at a share of positives; the step is divided by 3 after half of the rounds, for all alike."""
    options: Options = {"local_steps": WINDOW, "batch_size": 32}
    staged = {"name": "staged", "stages": [[ROUNDS // 2, 0.1], [ROUNDS // 2, 0.1 / 3]]}
    name, problem, problem_options = label(percent, method), "auc", {}
    if method in (CODASCA, CODA_PLUS):
        geometric = {"name": "geometric", "first": 0.1, "factor": 1 / 3}
        options = {**options, "proximal": 1 / 500, "primal_step": geometric, "stage_rounds": ROUNDS // 2}
    else:
        options = {**options, "primal_step": staged, "weighting": "uniform"}
        problem, problem_options = "supervised", {"loss": "logistic"}
    return Line(
        name,
        method,
        options,
        ROUNDS,
        METHODS.index(method),
        data={"imratio": percent / 100},
        legend=method,
        problem=problem,
        problem_options=problem_options,
        tuned=name,
    )


def claims(runs: Runs) -> list[Claim]:
    """Every part against its absence."""
    return [
        higher(f"{label(p, one)} ends above {other}", what, *(final_auc(runs, label(p, m)) for m in (one, other)))
        for p in PERCENTS
        for one, other, what in _PAIRS
    ]


PARTS = Figure(
    "Which part of CODASCA pays, on Fashion-MNIST-IH, K = 5, I = 64, MLP of 32 units",
    f"beyond {SOURCE}",
    Setting(
        data={**FASHION, "split": "imbalanced", "clients": 5, "imratio": 0.1},
        model="mlp",
        model_options={"hidden": [32]},
        problem="auc",
        evaluate_every=2,
    ),
    tuple(line(p, m) for p in PERCENTS for m in METHODS),
    tuple(
        Panel("round", "auroc", f"test AUC, {p} % positives", lines=tuple(label(p, m) for m in METHODS))
        for p in PERCENTS
    ),
    claims,
    quick_seeds=2,
    quick_share=0.25,
    looks=(5, 10),
    minutes=0.3,
    tuning=TUNING,
)
