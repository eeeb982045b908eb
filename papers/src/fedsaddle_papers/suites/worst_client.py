"""The suite `worst-client`: who serves the worst client best, at the same number of exchanges?"""

from __future__ import annotations

from fedsaddle_papers.suites.suite import SERVER, Method, Suite, Task, each, steps

# Times the task's step, for methods with one knob and with two.
FINE = steps(0.03, 0.1, 0.3, 0.6, 1.0, 2.0, 5.0, 15.0)
COARSE = steps(0.05, 0.4, 2.0, 10.0)
GAMMAS = each(COARSE, "algorithm.dual_step", 0.0005, 0.005)
LONGER = steps(0.3, 1.5, 6.0, 25.0)  # for PropFair, whose gradients are divided by what its ceiling leaves
# FedMGDA+ normalises updates, so that the server's step is what counts.
LENGTHS = each(steps(1.0), SERVER, 0.02, 0.1, 0.5, 2.0)
WEIGHT = {"weighting": "weight"}  # all clients, with λ as weights
DRAW = {"weighting": "sample"}  # clients drawn by λ, as in the box
WORST, GLOBAL, AUROC = "test worst", "test global", "worst_client_auroc"

METHODS = (
    Method("FedAvg", {"name": "FedAvg"}, FINE),
    Method("FedAvg, clients alike", {"name": "FedAvg", "weighting": "uniform"}, FINE),
    Method("FedProx", {"name": "FedProx"}, each(COARSE, "algorithm.proximal", 0.01, 0.1)),
    Method("SCAFFOLD", {"name": "SCAFFOLD"}, FINE),
    Method("q-FedAvg", {"name": "q-FedAvg"}, each(COARSE, "algorithm.q", 1.0, 5.0)),
    Method("AFL", {"name": "AFL", **WEIGHT}, each(COARSE, "algorithm.dual_step", 0.003, 0.03), exchanges=2),
    Method("DRFA", {"name": "DRFA", **WEIGHT}, GAMMAS, exchanges=2),
    Method("DRFA, drawn by λ", {"name": "DRFA", **DRAW}, GAMMAS, exchanges=2),
    Method("Delta-FL", {"name": "Delta-FL"}, each(COARSE, "algorithm.tail", 0.25, 0.5), exchanges=2),
    Method("TERM", {"name": "TERM"}, each(COARSE, "algorithm.tilt", 1.0, 5.0), exchanges=2),
    Method("PropFair", {"name": "PropFair"}, each(LONGER, "algorithm.ceiling", 2.0, 5.0)),
    Method("FedMGDA+", {"name": "FedMGDA+"}, each(LENGTHS, "algorithm.freedom", 0.1, 1.0)),
    Method("AAggFF-S", {"name": "AAggFF-S"}, FINE, exchanges=2),
    Method("Exponential DRO", {"name": "Exponential DRO"}, each(COARSE, "algorithm.temperature", 0.5, 2.0)),
)

_LOCAL = {"local_steps": 10, "batch_size": 50}

TASKS = (
    Task(
        "Fashion-MNIST",
        "one class of clothes at each of 10 clients, logistic regression",
        {"name": "fashion-mnist"},
        {"name": "by-class", "clients": 10, "classes_per_client": 1},
        {"name": "logistic"},
        (WORST, GLOBAL),
        exchanges=400,
        local=_LOCAL,
        step=0.03,
        seconds=4.0,
    ),
    Task(
        "Adult",
        "income, one of 16 educations at each client, logistic regression on 108 features",
        {"name": "adult", "encoding": "onehot"},
        {"name": "natural", "column": "education"},
        {"name": "logistic"},
        (WORST, GLOBAL),
        exchanges=400,
        local=_LOCAL,
        step=0.1,
        seconds=2.6,
    ),
    Task(
        "CIFAR-10",
        "10,000 pictures at 10 clients, Dirichlet(0.3) shares of classes, two convolutions",
        {"name": "cifar10", "images": True, "first": 10_000, "side": 16},
        {"name": "dirichlet", "clients": 10, "alpha": 0.3},
        {"name": "small-cnn"},
        (WORST, GLOBAL),
        exchanges=120,
        local={"local_steps": 10, "batch_size": 20},
        step=0.1,
        evaluations=8,
        seconds=15.0,
    ),
    Task(
        "heart disease",
        "4 hospitals with 36 to 93 % of positives, logistic regression",
        {"table": "uci-heart-disease.csv", "stratify": True},
        {"name": "natural", "column": "site"},
        {"name": "logistic"},
        (WORST, GLOBAL),
        exchanges=200,
        local={"local_steps": 10, "batch_size": 20},
        step=0.1,
        seconds=0.3,
    ),
    Task(
        "light chains",
        "death within 5 years, 12 % of positives, 9 years of sampling, AUROC of the worst one",
        {"table": "flchain-dead-5y.csv", "stratify": True},
        {"name": "natural", "column": "site"},
        {"name": "logistic"},
        (AUROC, WORST),
        exchanges=200,
        local=_LOCAL,
        step=0.1,
        extra=(AUROC,),
        seconds=1.0,
    ),
)

SUITE = Suite(
    "worst-client",
    "which method serves the worst client best, with unlike clients?",
    TASKS,
    METHODS,
    quick_tasks=("Fashion-MNIST", "heart disease"),
    quick_share=0.2,
)
