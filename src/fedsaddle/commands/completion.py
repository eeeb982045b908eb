"""Names that the shell completes; from plain tables, so that nothing heavy is imported."""

from __future__ import annotations

import os
from collections.abc import Iterable

from fedsaddle.config.registry import ALGORITHMS, DATASETS, ENGINES, LISTED, MODELS, PROBLEMS, SPLITS

NAMED = {  # keys of a config that take a name
    "algorithm.name": ALGORITHMS,
    "problem.name": PROBLEMS,
    "data.name": DATASETS,
    "split.name": SPLITS,
    "model.name": MODELS,
    "engine.name": ENGINES,
}
KEYS = (
    "algorithm.sampled_clients",
    "algorithm.local_steps",
    "algorithm.batch_size",
    "algorithm.primal_step",
    "algorithm.dual_step",
    "data.test_share",
    "data.validation_share",
    "problem.loss",
    "problem.l2",
    "run.rounds",
    "run.seed",
    "run.evaluate_every",
    "run.checkpoint_every",
    "run.target",
    "run.select",
    "run.patience",
    "run.lost_replies",
    "run.dtype",
    "robust.aggregation",
    "attack.name",
    "split.clients",
    "split.alpha",
)  # what is changed most
BASH = "complete_bash"
VARIABLE = "_FEDSADDLE_COMPLETE"


def algorithms(incomplete: str) -> list[tuple[str, str]]:
    """Names of algorithms, and what they are."""
    return [(name, entry.about) for name, entry in ALGORITHMS.items() if name.startswith(incomplete)]


def engines(incomplete: str) -> list[str]:
    """Names of engines."""
    return _beginning(incomplete, ENGINES)


def kinds(incomplete: str) -> list[str]:
    """What `fedsaddle list` lists."""
    return _beginning(incomplete, LISTED)


def aims(incomplete: str) -> list[str]:
    """What a search can be for."""
    return _beginning(incomplete, ("auroc", "average-precision", "partial-auroc", "worst-site", "accuracy"))


def changes(incomplete: str) -> list[str]:
    """Keys of a config with `=`, and names after it.

    Example:
        >>> changes("algorithm.name=DRFA-")
        ['algorithm.name=DRFA-GA', 'algorithm.name=DRFA-Prox']
    """
    key, equals, begun = incomplete.partition("=")
    if equals:
        done, comma, last = begun.rpartition(",")  # of a sweep: name=FedAvg,DR
        return [f"{key}={done}{comma}{name}" for name in _beginning(last, NAMED.get(key, ()))]
    return [f"{known}=" for known in (*NAMED, *KEYS) if known.startswith(incomplete)]


def after_equals(environment: dict[str, str] | None = None) -> list[str] | None:
    """Names after `--set KEY=` in bash, which takes `=` for a word of its own; None where it is something else."""
    given = dict(os.environ) if environment is None else environment
    words, at = given.get("COMP_WORDS", "").split("\n"), given.get("COMP_CWORD", "")
    if given.get(VARIABLE) != BASH or not at.isdecimal() or not 3 <= int(at) <= len(words):
        return None
    here = words[int(at)] if int(at) < len(words) else ""
    before = words[: int(at)] if here != "=" else words[: int(at) + 1]
    if len(before) < 3 or before[-1] != "=" or before[-3] != "--set":
        return None
    begun = "" if here == "=" else here
    found = changes(f"{before[-2]}={begun}")
    return [one.partition("=")[2].replace(" ", "\\ ") for one in found]


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
