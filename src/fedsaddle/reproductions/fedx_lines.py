"""The data, the methods and the lines that FedX's tables and figures share.

The paper trains ResNet18 for 20,000 steps on 24,000 pictures; here it is a perceptron on small pictures, fewer of them
and 768 steps. What is kept: 16 clients, 32 steps a round, minibatches of 32 + 32 (64 for the methods without pairs),
one positive to five negatives, the shift of every client's pixels, β, and a step and a λ for each method that were
tuned on held-out training rows (fedx_tuned.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from fedsaddle.reproductions.codasca_windows import CIFAR
from fedsaddle.reproductions.fedx_tuned import TUNED, Tuned
from fedsaddle.reproductions.figure import Line, Options, Setting

SOURCE = "Guo, Jin, Luo, Yang 2023, FedX"
CLIENTS, LOCAL_STEPS, BATCH, ROUNDS = 16, 32, 32, 24
CENTRAL_BATCH = 128  # of the paper's 32 to 512
CUT = 0.75  # of the rounds; then the step is a tenth
PARTIAL: Options = {"risk": "partial-auc"}
ROBUST: Options = {"risk": "auc", "loss": "sigmoid"}  # PSM
FPR30, FPR50, AUROC = "partial_auroc_30", "partial_auroc_50", "auroc"

_SHIFT = {"mean": -0.08, "mean_step": 0.01}
# The paper's noise in every pixel has variance 0.04; the mean of a block of 4 x 4 pixels has a sixteenth of it.
_BLOCKS, _PIXELS = {**_SHIFT, "variance": 0.04 / 16}, {**_SHIFT, "variance": 0.04}
_SMALL = {"first": 10_000, "side": 8, "normalise": False}
_EVEN = {"split": "imbalanced", "clients": CLIENTS, "imratio": 1 / 6, "disjoint": False}
_ONE_CLASS = {"split": "by-class", "clients": CLIENTS}
_SKEWED = {"split": "dirichlet", "clients": CLIENTS, "alpha": 0.3}
_VEHICLES = ["airplane", "automobile", "ship", "truck"]


@dataclass(frozen=True)
class Task:
    """Data, the risk that the pairwise methods optimise on them, and the measure that steps are tuned for."""

    data: Options
    risk: Options = field(default_factory=lambda: PARTIAL)
    measure: str = FPR30


_CLEAN: dict[str, Options] = {
    "CIFAR-10": {**_EVEN, "name": "cifar10", "options": _SMALL, "positive": _VEHICLES, "noise": _BLOCKS},
    "CIFAR-100": {**_EVEN, **CIFAR, "options": _SMALL, "noise": _BLOCKS},
    "PneumoniaMNIST": {**_EVEN, "name": "pneumoniamnist", "noise": _PIXELS},
}
_SHIPS = {"name": "cifar10", "noise": _BLOCKS, "options": {**_SMALL, "positive": ["ship"]}}
_POOR: dict[str, Options] = {
    "CIFAR-10, one class": {**_SHIPS, **_ONE_CLASS},  # eight sites with positives alone, eight with negatives alone
    "CIFAR-10, skewed": {**_SHIPS, **_SKEWED},
}


def _flipped(data: Options) -> Options:
    return {**data, "noise": {**data["noise"], "flipped_labels": 0.2}}


CLEAN = {where: Task(data) for where, data in _CLEAN.items()}
FLIPPED = {f"{where}, flipped": Task(_flipped(data), ROBUST, AUROC) for where, data in _CLEAN.items()}
POOR = {where: Task(data) for where, data in _POOR.items()}
TASKS = {**CLEAN, **FLIPPED, **POOR}
CENTRALISED, LOCAL_SGD, CODASCA, LOCAL_PAIR = "Centralised", "Local SGD", "CODASCA", "Local Pair"


def fedx(risk: Options) -> str:
    """FedX1 for a linear f, else FedX2."""
    return "FedX1" if risk["risk"] == "auc" else "FedX2"


def methods(risk: Options) -> tuple[str, ...]:
    """The columns of the paper's tables."""
    return (CENTRALISED, LOCAL_SGD, CODASCA, LOCAL_PAIR, fedx(risk))


def setting() -> Setting:
    """A perceptron with 32 hidden units; every line brings its data."""
    return Setting({}, "mlp", {"hidden": [32]}, "pairwise", evaluate_every=4)


def label(task: str, method: str) -> str:
    """Such as "CIFAR-10: FedX2"."""
    return f"{task}: {method}"


def tempered(task: str, method: str) -> bool:
    """Whether the method has a λ, which is tuned too."""
    return TASKS[task].risk is PARTIAL and method not in (LOCAL_SGD, CODASCA)


def line(task: str, method: str, how: Tuned | None = None, rounds: int = ROUNDS) -> Line:
    """A method on a task, by default as it was tuned; methods without pairs have their own risk."""
    data, risk = TASKS[task].data, TASKS[task].risk
    η, λ = how or TUNED[task][method]
    first = max(1, round(CUT * rounds))
    staged = {"name": "staged", "stages": [[first, η], [max(1, rounds - first), η / 10]]}
    options: dict[str, Any] = {"local_steps": LOCAL_STEPS, "batch_size": BATCH, "primal_step": staged}
    algorithm, problem = method, "pairwise"
    of_problem = {**risk, "temperature": λ} if tempered(task, method) else risk
    if method == CENTRALISED:
        algorithm, options["batch_size"] = "Centralised SGD" if fedx(risk) == "FedX1" else "SOX", CENTRAL_BATCH
    elif method == LOCAL_SGD:
        algorithm, problem, of_problem = "FedAvg", "supervised", {"loss": "logistic"}
        options["batch_size"] = 2 * BATCH
    elif method == CODASCA:
        problem, of_problem = "auc", {}
        geometric = {"name": "geometric", "first": η, "factor": 0.1}  # from stage to stage
        options |= {"batch_size": 2 * BATCH, "primal_step": geometric, "stage_rounds": first}
    return Line(
        label(task, method),
        algorithm,
        options,
        rounds,
        methods(risk).index(method),
        data=data,
        legend=method,
        problem=problem,
        problem_options=of_problem,
    )
