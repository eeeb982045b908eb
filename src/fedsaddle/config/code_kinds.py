"""What an object must be to stand for an algorithm, a model, a data set ...: checked before it is called."""

from __future__ import annotations

import inspect
from typing import get_type_hints

from torch import nn

from fedsaddle.algorithms.fedsgda import Estimator
from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.data.splits.partition import Split
from fedsaddle.data.table import Dataset
from fedsaddle.errors import BadInput
from fedsaddle.metrics.measures import Measure
from fedsaddle.numerics.projections import Projection
from fedsaddle.numerics.regularisers import Regulariser
from fedsaddle.numerics.schedules import Schedule
from fedsaddle.problems.losses import Loss
from fedsaddle.problems.pair_losses import MarginLoss, PairLoss
from fedsaddle.problems.protocols import MinimaxProblem, MinimisationProblem, PairwiseProblem

# The narrower kind first: pairs can be minimised, too.
PROTOCOLS = {"pairwise": PairwiseProblem, "minimax": MinimaxProblem, "minimisation": MinimisationProblem}
_KIND = 'problem: fs.MinimisationProblem, fs.MinimaxProblem or fs.PairwiseProblem, or set kind = "minimisation"'
# What each group's names make, the methods that a class must have, and the sentence of the error.
_MAKES: dict[str, tuple[type | tuple[type, ...], tuple[str, ...], str]] = {
    "models": (nn.Module, (), "a class that inherits from torch.nn.Module, or a function with `-> nn.Module`"),
    "datasets": (Dataset, (), "a function with `-> fs.Dataset`"),
    "splits": (Split, ("assign", "names"), "a class with the methods assign and names (fs.splits.Split)"),
    "measures": (Measure, ("__call__",), "a class with a name and __call__(position)"),
    "losses": (Loss, ("value", "slope"), "a class with the methods value and slope (inherit from fs.losses.Loss)"),
    "pair_losses": (
        (PairLoss, MarginLoss),
        ("value", "slopes"),
        "a class with the methods value and slopes, such as one that inherits from fs.pair_losses.MarginLoss",
    ),
    "risks": (PairwiseProblem, (), "a function with `-> fs.PairwiseRisk`"),
    "regularisers": (Regulariser, ("value", "gradient", "prox"), "a class with value, gradient and prox"),
    "projections": (Projection, ("__call__",), "a class with __call__(w)"),
    "schedules": (Schedule, ("at",), "a class with the method at(t), the value in round t"),
    "estimators": (Estimator, ("wants_before", "cohort", "estimate"), "a class with the methods of fs.Estimator"),
}


def kind_of(group: str, key: str, name: str, found: object) -> str:
    """Raise `BadInput` unless `found` is valid for a name of that group; return the kind of problem, if it has one."""
    if group == "algorithms":
        return _kind_of_algorithm(key, name, found)
    if group == "problems":
        return _kind_of_problem(key, name, found)
    if group in _MAKES:
        makes, methods, wanted = _MAKES[group]
        if not _can_make(found, makes, methods):
            raise BadInput(key, name, f"is {_what(found)}; it must be {wanted}")
    return ""


def require_made(group: str, key: str, name: object, made: object) -> None:
    """Raise `BadInput` unless what was made is what the group is of."""
    makes, _, wanted = _MAKES[group]
    if not isinstance(made, makes):
        raise BadInput(key, name, f"made {_what(made)}; it must be {wanted}")


def _can_make(found: object, makes: type | tuple[type, ...], methods: tuple[str, ...]) -> bool:
    wanted = makes if isinstance(makes, tuple) else (makes,)
    if isinstance(found, type):
        if inspect.isabstract(found) or getattr(found, "_is_protocol", False):
            return False
        inherits = any(each in found.__mro__ for each in wanted)
        return inherits or (bool(methods) and all(any(m in vars(c) for c in found.__mro__) for m in methods))
    if not inspect.isfunction(found):
        return False
    try:
        given = get_type_hints(found).get("return")
    except (NameError, TypeError, AttributeError):
        return False
    return isinstance(given, type) and any(each in given.__mro__ for each in wanted)


def _kind_of_algorithm(key: str, name: str, found: object) -> str:
    methods = ("start", "round", "model")
    if not isinstance(found, type):
        raise BadInput(key, name, f"is {_what(found)}; it must be a class with the methods start, round and model")
    missing = [m for m in methods if not callable(getattr(found, m, None))]
    if missing or found is Algorithm:
        remedy = f"is no algorithm: it has no method {' and no '.join(missing or methods)}"
        raise BadInput(key, name, f"{remedy}; an algorithm has {', '.join(methods)}")
    if "problem" not in inspect.signature(found).parameters:
        raise BadInput(key, name, f"is no algorithm: it takes no argument `problem`; add a field {_KIND}")
    try:
        hint = get_type_hints(found).get("problem") or get_type_hints(vars(found).get("__init__", found)).get("problem")
    except (NameError, AttributeError, TypeError) as reason:
        hint = None
        why = f" (its annotations cannot be read: {reason})"
    else:
        why = ""
    kind = _said(found) or next((k for k, p in PROTOCOLS.items() if _is_a(hint, p)), "")
    if not kind:
        raise BadInput(key, name, f"does not say which problems it solves{why}; write {_KIND}")
    return kind


def _kind_of_problem(key: str, name: str, found: object) -> str:
    if not isinstance(found, type):
        raise BadInput(key, name, f"is {_what(found)}; it must be a class that inherits from fs.MinimisationProblem")
    kind = _said(found) or next((k for k, p in PROTOCOLS.items() if _is_a(found, p)), "")
    if not kind:
        remedy = "is no problem: inherit from fs.MinimisationProblem, fs.MinimaxProblem or fs.PairwiseProblem"
        raise BadInput(key, name, remedy)
    return kind


def _said(found: type) -> str:
    """Its own word for it, in an attribute `kind`; another word there is an option of its own."""
    kind = inspect.getattr_static(found, "kind", None)
    return kind if isinstance(kind, str) and kind in PROTOCOLS else ""


def _is_a(hint: object, protocol: type) -> bool:
    return isinstance(hint, type) and protocol in hint.__mro__


def _what(found: object) -> str:
    if isinstance(found, type):
        return f"the class {found.__name__}"
    if inspect.isroutine(found):
        return f"the function {getattr(found, '__name__', '')}"
    return f"an object of type {type(found).__name__}"
