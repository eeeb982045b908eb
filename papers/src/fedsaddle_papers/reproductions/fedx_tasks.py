"""The tasks, the methods and the lines of FedX's tables and figures.

The paper trains ResNet18 for 20,000 steps on 24,000 pictures; here it is a perceptron with two layers of 256 units,
which can memorise its rows, on fewer and smaller pictures for 3,072 steps. As in the paper: 16 clients, 32 local steps
a round, minibatches of 32 + 32 (64 for methods without pairs), one positive to five negatives, an offset of every
client's pixels, β, a step and a λ for each method, tuned on held-out rows, and the round that is best on validation
rows as the output.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fedsaddle_papers.reproductions.codasca import CIFAR
from fedsaddle_papers.reproductions.figure import Line, Options, Setting, Tuning

SOURCE = "Guo, Jin, Luo, Yang 2023, FedX"
CLIENTS, LOCAL_STEPS, BATCH, ROUNDS = 16, 32, 32, 96
CENTRAL_BATCH = 128  # the paper's range is 32 to 512
HIDDEN = [256, 256]
VALIDATION = 0.2  # of each client's rows, as in the paper
CUT = 0.75  # share of the rounds after which the step is divided by 10
PARTIAL: Options = {"risk": "partial-auc"}
ROBUST: Options = {"risk": "auc", "loss": "sigmoid"}  # PSM
FPR30, FPR50, AUROC = "partial_auroc_30", "partial_auroc_50", "auroc"

_SHIFT = {"mean": -0.08, "mean_step": 0.01}
# The noise of the paper's pixels has variance 0.04; the mean of a block of 4 x 4 pixels has a sixteenth of it.
_BLOCKS, _PIXELS = {**_SHIFT, "variance": 0.04 / 16}, {**_SHIFT, "variance": 0.04}
_SMALL = {"first": 10_000, "side": 8, "normalise": False}
_EVEN = {"split": "imbalanced", "clients": CLIENTS, "imratio": 1 / 6, "disjoint": False}
_ONE_CLASS = {"split": "by-class", "clients": CLIENTS}
_DIRICHLET = {"split": "dirichlet", "clients": CLIENTS, "alpha": 0.3}
_VEHICLES = ["airplane", "automobile", "ship", "truck"]


@dataclass(frozen=True)
class Task:
    """A task: its data, the risk of the pairwise methods, and the metric that steps are tuned for."""

    data: Options
    risk: Options = field(default_factory=lambda: PARTIAL)
    metric: str = FPR30


_CLEAN: dict[str, Options] = {
    "CIFAR-10": {**_EVEN, "name": "cifar10", "options": _SMALL, "positive": _VEHICLES, "noise": _BLOCKS},
    "CIFAR-100": {**_EVEN, **CIFAR, "options": _SMALL, "noise": _BLOCKS},
    "PneumoniaMNIST": {**_EVEN, "name": "pneumoniamnist", "noise": _PIXELS},
}
_SHIPS = {"name": "cifar10", "noise": _BLOCKS, "options": {**_SMALL, "positive": ["ship"]}}
_SKEWED_DATA: dict[str, Options] = {
    "CIFAR-10, one class": {**_SHIPS, **_ONE_CLASS},  # eight sites have positives only, eight negatives only
    "CIFAR-10, skewed": {**_SHIPS, **_DIRICHLET},
}


def _flipped(data: Options) -> Options:
    return {**data, "noise": {**data["noise"], "flipped_labels": 0.2}}


CLEAN = {where: Task(data) for where, data in _CLEAN.items()}
FLIPPED = {f"{where}, flipped": Task(_flipped(data), ROBUST, AUROC) for where, data in _CLEAN.items()}
SKEWED = {where: Task(data) for where, data in _SKEWED_DATA.items()}
TASKS = {**CLEAN, **FLIPPED, **SKEWED}
CENTRALISED, LOCAL_SGD, CODASCA, LOCAL_PAIR = "Centralised", "Local SGD", "CODASCA", "Local Pair"


class Tuned(NamedTuple):
    """The first step and λ of a method; λ is 1 where the risk has none."""

    step: float
    temperature: float = 1.0


# Where the grid of the tuner starts from: what an older, smaller network wanted.
TUNED: dict[str, dict[str, Tuned]] = {
    "CIFAR-10": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.1, 1.0),
        "FedX2": Tuned(0.1, 5.0),
    },
    "CIFAR-100": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.3),
        "Local Pair": Tuned(0.1, 1.0),
        "FedX2": Tuned(0.1, 5.0),
    },
    "PneumoniaMNIST": {
        "Centralised": Tuned(0.03, 1.0),
        "Local SGD": Tuned(0.1),
        "CODASCA": Tuned(0.03),
        "Local Pair": Tuned(0.03, 1.0),
        "FedX2": Tuned(0.01, 1.0),
    },
    "CIFAR-10, flipped": {
        "Centralised": Tuned(0.3),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.3),
        "FedX1": Tuned(1.0),
    },
    "CIFAR-100, flipped": {
        "Centralised": Tuned(0.1),
        "Local SGD": Tuned(0.1),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.1),
        "FedX1": Tuned(0.1),
    },
    "PneumoniaMNIST, flipped": {
        "Centralised": Tuned(0.1),
        "Local SGD": Tuned(0.03),
        "CODASCA": Tuned(0.03),
        "Local Pair": Tuned(0.1),
        "FedX1": Tuned(0.1),
    },
    "CIFAR-10, one class": {
        "Centralised": Tuned(0.3, 5.0),
        "Local SGD": Tuned(1.0),
        "CODASCA": Tuned(0.01),
        "Local Pair": Tuned(0.01, 1.0),
        "FedX2": Tuned(0.01, 5.0),
    },
    "CIFAR-10, skewed": {
        "Centralised": Tuned(0.1, 1.0),
        "Local SGD": Tuned(0.3),
        "CODASCA": Tuned(0.1),
        "Local Pair": Tuned(0.3, 5.0),
        "FedX2": Tuned(0.01, 5.0),
    },
}


def fedx_for(risk: Options) -> str:
    """The algorithm for a risk: FedX1 where f is linear, else FedX2."""
    return "FedX1" if risk["risk"] == "auc" else "FedX2"


def methods(risk: Options) -> tuple[str, ...]:
    """The methods in the order of the paper's columns."""
    return (CENTRALISED, LOCAL_SGD, CODASCA, LOCAL_PAIR, fedx_for(risk))


def setting(select: str = FPR30) -> Setting:
    """A perceptron; the data are those of each line, and the round is chosen on validation rows."""
    data = {"validation_share": VALIDATION}
    return Setting(data, "mlp", {"hidden": HIDDEN}, "pairwise", evaluate_every=4, select=select)


def tuning(column: str, share: float = 0.25) -> Tuning:
    """The same steps for every method, and the same λ for every method that has one; for AUC, which has none, a 1.0."""
    longest = (1.0,) if column == AUROC else ()
    grid = {"primal_step": (0.01, 0.03, 0.1, 0.3, *longest), "problem.temperature": (1.0, 5.0)}
    return Tuning(column, grid, share=share, seeds=(1000,))


def label(task: str, method: str) -> str:
    """The label of a line, such as "CIFAR-10: FedX2"."""
    return f"{task}: {method}"


def has_temperature(task: str, method: str) -> bool:
    """Whether the method has a λ to tune on this task."""
    return TASKS[task].risk is PARTIAL and method not in (LOCAL_SGD, CODASCA)


def line(task: str, method: str, tuned: Tuned | None = None, rounds: int = ROUNDS) -> Line:
    """A method on a task; methods without pairs have their own problem.

    Args:
        task: a key of `TASKS`.
        method: one of `methods` for the task's risk.
        tuned: the first step and λ; None: the values of `TUNED`.
        rounds: the step is divided by 10 after three quarters of them.
    """
    data, risk = TASKS[task].data, TASKS[task].risk
    η, λ = tuned or TUNED[task][method]
    first = max(1, round(CUT * rounds))
    staged = {"name": "staged", "stages": [[first, η], [max(1, rounds - first), η / 10]]}
    options: dict[str, Any] = {"local_steps": LOCAL_STEPS, "batch_size": BATCH, "primal_step": staged}
    algorithm, problem = method, "pairwise"
    problem_options = {**risk, "temperature": λ} if has_temperature(task, method) else risk
    if method == CENTRALISED:
        algorithm, options["batch_size"] = "Centralised SGD" if fedx_for(risk) == "FedX1" else "SOX", CENTRAL_BATCH
    elif method == LOCAL_SGD:
        algorithm, problem, problem_options = "FedAvg", "supervised", {"loss": "logistic"}
        options["batch_size"] = 2 * BATCH
    elif method == CODASCA:
        problem, problem_options = "auc", {}
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
        problem_options=problem_options,
        tuned=label(task, method),
    )
