"""Build the problem and the model from the [problem] and [model] sections of a config."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fedsaddle.config.parts import arguments_of
from fedsaddle.config.registry import ALGORITHMS, MODELS, PROBLEMS, RISKS, entry, find
from fedsaddle.config.schema import Config, NamedSection
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.files.small_cells import told_label_counts
from fedsaddle.errors import BadInput, within
from fedsaddle.problems.facts import DataFacts
from fedsaddle.problems.models.frozen import freeze_
from fedsaddle.problems.models.warm_start import trained_tensors, warm_started
from fedsaddle.problems.protocols import Problem

FACTS = ("facts", "model_for")  # arguments of `from_data` that are not options
START = ("start_from", "head", "frozen")  # options of every model


@dataclass
class NamedModel:
    """Builds the model that a config names, for a given number of scores, and keeps its arguments."""

    section: NamedSection
    facts: DataFacts
    arguments: dict[str, Any] = field(default_factory=dict)

    def __call__(self, scores: int) -> nn.Module:
        """Build the model; with `start_from`, load the weights of an earlier run (all but a `fresh` head)."""
        known = entry(MODELS, "model.name", self.section.name)
        module, _, name = known.shapes.partition(":")
        shapes: dict[str, int] = getattr(import_module(module), name)(self.facts, scores)
        given = self.section.options()
        options = {k: v for k, v in given.items() if k not in START}
        make, trained, head = known.load(), given.get("start_from"), given.get("head")
        with within("model"):
            if head is not None and trained is None:
                raise BadInput("head", head, "is for a model that starts from a trained one; give start_from as well")
            self.arguments = {**shapes, **arguments_of("model", make, options, built=shapes)}
            made: nn.Module = make(**self.arguments)
            if trained is not None:
                made = warm_started(made, trained_tensors(str(trained)), "auto" if head is None else head)
            return _frozen(made, given.get("frozen"))


def _frozen(model: nn.Module, patterns: object) -> nn.Module:
    """The model with what `frozen` names left as it is."""
    if patterns is None:
        return model
    if not isinstance(patterns, list):
        raise BadInput("frozen", patterns, 'must be a list of names of parameters or modules: ["features.*"]')
    return freeze_(model, *patterns)


def build_problem(
    config: Config, data: FederatedData, counts: Sequence[int] | None = None
) -> tuple[Problem, NamedModel]:
    """Build the problem, on a model whose shapes fit the data; `counts` are rows of each class, or None: of `data`."""
    name, algorithm = config.problem.name, config.algorithm.name
    known = entry(PROBLEMS, "problem.name", name)
    kind = entry(ALGORITHMS, "algorithm.name", algorithm).kind
    if known.kind != kind:
        fits = [other for other, e in PROBLEMS.items() if e.kind == kind]
        raise BadInput("problem.name", name, f"does not fit {algorithm}; use problem.name = {' or '.join(fits)}")
    if counts is None and config.data.minimum_cell > 1 and data.classes and data.train.y.ndim == 1:
        own = data.train
        counts = told_label_counts(own.y.numpy(), own.offsets, len(data.classes), config.data.minimum_cell)
    model = NamedModel(config.model, facts_of(data, config.model.name, counts))
    if known.kind == "pairwise":
        return _pairwise(config, model), model
    make, options = known.load().from_data, config.problem.options()
    if config.engine.compile:
        if "compiled" not in inspect.signature(make).parameters:
            raise BadInput("engine.compile", True, "works with problem.name = supervised only; leave it out")
        options["compiled"] = True
    with within("problem"):
        problem: Problem = make(model.facts, model, **arguments_of("problem", make, options, built=FACTS))
    return problem, model


def _pairwise(config: Config, model: NamedModel) -> Problem:
    """Build a pairwise risk, which is named after the measure that it optimises."""
    options = config.problem.options()
    risk = options.pop("risk", "auc")
    make = find(RISKS, "problem.risk", risk)
    options = entry(RISKS, "problem.risk", risk).bind("problem", risk, options)
    outputs = options.pop("outputs", 1)
    if not isinstance(outputs, int) or isinstance(outputs, bool) or outputs < 1:
        raise BadInput("problem.outputs", outputs, "must be a whole number of at least 1")
    model.facts.need_classes("pairwise")
    with within("problem"):
        problem: Problem = make(model(outputs), **arguments_of("problem", make, options, built=("model",)))
    if (problem.first, problem.second) != (None, None):  # type: ignore[attr-defined]
        model.facts.need_two_classes("problem.risk", str(risk))
    return problem


def facts_of(data: FederatedData, model: str = "", counts: Sequence[int] | None = None) -> DataFacts:
    """The facts about the data that a problem may use; `counts` are rows of each class, or None: those of `data`."""
    y = data.train.y
    if counts is None:
        counts = torch.bincount(y, minlength=len(data.classes)).tolist() if data.classes and y.ndim == 1 else ()
    text = not data.train.x.is_floating_point()
    return DataFacts(data.name, tuple(data.train.x.shape[1:]), data.classes, tuple(counts), text, model)
