"""The lines that DRFA's figures share. DRFA and AFL come twice: as boxed in the paper and as in its published code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedsaddle.experiments.figure import Line

SOURCE = "Deng, Kamani, Mahdavi 2020, Distributionally Robust Federated Averaging"
DRFA, DRFA_CODE = "DRFA (box)", "DRFA (published)"
AFL, AFL_CODE = "AFL (box)", "AFL (published)"
Q_FEDAVG, FEDAVG, FEDAVG_EVEN = "q-FedAvg", "FedAvg", "FedAvg (uniform)"
VARIANTS = (("as boxed", DRFA, AFL), ("as published", DRFA_CODE, AFL_CODE))

# The published code draws clients uniformly and weighs them with λ; DRFA's γ (not AFL's) shrinks by 0.9 every round.
DRFA_PUBLISHED: Mapping[str, Any] = {"weighting": "weight", "dual_decay": 0.9}
AFL_PUBLISHED: Mapping[str, Any] = {"weighting": "weight"}


def contenders(
    shared: Mapping[str, Any],
    *,
    gamma: float,
    q: float,
    rounds: int,
    afl_rounds: int | None = None,
    sizes: bool = False,
) -> tuple[Line, ...]:
    """DRFA, AFL, q-FedAvg and FedAvg with 10 local steps (AFL: one).

    Where clients have different `sizes`, FedAvg comes weighted by size as in its paper and uniform as in DRFA's code.
    """
    dual = {**shared, "dual_step": gamma}
    steps = {"local_steps": 10}
    longer = afl_rounds or rounds
    even = Line(FEDAVG_EVEN, "FedAvg", {**shared, **steps, "weighting": "uniform"}, rounds, 3, "--")
    return (
        Line(DRFA, "DRFA", {**dual, **steps}, rounds, 0),
        Line(DRFA_CODE, "DRFA", {**dual, **steps, **DRFA_PUBLISHED}, rounds, 0, "--"),
        Line(AFL, "AFL", dual, longer, 1),
        Line(AFL_CODE, "AFL", {**dual, **AFL_PUBLISHED}, longer, 1, "--"),
        Line(Q_FEDAVG, "q-FedAvg", {**shared, **steps, "q": q}, rounds, 2),
        Line(FEDAVG, "FedAvg", {**shared, **steps, "weighting": "size"}, rounds, 3),
        *((even,) if sizes else ()),
    )
