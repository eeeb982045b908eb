"""Build the problem and the model from the [problem] and [model] sections of a config."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import cast

import torch
from torch import nn

from fedsaddle.config.arguments import arguments_of
from fedsaddle.config.code_kinds import require_made
from fedsaddle.config.registry import ALGORITHMS, MODELS, PROBLEMS, RISKS, Entry, entry
from fedsaddle.config.schema import Config, Experiment, NamedSection
from fedsaddle.data.federated import FederatedData
from fedsaddle.data.tables.small_cells import disclosed_label_counts
from fedsaddle.errors import BadInput, within
from fedsaddle.own_code import user_code_errors
from fedsaddle.problems.models.transfer import freeze_, trained_tensors, warm_started
from fedsaddle.problems.protocols import DataFacts, Problem

# Name of an argument -> what it gets.
ASKED: dict[str, str] = {
    "inputs": "numbers in one row",
    "features": "the same",
    "outputs": "scores that the problem wants of a row",
    "classes": "the same; of a problem: classes of the data, 0 for regression",
    "shape": "the shape of one row, a tuple",
    "channels": "channels of a picture",
    "height": "rows of pixels",
    "width": "pixels in a row",
    "side": "either of them, if pictures are square",
    "size": "the same",
    "characters": "size of the alphabet, for text",
}
Shape = int | tuple[int, ...]
ALWAYS = ("inputs", "outputs", "classes")


def asked_shapes(
    make: Callable[..., object], key: str, name: str, facts: DataFacts, scores: int, given: Collection[str] = ()
) -> dict[str, Shape]:
    """The arguments in `ASKED` that the signature of `make` has and the config does not give.

    Those in `ALWAYS` even where they have a default; of the others a default counts.
    """
    asked = {name: p for name, p in inspect.signature(make).parameters.items() if name in ASKED and name not in given}
    wanted = [name for name, p in asked.items() if name in ALWAYS or p.default is p.empty]
    return {parameter: _shape(parameter, key, name, facts, scores) for parameter in wanted}


def _shape(parameter: str, key: str, name: str, facts: DataFacts, scores: int) -> Shape:
    simple: dict[str, Shape] = {"inputs": facts.features, "features": facts.features, "shape": facts.shape}
    simple |= {"outputs": scores, "classes": scores}
    if parameter in simple:
        return simple[parameter]
    if parameter == "characters":
        if not facts.text:
            raise BadInput(
                key, name, "asks for `characters`, and these data are no text; give it as an option, or rename it"
            )
        return len(facts.classes)
    if len(facts.shape) != 3:
        remedy = f"asks for `{parameter}` of pictures; say images = true under [data], or give it as an option"
        raise BadInput(key, name, remedy)
    channels, height, width = facts.shape
    if parameter in ("side", "size") and height != width:
        raise BadInput(
            key, name, f"asks for `{parameter}` of square pictures, these are {height} x {width}; take height and width"
        )
    return {"channels": channels, "height": height}.get(parameter, width)


FACTS = ("facts", "model_for")  # arguments of `from_data` that are not options
START = ("start_from", "head", "frozen")  # options of every model


@dataclass
class NamedModel:
    """Builds the model that a config names, for a given number of scores, and keeps its arguments."""

    section: NamedSection
    facts: DataFacts
    arguments: dict[str, object] = field(default_factory=dict)

    def __call__(self, scores: int) -> nn.Module:
        """Build the model; with `start_from`, load the weights of an earlier run (all but a `fresh` head)."""
        known = entry(MODELS, "model.name", self.section.name)
        given = self.section.options()
        shapes = self._shapes(known, scores, given)
        options = {k: v for k, v in given.items() if k not in START}
        make, trained, head = known.load(), given.get("start_from"), given.get("head")
        with within("model"):
            if head is not None and trained is None:
                raise BadInput("head", head, "is for a model that starts from a trained one; give start_from as well")
            self.arguments = {**shapes, **arguments_of("model", make, options, built=shapes)}
            with user_code_errors("model.name", self.section.name, known.own):
                made: nn.Module = make(**self.arguments)
            if known.own:
                require_made("models", "model.name", self.section.name, made)
            if trained is not None:
                made = warm_started(made, trained_tensors(str(trained)), "auto" if head is None else head)
            return _frozen(made, given.get("frozen"))

    def _shapes(self, known: Entry, scores: int, given: Mapping[str, object]) -> dict[str, Shape]:
        """What the data settle: of our models by their function, of own ones by the names of their arguments."""
        if known.own:
            return asked_shapes(known.load(), "model.name", self.section.name, self.facts, scores, given)
        module, _, name = known.shapes.partition(":")
        shapes: dict[str, Shape] = getattr(import_module(module), name)(self.facts, scores)
        return shapes


def _frozen(model: nn.Module, patterns: object) -> nn.Module:
    """The model, in which the parameters named by `frozen` are not trained."""
    if patterns is None:
        return model
    if not isinstance(patterns, list):
        raise BadInput("frozen", patterns, 'must be a list of names of parameters or modules: ["features.*"]')
    return freeze_(model, *patterns)


def build_problem(
    config: Experiment, data: FederatedData, counts: Sequence[int] | None = None
) -> tuple[Problem, NamedModel]:
    """Build the problem, on a model whose shapes fit the data; `counts` are rows of each class, or None: of `data`."""
    name, algorithm = config.problem.name, config.algorithm.name
    known = entry(PROBLEMS, "problem.name", name)
    kind = entry(ALGORITHMS, "algorithm.name", algorithm).kind
    if known.kind != kind:
        fits = [other for other, e in PROBLEMS.items() if e.kind == kind]
        raise BadInput("problem.name", name, f"does not fit {algorithm}; use problem.name = {' or '.join(fits)}")
    least = config.data.minimum_cell if isinstance(config, Config) else 1
    if counts is None and least > 1 and data.classes and data.train.y.ndim == 1:
        own = data.train
        counts = disclosed_label_counts(own.y.numpy(), own.offsets, len(data.classes), least)
    model = NamedModel(config.model, facts_of(data, config.model.name, counts))
    if known.kind == "pairwise" and not known.own:
        return _pairwise(config, model), model
    if known.own:
        return own_problem(config, known, model), model
    make, options = known.load().from_data, config.problem.options()
    if config.engine.compile:
        if "compiled" not in inspect.signature(make).parameters:
            raise BadInput("engine.compile", True, "works with problem.name = supervised only; leave it out")
        options["compiled"] = True
    with within("problem"):
        problem: Problem = make(model.facts, model, **arguments_of("problem", make, options, built=FACTS))
    return problem, model


def _pairwise(config: Experiment, model: NamedModel) -> Problem:
    """Build a pairwise risk, which is named after the measure that it optimises."""
    options = config.problem.options()
    risk = options.pop("risk", "auc")
    known = entry(RISKS, "problem.risk", risk)
    make, options = known.load(), known.bind("problem", risk, options)
    outputs = options.pop("outputs", 1)
    if not isinstance(outputs, int) or isinstance(outputs, bool) or outputs < 1:
        raise BadInput("problem.outputs", outputs, "must be a whole number of at least 1")
    model.facts.need_classes("pairwise")
    with within("problem"), user_code_errors("problem.risk", risk, known.own):
        problem: Problem = make(model(outputs), **arguments_of("problem", make, options, built=("model",)))
    if known.own:
        require_made("risks", "problem.risk", risk, problem)
    if (problem.first, problem.second) != (None, None):  # type: ignore[attr-defined]
        model.facts.need_two_classes("problem.risk", str(risk))
    return problem


def own_problem(config: Experiment, known: Entry, model: NamedModel) -> Problem:
    """Build an own problem: by its `from_data`, or from the arguments that its signature asks for."""
    name, cls, facts = config.problem.name, known.load(), model.facts
    if config.engine.compile:
        raise BadInput("engine.compile", True, "works with problem.name = supervised only; leave it out")
    options = config.problem.options()
    with within("problem"), user_code_errors("problem.name", name, known.own):
        if hasattr(cls, "from_data"):
            checked = arguments_of("problem", cls.from_data, options, built=FACTS)
            return cast(Problem, cls.from_data(facts, model, **checked))
        scores = len(facts.classes) or 1
        settled: dict[str, object] = {**asked_shapes(cls, "problem.name", name, facts, scores, options)}
        if "classes" in settled:
            settled["classes"] = len(facts.classes)
        checked = arguments_of("problem", cls, options, built=(*settled, "model"))
        if "model" in inspect.signature(cls).parameters:
            settled["model"] = model(scores)
        return cast(Problem, cls(**settled, **checked))


def problem_keys(known: Entry) -> list[str]:
    """The options of a problem that is not made of pairs by a risk."""
    cls = known.load()
    make = cls.from_data if hasattr(cls, "from_data") else cls
    return [name for name in inspect.signature(make).parameters if name not in (*FACTS, "self", "model")]


def facts_of(data: FederatedData, model: str = "", counts: Sequence[int] | None = None) -> DataFacts:
    """The facts about the data that a problem may use; `counts` are rows of each class, or None: those of `data`."""
    y = data.train.y
    by_group: tuple[tuple[int, ...], ...] = ()
    if data.group_names:
        y, group = y.unbind(-1)
        k = len(data.classes)
        table = torch.bincount(group * k + y, minlength=len(data.group_names) * k).view(-1, k)
        by_group = tuple(tuple(own) for own in table.tolist())
    if counts is None:
        counts = torch.bincount(y, minlength=len(data.classes)).tolist() if data.classes and y.ndim == 1 else ()
    text = not data.train.x.is_floating_point()
    return DataFacts(
        data.name, tuple(data.train.x.shape[1:]), data.classes, tuple(counts), text, model, data.group_names, by_group
    )
