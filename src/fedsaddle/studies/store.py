"""Outcomes of runs on disk, each known by a fingerprint of all that it depends on: what is there is not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeVar

Job = TypeVar("Job")
Outcome = TypeVar("Outcome")
_J = TypeVar("_J", contravariant=True)
_O = TypeVar("_O")

Run = Callable[[Sequence[Job], Callable[[Job, Outcome], None]], Sequence[tuple[Job, Outcome]]]  # `Pool.run`


class Store(Protocol[_J, _O]):
    """A folder of outcomes."""

    def fingerprint(self, job: _J, /) -> str:
        """The same for jobs that have the same outcome."""

    def find(self, job: _J, /) -> _O | None:
        """The stored outcome; None if there is none."""

    def keep(self, job: _J, outcome: _O, /) -> None:
        """Store an outcome."""


def digest_of(settings: Mapping[str, object], length: int = 24) -> str:
    """A name for settings, which are plain JSON: the beginning of their SHA-256.

    Examples:
        >>> digest_of({"step": 0.1, "seed": 0}) == digest_of({"seed": 0, "step": 0.1})
        True
    """
    text = json.dumps(settings, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def stored_or_run(
    jobs: Sequence[Job],
    store: Store[Job, Outcome] | None,
    run: Run[Job, Outcome],
    ended: Callable[[Job, bool], None] = lambda job, stored: None,
) -> list[Outcome]:
    """The outcomes of jobs, in order: those that are stored, and the others, which are run once and stored as they end.

    Args:
        jobs: what is wanted; of several with one fingerprint the first is run.
        store: where outcomes are; None: nothing is stored.
        run: runs the others, such as `Pool.run`.
        ended: called with each job that has ended, and whether it was stored.
    """
    if store is None:
        return [outcome for _, outcome in run(jobs, lambda job, outcome: ended(job, False))]
    names = [store.fingerprint(job) for job in jobs]
    found, missing = dict[str, Outcome](), dict[str, Job]()
    for name, job in zip(names, jobs, strict=True):
        stored = found.get(name) or store.find(job)
        if stored is None:
            missing.setdefault(name, job)
        else:
            found[name] = stored
            ended(job, True)

    def keep(job: Job, outcome: Outcome) -> None:
        store.keep(job, outcome)
        found[store.fingerprint(job)] = outcome
        ended(job, False)

    if missing:
        run(list(missing.values()), keep)
    return [found[name] for name in names]
