"""A site's own privacy: its secret, and the ledger of what it has released. Both lie in the folder of the run.

The server cannot reset them: a reply counts before it leaves, and a site whose budget is spent answers no more tasks.
The same task with the same input gets the same reply, bit for bit, since its draws and its noise come from the secret
and the input alone; it tells nothing new, and counts once. So a run that was interrupted can go on. Under a new name a
run has a ledger of its own, and the ledgers of all runs of a folder add up.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from fedsaddle.atomic import write_atomically
from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.site_policy import over_all
from fedsaddle.errors import BadCheckpoint, Refused
from fedsaddle.federation.tasks import Releases
from fedsaddle.privacy.accountant import epsilon_of
from fedsaddle.privacy.digests import digest_of
from fedsaddle.privacy.noise import SecretKeys
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.releases import events_of, from_plain, to_plain, within
from fedsaddle.runs.lock import only_writer

LEDGER, SECRET = "privacy.json", "privacy-secret"
OWNER = 0o600  # nobody else reads the secret
WAIT = 60.0  # seconds for another process of this site that writes to the ledger


@dataclass
class SiteBudget:
    """What one site may release in one run, and what it has."""

    folder: Path
    private: Private
    units: int  # rows, or patients, here
    rows: bytes  # digest of the training rows
    fingerprint: str = ""  # of what decides, besides the rows, what a task replies: algorithm, problem, privacy, seed
    in_all: float | None = None  # ε of all runs of the folder together; None: that of this run
    secret: bytes = b""
    spent: Releases | None = None
    answered: list[str] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder, WAIT):
            stored = self._read()
            if stored is not None and stored.get("fingerprint") == self.fingerprint and stored["units"] == self.units:
                self.private.known[self.units] = float(stored["noise"])  # to find it takes seconds, in every process
            path = self.folder / SECRET
            if stored is not None and any(stored.get(key) != value for key, value in self._agreed().items()):
                raise Refused("this site agreed to this run with another privacy, or with other rows; begin a new run")
            if not path.exists():
                if stored is not None:
                    raise BadCheckpoint(f"{LEDGER} is there but its secret is not: this site cannot go on with the run")
                write_atomically(path, secrets.token_bytes(32), OWNER)
            self.secret = path.read_bytes()
            self._write()

    def draws(self, ask: Ask, sent: Any, own: Any) -> SecretKeys:
        """The draws of a task; what it will release is counted now, before anything is computed.

        The ledger is read anew: another process of this site may have answered in between.
        """
        released = self.private.releases(ask.task, sent)
        given = digest_of(self.rows, self.fingerprint, _code(), ask.task, ask.round, ask.exchange, sent, own)
        with only_writer(self.folder, WAIT):
            self._read()
            assert self.spent is not None
            assert self.answered is not None
            if given.hex() not in self.answered:
                self._count(self.spent + released, given.hex())
        return SecretKeys(self.secret, given)

    def _count(self, spent: Releases, given: str) -> None:
        """Write down a release, if this run's budget and that of all runs suffice."""
        privacy, before, answered = self.private.privacy, self.spent, self.answered or []
        if not within(spent, self.private.plan):
            told = f"this site's budget of epsilon = {privacy.epsilon:g} is planned for {privacy.rounds} rounds"
            raise Refused(f"{told}, and spent")
        self.spent, self.answered = spent, [*answered, given]
        self._write()
        most = privacy.epsilon if self.in_all is None else self.in_all
        if not before and (total := privacy.epsilon + epsilon_in_all(self.folder.parent, self.folder.name)) > most:
            self.spent, self.answered = before, answered  # written before, so that two runs at once see each other
            self._write()
            raise Refused(over_all(most, total))

    def _read(self) -> dict[str, Any] | None:
        """The ledger on the disk, which is what counts."""
        stored = read_ledger(self.folder)
        self.spent = Counter() if stored is None else from_plain(stored["spent"])
        self.answered = [] if stored is None else list(stored["answered"])
        return stored

    def _agreed(self) -> dict[str, Any]:
        """What stays as it is in the whole run."""
        privacy = self.private.privacy
        return {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "unit": privacy.unit,
            "units": self.units,
            "rows": self.rows.hex(),
            "fingerprint": self.fingerprint,
            "noise": self.private.noise(self.units),
            "planned": to_plain(self.private.plan),
        }

    def _write(self) -> None:
        assert self.spent is not None
        content = {**self._agreed(), "spent": to_plain(self.spent), "answered": self.answered}
        write_atomically(self.folder / LEDGER, json.dumps(content).encode(), OWNER)


def read_ledger(folder: Path) -> dict[str, Any] | None:
    """The ledger of a run; None if there is none."""
    try:
        found: dict[str, Any] = json.loads((folder / LEDGER).read_text(encoding="utf-8"))
        found["spent"], found["answered"], found["units"], float(found["epsilon"]), float(found["noise"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise BadCheckpoint(
            f"{folder / LEDGER} is damaged ({type(reason).__name__}); nothing more is released"
        ) from None
    return found


def ledgers(runs: Path) -> dict[str, dict[str, Any]]:
    """The ledgers of all private runs of a folder of runs, by the run's folder."""
    found = {path.parent.name: read_ledger(path.parent) for path in sorted(runs.glob(f"*/{LEDGER}"))}
    return {name: ledger for name, ledger in found.items() if ledger is not None}


def epsilon_in_all(runs: Path, but: str) -> float:
    """The sum of the budgets of all runs but one that have released something: what they may spend together."""
    return sum(float(ledger["epsilon"]) for name, ledger in ledgers(runs).items() if name != but and ledger["spent"])


def epsilon_spent(ledger: dict[str, Any]) -> float:
    """ε of what a run has released here, by the accountant."""
    events = events_of(from_plain(ledger["spent"]), int(ledger["units"]))
    return epsilon_of(events, float(ledger["noise"]), float(ledger["delta"]))


def _code() -> tuple[str, ...]:
    """The versions of what computes a reply: after an update the same question may have another answer, and counts."""
    found = []
    for name in ("fedsaddle", "torch", "numpy"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return tuple(found)
