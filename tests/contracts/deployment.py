"""A deployed federation inside the test's process: the real codec and the real halves, without a network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from fedsaddle.data.store import Stacked
from fedsaddle.deployment.courier import Courier, InProcess, Patience, Transport
from fedsaddle.deployment.remote_clients import ExpectedReplies, RemoteClients, placeholder_rows
from fedsaddle.deployment.site_worker import InMemory, OwnRows, SiteWorker, Versions
from fedsaddle.runs.checkpoints import shared_fingerprint

RUN = "trial"


def alone(rows: Stacked, i: int) -> Stacked:
    """One client's rows, as its site holds them."""
    x, y = rows.client(i)
    own = None if rows.units is None else rows.unit_numbers(i)
    return Stacked(x, y, np.array([0, len(x)]), positives=rows.positives, units=own)


def sites(
    make: Callable[[], Any], rows: Stacked, seed: int = 0, versions: Callable[[int], Versions] = lambda i: InMemory()
) -> dict[int, SiteWorker]:
    """A site for each client, with an algorithm and rows of its own."""
    made = {}
    for i in range(rows.count):
        algorithm, own = make(), OwnRows(alone(rows, i), i, rows.count)
        agreed = shared_fingerprint(algorithm, rows.count, seed)
        made[i] = SiteWorker(algorithm, own, i, seed, RUN, agreed, versions(i))
    return made


def deployed(
    make: Callable[[], Any], rows: Stacked, seed: int = 0, transport: Transport | None = None, **patience: Any
) -> RemoteClients:
    """Sites and a server that asks them; by default all in this process."""
    if transport is None:
        transport = InProcess({i: site.answer for i, site in sites(make, rows, seed).items()})
    names = tuple(f"site-{i}" for i in range(rows.count))
    courier = Courier(transport, names, Patience(**patience), sleep=lambda seconds: None)
    agreed = shared_fingerprint(make(), rows.count, seed)
    return RemoteClients(courier, rows.sizes, RUN, agreed, ExpectedReplies(placeholder_rows(rows.x, rows.y)))
