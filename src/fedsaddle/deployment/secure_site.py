"""A site's side of secure aggregation: its keys and notes on the disk, its masked replies, and what it opens."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsaddle.atomic import write_atomically
from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.payloads import KeyTold, UnmaskAsked
from fedsaddle.deployment.site_keys import Identity
from fedsaddle.errors import BadMessage, CannotWrite, Refused
from fedsaddle.federation.wire import name_of
from fedsaddle.secure.fixed_point import encode, layout_of, shown_fields, to_bytes
from fedsaddle.secure.keys import RunKeys, require_cryptography, sign, verify
from fedsaddle.secure.masking import Noted, Opening, SiteMasks
from fedsaddle.secure.masks import SEED

KEY, NOTES = "secure.key", "secure.jsonl"


@dataclass
class DiskBook:
    """Notes of answered questions, one line each, only ever appended to: masks are opened once, over restarts."""

    path: Path
    _notes: dict[str, Noted] | None = field(default=None, repr=False)
    _cut: bool = False  # whether the file ends in the middle of a line

    def get(self, nonce: str) -> Noted | None:
        """The note of a question."""
        return self._read().get(nonce)

    def put(self, nonce: str, noted: Noted) -> None:
        """Note it on the disk, before anything leaves."""
        notes = self._read()
        try:
            with open(os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "ab") as out:
                start = b"\n" if self._cut else b""
                out.write(start + json.dumps({"nonce": nonce, **asdict(noted)}).encode() + b"\n")
                out.flush()
                os.fsync(out.fileno())
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None
        notes[nonce], self._cut = noted, False

    def _read(self) -> dict[str, Noted]:
        if self._notes is None:
            lines = self.path.read_bytes().split(b"\n") if self.path.exists() else []
            self._notes, self._cut = {}, bool(lines and lines[-1])
            for line in filter(None, lines):
                try:
                    told = json.loads(line)
                except ValueError:  # cut off while it was written: what it notes has not left
                    continue
                opened = None if told["opened"] is None else tuple(told["opened"])
                self._notes[told["nonce"]] = Noted(told["about"], tuple(told["cohort"]), told["reply"], opened)
        return self._notes


def run_keys(folder: Path, new: bool = False) -> RunKeys:
    """The site's keys in the run of that folder; with `new` they are made if there are none."""
    path = folder / KEY
    if path.exists():
        content = path.read_bytes()
    elif new:
        made = RunKeys.new()
        content = made.private + made.own
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, content, 0o600)
    else:
        raise Refused("this site's keys of the run are gone; begin a new run")
    if len(content) != 2 * SEED:
        raise Refused("this site's keys of the run are damaged; begin a new run")
    return RunKeys(content[:SEED], content[SEED:])


def tell_key(identity: Identity | None, folder: Path, run: str, names: Sequence[str]) -> dict[str, Any]:
    """The site's public key in a run, signed; the private one stays in its folder."""
    identity = require_identity(identity)
    if identity.name not in names:
        raise Refused(f"this site, {identity.name}, is not among the sites of the run")
    public = run_keys(folder, new=True).public
    signature = sign(identity.private, run, identity.name, names, public)
    return KeyTold(public=public.hex(), signature=signature.hex()).model_dump()


def require_identity(identity: Identity | None) -> Identity:
    """The keys by which sites know each other, or refuse."""
    require_cryptography()
    if identity is None:
        remedy = "provision again with secure_aggregation = true, and put the new local/ files into each kit"
        raise Refused(f"this site has no signing key for secure aggregation; {remedy}")
    return identity


def site_secure(
    identity: Identity | None, folder: Path, run: str, names: Sequence[str], keys: Mapping[str, KeyTold] | None
) -> SiteSecure:
    """The site's side in a run, once the keys of all sites are found to be signed by them."""
    identity = require_identity(identity)
    own, publics = run_keys(folder), {}
    for number, name in enumerate(names):
        told = (keys or {}).get(name)
        known = identity.known.get(name)
        if told is None or known is None:
            lacking = "key in the run" if told is None else "signing key in this site's local/site-keys.json"
            raise Refused(f"{name} has no {lacking}; secure aggregation needs those of all sites")
        public = bytes.fromhex(told.public)
        if not verify(known, bytes.fromhex(told.signature), run, name, names, public):
            raise Refused(f"the key of {name} is not signed by {name}; somebody may have put another in its place")
        publics[number] = public
    me = list(names).index(identity.name)
    if publics[me] != own.public:
        raise Refused("the key of this site in the run is not its own; somebody may have put another in its place")
    return SiteSecure(SiteMasks(me, own, publics, run, DiskBook(folder / NOTES)))


@dataclass
class SiteSecure:
    """Masks replies of one site in one run, and opens masks."""

    masks: SiteMasks

    def hidden(self, ask: Ask, content: bytes, reply: Any) -> Any:
        """The reply as it is sent: averaged fields masked; a reply without such fields as it is."""
        layout = layout_of(reply)
        if not layout:
            return reply
        assert ask.secure is not None  # the worker has refused
        shares = {int(i): share for i, share in ask.secure.shares.items()}
        cohort, question = list(shares), hashlib.sha256(content).digest()
        if self.masks.me not in shares:
            raise Refused("this site is not among those that mask their replies together")
        words = encode(reply, shares[self.masks.me])
        self.masks.hide_(words, question, cohort, list(shares.values()))
        masked, shown = to_bytes(words, layout), dict(shown_fields(reply))
        digest = hashlib.sha256(masked.numpy().tobytes())
        self.masks.note(ask.nonce, question, cohort, digest.hexdigest())
        told = [one.told() for one in layout]
        return {"kind": name_of(type(reply)), "fields": told, "masked": masked, "shown": shown}

    def open(self, asked: UnmaskAsked) -> dict[str, Tensor]:
        """What the site opens of its masks, as it is sent."""
        opening = self.masks.open(asked.of, asked.alive)
        empty = torch.zeros(0, SEED, dtype=torch.uint8)
        lost = [_to_tensor(opening.lost[j]) for j in sorted(opening.lost)]
        agreed = [_to_tensor(opening.agreed[j]) for j in sorted(opening.agreed)]
        return {
            "own": _to_tensor(opening.own),
            "lost": torch.stack(lost) if lost else empty,
            "agreed": torch.stack(agreed) if agreed else empty,
        }


def read_opening(given: Any, client: int, alive: Sequence[int], lost: Sequence[int]) -> Opening:
    """What `SiteSecure.open` sent, for this set of sites."""
    others = [j for j in sorted(alive) if j != client]
    shapes = {"own": (SEED,), "lost": (len(lost), SEED), "agreed": (len(others), SEED)}
    if not isinstance(given, dict) or given.keys() != shapes.keys():
        raise BadMessage("an opening of masks with other parts than it should have")
    for name, shape in shapes.items():
        value = given[name]
        if not isinstance(value, Tensor) or value.dtype != torch.uint8 or tuple(value.shape) != shape:
            raise BadMessage(f"an opening of masks whose {name!r} is of another form")
    rows = {name: given[name].reshape(-1, SEED).numpy() for name in shapes}
    return Opening(
        own=rows["own"].tobytes(),
        lost={j: row.tobytes() for j, row in zip(sorted(lost), rows["lost"], strict=True)},
        agreed={j: row.tobytes() for j, row in zip(others, rows["agreed"], strict=True)},
    )


def _to_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
