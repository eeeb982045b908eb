"""What every name of a config stands for, written out by hand: an entry that leads elsewhere fails here."""

from __future__ import annotations

import dataclasses
from typing import get_type_hints

import pytest
import torch
from torch import nn

import fedsaddle as fs
from fedsaddle.algorithms import fedsgda
from fedsaddle.algorithms.aaggff import AaggFf
from fedsaddle.algorithms.coda.coda import Coda, CodaPlus
from fedsaddle.algorithms.coda.codasca import Codasca
from fedsaddle.algorithms.delta_fl import DeltaFl
from fedsaddle.algorithms.drfa import Drfa, DrfaGa
from fedsaddle.algorithms.exponential_dro import ExponentialDro
from fedsaddle.algorithms.fedavg import FedAvg
from fedsaddle.algorithms.fedgda_gt import FedGdaGt
from fedsaddle.algorithms.fedmgda import FedMgda
from fedsaddle.algorithms.fednova import FedNova
from fedsaddle.algorithms.fedsgda import FedSgda
from fedsaddle.algorithms.fedx.fedx1 import FedX1
from fedsaddle.algorithms.fedx.fedx2 import FedX2
from fedsaddle.algorithms.fedx.local_pair import LocalPair
from fedsaddle.algorithms.propfair import PropFair
from fedsaddle.algorithms.proxskip import ProxSkip
from fedsaddle.algorithms.qfedavg import QFedAvg
from fedsaddle.algorithms.sgda.extragradient import Extragradient, LocalExtragradient, Optimistic
from fedsaddle.algorithms.sgda.fedsgda_plus import FedSgdaPlus
from fedsaddle.algorithms.sgda.fess_gda import FessGda
from fedsaddle.algorithms.sgda.local_sgda import LocalSgda
from fedsaddle.algorithms.sgda.momentum import MomentumLocalSgda
from fedsaddle.algorithms.term import Term
from fedsaddle.config import registry
from fedsaddle.config.registry import KINDS, LISTED, PROBLEMS, RISKS, Entry
from fedsaddle.data import splits
from fedsaddle.data.pictures import pictures
from fedsaddle.data.sets import adult, shakespeare, sklearn_sets, synthetic
from fedsaddle.data.sets import pictures as cifar
from fedsaddle.data.sets import pictures as fashion_mnist
from fedsaddle.data.sets import pictures as medmnist
from fedsaddle.data.tables.own import from_file
from fedsaddle.deployment.remote_clients import RemoteClients
from fedsaddle.engines.simulated import SerialEngine, VectorisedEngine
from fedsaddle.engines.workers import Distributed
from fedsaddle.errors import BadInput
from fedsaddle.metrics import measures
from fedsaddle.numerics import optimisers, projections, regularisers, schedules
from fedsaddle.problems import losses, pair_losses, rare_losses, risks
from fedsaddle.problems.auc import CompositionalAuc, MinimaxAuc
from fedsaddle.problems.fair import ClassFair
from fedsaddle.problems.games import NonconvexPl, QuadraticGame
from fedsaddle.problems.groups import GroupFair
from fedsaddle.problems.models import networks
from fedsaddle.problems.models.forest import Forest
from fedsaddle.problems.pairwise import PairwiseRisk
from fedsaddle.problems.protocols import DataFacts, MinimaxProblem, MinimisationProblem, PairwiseProblem
from fedsaddle.problems.regression import Cox
from fedsaddle.problems.robust import RobustTraining
from fedsaddle.problems.supervised import Supervised

SGDA_PLUS = {"snapshot_every": 4}
STANDS_FOR = {  # class, kind, fixed arguments, defaults, and values for what is required
    "AAggFF-D": (AaggFf, "minimisation", {"update": "entropy"}, {}, {}),
    "AAggFF-S": (AaggFf, "minimisation", {"update": "newton"}, {}, {}),
    "Delta-FL": (DeltaFl, "minimisation", {}, {}, {}),
    "Extragradient": (Extragradient, "minimax", {}, {}, {}),
    "Optimistic": (Optimistic, "minimax", {}, {}, {}),
    "Local Extragradient": (LocalExtragradient, "minimax", {}, {}, {}),
    "FedGDA-GT": (FedGdaGt, "minimax", {}, {}, {}),
    "FedMGDA+": (FedMgda, "minimisation", {}, {}, {}),
    "FedNova": (FedNova, "minimisation", {}, {}, {}),
    "FedProx": (FedAvg, "minimisation", {}, {"proximal": 0.01}, {}),
    "Exponential DRO": (ExponentialDro, "minimisation", {}, {}, {}),
    "FedSGDA+": (FedSgdaPlus, "minimax", {}, {}, {}),
    "FESS-GDA": (FessGda, "minimax", {}, {}, {}),
    "ProxSkip-VIP": (ProxSkip, "minimax", {}, {}, {}),
    "PropFair": (PropFair, "minimisation", {}, {}, {}),
    "TERM": (Term, "minimisation", {}, {}, {}),
    "AFL": (Drfa, "minimisation", {"local_steps": 1}, {}, {}),
    "Centralised SGD": (LocalPair, "pairwise", {"centralised": True, "averaging": 1.0}, {}, {}),
    "CODA": (Coda, "minimax", {}, {}, {}),
    "CODA+": (CodaPlus, "minimax", {}, {}, {}),
    "CODASCA": (Codasca, "minimax", {}, {}, {}),
    "DRFA": (Drfa, "minimisation", {}, {}, {}),
    "DRFA-GA": (DrfaGa, "minimisation", {}, {}, {}),
    "DRFA-Prox": (Drfa, "minimisation", {}, {}, {"regulariser": {"name": "kl", "strength": 0.1}}),
    "FedAvg": (FedAvg, "minimisation", {}, {}, {}),
    "FedAvgM": (FedAvg, "minimisation", {}, {"server_momentum": 0.9, "nesterov": True}, {}),
    "FedSGDA-MB": (FedSgda, "minimax", {}, {}, {}),
    "FedSGDA-SPIDER": (FedSgda, "minimax", {}, {"estimator": {"name": "spider"}}, {}),
    "FedSGDA-STORM": (FedSgda, "minimax", {}, {"estimator": {"name": "storm"}}, {}),
    "FedX1": (FedX1, "pairwise", {}, {}, {}),
    "FedX2": (FedX2, "pairwise", {}, {}, {}),
    "Local Pair": (LocalPair, "pairwise", {}, {}, {}),
    "Local SGDA": (LocalSgda, "minimax", {}, {}, {}),
    "Local SGDA+": (LocalSgda, "minimax", {}, {}, SGDA_PLUS),
    "Momentum Local SGDA": (MomentumLocalSgda, "minimax", {}, {}, {}),
    "Momentum Local SGDA+": (MomentumLocalSgda, "minimax", {}, {"momentum_at_sync": "reset"}, SGDA_PLUS),
    "NPA": (CodaPlus, "minimax", {"local_steps": 1}, {}, {}),
    "q-FedAvg": (QFedAvg, "minimisation", {}, {}, {}),
    "SOX": (LocalPair, "pairwise", {"centralised": True}, {}, {}),
}
TARGETS = {
    "ALGORITHMS": {name: said[0] for name, said in STANDS_FOR.items()},
    "LOSSES": {
        "cross-entropy": losses.cross_entropy,
        "logistic": losses.logistic,
        "focal": rare_losses.Focal,
        "class-balanced": rare_losses.ClassBalanced,
        "logit-adjusted": rare_losses.LogitAdjusted,
        "square": losses.Square,
        "poisson": losses.Poisson,
        "absolute": losses.absolute,
        "huber": losses.huber,
    },
    "PROBLEMS": {
        "supervised": Supervised,
        "cox": Cox,
        "class-fair": ClassFair,
        "group-fair": GroupFair,
        "robust": RobustTraining,
        "auc": MinimaxAuc,
        "compositional-auc": CompositionalAuc,
        "pairwise": PairwiseRisk,
        "nonconvex-pl": NonconvexPl,
        "quadratic": QuadraticGame,
    },
    "RISKS": {
        "auc": risks.auc,
        "partial-auc": risks.partial_auc,
        "two-way-partial-auc": risks.two_way_partial_auc,
        "average-precision": risks.average_precision,
        "p-norm-push": risks.p_norm_push,
        "metric": risks.metric,
    },
    "PAIR_LOSSES": {
        "squared-hinge": pair_losses.SquaredHinge,
        "square": pair_losses.SquaredMargin,
        "hinge": pair_losses.Hinge,
        "logistic": pair_losses.LogisticMargin,
        "sigmoid": pair_losses.Sigmoid,
        "barrier-hinge": pair_losses.BarrierHinge,
    },
    "MODELS": {
        "logistic": networks.logistic_regression,
        "mlp": networks.mlp,
        "forest": Forest,
        "gru": networks.CharacterGru,
        "cnn": networks.McMahanCnn,
        "cnn-3": networks.TutorialCnn,
        "small-cnn": networks.SmallCnn,
        "vgg11": networks.Vgg11,
        "densenet121": networks.densenet121,
        "resnet18": networks.resnet18,
    },
    "REGULARISERS": {"quadratic": regularisers.Quadratic, "kl": regularisers.KullbackLeibler},
    "PROJECTIONS": {"ball": projections.Ball, "box": projections.Box},
    "SCHEDULES": {
        "power": schedules.Power,
        "geometric": schedules.Geometric,
        "staged": schedules.Staged,
        "cosine": schedules.Cosine,
        "warmup": schedules.Warmup,
    },
    "LOCAL_OPTIMISERS": {"momentum": optimisers.Momentum, "adam": optimisers.Adam, "adamw": optimisers.adamw},
    "SERVER_OPTIMISERS": {
        "adam": optimisers.ServerAdam,
        "yogi": optimisers.ServerYogi,
        "adagrad": optimisers.ServerAdagrad,
    },
    "ESTIMATORS": {
        "minibatch": fedsgda.MiniBatch,
        "storm": fedsgda.Storm,
        "spider": fedsgda.Spider,
    },
    "DATASETS": {
        "digits": sklearn_sets.digits,
        "scanned-digits": sklearn_sets.scanned_digits,
        "breast-cancer": sklearn_sets.breast_cancer,
        "wine": sklearn_sets.wine,
        "iris": sklearn_sets.iris,
        "diabetes": sklearn_sets.diabetes,
        "fashion-mnist": fashion_mnist.fashion_mnist,
        "cifar10": cifar.cifar10,
        "cifar100": cifar.cifar100,
        "pneumoniamnist": medmnist.pneumoniamnist,
        "breastmnist": medmnist.breastmnist,
        "adult": adult.adult,
        "shakespeare": shakespeare.shakespeare,
        "nonconvex-pl": synthetic.nonconvex_pl_table,
        "file": from_file,
        "pictures": pictures,
    },
    "SPLITS": {
        "iid": splits.Iid,
        "by-class": splits.ByClass,
        "dirichlet": splits.Dirichlet,
        "imbalanced": splits.Imbalanced,
        "sorted": splits.Sorted,
        "by-column": splits.ByColumn,
        "natural": splits.Natural,
    },
    "MEASURES": {
        "squared_gradient_of_phi": measures.GradientOfPhi,
        "gradient_of_envelope": measures.GradientOfEnvelope,
        "duality_gap": measures.DualityGap,
        "worst_class_accuracy": measures.WorstClassAccuracy,
        "worst_client_auroc": measures.WorstClientAuroc,
        "robust_accuracy": measures.RobustAccuracy,
    },
    "ENGINES": {
        "vectorised": VectorisedEngine,
        "processes": Distributed,
        "ray": Distributed,
        "serial": SerialEngine,
        "nvflare": RemoteClients,
    },
}
SHAPES = {
    "logistic": networks.linear,
    "mlp": networks.layers,
    "forest": networks.layers,
    "gru": networks.text,
    "cnn": networks.square_picture,
    "cnn-3": networks.square_picture,
    "small-cnn": networks.square_picture,
    "vgg11": networks.picture,
    "densenet121": networks.sized_picture,
    "resnet18": networks.sized_picture,
}
PROBLEM_KINDS = {
    "supervised": "minimisation",
    "cox": "minimisation",
    "class-fair": "minimax",
    "group-fair": "minimax",
    "robust": "minimax",
    "auc": "minimax",
    "compositional-auc": "minimax",
    "pairwise": "pairwise",
    "nonconvex-pl": "minimax",
    "quadratic": "minimax",
}
PROTOCOLS = {"minimisation": MinimisationProblem, "minimax": MinimaxProblem, "pairwise": PairwiseProblem}

algorithms = pytest.mark.parametrize("name", STANDS_FOR)


def is_table(value: object) -> bool:
    return isinstance(value, dict) and bool(value) and all(isinstance(entry, Entry) for entry in value.values())


def entries(table: str) -> dict[str, Entry]:
    """A table of the registry; of the algorithms those written out here: newcomers answer to the contracts."""
    found: dict[str, Entry] = getattr(registry, table)
    return {name: found[name] for name in STANDS_FOR} if table == "ALGORITHMS" else found


def test_every_table_is_looked_at() -> None:
    assert {name for name, value in vars(registry).items() if is_table(value)} == TARGETS.keys()
    assert PROTOCOLS.keys() == set(KINDS)


@pytest.mark.parametrize("table", TARGETS)
def test_every_name_leads_where_it_should(table: str) -> None:
    found = {name: entry.load() for name, entry in entries(table).items()}
    assert found.keys() == TARGETS[table].keys()
    wrong = {name: target for name, target in found.items() if target is not TARGETS[table][name]}
    assert not wrong


def test_the_lists_of_the_command_line() -> None:
    assert {name: [key for key in TARGETS if getattr(registry, key) is table] for name, table in LISTED.items()} == {
        "algorithms": ["ALGORITHMS"],
        "problems": ["PROBLEMS"],
        "losses": ["LOSSES"],
        "risks": ["RISKS"],
        "pair-losses": ["PAIR_LOSSES"],
        "models": ["MODELS"],
        "schedules": ["SCHEDULES"],
        "local-optimisers": ["LOCAL_OPTIMISERS"],
        "server-optimisers": ["SERVER_OPTIMISERS"],
        "datasets": ["DATASETS"],
        "splits": ["SPLITS"],
        "measures": ["MEASURES"],
        "engines": ["ENGINES"],
    }


def test_what_knows_its_name_has_the_name_of_its_entry() -> None:
    assert all(name == target.name for name, target in TARGETS["MEASURES"].items())
    assert all(name == make().name for name, make in TARGETS["LOSSES"].items())
    assert losses.cross_entropy(label_smoothing=0.1).name == "cross-entropy"
    assert losses.logistic(pos_weight=2.0).name == "logistic"


def test_the_shapes_of_each_model() -> None:
    found = {name: Entry(entry.shapes, "").load() for name, entry in registry.MODELS.items()}
    assert found.keys() == SHAPES.keys()
    assert all(found[name] is target for name, target in SHAPES.items())


def test_only_these_names_bind_arguments() -> None:
    bound = {
        (table, name): (dict(entry.fixed), dict(entry.defaults), set(entry.required))
        for table in TARGETS
        for name, entry in entries(table).items()
        if entry.fixed or entry.defaults or entry.required
    }
    expected = {
        ("ALGORITHMS", name): (fixed, defaults, set(required))
        for name, (_, _, fixed, defaults, required) in STANDS_FOR.items()
        if fixed or defaults or required
    }
    assert bound == expected | {("RISKS", "metric"): ({}, {"outputs": 8}, set())}


def test_the_kinds() -> None:
    assert {name: entry.kind for name, entry in entries("ALGORITHMS").items()} == {
        n: said[1] for n, said in STANDS_FOR.items()
    }
    assert {name: entry.kind for name, entry in PROBLEMS.items()} == PROBLEM_KINDS
    others = TARGETS.keys() - {"ALGORITHMS", "PROBLEMS"}
    assert not [name for table in others for name, entry in entries(table).items() if entry.kind]


@algorithms
def test_the_kind_is_what_the_class_says_of_its_problem(name: str) -> None:
    make, kind, *_ = STANDS_FOR[name]
    assert get_type_hints(make)["problem"] is PROTOCOLS[kind]


def linear(scores: int) -> nn.Module:
    return nn.Linear(3, scores)


FACTS = DataFacts(
    "made up", (3,), ("no", "yes"), (6, 4), model="none", groups=("a", "b"), groups_by_class=((3, 2), (3, 2))
)


def small(name: str) -> object:
    """The problem of that name for rows of three numbers in two classes, or with times to an event."""
    facts = dataclasses.replace(FACTS, classes=(), counts=()) if name == "cox" else FACTS
    return risks.auc(linear(1)) if name == "pairwise" else PROBLEMS[name].load().from_data(facts, linear)


def kinds_of(problem: object) -> set[str]:
    return {kind for kind, protocol in PROTOCOLS.items() if isinstance(problem, protocol)}


@pytest.mark.parametrize("name", PROBLEM_KINDS)
def test_a_problem_is_of_its_kind(name: str) -> None:
    problem = small(name)
    assert type(problem) is TARGETS["PROBLEMS"][name]
    also = {"minimisation"} if name == "pairwise" else set()  # pairs can be minimised as any f
    assert kinds_of(problem) == {PROBLEM_KINDS[name]} | also


@pytest.mark.parametrize("name", RISKS)
def test_a_risk_is_a_problem_of_pairs(name: str) -> None:
    assert kinds_of(RISKS[name].load()(linear(1))) == {"pairwise", "minimisation"}


def problem_for(name: str) -> object:
    """CODA wants a best dual, which min-max AUC has."""
    return small({"minimisation": "supervised", "minimax": "auc", "pairwise": "pairwise"}[STANDS_FOR[name][1]])


@algorithms
def test_an_algorithm_by_its_name_has_what_the_name_binds(name: str) -> None:
    make, _, fixed, defaults, required = STANDS_FOR[name]
    found = fs.algorithm(name, problem=problem_for(name), **required)
    assert type(found) is make
    for key, value in (fixed | defaults | required).items():
        if isinstance(value, dict):
            table = registry.ESTIMATORS if key == "estimator" else registry.REGULARISERS
            assert type(getattr(found, key)) is table[value["name"]].load()
        else:
            assert getattr(found, key) == value


@algorithms
def test_what_a_name_fixes_cannot_be_changed(name: str) -> None:
    _, _, fixed, _, required = STANDS_FOR[name]
    for key, value in fixed.items():
        with pytest.raises(BadInput, match=rf"options\.{key} = .*{name} fixes {key} = ") as caught:
            fs.algorithm(name, problem=problem_for(name), **(required | {key: value}))
        assert "leave it out" in str(caught.value)


@algorithms
def test_what_a_name_requires_must_be_given(name: str) -> None:
    required = STANDS_FOR[name][4]
    for key in required:
        with pytest.raises(BadInput, match=rf"options\.{key} = None: .* needs a value, such as ") as caught:
            fs.algorithm(name, problem=problem_for(name))
        assert str(caught.value).startswith(f"options.{key} = None: {name} needs a value")


@algorithms
def test_a_problem_of_another_kind_is_refused(name: str) -> None:
    make, kind, _, _, required = STANDS_FOR[name]
    others = {"minimisation": ["auc", "class-fair"], "minimax": ["supervised", "pairwise"]}
    for other in others.get(kind, ["supervised", "auc"]):
        with pytest.raises(BadInput, match=rf"problem = '\w+': is not for {make.__name__}; give it "):
            fs.algorithm(name, problem=small(other), **required)
    for wrong in (None, type(problem_for(name)), torch.zeros(3)):
        with pytest.raises(BadInput, match=rf"problem = '\w+': is not for {make.__name__}; give it "):
            fs.algorithm(name, problem=wrong, **required)


def test_what_a_name_only_proposes_can_be_changed() -> None:
    other = fs.algorithm("FedSGDA-STORM", problem=small("auc"), estimator=fedsgda.Storm(0.5))
    assert other.estimator == fedsgda.Storm(0.5)


def test_a_warm_up_in_a_config() -> None:
    problem = Supervised(networks.logistic_regression(4, 3))
    cosine = {"name": "cosine", "first": 0.1, "rounds": 60, "warmup": 5}
    made = fs.algorithm(
        "DRFA", problem=problem, primal_step=cosine, dual_step={"name": "warmup", "rounds": 2, "of": 0.1}
    )
    assert made.primal_step == schedules.Warmup(5, of=schedules.Cosine(0.1, 60))
    assert made.dual_step == schedules.Warmup(2, of=0.1)
    with pytest.raises(BadInput, match=r"options.primal_step.warmup = -1"):
        fs.algorithm("DRFA", problem=problem, primal_step={**cosine, "warmup": -1})
    nested = {"name": "warmup", "rounds": 2, "of": {"name": "cosine", "first": 0.1, "rounds": 9}}
    assert fs.algorithm("FedAvg", problem=problem, primal_step=nested).primal_step.of == schedules.Cosine(0.1, 9)
