"""What a run puts around its engine: guards, attacks, lost replies, masks and noise, by its settings."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedsaddle.algorithms.protocols import Algorithm
from fedsaddle.arguments import instance
from fedsaddle.errors import BadInput
from fedsaddle.federation.clients import Clients
from fedsaddle.federation.wrappers import Lossy
from fedsaddle.privacy.settings import Privacy
from fedsaddle.robust.attacks import Attacked
from fedsaddle.robust.reduction import Guarded
from fedsaddle.runs.folder import RunFolder
from fedsaddle.runs.settings import Settings
from fedsaddle.secure.secured import Secured

if TYPE_CHECKING:
    from fedsaddle.privacy.client_level import ClientPrivate
    from fedsaddle.privacy.private import Accounted

PRIVACY = "give fs.Privacy(epsilon=8), or None"


def apply_privacy(
    algorithm: Any, privacy: Privacy | None, rounds: int, resumed: RunFolder | None
) -> tuple[Any, Privacy | None]:
    """The algorithm as its clients run it, and the privacy that the server makes, planned for so many rounds.

    A resumed run keeps the plan that it began with.
    """
    if privacy is not None:
        instance("privacy", privacy, Privacy, PRIVACY)
    if privacy is None or not privacy.noisy:
        own = getattr(algorithm, "privacy", None)
        if isinstance(own, Privacy):
            _enough(own, rounds)
        return algorithm, None
    before = None if resumed is None or privacy.rounds is not None else _planned_before(resumed.path)
    planned = replace(privacy, rounds=privacy.rounds or before or rounds, secure_aggregation=False)
    _enough(planned, rounds)
    if planned.unit == "client":
        return algorithm, planned
    from fedsaddle.privacy.private import Private

    return Private(algorithm=algorithm, privacy=planned), None


def track_budget(
    algorithm: Any,
    clients: Clients,
    engine: Any,
    settings: Settings,
    folder: RunFolder | None,
    warn: Callable[[str], None],
) -> Accounted | ClientPrivate | None:
    """The clients of a private run, whose budget is kept; None if the run is not private."""
    if settings.privacy is not None:
        from fedsaddle.privacy.client_level import ClientPrivate, ServerLedger, few_clients

        simulated = hasattr(engine, "rows")
        ledger = None if simulated else ServerLedger.of(None if folder is None else folder.path)
        found = ClientPrivate(clients, settings.privacy, algorithm, settings.seed if simulated else None, ledger)
        if told := few_clients(found):
            warn(told)
        return found
    if not isinstance(getattr(algorithm, "privacy", None), Privacy):
        return None
    from fedsaddle.privacy.private import Accounted, large_delta, units_of

    kept = Accounted(clients, algorithm, units_of(algorithm, getattr(engine, "rows", None), clients.sizes))
    if told := large_delta(kept):
        warn(told)
    return kept


def _enough(privacy: Privacy, rounds: int) -> None:
    if privacy.rounds is not None and rounds > privacy.rounds:
        remedy = f"the budget of privacy is planned for {privacy.rounds} rounds; more would exceed epsilon"
        raise BadInput("rounds", rounds, remedy)


def _planned_before(folder: Path) -> int | None:
    """The rounds that the run in a folder was planned for, by its newest checkpoint; None if there is none."""
    for about in sorted((folder / "checkpoints").glob("*.json"), reverse=True):
        try:
            return int(json.loads(about.read_text())["notes"]["clients"]["privacy"]["rounds"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None


def wrap_clients(
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
    private = track_budget(algorithm, asked, given, settings, folder, warn)
    if private is not None:
        engine = asked = private  # outside of what loses replies: they were made, and count
    return engine, asked
