"""The suite `games`: who solves min-max games best, at the same number of exchanges?"""

from __future__ import annotations

from typing import Any

from fedsaddle_papers.suites.suite import DUAL, PRIMAL, SERVER, Candidate, Method, Suite, Task, each


def ratios(*pairs: tuple[float, float]) -> tuple[Candidate, ...]:
    """Candidates of a primal and a dual step, both times the task's step."""
    return tuple({PRIMAL: x, DUAL: y} for x, y in pairs)


# Short steps for methods that stop beside the saddle, long ones for exact methods; some games want a faster ascent.
EQUAL = ratios((0.01, 0.01), (0.03, 0.03), (0.1, 0.1), (0.2, 0.2), (0.5, 0.5), (1.0, 1.0), (2.0, 2.0))
ASCENT = ratios((0.05, 0.25), (0.2, 1.0), (0.5, 2.5), (1.0, 5.0), (2.0, 10.0))
BOTH = (*ASCENT[:2], *EQUAL, *ASCENT[2:])  # the middle ones are those of a quick run
# For methods that look ahead, which bear longer steps; the middle ones are again those of a quick run.
AHEAD = (*EQUAL[2:6], *ratios((2.0, 2.0), (3.0, 3.0), (5.0, 5.0), (10.0, 10.0), (15.0, 15.0)), *ASCENT[2:])
# For methods with one more knob.
FEW = (*ratios((0.01, 0.01), (0.03, 0.03), (0.1, 0.1), (0.3, 0.3)), *ratios((0.2, 1.0), (0.5, 2.5)))

# All rows and all clients, whatever the task says: rounds are then a map of the point.
WHOLE = {"batch_size": None, "sampled_clients": None}

METHODS = (
    Method("Local SGDA", {"name": "Local SGDA"}, BOTH),
    Method("Local SGDA, step falling", {"name": "Local SGDA"}, BOTH, steps="two stages"),
    Method("Momentum Local SGDA", {"name": "Momentum Local SGDA"}, BOTH),
    Method("Local SGDA+", {"name": "Local SGDA+", "snapshot_every": 10}, BOTH),
    Method("FESS-GDA", {"name": "FESS-GDA", "trailing": 0.1}, each(FEW, "algorithm.smoothing", 0.1, 1.0)),
    Method("FedSGDA-MB", {"name": "FedSGDA-MB"}, BOTH, exchanges=2),
    Method("FedSGDA-STORM", {"name": "FedSGDA-STORM"}, BOTH, exchanges=2),
    Method("FedSGDA-SPIDER", {"name": "FedSGDA-SPIDER"}, BOTH, exchanges=2),
    Method("FedSGDA+", {"name": "FedSGDA+"}, each(FEW, SERVER, 0.5, 2.0)),
    Method("FedGDA-GT", {"name": "FedGDA-GT"}, BOTH, exchanges=2),
    Method("ProxSkip-VIP", {"name": "ProxSkip-VIP"}, BOTH),
    Method("CODASCA", {"name": "CODASCA", "stage_rounds": 1_000_000, "proximal": 0.0}, BOTH),
    Method("Extragradient", {"name": "Extragradient", **WHOLE}, AHEAD, exchanges=2),
    Method("Optimistic", {"name": "Optimistic", **WHOLE}, AHEAD),
    Method("Local Extragradient", {"name": "Local Extragradient"}, BOTH),
    Method("Local Extragradient, variates", {"name": "Local Extragradient", "control_variates": True}, BOTH),
    Method("FedGDA-GT, Anderson", {"name": "FedGDA-GT", "anderson": 10, "sampled_clients": None}, BOTH, exchanges=2),
    Method("Extragradient, Anderson", {"name": "Extragradient", "anderson": 10, **WHOLE}, AHEAD, exchanges=2),
)

PHI, DISTANCE = "squared_gradient_of_phi", "squared_distance_to_saddle"
_ROWS = {"name": "nonconvex-pl", "clients": 20, "rows": 50, "dimension": 20, "test_share": 0.0}


def made_up(name: str, about: str, problem: dict[str, Any], measure: str, **local: Any) -> Task:
    """A game on rows that the seed draws; tuned on other rows."""
    return Task(
        name,
        about,
        _ROWS,
        {"name": "natural", "column": "client"},
        {"name": "none"},
        (measure,),
        exchanges=400,
        local={"local_steps": 10, "batch_size": 10, **local},
        step=0.03,
        scaled=(PRIMAL, DUAL),
        seconds=0.5,
        problem=problem,
        validated=False,
        dtype="float64",
    )


TASKS = (
    made_up("quadratic", "strongly convex and concave, μ = 1", {"name": "quadratic", "mu": 1.0}, DISTANCE),
    made_up("nearly bilinear", "the same with μ = 0.1", {"name": "quadratic", "mu": 0.1}, DISTANCE),
    made_up(
        "nonconvex-PL",
        "FedSGDA's simulation with 20 clients, 10 of which take part in a round (all with ProxSkip-VIP)",
        {"name": "nonconvex-pl"},
        PHI,
        sampled_clients=10,
    ),
    Task(
        "fair clothes",
        "the worst mixture of classes of Fashion-MNIST, 10 clients with Dirichlet(0.3) shares, 5 a round, logistic",
        {"name": "fashion-mnist"},
        {"name": "dirichlet", "clients": 10, "alpha": 0.3},
        {"name": "logistic"},
        ("worst_class_accuracy",),
        exchanges=100,
        local={"local_steps": 10, "batch_size": 32, "sampled_clients": 5},
        step=0.03,
        scaled=(PRIMAL, DUAL),
        problem={"name": "class-fair"},
        seconds=3.4,
    ),
    Task(
        "robust digits",
        "one perturbation of all digits, 10 clients with Dirichlet(0.3) shares, 5 a round, a network of 32 units",
        {"name": "digits"},
        {"name": "dirichlet", "clients": 10, "alpha": 0.3},
        {"name": "mlp", "hidden": [32]},
        ("robust_accuracy",),
        exchanges=200,
        local={"local_steps": 10, "batch_size": 32, "sampled_clients": 5},
        step=1.2,
        scaled=(PRIMAL, DUAL),
        problem={"name": "robust", "radius": 1.0},
        seconds=0.9,
    ),
)

SUITE = Suite(
    "games",
    "which method solves min-max games in the fewest exchanges?",
    TASKS,
    METHODS,
    quick_tasks=("quadratic", "robust digits"),
    quick_share=0.25,
)
