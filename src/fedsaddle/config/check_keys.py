"""Check the keys of all sections of a config before any data is there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

from fedsaddle.arguments import did_you_mean
from fedsaddle.config.lookup import entry, find, refuse_keys_of_others
from fedsaddle.config.parts import arguments_of
from fedsaddle.config.problem import START, problem_keys
from fedsaddle.config.registry import ALGORITHMS, DATASETS, MODELS, PROBLEMS, RISKS, SPLITS
from fedsaddle.config.schema import Config
from fedsaddle.config.validate import check_options
from fedsaddle.errors import BadInput, within

PATHS = ("path", "test_path", "folder")  # of [data]; real sites have their own


def check_keys(config: Config) -> None:
    """Raise `BadInput` for a name or a key that nobody knows, and for values of [data], [split] and [algorithm]."""
    data, split = config.data, config.split
    options = {key: value for key, value in data.options().items() if key not in PATHS}
    check_options("data", find(DATASETS, "data.name", data.name), options, built=PATHS)
    check_options("split", find(SPLITS, "split.name", split.name), split.options())
    known = entry(ALGORITHMS, "algorithm.name", config.algorithm.name)
    options = config.algorithm.options()
    if "local_layers" in options:
        remedy = "is for simulated runs: real sites are measured with one model for all; leave it out"
        raise BadInput("algorithm.local_layers", options["local_layers"], remedy)
    given, make = known.bind("algorithm", config.algorithm.name, options), known.load()
    refuse_keys_of_others("algorithm", config.algorithm.name, options)
    with within("algorithm"):
        arguments_of("algorithm", make, given, built=("problem",))
    model = find(MODELS, "model.name", config.model.name)
    require_known("model", config.model.options(), [*_parameters(model), *START])
    _check_problem(config)


def _check_problem(config: Config) -> None:
    name, options = config.problem.name, config.problem.options()
    known = entry(PROBLEMS, "problem.name", name)
    if known.kind != "pairwise" or known.own:
        require_known("problem", options, problem_keys(known))
        return
    risk = find(RISKS, "problem.risk", options.get("risk", "auc"))
    names = [key for key in _parameters(risk) if key != "model"]
    require_known("problem", options, ["risk", "outputs", *names])


def require_known(section: str, given: Mapping[str, Any], known: Collection[str]) -> None:
    """Refuse keys that are not known, with the nearest one that is."""
    for key, value in given.items():
        if key not in known:
            hint = did_you_mean(key, known)
            raise BadInput(f"{section}.{key}", value, f"unknown key; {hint}known keys: {', '.join(known) or 'none'}")


def _parameters(make: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(make).parameters if name != "self"]
