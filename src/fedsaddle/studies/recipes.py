"""How rows of a table are trained by default: which problem fits an algorithm, its step and stages, and the penalty.

The candidates of a search, the config that `fedsaddle init --csv` writes and the estimators all follow these rules.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TypeVar

from fedsaddle.config.registry import Entry
from fedsaddle.files import Json

T = TypeVar("T")

TEST_SHARE, VALIDATION_SHARE = 0.2, 0.16  # of the rows that are held out
LOCAL_STEPS, BATCH_SIZE = 8, 64
STAGE_ROUNDS = 30  # at most; then the step falls
STAGE_FACTOR = 0.3  # by which it falls
RANKERS = ("CODA", "CODA+", "CODASCA", "NPA")  # min-max algorithms for the AUROC; their steps go in stages
CONSTANT = ("DRFA", "DRFA-Prox", "DRFA-GA", "AFL", "q-FedAvg")  # whose step may follow no cosine
WORST = CONSTANT  # whose aim is the worst client
TREES = ("BoostedTrees",)  # whose model is a forest
RANKING_PROBLEMS = {"minimax": "auc", "pairwise": "pairwise", "minimisation": "supervised"}  # by kind of algorithm


def problem_for(algorithm: str, known: Entry) -> str:
    """The problem that an algorithm is for."""
    if known.kind == "minimax" and algorithm not in RANKERS:
        return "class-fair"
    return RANKING_PROBLEMS[known.kind]


def likelihood(l2: float | None = None, loss: str = "logistic") -> dict[str, Json]:
    """The supervised problem: without a penalty of biases, and a logistic one starts from the base rate."""
    found: dict[str, Json] = {"name": "supervised", "loss": loss}
    if l2 is not None:
        found["l2"] = l2
    found["l2_biases"] = False
    if loss == "logistic":
        found["from_base_rate"] = True
    return found


def pairs(risk: str = "auc") -> dict[str, Json]:
    """The pairwise problem; the logistic loss is the one of the AUROC."""
    return {"name": "pairwise", "risk": risk, **({"loss": "logistic"} if risk == "auc" else {})}


def auc() -> dict[str, Json]:
    """The min-max problem of the AUROC, of sigmoids of the scores, so that any step is safe."""
    return {"name": "auc", "sigmoid": True}


def problem_section(name: str, rows: int, loss: str = "logistic", algorithm: str = "") -> dict[str, Json]:
    """The section [problem] for a number of training rows, without keys that have their default."""
    if algorithm in TREES:  # which have a penalty and an intercept of their own
        return {"name": name, "loss": loss}
    made: dict[str, dict[str, Json]] = {"supervised": likelihood(1.0 / rows, loss), "auc": auc(), "pairwise": pairs()}
    return made.get(name, {"name": name})


def staged(first: float) -> dict[str, Json]:
    """A step that falls from stage to stage."""
    return {"name": "geometric", "first": first, "factor": STAGE_FACTOR}


def first_step(kind: str) -> float:
    """The step that a run begins with, by the kind of algorithm."""
    return 0.3 if kind == "minimisation" else 0.1


def default_step(
    algorithm: str, kind: str, rounds: int, first: float | None = None
) -> float | Mapping[str, Json] | None:
    """The step of the model, which begins with `first`; None: the algorithm's own default."""
    first = first_step(kind) if first is None else first
    if algorithm in CONSTANT:
        return first
    if algorithm in RANKERS:
        return staged(first)
    return None if kind == "minimax" else {"name": "cosine", "first": first, "rounds": rounds}


def taken(known: Entry, section: Mapping[str, T]) -> dict[str, T]:
    """The keys of a section that the algorithm takes: Newton has no local steps, no batches and no step."""
    takes = inspect.signature(known.load()).parameters
    return {key: value for key, value in section.items() if key == "name" or key in takes}


def stages(algorithm: str, rounds: int) -> dict[str, Json]:
    """What algorithms with stages are given besides; sites count by their rows, as in the pooled AUROC."""
    if algorithm not in RANKERS:
        return {}
    return {"stage_rounds": min(STAGE_ROUNDS, max(1, rounds // 3)), "weighting": "size"}
