"""The candidates of a search: what each trains, on which features, from where, with the same grid of steps for all."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from fedsaddle.config.schema import Experiment, validate_experiment
from fedsaddle.data.federated import FederatedData
from fedsaddle.files import Json
from fedsaddle.studies import recipes

STEPS = (0.3, 0.1, 1.0, 0.03)  # the first is preferred: another has to beat it by more than chance
LADDER = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # where a grid goes on if its end is the best
ROUNDS = 100
MOST_BATCH = 256
MOST_COHORT = 500  # clients in a round, where there are more
EVALUATIONS = 25  # of a run
SECOND_ROUNDS = 40  # of a second stage, from the model of the default
PICTURE_STEPS = (0.1, 0.03, 0.3)
PICTURE_BATCH = 32
PICTURE_ROUNDS = (20, 40)  # at least, at most
PICTURE_PASSES = 50  # over the pictures of a site, which its rounds follow between these bounds
PICTURE_EVALUATIONS = 10  # of a run
PICTURE_PATIENCE = 4  # of these
MANY_PICTURES = 2000  # from which on a larger network is trained
HINGE_ROWS = 2  # rows of the rarer class a feature, from which on hinges are tried
FEDAVG = "FedAvg"
BASE = "logistic regression, site intercepts"
BASE_PICTURES = "FedAvgM"
HINGES = "logistic regression, hinges"
PLAIN = {"name": "supervised", "loss": "logistic"}  # what FedAvg minimises, from zero and without a penalty
AVERAGED = "logistic regression, averaged with hinges"
TREES = "boosted trees"
GROWN = "boosted trees on the linear score"
TREE_ROWS = 100  # rows of the rarer class, from which on trees are tried
TREE_SITE_ROWS = 20  # rows a site on average, likewise: with fewer, histograms are longer than the rows
TREE_ROUNDS = 60
SHRINKAGE = 0.2
EXACT_ROUNDS = 20  # of Newton, which needs 6 to 7; damped steps need more
EXACT_PARAMETERS = 500  # at most; their Hessian has 125,250 numbers
EXACT_WORK = 2e10  # at most, of rows times squared parameters: some 10 seconds an exchange on a core


@dataclass(frozen=True)
class Facts:
    """What the candidates depend on, from the training rows."""

    rows: int
    rare: int  # rows of the rarer class
    features: Mapping[str, int]  # of each kind
    pictures: bool
    clients: int
    batch: int
    shape: tuple[int, ...]
    groups: tuple[str, ...] = ()  # columns of groups

    @classmethod
    def of(cls, data: FederatedData) -> Facts:
        """The facts of a federation; of labels that are no classes, no row is rarer than another."""
        rare = int(torch.bincount(data.train.y, minlength=2).min()) if data.classes else len(data.train.y)
        kinds: dict[str, int] = {}
        for feature in data.encoding:
            kinds[feature.kind] = kinds.get(feature.kind, 0) + 1
        pictures = data.train.x.ndim > 2
        if not data.encoding or pictures:
            kinds = {"number": int(np.prod(data.train.x.shape[1:]))}
        large = float(np.quantile(data.train.sizes, 0.9))
        batch = int(min(MOST_BATCH, max(16, 2 ** np.ceil(np.log2(max(large, 1))))))
        shape = tuple(data.train.x.shape[1:])
        groups = tuple(data.train_groups)
        return cls(len(data.train.y), rare, kinds, pictures, data.count, batch, shape, groups)

    def width(self, without: frozenset[str] = frozenset()) -> int:
        """Features but those of some kinds."""
        return sum(n for kind, n in self.features.items() if kind not in without)


@dataclass(frozen=True)
class Candidate:
    """One way to train; its steps are tuned on validation rows."""

    name: str
    algorithm: str
    about: str
    options: Mapping[str, Json] = field(default_factory=dict)
    problem: Mapping[str, Json] = field(default_factory=dict)
    model: Mapping[str, Json] = field(default_factory=dict)
    without: frozenset[str] = frozenset()  # kinds of features that it leaves out
    start: str | None = None  # the candidate whose model it starts from
    rounds: int = ROUNDS
    steps: tuple[float, ...] = STEPS
    step_form: str = "cosine"  # "staged" for algorithms with stages, "constant", "shrinkage", "none" for no step
    evaluations: int = EVALUATIONS  # to choose the best round; 0: the last one is taken
    patience: int | None = None  # evaluations without a better one, after which a trial ends

    @property
    def log_odds(self) -> bool:
        """Whether its scores are log odds: it minimises a log loss, not a loss of rankings."""
        return self.problem.get("name") in ("supervised", "group-fair")

    @property
    def exact(self) -> bool:
        """Whether it goes to the minimum of its objective: it has no step to tune, and its last round is the best."""
        return self.step_form == "none"

    @property
    def grows(self) -> bool:
        """Whether it adds trees, and is stopped where the validation rows say so."""
        return self.step_form == "shrinkage"

    def experiment(self, step: float, seed: int, select: str | None = None) -> Experiment:
        """The sections of a config that describe a trial; `select` is the measure that chooses its best round."""
        forms: dict[str, object] = {
            "cosine": {"name": "cosine", "first": step, "rounds": self.rounds, "last": step / 30},
            "staged": recipes.staged(step),
            "constant": step,
        }
        given = {"shrinkage": step} if self.grows else {} if self.exact else {"primal_step": forms[self.step_form]}
        return validate_experiment(
            {
                "model": dict(self.model),
                "problem": dict(self.problem),
                "algorithm": {"name": self.algorithm, **given, **self.options},
                "run": {
                    "seed": seed,
                    "rounds": self.rounds,
                    "evaluate_every": max(1, self.rounds // max(1, self.evaluations)),
                    "checkpoint_every": max(1, self.rounds // 4),
                    "select": None if self.exact or not self.evaluations else select,
                    "patience": self.patience,
                },
            }
        )


def beyond(step: float, tried: Collection[float]) -> float | None:
    """The step that extends a grid whose longest or shortest step is the best; None for a step between them.

    Examples:
        >>> beyond(1.0, (0.3, 0.1, 1.0, 0.03)), beyond(0.03, (0.3, 0.03)), beyond(0.1, (0.3, 0.1, 0.03))
        (3.0, 0.01, None)
    """
    if len(tried) > 1 and step == max(tried):
        return next((further for further in LADDER if further > step), None)
    if len(tried) > 1 and step == min(tried):
        return next((further for further in reversed(LADDER) if further < step), None)
    return None


def candidates(facts: Facts, aim: str) -> list[Candidate]:
    """The candidates for such data and such an aim; the first is FedAvg, the second the default."""
    return _for_pictures(facts, aim) if facts.pictures else _for_tables(facts, aim)


def _for_tables(facts: Facts, aim: str) -> list[Candidate]:
    local = local_training(facts)
    momentum = {**local, "server_momentum": 0.9, "nesterov": True}
    linear, plain, bent = {"name": "logistic"}, frozenset({"site", "hinge"}), frozenset({"hinge"})

    def likelihood(without: frozenset[str]) -> dict[str, Json]:
        few = facts.rare < facts.width(without)
        return recipes.likelihood((10.0 if few else 1.0) / facts.rows)

    found = [
        Candidate(FEDAVG, "FedAvg", "cross-entropy, no more", local, PLAIN, linear, plain),
        exact_or_momentum(facts, BASE, "cross-entropy", likelihood(bent), bent),
    ]
    if facts.features.get("hinge") and facts.rare >= HINGE_ROWS * facts.width():
        few = {**likelihood(frozenset()), "l2": 10.0 / facts.rows}
        found.append(exact_or_momentum(facts, HINGES, "the same, bent at quartiles", few, frozenset()))
    if facts.rare >= facts.width(bent):
        mlp: dict[str, Json] = {"name": "mlp", "hidden": [32]}
        found.append(
            Candidate("FedAvgM, MLP", "FedAvg", "a network of 32 units", momentum, likelihood(bent), mlp, bent)
        )
    found += _trees(facts, bent)
    return found + _second_stages(facts, aim, replace(found[1], rounds=SECOND_ROUNDS, steps=STEPS))


def exact_or_momentum(
    facts: Facts, name: str, about: str, problem: Mapping[str, Json], without: frozenset[str], outputs: int = 1
) -> Candidate:
    """A regression by Newton's method where its Hessian is small enough, else by FedAvg with server momentum."""
    linear, d = {"name": "logistic"}, outputs * (facts.width(without) + 1)
    if d <= EXACT_PARAMETERS and facts.rows * d**2 <= EXACT_WORK:
        found = Candidate(name, "Newton", f"{about}, exact", {}, problem, linear, without)
        return replace(found, rounds=EXACT_ROUNDS, steps=(1.0,), step_form="none")
    momentum = {**local_training(facts), "server_momentum": 0.9, "nesterov": True}
    return Candidate(name, "FedAvg", f"{about}, with server momentum", momentum, problem, linear, without)


def _trees(facts: Facts, without: frozenset[str]) -> list[Candidate]:
    """Boosted trees, from nothing and from the default's score, where there are rows enough."""
    if facts.rare < TREE_ROWS or facts.rows < TREE_SITE_ROWS * facts.clients:
        return []
    alone = Candidate(
        TREES, "BoostedTrees", "trees of depth 4", {"parallel": 4}, {"name": "supervised", "loss": "logistic"},
        {"name": "forest", "trees": 4 * TREE_ROUNDS, "depth": 4}, without, rounds=TREE_ROUNDS, steps=(SHRINKAGE,),
        step_form="shrinkage", evaluations=20, patience=6,
    )  # fmt: skip
    return [alone, replace(alone, name=GROWN, about="the same, added to the default", start=BASE)]


def _picture_model(facts: Facts) -> dict[str, Json]:
    """Two convolutions, with more filters for many pictures; for pictures that are not square an MLP."""
    if len(facts.shape) != 3 or facts.shape[1] != facts.shape[2] or facts.shape[1] < 4:
        return {"name": "mlp", "hidden": [64]}
    if facts.rows < MANY_PICTURES:
        return {"name": "small-cnn"}
    return {"name": "small-cnn", "filters": [16, 32], "units": 128}


def _for_pictures(facts: Facts, aim: str) -> list[Candidate]:
    local = local_training(facts)
    momentum = {**local, "server_momentum": 0.9, "nesterov": True}
    likelihood = recipes.likelihood(0.0)
    passes = PICTURE_PASSES * facts.rows / (facts.clients * recipes.LOCAL_STEPS * PICTURE_BATCH)
    rounds = int(np.clip(np.ceil(passes), *PICTURE_ROUNDS))
    trained = partial(
        Candidate,
        model=_picture_model(facts),
        rounds=rounds,
        steps=PICTURE_STEPS,
        evaluations=PICTURE_EVALUATIONS,
        patience=PICTURE_PATIENCE,
    )
    found = [
        trained(FEDAVG, "FedAvg", "cross-entropy", local, PLAIN),
        trained(BASE_PICTURES, "FedAvg", "with server momentum", momentum, likelihood),
    ]
    return found + _second_stages(facts, aim, replace(found[1], rounds=PICTURE_ROUNDS[0]))


def _second_stages(facts: Facts, aim: str, first: Candidate) -> list[Candidate]:
    """Trained for the aim itself, from the model of `first`, the default, and otherwise alike."""
    local = local_training(facts)

    def then(
        algorithm: str, about: str, options: Mapping[str, Json], problem: Mapping[str, Json], form: str = "cosine"
    ) -> Candidate:
        return replace(
            first, name=f"{first.name}, then {algorithm}", algorithm=algorithm, about=about, options=options,
            problem=problem, step_form=form, start=first.name,
        )  # fmt: skip

    if aim == "worst-site":
        likelihood = recipes.likelihood(1.0 / facts.rows)
        worst = {**local, "dual_step": 1e-2, "weighting": "weight"}
        return [
            then("DRFA", "for the worst mixture of sites", worst, likelihood, "constant"),
            then("q-FedAvg", "for powers of the losses", {**local, "q": 0.5}, likelihood, "constant"),
        ]
    if aim == "worst-group":
        worst = {**local, "weighting": "size", "ascent": "server", "dual_step": 0.03}
        problem: dict[str, Json] = {"name": "group-fair", "groups": list(facts.groups), "loss": "logistic"}
        problem |= {"l2": 1.0 / facts.rows, "l2_biases": False}
        return [then("Local SGDA", "for the worst mixture of groups", worst, problem, "constant")]
    if aim == "accuracy":
        return []
    staged = {**local, "weighting": "size", "stage_rounds": first.rounds // 3 + 1}
    half = max(8, min(facts.batch, PICTURE_BATCH) // (2 if facts.pictures else 1))
    pairs = {**local, "batch_size": half}
    found = [then("CODASCA", "for the AUROC, with control variates", staged, recipes.auc(), "staged")]
    if aim == "auroc":
        return [*found, then("FedX1", "for the AUROC, by pairs across sites", pairs, recipes.pairs())]
    risk = "average-precision" if aim == "average-precision" else "partial-auc"
    return [*found, then("FedX2", f"for {aim}, by pairs", pairs, recipes.pairs(risk))]


def local_training(facts: Facts) -> dict[str, Json]:
    """Local steps, their batches and, with many clients, the cohort."""
    batch = min(facts.batch, PICTURE_BATCH) if facts.pictures else facts.batch
    found: dict[str, Json] = {"local_steps": recipes.LOCAL_STEPS, "batch_size": batch}
    if facts.clients > MOST_COHORT:
        found["sampled_clients"] = MOST_COHORT
    return found
