"""A site's own privacy: its secret, and the ledger of what it has released. Both lie in the folder of the run.

The server cannot reset them: a reply counts before it leaves, and a site whose budget is spent answers no more tasks.
The same task with the same input gets the same reply, bit for bit, since its draws and its noise come from the secret
and the input alone; it tells nothing new, and counts once. So a run that was interrupted can go on.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsaddle.atomic import write_atomically
from fedsaddle.deployment.messages import Ask
from fedsaddle.errors import BadCheckpoint, Refused
from fedsaddle.privacy.noise import SecretKeys
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.releases import Releases, from_plain, to_plain, within

LEDGER, SECRET = "privacy.json", "privacy-secret"
OWNER = 0o600  # nobody else reads the secret


@dataclass
class SiteBudget:
    """What one site may release in one run, and what it has."""

    folder: Path
    private: Private
    units: int  # rows, or patients, here
    rows: bytes  # digest of the training rows
    secret: bytes = b""
    spent: Releases | None = None
    answered: list[str] | None = None

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        stored = read_ledger(self.folder)
        path = self.folder / SECRET
        if stored is not None and any(stored.get(key) != value for key, value in self._agreed().items()):
            raise Refused("this site agreed to this run with another privacy, or with other rows; begin a new run")
        if not path.exists():
            if stored is not None:
                raise BadCheckpoint(f"{LEDGER} is there but its secret is not: this site cannot go on with the run")
            write_atomically(path, secrets.token_bytes(32), OWNER)
        self.secret = path.read_bytes()
        self.spent = Counter() if stored is None else from_plain(stored["spent"])
        self.answered = [] if stored is None else list(stored["answered"])
        self._write()

    def draws(self, ask: Ask, sent: Any, own: Any) -> SecretKeys:
        """The draws of a task; what it will release is counted now, before anything is computed."""
        assert self.spent is not None
        assert self.answered is not None
        released = self.private.releases(ask.task, sent)
        given = digest_of(self.rows, ask.task, ask.round, ask.exchange, sent, own)
        if given.hex() not in self.answered:
            spent = self.spent + released
            if not within(spent, self.private.plan):
                privacy = self.private.privacy
                told = f"this site's budget of epsilon = {privacy.epsilon:g} is planned for {privacy.rounds} rounds"
                raise Refused(f"{told}, and spent")
            self.spent = spent
            self.answered.append(given.hex())
            self._write()
        return SecretKeys(self.secret, given)

    def _agreed(self) -> dict[str, Any]:
        """What stays as it is in the whole run."""
        privacy = self.private.privacy
        return {
            "epsilon": privacy.epsilon,
            "delta": privacy.delta,
            "unit": privacy.unit,
            "units": self.units,
            "rows": self.rows.hex(),
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
        found["spent"], found["answered"], found["epsilon"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as reason:
        raise BadCheckpoint(
            f"{folder / LEDGER} is damaged ({type(reason).__name__}); nothing more is released"
        ) from None
    return found


def epsilon_in_all(runs: Path, but: str) -> float:
    """The sum of the budgets of all runs in a folder of runs but one: what they may spend together."""
    ledgers = (read_ledger(path.parent) for path in sorted(runs.glob(f"*/{LEDGER}")) if path.parent.name != but)
    return sum(float(ledger["epsilon"]) for ledger in ledgers if ledger is not None)


def digest_of(*given: Any) -> bytes:
    """A digest of all that a reply depends on."""
    found = hashlib.sha256()

    def add(thing: Any) -> None:
        if isinstance(thing, Tensor):
            whole = thing.detach().cpu().contiguous()
            found.update(f"tensor {whole.dtype} {tuple(whole.shape)} ".encode())
            found.update(whole.flatten().view(torch.uint8).numpy().tobytes() if whole.numel() else b"")
        elif is_dataclass(thing) and not isinstance(thing, type):
            found.update(f"record {type(thing).__name__} ".encode())
            for one in fields(thing):
                found.update(f"{one.name} ".encode())
                add(getattr(thing, one.name))
        elif isinstance(thing, Mapping):
            for key in sorted(thing):
                add(str(key))
                add(thing[key])
        else:
            text = repr(thing).encode()
            found.update(f"{len(text)} ".encode() + text)

    for thing in given:
        add(thing)
    return found.digest()
