"""What a run puts around its engine: guards, attacks, lost replies, masks and noise, by its settings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.federation.clients import Clients
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.robust.attacks import Attacked
from fedsaddle.robust.guarded import Guarded
from fedsaddle.runs.accounting import accounted
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.settings import Settings
from fedsaddle.secure.secured import Secured


def wrapped(
    given: Clients,
    algorithm: Algorithm[Any],
    settings: Settings,
    folder: RunFolder | None,
    warn: Callable[[str], None],
) -> tuple[Clients, Clients]:
    """The engine whose state is saved, and the clients that are asked, some of whose replies may be lost."""
    engine = given
    if settings.robust is not None and settings.robust.active:
        engine = Guarded(engine, settings.robust)
    if settings.attack is not None:
        engine = Attacked(engine, settings.attack)
    asked = Lossy(engine, settings.lost_replies, settings.seed) if settings.lost_replies else engine
    if settings.secure_aggregation:
        engine = asked = Secured(asked)
    private = accounted(algorithm, asked, given, settings, folder, warn)
    if private is not None:
        engine = asked = private  # outside of what loses replies: they were made, and count
    return engine, asked
