"""Outcomes other than two classes: what the rows of a table are trained for, its candidates, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch

from fedsaddle.array_types import Floats, Ints
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.store import Stacked
from fedsaddle.errors import BadInput
from fedsaddle.files import Json
from fedsaddle.metrics.outcomes import Figures, of_classes, of_counts, of_numbers
from fedsaddle.metrics.survival import BaselineHazard, concordance
from fedsaddle.studies.candidates import (
    FEDAVG,
    HINGE_ROWS,
    SECOND_ROUNDS,
    Candidate,
    Facts,
    exact_or_momentum,
    local_training,
)
from fedsaddle.studies.table_config import Kind
from fedsaddle.text import visible

Measure = Literal["odds ratio", "rate ratio", "hazard ratio", "difference"]
TITLES: dict[Kind, str] = {
    "classes": "multinomial regression, site intercepts",
    "number": "linear regression, site intercepts",
    "count": "Poisson regression, site intercepts",
    "survival": "Cox regression, a baseline for each site",
}
LOSSES: dict[Kind, str] = {"classes": "cross-entropy", "number": "square", "count": "poisson"}
AIMS_OF: dict[Kind, Mapping[str, str]] = {  # what users say -> the aim
    "classes": {"log-loss": "log-loss", "worst-site": "worst-log-loss"},
    "number": {"squared-error": "squared-error", "worst-site": "worst-squared-error"},
    "count": {"deviance": "deviance", "worst-site": "worst-deviance"},
    "survival": {"partial-likelihood": "partial-likelihood"},
}
MEASURES: dict[Kind, Measure] = {
    "classes": "odds ratio",
    "number": "difference",
    "count": "rate ratio",
    "survival": "hazard ratio",
}
MAIN: dict[Kind, str] = {"classes": "macro_auroc", "number": "r2", "count": "explained", "survival": "concordance"}


@dataclass(frozen=True)
class Outcome:
    """What is learnt, and how scores become predictions.

    Args:
        kind: Of the outcome.
        classes: Their names, of several classes.
        center: Mean of a number in the training rows.
        scale: Its standard deviation there; of counts the overall rate.
        horizon: A time at which survival is judged.
        baseline: The hazard of a row with score 0.
    """

    kind: Kind
    classes: tuple[str, ...] = ()
    center: float = 0.0
    scale: float = 1.0
    horizon: float | None = None
    baseline: BaselineHazard | None = None

    @property
    def measure(self) -> Measure:
        """What coefficients are."""
        return MEASURES[self.kind]

    def aim(self, asked: str | None) -> str:
        """The aim that a user asks for.

        Raises:
            BadInput: if this outcome has no such aim.
        """
        known = AIMS_OF[self.kind]
        if asked is None:
            return next(iter(known))
        if asked not in known:
            raise BadInput("aim", asked, f"is not for {self.words}; choose one of {', '.join(known)}, or leave it out")
        return known[asked]

    @property
    def words(self) -> str:
        """The outcome in words."""
        return {
            "classes": "several classes", "number": "a number", "count": "a count", "survival": "a time to an event",
        }[self.kind]  # fmt: skip

    def predictions(self, scores: Floats) -> Floats:
        """Probabilities of the classes, the number, the rate, or the risk (the log hazard ratio)."""
        if self.kind == "classes":
            odds = np.exp(scores - scores.max(1, keepdims=True))
            return np.asarray(odds / odds.sum(1, keepdims=True))
        if self.kind == "number":
            return self.center + self.scale * scores
        return self.scale * np.exp(scores) if self.kind == "count" else scores

    def truth(self, y: torch.Tensor) -> Floats:
        """The labels as they stand in the table."""
        found: Floats = y.double().numpy()
        if self.kind == "number":
            return self.center + self.scale * found
        return np.stack([found[:, 0], found[:, 1] / self.scale], 1) if self.kind == "count" else found

    def figures(self, scores: Floats, y: torch.Tensor, site: Ints) -> Figures:
        """The figures of some rows, each with the influence of the rows."""
        predicted, true = self.predictions(scores), self.truth(y)
        if self.kind == "classes":
            return of_classes(predicted, y.numpy(), self.classes)
        if self.kind == "number":
            return of_numbers(predicted, true)
        if self.kind == "count":
            return of_counts(predicted * true[:, 1], true[:, 0], true[:, 1])
        pairs = {
            "concordance": concordance(predicted, true[:, 0], true[:, 1]),
            "concordance_within_sites": concordance(predicted, true[:, 0], true[:, 1], site),
        }
        return {name: figure for name, figure in pairs.items() if figure is not None}

    def with_baseline(self, scores: Floats, y: torch.Tensor) -> Outcome:
        """With the baseline hazard of the training rows."""
        time, event = self.truth(y).T
        return replace(self, baseline=BaselineHazard.fit(scores, time, event))


def prepared(data: FederatedData, kind: Kind, horizon: float | None = None) -> tuple[FederatedData, Outcome]:
    """The rows with labels on the scale that is trained on, and the outcome.

    Numbers are standardised and exposures multiplied by the overall rate, by sums over the training rows, so that a
    score of 0 is the average.

    Raises:
        BadInput: for labels that cannot be learnt.
    """
    y = data.train.y.double()
    if kind == "classes":
        _check_classes(data)
        return data, Outcome(kind, data.classes)
    if kind == "number":
        center, scale = float(y.mean()), float(y.std(correction=0))
        if not scale > 1e-9 * abs(center):
            raise BadInput("label", center, "is the same number in all training rows; choose another column")
        return _relabelled(data, lambda own: (own.double() - center) / scale), Outcome(kind, (), center, scale)
    if kind == "count":
        total = float(y[:, 0].sum())
        if total == 0:
            raise BadInput("label", 0, "is 0 in all training rows; choose another column")
        rate = total / float(y[:, 1].sum())
        factor = torch.tensor([1.0, rate], dtype=torch.float64)
        return _relabelled(data, lambda own: own.double() * factor), Outcome(kind, (), 0.0, rate)
    _check_events(data)
    times = y[y[:, 1] > 0, 0].numpy()
    at = float(f"{np.median(times):.2g}") if horizon is None else horizon
    return data, Outcome(kind, horizon=at)


def _check_classes(data: FederatedData) -> None:
    for part, rows in (("training", data.train), ("validation", data.validation), ("test", data.test)):
        if rows is None:
            raise BadInput(f"{part} rows", 0, "the table is too small to hold out rows; collect more")
        counts = torch.bincount(rows.y, minlength=len(data.classes))
        for name, count in zip(data.classes, counts.tolist(), strict=True):
            if not count:
                remedy = "each part needs rows of every class; merge this class with another, or drop its rows"
                raise BadInput(f"{part} rows with label {visible(name)!r}", 0, remedy)


def _check_events(data: FederatedData) -> None:
    for part, rows in (("training", data.train), ("validation", data.validation), ("test", data.test)):
        if rows is None or not float(rows.y[:, 1].sum()):
            raise BadInput(f"events in the {part} rows", 0, "a time to an event needs events in every part")


def _relabelled(data: FederatedData, change: Callable[[torch.Tensor], torch.Tensor]) -> FederatedData:
    def changed(rows: Stacked) -> Stacked:
        return replace(rows, y=change(rows.y).to(rows.y.dtype))

    return replace(
        data,
        train=changed(data.train),
        validation=None if data.validation is None else changed(data.validation),
        test=None if data.test is None else changed(data.test),
    )


def facts_of(data: FederatedData, kind: Kind) -> Facts:
    """What the candidates depend on; `rare` are rows of the rarest class, or events."""
    found = Facts.of(data)
    return replace(found, rare=int(data.train.y[:, 1].sum())) if kind == "survival" else found


def outcome_candidates(data: FederatedData, outcome: Outcome, aim: str) -> list[Candidate]:
    """The candidates; the first is FedAvg, the second the default."""
    kind, facts = outcome.kind, facts_of(data, outcome.kind)
    local = local_training(facts)
    momentum = {**local, "server_momentum": 0.9, "nesterov": True}
    linear = {"name": "logistic"}  # one linear layer
    bent, plain = frozenset({"hinge"}), frozenset({"site", "hinge"})
    apart = frozenset({"site"}) if kind == "survival" else frozenset[str]()  # each site is a stratum

    def problem(l2: float | None) -> dict[str, Json]:
        penalty = {} if l2 is None else {"l2": l2}
        if kind == "survival":
            return {"name": "cox", **penalty}
        return {"name": "supervised", "loss": LOSSES[kind], **penalty, **({"l2_biases": False} if penalty else {})}

    def penalised(without: frozenset[str], strength: float) -> dict[str, Json]:
        return problem((10.0 if facts.rare < facts.width(without) else strength) / facts.rows)

    name, outputs = TITLES[kind], max(len(outcome.classes), 1)
    found = [
        Candidate(FEDAVG, "FedAvg", "the same loss, no more", local, problem(None), linear, plain),
        exact_or_momentum(facts, name, LOSSES.get(kind, "Cox"), penalised(bent | apart, 1.0), bent | apart, outputs),
    ]
    if facts.features.get("hinge") and facts.rare >= HINGE_ROWS * facts.width(apart):
        words = f"{name.partition(',')[0]}, hinges"
        found.append(exact_or_momentum(facts, words, "bent at quartiles", penalised(apart, 10.0), apart, outputs))
    if facts.rare >= facts.width(bent) and kind in ("classes", "number"):
        mlp: dict[str, Json] = {"name": "mlp", "hidden": [32]}
        found.append(
            Candidate("FedAvgM, MLP", "FedAvg", "a network of 32 units", momentum, penalised(bent, 1.0), mlp, bent)
        )
    if aim.startswith("worst"):
        stage = Candidate("", "", "", problem=penalised(bent, 1.0), model=linear, without=bent, start=name)
        stage = replace(stage, rounds=SECOND_ROUNDS, step_form="constant")
        drfa = {**local, "dual_step": 1e-2, "weighting": "weight"}
        for method, about, own in (
            ("DRFA", "for the worst mixture of sites", drfa),
            ("q-FedAvg", "for powers of the losses", {**local, "q": 0.5}),
        ):
            found.append(replace(stage, name=f"{name}, then {method}", algorithm=method, about=about, options=own))
    return found
