"""The suite `rare-positives`: who ranks rows best where positives are rare, at the same number of exchanges?"""

from __future__ import annotations

from typing import Any

from fedsaddle_papers.suites.suite import Method, Suite, Task, each, steps

# Times the task's step: for methods with one knob, with two, and for the clients where the server has a step as well.
FINE = steps(0.02, 0.05, 0.1, 0.3, 1.0, 2.0, 3.0, 4.5, 7.0, 10.0, 14.0, 20.0)
COARSE = steps(0.05, 0.3, 1.0, 3.0, 7.0, 15.0)
SERVER = steps(0.2, 0.5, 2.0, 4.5, 10.0, 25.0)
MEASURES = ("auroc", "average_precision")
STAGED = "two stages"
ONE_SCORE = {"name": "supervised", "loss": "logistic"}
TWO_STAGES: dict[str, Any] = {"steps": STAGED}


def minimise(label: str, problem: dict[str, Any], found: Any = FINE, **more: Any) -> Method:
    """FedAvg with a loss."""
    options = {"name": "FedAvg", "weighting": "uniform", **more.pop("algorithm", {})}
    return Method(label, options, found, {"name": "supervised", **problem}, steps=STAGED, **more)


def optimiser(name: str) -> Method:
    """Cross-entropy with an optimiser at the server, whose step is tuned too."""
    kind = name.removeprefix("Fed").lower()
    server = [{"name": kind, "step": step} for step in (0.02, 0.3)]
    found = each(SERVER, "algorithm.server_optimiser", *server)
    return Method(name, {"name": name, "weighting": "uniform"}, found, ONE_SCORE, steps=STAGED)


# With a sigmoid on the scores slopes are small, and steps may be long.
RANKED = (
    *each(steps(0.1, 0.4, 1.0, 2.0, 4.0, 8.0), "problem.sigmoid", False),
    *each(steps(1.0, 4.0, 10.0, 20.0, 40.0, 80.0), "problem.sigmoid", True),
)
AUC = {"name": "auc"}
METHODS = (
    minimise("FedAvg", {"loss": "logistic"}),
    minimise("FedAvg, half positives in batches", {"loss": "logistic"}, data={"positives_per_batch": 0.5}),
    minimise("FedAvg, focal", {}, each(COARSE, "problem.loss", *({"name": "focal", "focus": g} for g in (1.0, 2.0)))),
    minimise(
        "FedAvg, class-balanced",
        {},
        each(COARSE, "problem.loss", *({"name": "class-balanced", "beta": b} for b in (0.99, 0.999))),
    ),
    minimise(
        "FedAvg, logit-adjusted",
        {},
        each(COARSE, "problem.loss", *({"name": "logit-adjusted", "strength": s} for s in (0.5, 1.0))),
    ),
    Method("FedAvgM", {"name": "FedAvgM", "weighting": "uniform"}, FINE, ONE_SCORE, **TWO_STAGES),
    optimiser("FedAdam"),
    optimiser("FedYogi"),
    Method("SCAFFOLD", {"name": "SCAFFOLD"}, FINE, ONE_SCORE, **TWO_STAGES),
    Method("CODA+", {"name": "CODA+"}, RANKED, AUC, **TWO_STAGES),
    Method("CODASCA", {"name": "CODASCA"}, RANKED, AUC, **TWO_STAGES),
    Method("CODASCA, momentum", {"name": "CODASCA", "momentum": 0.8}, RANKED, AUC, **TWO_STAGES),
    Method(
        "CODA+, compositional",
        {"name": "CODA+"},
        RANKED,
        {"name": "compositional-auc", "inner_step": 0.1},
        **TWO_STAGES,
    ),
    Method("FedX1, AUC", {"name": "FedX1"}, FINE, {"name": "pairwise", "risk": "auc"}, **TWO_STAGES),
    Method(
        "FedX2, partial AUC",
        {"name": "FedX2"},
        each(COARSE, "problem.temperature", 1.0, 2.0),
        {"name": "pairwise", "risk": "partial-auc"},
        **TWO_STAGES,
    ),
    Method(
        "FedX2, average precision",
        {"name": "FedX2"},
        FINE,
        {"name": "pairwise", "risk": "average-precision"},
        **TWO_STAGES,
    ),
)

_LOCAL = {"local_steps": 16, "batch_size": 32}


def table(name: str, about: str, file: str, seconds: float = 0.4, **more: Any) -> Task:
    """A table whose sites are the clients, with logistic regression."""
    return Task(
        name,
        about,
        {"table": file, "stratify": True, **more},
        {"name": "natural", "column": "site"},
        {"name": "logistic"},
        MEASURES,
        exchanges=100,
        local=_LOCAL,
        step=0.4,
        seconds=seconds,
    )


TASKS = (
    Task(
        "Fashion-MNIST",
        "1 % of positives, no class at two of 5 clients, a network of 32 units",
        {"name": "fashion-mnist", "stratify": True},
        {"name": "imbalanced", "clients": 5, "imratio": 0.01},
        {"name": "mlp", "hidden": [32]},
        MEASURES,
        exchanges=100,
        local=_LOCAL,
        step=0.1,
        seconds=1.7,
    ),
    Task(
        "PneumoniaMNIST",
        "chest X-rays, 5 % of positives at each of 5 clients, two convolutions",
        {"name": "pneumoniamnist", "images": True, "stratify": True},
        {"name": "imbalanced", "clients": 5, "imratio": 0.05, "disjoint": False},
        {"name": "small-cnn"},
        MEASURES,
        exchanges=60,
        local={"local_steps": 8, "batch_size": 32},
        step=0.1,
        evaluations=12,
        seconds=6.6,
    ),
    Task(
        "CIFAR-10",
        "10,000 pictures of 16x16 pixels, 5 % of positives, no class at two of 5 clients, two convolutions",
        {"name": "cifar10", "images": True, "first": 10_000, "side": 16, "stratify": True},
        {"name": "imbalanced", "clients": 5, "imratio": 0.05},
        {"name": "small-cnn"},
        MEASURES,
        exchanges=60,
        local={"local_steps": 8, "batch_size": 32},
        step=0.1,
        evaluations=12,
        seconds=8.4,
    ),
    table("health insurance", "poor health, 7 % of positives, 4 regions", "health-insurance-poor-health.csv"),
    table("admission", "any admission, 9 % of positives, 6 cities", "randhie-admission.csv", together="patient"),
    table("light chains", "death within 5 years, 12 % of positives, 9 years of sampling", "flchain-dead-5y.csv"),
)

SUITE = Suite(
    "rare-positives",
    "which method ranks rows best where positives are rare?",
    TASKS,
    METHODS,
    quick_tasks=("Fashion-MNIST", "light chains"),
    quick_share=0.2,
)
