"""A site's ledgers in the folder of a run: its privacy budget and secret, and the models that it has evaluated."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from torch import Tensor

from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.site_policy import over_all
from fedsaddle.errors import BadCheckpoint, Refused
from fedsaddle.federation.tasks import Releases
from fedsaddle.files import read_object, write_atomically, write_json
from fedsaddle.privacy.accountant import epsilon_of, events_of, from_plain, to_plain, within
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.site import SecretKeys, digest_of
from fedsaddle.runs.folder import only_writer
from fedsaddle.text import visible

LEDGER, SECRET = "privacy.json", "privacy-secret"
OWNER = 0o600  # nobody else reads the secret
WAIT = 60.0  # seconds for another process of this site that writes to the ledger


@dataclass
class SiteBudget:
    """The privacy budget of one site in one run, and what it has released."""

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
                self.private.known[self.units] = float(stored["noise"])  # computing it takes seconds in every process
            path = self.folder / SECRET
            if stored is not None and any(stored.get(key) != value for key, value in self._agreed().items()):
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

    def _read(self) -> dict[str, Any] | None:
        """Read the ledger on the disk, which is authoritative."""
        stored = read_ledger(self.folder)
        self.spent = Counter() if stored is None else from_plain(stored["spent"])
        self.answered = [] if stored is None else list(stored["answered"])
        return stored

    def _agreed(self) -> dict[str, Any]:
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


def epsilon_in_all(runs: Path, excluded: str) -> float:
    """The total budget of all runs but one that have released something."""
    return sum(
        float(ledger["epsilon"]) for name, ledger in ledgers(runs).items() if name != excluded and ledger["spent"]
    )


def epsilon_spent(ledger: dict[str, Any]) -> float:
    """ε of what a run has released here, by the accountant."""
    events = events_of(from_plain(ledger["spent"]), int(ledger["units"]))
    return epsilon_of(events, float(ledger["noise"]), float(ledger["delta"]))


def site_budgets(folder: Path, run: str | None) -> list[dict[str, Any]]:
    """What each private run may release about this site, and what it has, by the site's own ledger."""
    return [
        {"run": name, "unit": kept["unit"], "units": kept["units"], "epsilon": kept["epsilon"], "delta": kept["delta"],
         "epsilon_spent": (spent := epsilon_spent(kept)), "epsilon_left": kept["epsilon"] - spent,
         "answers": len(kept["answered"])}
        for name, kept in ledgers(folder).items() if run is None or name == run
    ]  # fmt: skip


def budget_lines(budgets: Sequence[dict[str, Any]]) -> list[str]:
    """A line for each private run, and one for all of them."""
    found = [
        f"privacy of run {visible(b['run'])}: epsilon = {b['epsilon_spent']:.3g} of {b['epsilon']:g} spent, "
        f"{b['epsilon_left']:.3g} left (delta = {b['delta']:g}, for each {b['unit']} of {b['units']:,}; "
        f"{b['answers']:,} noisy answers)"
        for b in budgets
    ]
    if len(found) > 1:
        spent, most = (sum(b[key] for b in budgets) for key in ("epsilon_spent", "epsilon"))
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


FILE = "measured.json"


@dataclass
class MeasuredModels:
    """The models that were evaluated in one run, in the site's folder of that run."""

    folder: Path
    most: int
    checked: bool  # whether evaluated models must be those that tasks carry
    measured: list[str] = field(default_factory=list)  # digests of models and parts
    waiting: dict[str, list[str]] = field(default_factory=dict)  # rounds -> digests of models, until a task shows them
    broken: str = ""  # why the site answers no more messages of this run

    @classmethod
    def read(cls, folder: Path, most: int, checked: bool) -> MeasuredModels:
        """The stored state of a run; empty for a new one."""
        path = folder / FILE
        return cls(folder, most, checked, **(read_object(path) if path.exists() else {}))

    def measure(self, w: Tensor, dual: Tensor | None, part: str, rounds: int, cuts: Sequence[int] = ()) -> list[int]:
        """Record an evaluation before it happens; refuse one too many. Repeating an evaluation is free.

        Return the cuts to count at: tables at two sets of them could be subtracted, so those asked for first.
        """
        self.check()
        model, at = digest(w), ",".join(map(str, cuts))
        key = f"{model}-{'' if dual is None else digest(dual)}-{part}@"
        before = next((one.removeprefix(key) for one in self.measured if one.startswith(key)), None)
        if before is not None:
            return [int(cut) for cut in filter(None, before.split(","))]
        key += at
        if len(self.measured) >= self.most:
            raise Refused(f"this site's policy says most_evaluations = {self.most}; so many models were measured")
        self.measured.append(key)
        if self.checked:
            found = self.waiting.setdefault(str(rounds), [])
            found += [] if model in found else [model]
        self._write()
        return list(cuts)

    def task(self, round: int, sent: Iterable[Tensor]) -> None:
        """The first task after `round` rounds: it must carry the model that was measured after that round."""
        self.check()
        wanted = set(self.waiting.get(str(round), ()))
        if self.waiting:
            self.waiting.clear()  # earlier ones had no task; later ones are of a server that restarted
            if not wanted <= {digest(one) for one in sent}:
                self.broken = f"a model measured after round {round} is not the one that its next task carries"
            self._write()
        self.check()

    def check(self) -> None:
        """Refuse every message of a run that evaluated a model other than its own."""
        if self.broken:
            raise Refused(f"{self.broken}; this site answers no more in this run")

    def _write(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = asdict(self)
        write_json(self.folder / FILE, {key: stored[key] for key in ("measured", "waiting", "broken")})


def digest(value: Tensor) -> str:
    """A short digest of the type, the shape and the numbers."""
    header = json.dumps([str(value.dtype), list(value.shape)]).encode()
    return hashlib.sha256(header + value.detach().contiguous().numpy().tobytes()).hexdigest()[:24]
