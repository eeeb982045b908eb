"""From the parameters of an estimator to the sections of a config, with the defaults of `studies.recipes`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedsaddle.arguments import MAX_ROUNDS, number, whole
from fedsaddle.config.lookup import entry
from fedsaddle.config.registry import ALGORITHMS, PROBLEMS, Entry
from fedsaddle.config.schema import Experiment, validate_experiment
from fedsaddle.errors import BadInput
from fedsaddle.privacy.settings import Privacy
from fedsaddle.studies.recipes import WORST, default_step, problem_for, problem_section, stages

AUTO = "auto"
LINEAR = {"linear": "logistic"}  # what estimators may call a model besides


@dataclass(frozen=True)
class Wanted:
    """The parameters of an estimator that make the config."""

    algorithm: object
    model: object
    problem: object
    rounds: object
    local_steps: object
    batch_size: object
    primal_step: object
    options: object
    classes: int  # 0: regression
    rows: int
    seed: int
    privacy: object = None

    def experiment(self) -> Experiment:
        """The sections of a config that describe the run."""
        known = entry(ALGORITHMS, "algorithm", self.algorithm)
        rounds = whole("rounds", self.rounds, most=MAX_ROUNDS)
        problem = self._problem(known)
        return validate_experiment(
            {
                "model": self._model(),
                "problem": problem,
                "algorithm": self._algorithm(known, rounds),
                "run": {"seed": self.seed, "rounds": rounds},
                "privacy": privacy_section(self.privacy) or {},
            }
        )

    def _model(self) -> dict[str, Any]:
        given = named("model", self.model, "mlp")
        if "name" not in given:
            raise BadInput("model", self.model, 'give a name, such as {"name": "mlp", "hidden": [32]}')
        if given == {"name": "mlp"}:
            given["hidden"] = [32]
        return {**given, "name": LINEAR.get(given["name"], given["name"])}

    def _problem(self, known: Entry) -> dict[str, Any]:
        """The section of the problem: what fits the algorithm, changed by what the user says."""
        given = {} if self.problem is None else named("problem", self.problem, "auc")
        name = given.get("name", problem_for(str(self.algorithm), known))
        fits = entry(PROBLEMS, "problem", name)
        if fits.kind != known.kind:
            named_so = [other for other, e in PROBLEMS.items() if e.kind == known.kind]
            raise BadInput("problem", name, f"does not fit {self.algorithm}; choose {' or '.join(named_so)}")
        if not self.classes and name != "supervised":
            remedy = "is for classes; for a regression choose an algorithm such as 'FedAvg', 'DRFA' or 'q-FedAvg'"
            raise BadInput("algorithm", self.algorithm, remedy)
        loss = {0: "square", 2: "logistic"}.get(self.classes, "cross-entropy")
        defaults = problem_section(name, self.rows, loss)
        if name == "pairwise" and ("risk" in given or "loss" in given):
            defaults = {"risk": "auc"}
        return {**defaults, **given, "name": name}

    def _algorithm(self, known: Entry, rounds: int) -> dict[str, Any]:
        """The section of the algorithm."""
        if self.options is not None and not isinstance(self.options, Mapping):
            raise BadInput("options", self.options, 'give a dictionary, such as {"dual_step": 0.01}')
        name, found = str(self.algorithm), dict[str, Any]()
        if "local_steps" not in known.fixed:
            found["local_steps"] = whole("local_steps", self.local_steps)
        found["batch_size"] = whole("batch_size", self.batch_size)
        step = self._step(name, known.kind, rounds)
        if step is not None:
            found["primal_step"] = step
        found |= stages(name, rounds)
        if (privacy_section(self.privacy) or {}).get("unit") == "client" and _weighs_by_size(known):
            found["weighting"] = "uniform"  # nobody counts without a bound
        return {"name": name, **found, **plain(dict(self.options or {}))}

    def _step(self, name: str, kind: str, rounds: int) -> Any:
        """The step of the model; None: the algorithm's own default."""
        if not is_auto(self.primal_step):
            if isinstance(self.primal_step, str):
                raise BadInput("primal_step", self.primal_step, 'give a number, a schedule or "auto"')
            ready = isinstance(self.primal_step, Mapping) or not isinstance(self.primal_step, int | float)
            return plain(self.primal_step) if ready else number("primal_step", self.primal_step, above=0)
        return default_step(name, kind, rounds)


def privacy_section(given: object) -> dict[str, Any] | None:
    """[privacy] of a config, from `fs.Privacy(...)` or a dictionary such as `{"epsilon": 8}`; None: no privacy."""
    if given is None:
        return None
    if isinstance(given, Privacy):
        return {key: value for key, value in given.to_dict().items() if value is not None}
    if not isinstance(given, Mapping) or "epsilon" not in given:
        raise BadInput("privacy", given, 'give fs.Privacy(epsilon=8), a dictionary such as {"epsilon": 8}, or None')
    return {key: float(value) if type(value) is int and key != "rounds" else value
            for key, value in plain(given).items()}  # fmt: skip


def _weighs_by_size(known: Entry) -> bool:
    """Whether clients of the algorithm may count by their rows, or all alike."""
    weighting = getattr(known.load(), "__dataclass_fields__", {}).get("weighting")
    return weighting is not None and weighting.default in ("size", "uniform")


def ranks_only(algorithm: object, problem: object) -> bool:
    """Whether such an estimator ranks two classes: then there can be no more, and scores are no log odds."""
    known = ALGORITHMS.get(algorithm) if isinstance(algorithm, str) else None
    if known is None:
        return False
    name = problem if isinstance(problem, str) else dict(problem).get("name") if isinstance(problem, Mapping) else None
    return (name or problem_for(str(algorithm), known)) in ("auc", "pairwise")


def selection_for(config: Experiment) -> str:
    """The measure of validation rows that chooses the round, by what the problem is about."""
    name = config.problem.name
    if name in ("auc", "pairwise"):
        return "auroc"
    if name == "class-fair":
        return "worst_class_accuracy"
    return "worst loss" if config.algorithm.name in WORST else "mean loss"


def is_auto(value: object) -> bool:
    """Whether the user leaves it to us."""
    return isinstance(value, str) and value == AUTO


def plain(value: Any) -> Any:
    """The value with numpy's numbers as Python's, as a grid of parameters may hold them."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list):
        return [plain(v) for v in value]
    return value.item() if isinstance(value, np.generic) else value


def named(key: str, value: object, example: str) -> dict[str, Any]:
    """A section from a name, or from a dictionary with a name and options."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, Mapping):
        return dict(plain(value))
    raise BadInput(key, value, f'give a name, such as {example!r}, or a dictionary such as {{"name": {example!r}}}')
