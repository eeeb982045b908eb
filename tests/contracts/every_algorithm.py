"""Every algorithm and variant, one line each. All contracts run over this table.

What stands before a line's first comma is a name of the registry. A name without a line gets one automatically, with
small options and on one world; write a line for more options and worlds, for arguments that the name requires, and
where the server sees replies other than averaged: `shows` names their fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from _pytest.mark import ParameterSet
from remembering import Remembering
from worlds import (
    AUC,
    AUC_DROPOUT,
    AUC_MARGIN,
    COMPOSITIONAL,
    COX,
    DROPOUT,
    EVERY_MINIMAX,
    FAIR,
    FOREST,
    GAME,
    GROUPS,
    LINEAR_PAIRS,
    LOGISTIC,
    METRIC,
    MINIMAX,
    MINIMISATION,
    MLP,
    PAIRS,
    PAIRS_DROPOUT,
    PARTIAL,
    PATIENTS,
    RANKING,
    RIDGE,
    TWO_WAY,
    VMAP,
    World,
)

from fedsaddle.algorithms.aaggff import AaggFf
from fedsaddle.algorithms.anderson import Anderson
from fedsaddle.algorithms.boosted_trees import BoostedTrees
from fedsaddle.algorithms.coda.coda import Coda, CodaPlus
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.delta_fl import DeltaFl
from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.algorithms.exponential_dro import ExponentialDro
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.fedgda_gt import FedGdaGt
from fedsaddle.algorithms.fedmgda import FedMgda
from fedsaddle.algorithms.fednova import FedNova
from fedsaddle.algorithms.fedsgda import FedSgda, Spider, Storm
from fedsaddle.algorithms.fedx.fedx1 import FedX1
from fedsaddle.algorithms.fedx.fedx2 import FedX2
from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.algorithms.fedx.scores import ScorePrivacy
from fedsaddle.algorithms.newton import Newton
from fedsaddle.algorithms.personal import Personal
from fedsaddle.algorithms.propfair import PropFair
from fedsaddle.algorithms.proxskip import ProxSkip
from fedsaddle.algorithms.qfedavg import QFedAvg
from fedsaddle.algorithms.scaffold import Scaffold
from fedsaddle.algorithms.sgda.extragradient import Extragradient, LocalExtragradient, Optimistic
from fedsaddle.algorithms.sgda.fedsgda_plus import FedSgdaPlus
from fedsaddle.algorithms.sgda.fess_gda import FessGda
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.algorithms.term import Term
from fedsaddle.config.arguments import arguments_of
from fedsaddle.config.registry import ALGORITHMS, Entry
from fedsaddle.numerics.optimisers import Adam, Momentum, ServerAdagrad, ServerAdam, ServerYogi
from fedsaddle.numerics.projections import Ball, Box
from fedsaddle.numerics.regularisers import Concave, KullbackLeibler, Quadratic
from fedsaddle.numerics.schedules import Cosine, Geometric, Warmup


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[..., Any]
    options: dict[str, Any]
    family: tuple[World, ...] = MINIMISATION
    shows: tuple[str, ...] = ()
    slow: bool = False  # a variant of a line that is not: with the slow tests
    draws_rows: bool = True  # or it takes all rows at every step

    @property
    def covers(self) -> str:
        """The name of the registry that it is a line of."""
        return self.name.partition(",")[0]


LOCAL = {"local_steps": 3, "batch_size": 3, "primal_step": 0.2, "sampled_clients": 4}
DUAL = LOCAL | {"dual_step": 0.02}
LOSS = ("LocalLoss.loss",)
PRIOR = torch.tensor([0.3, 0.1, 0.1, 0.2, 0.2, 0.1], dtype=torch.float64)
QUARTIC = Concave(lambda u: -3 * (u - 0.2).pow(4).sum(), most_steps=200)
GAMES = {"local_steps": 3, "batch_size": 3, "primal_step": 0.1, "dual_step": 0.2, "sampled_clients": 4}
STAGES = {
    "local_steps": 3, "batch_size": 3, "primal_step": Geometric(0.2, 0.5), "sampled_clients": 4, "stage_rounds": 2,
    "proximal": 0.1,
}  # fmt: skip
PAIRED = {"local_steps": 3, "batch_size": 3, "second_batch_size": 2, "primal_step": 0.02, "sampled_clients": 4}
WARM = {"primal_step": Warmup(2, of=Cosine(0.2, 9, last=0.02))}
NOISE = ScorePrivacy(bound=1.0, noise=0.5)
SCORES = ("First.scores1", "First.scores2", "Local.scores1", "Local.scores2")
TOY = ("Work.scores", "Work.visits")


def personal(make: Callable[..., Any], *layers: str) -> Callable[..., Personal]:
    """The algorithm with layers that stay at the clients."""
    return lambda problem, **options: Personal(algorithm=make(problem=problem, **options), layers=list(layers))


def anderson(make: Callable[..., Any], **mixing: Any) -> Callable[..., Anderson]:
    """The algorithm with Anderson mixing, also of random rounds."""
    return lambda problem, **options: Anderson(make(problem=problem, **options), exact=False, **mixing)


EXTRA = {"batch_size": 3, "primal_step": 0.1, "dual_step": 0.2, "sampled_clients": 4}
ALL_ROWS = EXTRA | {"batch_size": None}

# fmt: off
TABLE = [
    Case("Personal, head of FedAvg", personal(FedAvg, "b"), LOCAL, (VMAP,), slow=True),
    Case("Personal, first layer of FedAvg, average", personal(FedAvg, "1.*"), LOCAL | {"output": "average", "sampled_clients": None}, (MLP,), slow=True),  # noqa: E501
    Case("Personal, head of FedAdam", personal(FedAvg, "b"), LOCAL | {"server_optimiser": ServerAdam(0.05)}, (VMAP,), slow=True),  # noqa: E501
    Case("Personal, head of DRFA", personal(Drfa, "b"), DUAL, (VMAP,), LOSS),
    Case("Personal, biases of DRFA-GA", personal(DrfaGa, "*.bias"), DUAL, (VMAP,), LOSS, slow=True),
    Case("Personal, head of TERM", personal(Term, "b"), LOCAL, (VMAP,), LOSS, slow=True),
    Case("Personal, head of PropFair", personal(PropFair, "b"), LOCAL, (VMAP,), slow=True),
    Case("Personal, head of Local SGDA", personal(LocalSgda, "b"), GAMES, (AUC,), slow=True),
    Case("Personal, head of Local SGDA+, snapshots inside rounds", personal(LocalSgda, "b"), GAMES | {"snapshot_every": 2}, (AUC,), slow=True),  # noqa: E501
    Case("FedAvg", FedAvg, LOCAL),
    Case("FedAvg, uniform, all", FedAvg, LOCAL | {"weighting": "uniform", "sampled_clients": None}),
    Case("FedAvg, ball, average", FedAvg, LOCAL | {"projection": Ball(1.0), "output": "average"}),
    Case("FedAvgM", FedAvg, LOCAL | {"server_momentum": 0.9, "nesterov": True}),
    Case("FedAvgM, heavy ball, all, projected", FedAvg, LOCAL | {"server_momentum": 0.5, "sampled_clients": None, "projection": Ball(1.0)}),  # noqa: E501
    Case("FedAvg, dropout", FedAvg, LOCAL, (DROPOUT,)),
    Case("FedAvg, warm-up", FedAvg, LOCAL | WARM, (LOGISTIC,), slow=True),
    Case("FedAvg, Adam", FedAvg, LOCAL | {"local_optimiser": Adam(weight_decay=0.1), "primal_step": 0.02}, (MLP,)),
    Case("FedAdam", FedAvg, LOCAL | {"server_optimiser": ServerAdam(0.05)}, (MLP,)),
    Case("FedYogi, projected, all", FedAvg, LOCAL | {"server_optimiser": ServerYogi(0.05), "sampled_clients": None, "projection": Ball(1.0)}, (LOGISTIC,), slow=True),  # noqa: E501
    Case("FedAdagrad", FedAvg, LOCAL | {"server_optimiser": ServerAdagrad(0.05)}, (LOGISTIC,), slow=True),
    Case("DRFA, Nesterov", Drfa, DUAL | {"local_optimiser": Momentum(0.9, nesterov=True)}, (LOGISTIC,), LOSS, slow=True),  # noqa: E501
    Case("DRFA-GA, Adam", DrfaGa, DUAL | {"local_optimiser": Adam(), "primal_step": 0.02}, (LOGISTIC,), LOSS, slow=True),  # noqa: E501
    Case("Local SGDA, Adam", LocalSgda, GAMES | {"local_optimiser": Adam(), "primal_step": 0.02}, MINIMAX, slow=True),
    Case("Local SGDA+, momentum, snapshots inside rounds", LocalSgda, GAMES | {"local_optimiser": Momentum(), "snapshot_every": 2}, (FAIR,), slow=True),  # noqa: E501
    Case("CODA+, Adam", CodaPlus, STAGES | {"local_optimiser": Adam(), "primal_step": 0.02}, (FAIR,), slow=True),
    Case("q-FedAvg, warm-up", QFedAvg, LOCAL | WARM, (LOGISTIC,), slow=True),
    Case("DRFA, warm-up", Drfa, LOCAL | WARM | {"dual_step": Warmup(3, of=0.02)}, (LOGISTIC,), LOSS, slow=True),
    Case("DRFA-GA, warm-up", DrfaGa, LOCAL | WARM | {"dual_step": Warmup(3, of=0.02)}, (LOGISTIC,), LOSS, slow=True),
    Case("CODASCA, warm-up", Codasca, STAGES | {"primal_step": Warmup(3, of=Geometric(0.2, 0.5))}, (GAME,), slow=True),
    Case("q-FedAvg", QFedAvg, LOCAL | {"q": 0.5}),
    Case("q-FedAvg, by size, box", QFedAvg, LOCAL | {"q": 2.0, "sampling": "size", "projection": Box(-0.5, 0.5)}),
    Case("Delta-FL", DeltaFl, LOCAL | {"tail": 0.8, "sampled_clients": 5}, (LOGISTIC,), LOSS),
    Case("Delta-FL, fractional, counts", DeltaFl, LOCAL | {"boundary": "fractional", "threshold": "counts"}, (LOGISTIC,)),  # noqa: E501
    Case("TERM", Term, LOCAL, (LOGISTIC,), LOSS),
    Case("TERM, running, by size", Term, LOCAL | {"normaliser": "running", "sampling": "size"}, (MLP,), LOSS, slow=True),  # noqa: E501
    Case("AAggFF-S", AaggFf, LOCAL | {"update": "newton", "sampled_clients": None}, (LOGISTIC,), LOSS),
    Case("AAggFF-D", AaggFf, LOCAL | {"update": "entropy"}, (LOGISTIC,), LOSS),
    Case("PropFair", PropFair, LOCAL, (VMAP,)),
    Case("FedProx", FedAvg, LOCAL | {"proximal": 0.3}, (LOGISTIC,)),
    Case("FedNova", FedNova, {"epochs": 1.5, "batch_size": 3, "primal_step": 0.2, "sampled_clients": 4}, (LOGISTIC,)),
    Case("Exponential DRO", ExponentialDro, LOCAL | {"temperature": 2.0}, (LOGISTIC,)),
    Case("FedMGDA+", FedMgda, LOCAL, (LOGISTIC,), ("Moved.update",)),
    Case("SCAFFOLD", Scaffold, LOCAL, (LOGISTIC, MLP)),
    Case("SCAFFOLD, all, by size, longer steps", Scaffold, LOCAL | {"sampled_clients": None, "weighting": "size", "global_step": 1.2}, (MLP,), slow=True),  # noqa: E501
    Case("Newton", Newton, {"sampled_clients": 4, "missing": "go on"}, (RIDGE, COX), draws_rows=False),
    Case("Newton, wait, sandwich", Newton, {"sampled_clients": 5, "sandwich": True, "damping": 0.9, "tolerance": 0.9}, (PATIENTS,), draws_rows=False),  # noqa: E501
    Case("BoostedTrees", BoostedTrees, {"sampled_clients": 4, "parallel": 2, "bins": 4, "least_rows": 1, "least_curvature": 0.01, "shrinkage": 0.5}, (FOREST,)),  # noqa: E501
    Case("AFL", Drfa, DUAL | {"local_steps": 1}, shows=LOSS),
    Case("DRFA", Drfa, DUAL, shows=LOSS),
    Case("DRFA, average, ball", Drfa, DUAL | {"output": "average", "projection": Ball(1.0)}, shows=LOSS),
    Case("DRFA, weight, decay", Drfa, DUAL | {"weighting": "weight", "dual_decay": 0.9}, shows=LOSS),
    Case("DRFA, weight, all, average", Drfa, DUAL | {"weighting": "weight", "sampled_clients": None, "output": "average"}, shows=LOSS),  # noqa: E501
    Case("DRFA, ceiling", Drfa, DUAL | {"mixture_ceiling": 1.2, "dual_step": 0.2}, (LOGISTIC,), LOSS),
    Case("DRFA-Prox, quadratic", Drfa, DUAL | {"regulariser": Quadratic(5.0, PRIOR)}, shows=LOSS),
    Case("DRFA-Prox, KL", Drfa, DUAL | {"regulariser": KullbackLeibler(0.5)}, shows=LOSS),
    Case("DRFA-Prox, general", Drfa, DUAL | {"regulariser": QUARTIC}, family=(LOGISTIC,), shows=LOSS),
    Case("DRFA-GA", DrfaGa, DUAL, shows=LOSS),
    Case("DRFA-GA, KL, average", DrfaGa, DUAL | {"regulariser": KullbackLeibler(0.5), "output": "average", "average_after": 2}, shows=LOSS),  # noqa: E501
    Case("DRFA-GA, ceiling", DrfaGa, DUAL | {"mixture_ceiling": 1.2, "dual_step": 0.2}, (LOGISTIC,), LOSS),
    Case("Local SGDA", LocalSgda, GAMES, EVERY_MINIMAX),
    Case("Local SGDA, all, average", LocalSgda, GAMES | {"sampled_clients": None, "output": "average"}, MINIMAX),
    Case("Local SGDA, by size, ascent at the server", LocalSgda, GAMES | {"weighting": "size", "ascent": "server"}, (GROUPS, FAIR)),  # noqa: E501
    Case("Local SGDA, random", LocalSgda, GAMES | {"output": "random"}, MINIMAX),
    Case("Local SGDA+", LocalSgda, GAMES | {"snapshot_every": 6}, MINIMAX),
    Case("Local SGDA+, snapshots inside rounds", LocalSgda, GAMES | {"snapshot_every": 2}, MINIMAX),
    Case("Momentum Local SGDA", MomentumLocalSgda, GAMES, EVERY_MINIMAX),
    Case("Momentum Local SGDA, keep", MomentumLocalSgda, GAMES | {"momentum_at_sync": "keep"}, MINIMAX),
    Case("Momentum Local SGDA, reset", MomentumLocalSgda, GAMES | {"momentum_at_sync": "reset", "output": "average"}, MINIMAX),  # noqa: E501
    Case("Momentum Local SGDA+", MomentumLocalSgda, GAMES | {"snapshot_every": 4, "momentum_at_sync": "keep"}, MINIMAX),
    Case("FESS-GDA", FessGda, GAMES | {"smoothing": 0.5, "server_dual_step": 1.2}, (FAIR,)),
    Case("FESS-GDA, average", FessGda, GAMES | {"output": "average", "sampled_clients": None}, (FAIR,), slow=True),
    Case("FedSGDA+", FedSgdaPlus, GAMES | {"server_step": 1.5, "snapshot_rounds": 2}, (FAIR,)),
    Case("FedGDA-GT", FedGdaGt, {"local_steps": 3, "dual_step": 0.2, "sampled_clients": 4}, (FAIR,), draws_rows=False),
    Case("Extragradient", Extragradient, EXTRA, MINIMAX),
    Case("Extragradient, all rows, average", Extragradient, ALL_ROWS | {"output": "average"}, (GAME,), draws_rows=False),  # noqa: E501
    Case("Optimistic", Optimistic, EXTRA, MINIMAX),
    Case("Optimistic, average", Optimistic, EXTRA | {"output": "average"}, (GAME,), slow=True),
    Case("Local Extragradient", LocalExtragradient, GAMES, EVERY_MINIMAX),
    Case("Local Extragradient, control variates", LocalExtragradient, GAMES | {"control_variates": True}, (GAME,)),
    Case("Anderson, of extragradient", anderson(Extragradient), ALL_ROWS, (GAME,), draws_rows=False),
    Case("Anderson, of local extragradient with control variates", anderson(LocalExtragradient, memory=2), GAMES | {"control_variates": True}, (FAIR,)),  # noqa: E501
    Case("Anderson, of FedAvg", anderson(FedAvg, memory=3), LOCAL, (LOGISTIC,)),
    Case("ProxSkip-VIP", ProxSkip, {"chance": 0.4, "batch_size": 3, "dual_step": 0.2}, (FAIR,)),
    Case("FedSGDA-MB", FedSgda, GAMES, MINIMAX),
    Case("FedSGDA-MB, all, average", FedSgda, GAMES | {"sampled_clients": None, "output": "average"}, MINIMAX),
    Case("FedSGDA-STORM", FedSgda, GAMES | {"estimator": Storm()}, EVERY_MINIMAX),
    Case("FedSGDA-SPIDER", FedSgda, GAMES | {"estimator": Spider(period=2, large_cohort=5), "output": "random"}, MINIMAX),  # noqa: E501
    Case("CODA+", CodaPlus, STAGES, EVERY_MINIMAX),
    Case("CODA+, average, growing windows", CodaPlus, STAGES | {"output": "average", "local_steps": Geometric(2, 1.5)}, MINIMAX),  # noqa: E501
    Case("CODA", Coda, STAGES | {"stage_rounds": 1}, (AUC, AUC_MARGIN)),
    Case("NPA", CodaPlus, STAGES | {"local_steps": 1}, MINIMAX),
    Case("CODASCA", Codasca, STAGES, EVERY_MINIMAX),
    Case("CODASCA, all, root", Codasca, STAGES | {"sampled_clients": None, "global_step": "sqrt"}, (AUC_MARGIN, GAME)),
    Case("CODASCA, Adam", Codasca, STAGES | {"local_optimiser": Adam(), "primal_step": Geometric(0.02, 0.5)}, (GAME,), slow=True),  # noqa: E501
    Case("CODASCA, random", Codasca, STAGES | {"output": "random", "global_step": 1.1}, MINIMAX),
    Case("CODASCA, momentum", Codasca, STAGES | {"momentum": 0.9}, (GAME,)),
    Case("CODASCA, average", Codasca, STAGES | {"output": "average"}, MINIMAX),
    Case("CODASCA, dropout", Codasca, STAGES, (AUC_DROPOUT,)),
    Case("CODA+, compositional AUC", CodaPlus, STAGES, (COMPOSITIONAL,)),
    Case("CODASCA, compositional AUC", Codasca, STAGES, (COMPOSITIONAL,), slow=True),
    Case("Local SGDA, compositional AUC", LocalSgda, GAMES, (COMPOSITIONAL,), slow=True),
    Case("FedX1", FedX1, PAIRED, LINEAR_PAIRS, SCORES),
    Case("FedX1, all, sub-sampled, buffer", FedX1, PAIRED | {"sampled_clients": None, "sharing": "sub-sampled", "buffer_rounds": 2}, (METRIC,), SCORES),  # noqa: E501
    Case("FedX1, noise", FedX1, PAIRED | {"privacy": NOISE}, (RANKING,), SCORES),
    Case("FedX2", FedX2, PAIRED, PAIRS, SCORES),
    Case("FedX2, two-way, all, buffer", FedX2, PAIRED | {"sampled_clients": None, "buffer_rounds": 3}, (TWO_WAY,), SCORES),  # noqa: E501
    Case("FedX2, sub-sampled, noise", FedX2, PAIRED | {"sharing": "sub-sampled", "privacy": NOISE}, (PARTIAL,), SCORES),
    Case("FedX2, normalised weights", FedX2, PAIRED | {"normalised_weights": True}, (PARTIAL,), SCORES),
    Case("FedX2, dropout", FedX2, PAIRED, (PAIRS_DROPOUT,), SCORES),
    Case("Local Pair", LocalPair, PAIRED, LINEAR_PAIRS),
    Case("Local Pair, f not linear", LocalPair, PAIRED, PAIRS),
    Case("toy with memory", Remembering, {}, shows=TOY),
]
# fmt: on

SMALL = {  # options of automatic lines, by kind, and the world that they run on
    "minimisation": (DUAL, LOGISTIC),
    "minimax": (GAMES, FAIR),
    "pairwise": (PAIRED, RANKING),
}


def without_line(table: Iterable[Case], registry: Mapping[str, Entry]) -> dict[str, Entry]:
    """The names that want an automatic line; what is centralised has one client, and no federation to be held to."""
    covered = {case.covers for case in table}
    return {n: e for n, e in registry.items() if n not in covered and not e.fixed.get("centralised", False)}


def automatic(name: str, entry: Entry) -> Case:
    """A line with the name's own arguments, and of the small options those that its class has fields for."""
    make = entry.load()
    known = {f.name for f in fields(make)} - entry.fixed.keys()
    small, world = SMALL[entry.kind]
    small = STAGES if "stage_rounds" in known else small
    given = entry.bind("options", name, {key: value for key, value in small.items() if key in known})
    return Case(name, make, arguments_of("options", make, given, built=("problem",)), (world,))


TABLE += [automatic(name, entry) for name, entry in without_line(TABLE, ALGORITHMS).items() if not entry.required]


def marked(case: Case, world: World, name: str, slow: bool = False) -> ParameterSet:
    return pytest.param(case, world, id=name, marks=[pytest.mark.slow] if case.slow or slow else [])


KINDS = {  # names that differ in what is exchanged or remembered; of a few columns, the others are with the slow tests
    "FedAvg", "FedAdam", "q-FedAvg", "DRFA", "DRFA-GA", "Delta-FL", "FedMGDA+", "SCAFFOLD", "Exponential DRO",
    "Local SGDA", "Local SGDA+", "Momentum Local SGDA", "FedSGDA-STORM", "CODA", "CODASCA", "ProxSkip-VIP", "FedX1",
    "FedX2", "Local Pair", "toy with memory",
}  # fmt: skip
FIRST = {c.covers: c.name for c in reversed(TABLE)}  # the first line of each name; the others are variants


def variant(case: Case) -> bool:
    return FIRST[case.covers] != case.name


def worlds(case: Case) -> list[tuple[World, bool]]:
    """Every world of the family, for a variant the first one; whether it is with the slow tests."""
    family = case.family[:1] if variant(case) else case.family
    return [(w, i > 0 and case.covers not in KINDS) for i, w in enumerate(family)]


EVERYWHERE = [marked(c, w, f"{c.name} | {w}", slow) for c in TABLE for w, slow in worlds(c)]
EVERY_NAME = [marked(c, w, f"{c.name} | {w}", slow or variant(c)) for c in TABLE for w, slow in worlds(c)]
ONCE = [marked(c, c.family[0], c.name) for c in TABLE]
BY_NAME = [marked(c, c.family[0], c.name, variant(c)) for c in TABLE]
ONE_A_KIND = [marked(c, c.family[0], c.name, c.covers not in KINDS or variant(c)) for c in TABLE]
ONE_MODEL = [p for p in ONE_A_KIND if p.values[0].covers != "Personal"]  # the same for all clients


def algorithm(case: Case, world: World) -> Any:
    return case.make(problem=world.problem(), **case.options)
