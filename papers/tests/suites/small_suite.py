"""A suite of seconds, on data that come with scikit-learn."""

from fedsaddle_papers.suites.suite import Method, Suite, Task, each, steps

DIGITS = Task(
    "digits",
    "one or two digits at each client",
    {"name": "digits"},
    {"name": "by-class", "clients": 5, "classes_per_client": 2},
    {"name": "logistic"},
    ("test worst", "test global"),
    exchanges=8,
    local={"local_steps": 3, "batch_size": 16},
    step=0.1,
    evaluations=4,
)
TUMOURS = Task(
    "tumours",
    "two classes",
    {"name": "breast-cancer", "stratify": True},
    {"name": "iid", "clients": 3},
    {"name": "logistic"},
    ("test worst", "auroc"),
    exchanges=6,
    local={"local_steps": 2, "batch_size": 16},
    step=0.1,
    evaluations=3,
)
METHODS = (
    Method("FedAvg", {"name": "FedAvg"}, steps(0.1, 1.0)),
    Method("FedAvg, tiny steps", {"name": "FedAvg"}, steps(1e-6, 1e-5)),
    Method("DRFA", {"name": "DRFA"}, each(steps(1.0), "algorithm.dual_step", 0.01, 0.1), exchanges=2),
)
SMALL = Suite("small", "does it work?", (DIGITS, TUMOURS), METHODS, seeds=2, quick_tasks=("digits",), quick_share=0.5)
NO_SUITE = 3
