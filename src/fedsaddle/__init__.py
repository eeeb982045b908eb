"""Federated learning when the average loss is the wrong objective.

Names are loaded when first used, so that importing the package, and asking the command line for help, costs nothing.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# Threads of a matrix product that wait for each other by spinning make torch many times slower on a busy machine;
# asleep they cost next to nothing. It counts only if torch is imported afterwards, and the user's own setting wins.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

if TYPE_CHECKING:
    from fedsaddle.algorithms.coda.coda import Coda as Coda
    from fedsaddle.algorithms.coda.coda import CodaPlus as CodaPlus
    from fedsaddle.algorithms.coda.codasca import Codasca as Codasca
    from fedsaddle.algorithms.drfa import Drfa as Drfa
    from fedsaddle.algorithms.drfa import DrfaGa as DrfaGa
    from fedsaddle.algorithms.estimators import MiniBatch as MiniBatch
    from fedsaddle.algorithms.estimators import Spider as Spider
    from fedsaddle.algorithms.estimators import Storm as Storm
    from fedsaddle.algorithms.fedavg import FedAvg as FedAvg
    from fedsaddle.algorithms.fedsgda import FedSgda as FedSgda
    from fedsaddle.algorithms.fedx.fedx1 import FedX1 as FedX1
    from fedsaddle.algorithms.fedx.fedx2 import FedX2 as FedX2
    from fedsaddle.algorithms.fedx.local_pair import LocalPair as LocalPair
    from fedsaddle.algorithms.fedx.privacy import ScorePrivacy as ScorePrivacy
    from fedsaddle.algorithms.qfedavg import QFedAvg as QFedAvg
    from fedsaddle.algorithms.sgda.local_sgda import LocalSgda as LocalSgda
    from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda as MomentumLocalSgda
    from fedsaddle.config.build import algorithm as algorithm
    from fedsaddle.config.build import load as load
    from fedsaddle.data.federated import federate as federate
    from fedsaddle.data.noise import Noise as Noise
    from fedsaddle.data.store import Lazy as Lazy
    from fedsaddle.data.store import Stacked as Stacked
    from fedsaddle.metrics import measures as measures
    from fedsaddle.numerics import projections as projections
    from fedsaddle.numerics import regularisers as regularisers
    from fedsaddle.numerics import schedules as schedules
    from fedsaddle.problems import losses as losses
    from fedsaddle.problems import models as models
    from fedsaddle.problems import outers as outers
    from fedsaddle.problems import pair_losses as pair_losses
    from fedsaddle.problems import risks as risks
    from fedsaddle.problems.minimax import Minimax as Minimax
    from fedsaddle.problems.pairwise import PairwiseRisk as PairwiseRisk
    from fedsaddle.problems.supervised import Supervised as Supervised
    from fedsaddle.runs.run import run as run

_WHERE = {
    "Drfa": "algorithms.drfa",
    "Coda": "algorithms.coda.coda",
    "CodaPlus": "algorithms.coda.coda",
    "Codasca": "algorithms.coda.codasca",
    "FedSgda": "algorithms.fedsgda",
    "LocalSgda": "algorithms.sgda.local_sgda",
    "MiniBatch": "algorithms.estimators",
    "Minimax": "problems.minimax",
    "MomentumLocalSgda": "algorithms.sgda.momentum",
    "DrfaGa": "algorithms.drfa",
    "FedAvg": "algorithms.fedavg",
    "FedX1": "algorithms.fedx.fedx1",
    "FedX2": "algorithms.fedx.fedx2",
    "LocalPair": "algorithms.fedx.local_pair",
    "PairwiseRisk": "problems.pairwise",
    "ScorePrivacy": "algorithms.fedx.privacy",
    "QFedAvg": "algorithms.qfedavg",
    "Lazy": "data.store",
    "Noise": "data.noise",
    "Stacked": "data.store",
    "Spider": "algorithms.estimators",
    "Storm": "algorithms.estimators",
    "Supervised": "problems.supervised",
    "federate": "data.federated",
    "algorithm": "config.build",
    "load": "config.build",
    "run": "runs.run",
}
_MODULES = {
    "losses": "problems.losses",
    "measures": "metrics.measures",
    "models": "problems.models",
    "outers": "problems.outers",
    "pair_losses": "problems.pair_losses",
    "risks": "problems.risks",
    "projections": "numerics.projections",
    "regularisers": "numerics.regularisers",
    "schedules": "numerics.schedules",
}

__all__ = sorted([*_WHERE, *_MODULES])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"fedsaddle.{_MODULES[name]}")
    if name in _WHERE:
        return getattr(import_module(f"fedsaddle.{_WHERE[name]}"), name)
    raise AttributeError(f"module 'fedsaddle' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*globals(), *__all__]
