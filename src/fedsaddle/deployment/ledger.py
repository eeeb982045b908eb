"""A site's privacy budget in a run, with the secret of its noise, in the folder of the run."""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypedDict

from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.site_policy import over_all
from fedsaddle.errors import BadCheckpoint, Refused
from fedsaddle.federation.tasks import Releases
from fedsaddle.files import write_atomically
from fedsaddle.privacy.accountant import epsilon_of, events_of, from_plain, to_plain, within
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.site import SecretKeys, digest_of
from fedsaddle.runs.folder import only_writer
from fedsaddle.text import visible

LEDGER, SECRET = "privacy.json", "privacy-secret"
OWNER = 0o600  # nobody else reads the secret
WAIT = 60.0  # seconds for another process of this site that writes to the ledger


class AgreedBudget(TypedDict):
    """What of a ledger is constant during a run."""

    epsilon: float
    delta: float
    unit: str
    units: int
    rows: str  # digest, in hexadecimal
    fingerprint: str
    noise: float
    planned: list[list[int | None]]


class SiteLedger(AgreedBudget):
    """A ledger as it is stored."""

    spent: list[tuple[int | None, int, int]]
    answered: list[str]  # digests of the questions


class BudgetOfRun(TypedDict):
    """What a run may release about a site, and what it has."""

    run: str
    unit: str
    units: int
    epsilon: float
    delta: float
    epsilon_spent: float
    epsilon_left: float
    answers: int


@dataclass
class SiteBudget:
    """The privacy budget of one site in one run, and what it has released.

    Args:
        folder: of the run, at the site.
        private: the private algorithm.
        units: rows, or patients, here.
        rows: digest of the training rows.
        fingerprint: of what decides, besides the rows, what a task replies: algorithm, problem, privacy, seed.
        in_all: ε of all runs of the folder together; None: that of this run.
        secret: that the noise is made of, read from the folder.
        spent: what was released, read from the folder.
        answered: digests of the questions, read from the folder.
    """

    folder: Path
    private: Private
    units: int
    rows: bytes
    fingerprint: str = ""
    in_all: float | None = None
    secret: bytes = b""
    spent: Releases | None = None
    answered: list[str] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with only_writer(self.folder, WAIT):
            stored = self._read()
            if stored is not None and stored.get("fingerprint") == self.fingerprint and stored["units"] == self.units:
                self.private.known[self.units] = float(stored["noise"])  # computing it takes seconds in every process
            path = self.folder / SECRET
            if stored is not None and any(dict(stored).get(key) != value for key, value in self._agreed().items()):
                raise Refused("this site agreed to this run with another privacy, or with other rows; begin a new run")
            if not path.exists():
                if stored is not None:
                    raise BadCheckpoint(f"{LEDGER} is there but its secret is not: this site cannot go on with the run")
                write_atomically(path, secrets.token_bytes(32), OWNER)
            self.secret = path.read_bytes()
            self._write()

    def draws(self, ask: Ask, sent: object, own: object) -> SecretKeys:
        """The draws of a task; its release is counted before anything is computed.

        The ledger is read again: another process of this site may have answered in between.
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
        """Record a release, if the budgets of this run and of all runs suffice."""
        privacy, before, answered = self.private.privacy, self.spent, self.answered or []
        if not within(spent, self.private.plan):
            budget = f"this site's budget of epsilon = {privacy.epsilon:g} is planned for {privacy.rounds} rounds"
            raise Refused(f"{budget}, and spent")
        self.spent, self.answered = spent, [*answered, given]
        self._write()
        most = privacy.epsilon if self.in_all is None else self.in_all
        if not before and (total := privacy.epsilon + epsilon_in_all(self.folder.parent, self.folder.name)) > most:
            self.spent, self.answered = before, answered  # written first, so that two simultaneous runs see each other
            self._write()
            raise Refused(over_all(most, total))

    def _read(self) -> SiteLedger | None:
        """Read the ledger on the disk, which is authoritative."""
        stored = read_ledger(self.folder)
        self.spent = Counter() if stored is None else from_plain(stored["spent"])
        self.answered = [] if stored is None else list(stored["answered"])
        return stored

    def _agreed(self) -> AgreedBudget:
        """Entries that are constant during the run."""
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


def read_ledger(folder: Path) -> SiteLedger | None:
    """The ledger of a run; None if there is none."""
    try:
        found: SiteLedger = json.loads((folder / LEDGER).read_text(encoding="utf-8"))
        found["spent"], found["answered"], found["units"], float(found["epsilon"]), float(found["noise"])
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise BadCheckpoint(
            f"{folder / LEDGER} is damaged ({type(reason).__name__}); nothing more is released"
        ) from None
    return found


def ledgers(runs: Path) -> dict[str, SiteLedger]:
    """The ledgers of all private runs of a folder of runs, by the run's folder."""
    found = {path.parent.name: read_ledger(path.parent) for path in sorted(runs.glob(f"*/{LEDGER}"))}
    return {name: ledger for name, ledger in found.items() if ledger is not None}


def epsilon_in_all(runs: Path, excluded: str) -> float:
    """The total budget of all runs but one that have released something."""
    return sum(
        float(ledger["epsilon"]) for name, ledger in ledgers(runs).items() if name != excluded and ledger["spent"]
    )


def epsilon_spent(ledger: SiteLedger) -> float:
    """ε of what a run has released here, by the accountant."""
    events = events_of(from_plain(ledger["spent"]), int(ledger["units"]))
    return epsilon_of(events, float(ledger["noise"]), float(ledger["delta"]))


def site_budgets(folder: Path, run: str | None) -> list[BudgetOfRun]:
    """What each private run may release about this site, and what it has, by the site's own ledger."""
    return [
        {"run": name, "unit": kept["unit"], "units": kept["units"], "epsilon": kept["epsilon"], "delta": kept["delta"],
         "epsilon_spent": (spent := epsilon_spent(kept)), "epsilon_left": kept["epsilon"] - spent,
         "answers": len(kept["answered"])}
        for name, kept in ledgers(folder).items() if run is None or name == run
    ]  # fmt: skip


def budget_lines(budgets: Sequence[BudgetOfRun]) -> list[str]:
    """A line for each private run, and one for all of them."""
    found = [
        f"privacy of run {visible(b['run'])}: epsilon = {b['epsilon_spent']:.3g} of {b['epsilon']:g} spent, "
        f"{b['epsilon_left']:.3g} left (delta = {b['delta']:g}, for each {b['unit']} of {b['units']:,}; "
        f"{b['answers']:,} noisy answers)"
        for b in budgets
    ]
    if len(found) > 1:
        spent, most = sum(b["epsilon_spent"] for b in budgets), sum(b["epsilon"] for b in budgets)
        found.append(f"privacy of all runs together: epsilon = {spent:.3g} spent, at most {most:g}")
    return found


def _code() -> tuple[str, ...]:
    """Versions that affect a reply: after an update the same question may have another answer, and counts again."""
    found = []
    for name in ("fedsaddle", "torch", "numpy"):
        try:
            found.append(version(name))
        except PackageNotFoundError:
            found.append("")
    return tuple(found)
