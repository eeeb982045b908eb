"""The lines that DRFA's figures share.

DRFA and AFL come as boxed in the paper with the last iterate for their output, as boxed with the average of all
iterates (the box offers both), and as in the published code. A last variant is not in the paper's words: the published
code with the paper's γ taken for the step of a whole round, without the factor τ.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsaddle.reproductions.figure import Line

SOURCE = "Deng, Kamani, Mahdavi 2020, Distributionally Robust Federated Averaging"
DRFA, DRFA_MEAN = "DRFA (box)", "DRFA (box, average)"
DRFA_CODE, DRFA_ONCE = "DRFA (published)", "DRFA (published, γ/τ)"
AFL, AFL_MEAN, AFL_CODE = "AFL (box)", "AFL (box, average)", "AFL (published)"
Q_FEDAVG, FEDAVG, FEDAVG_EVEN = "q-FedAvg", "FedAvg", "FedAvg (uniform)"
VARIANTS = (
    ("as boxed", DRFA, AFL),
    ("as boxed, average output", DRFA_MEAN, AFL_MEAN),
    ("as published", DRFA_CODE, AFL_CODE),
    ("as published, γ/τ", DRFA_ONCE, AFL_CODE),
)

# The published code draws clients uniformly and weighs them with λ; DRFA's γ (not AFL's) shrinks by 0.9 every round.
AVERAGE: Mapping[str, Any] = {"output": "average"}
WEIGHT: Mapping[str, Any] = {"weighting": "weight"}
DECAY: Mapping[str, Any] = {"dual_decay": 0.9}


def contenders(
    shared: Mapping[str, Any], *, gamma: float, q: float, rounds: int, afl_rounds: int, sizes: bool = False
) -> list[Line]:
    """DRFA, AFL, q-FedAvg and FedAvg with 10 local steps (AFL: one, so that its rounds are cheap).

    Where clients have different `sizes`, FedAvg comes weighted by size as in its paper and uniform as in DRFA's code.
    """
    dual = {**shared, "dual_step": gamma}
    steps = {"local_steps": 10}
    even = Line(FEDAVG_EVEN, "FedAvg", {**shared, **steps, "weighting": "uniform"}, rounds, 3, "--")
    return [
        Line(DRFA, "DRFA", {**dual, **steps}, rounds, 0),
        Line(DRFA_MEAN, "DRFA", {**dual, **steps, **AVERAGE}, rounds, 0, ":"),
        Line(DRFA_CODE, "DRFA", {**dual, **steps, **WEIGHT, **DECAY}, rounds, 0, "--"),
        Line(DRFA_ONCE, "DRFA", {**dual, **steps, **WEIGHT, **DECAY, "dual_step": gamma / 10}, rounds, 4, "-."),
        Line(AFL, "AFL", dual, afl_rounds, 1),
        Line(AFL_MEAN, "AFL", {**dual, **AVERAGE}, afl_rounds, 1, ":"),
        Line(AFL_CODE, "AFL", {**dual, **WEIGHT}, afl_rounds, 1, "--"),
        Line(Q_FEDAVG, "q-FedAvg", {**shared, **steps, "q": q}, rounds, 2),
        Line(FEDAVG, "FedAvg", {**shared, **steps, "weighting": "size"}, rounds, 3),
        *([even] if sizes else []),
    ]
