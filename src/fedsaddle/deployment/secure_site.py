"""A site's side of secure aggregation: its keys and notes on the disk, its masked replies, and what it opens."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsaddle.atomic import write_atomically
from fedsaddle.deployment.messages import Ask
from fedsaddle.deployment.payloads import KeyTold, UnmaskAsked
from fedsaddle.deployment.secure_notes import DiskBook
from fedsaddle.deployment.site_keys import Identity
from fedsaddle.errors import BadMessage, Refused
from fedsaddle.federation.wire import name_of
from fedsaddle.secure.fixed_point import LEAST_SITES, Layout, encode, layout_of, shown_fields, to_bytes
from fedsaddle.secure.keys import RunKeys, require_cryptography, roster_of, sign, verify
from fedsaddle.secure.masking import Opening, Question, SiteMasks
from fedsaddle.secure.masks import SEED, derive

KEY, NOTES = "secure.key", "secure.jsonl"


def run_keys(folder: Path, new: bool = False) -> RunKeys:
    """The site's keys in the run of that folder; with `new` they are made if there are none."""
    path = folder / KEY
    if path.exists():
        content = path.read_bytes()
    elif new:
        made = RunKeys.new()
        content = made.private + made.own
        folder.mkdir(parents=True, exist_ok=True)
        DiskBook.new(folder / NOTES)  # no key without its notes
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
    identity: Identity | None,
    folder: Path,
    run: str,
    names: Sequence[str],
    keys: Mapping[str, KeyTold] | None,
    least: int = LEAST_SITES,
) -> SiteSecure:
    """The site's side in a run, once the keys of all sites are found to be signed by them.

    `least` is the number of sites that its policy asks for in a sum; three are needed in any case.
    """
    identity = require_identity(identity)
    own = run_keys(folder)
    publics = [_public_of(identity, run, name, names, keys or {}) for name in names]
    if len(set(publics)) != len(publics):
        raise Refused("two sites have the same key in the run; each has to make its own")
    me = list(names).index(identity.name)
    if publics[me] != own.public:
        raise Refused("the key of this site in the run is not its own; somebody may have put another in its place")
    roster, book = roster_of(run, names, publics), DiskBook(folder / NOTES)
    return SiteSecure(SiteMasks(me, own, dict(enumerate(publics)), roster, book, max(least, LEAST_SITES)))


def _public_of(identity: Identity, run: str, name: str, names: Sequence[str], keys: Mapping[str, KeyTold]) -> bytes:
    """The key of a site in a run; refuse one that the site has not signed."""
    told, known = keys.get(name), identity.known.get(name)
    if told is None or known is None:
        lacking = "key in the run" if told is None else "signing key in this site's local/site-keys.json"
        raise Refused(f"{name} has no {lacking}; secure aggregation needs those of all sites")
    public = bytes.fromhex(told.public)
    if not verify(known, bytes.fromhex(told.signature), run, name, names, public):
        raise Refused(f"the key of {name} is not signed by {name}; somebody may have put another in its place")
    return public


@dataclass
class SiteSecure:
    """Masks replies of one site in one run, and opens masks."""

    masks: SiteMasks

    def question(self, ask: Ask, content: bytes) -> Question:
        """What the message with this content asks of whom; refuse a cohort whose sum would tell of one site."""
        assert ask.secure is not None  # the worker has refused
        cohort = tuple(int(i) for i in ask.secure.shares)
        digest, shares = hashlib.sha256(content).digest(), tuple(ask.secure.shares.values())
        question = Question(digest, cohort, shares, (ask.round, ask.exchange))
        self.masks.require(question)
        return question

    def hidden(self, ask: Ask, content: bytes, reply: Any) -> Any:
        """The reply as it is sent: averaged fields masked; a reply without such fields as it is."""
        layout = layout_of(reply)
        if not layout:
            return reply
        question = self.question(ask, content)
        words = encode(reply, *question.shares_of([self.masks.me]))
        self.masks.hide_(words, question)
        self.masks.note(ask.nonce, question, self._digest(reply, layout))
        told = [one.told() for one in layout]
        masked, shown = to_bytes(words, layout), dict(shown_fields(reply))
        return {"kind": name_of(type(reply)), "fields": told, "masked": masked, "shown": shown}

    def _digest(self, reply: Any, layout: Layout) -> str:
        """A digest of what is hidden, with a key: it tells nothing of the numbers."""
        found = hashlib.sha256(repr(layout).encode())
        for one in layout:
            found.update(getattr(reply, one.name).detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return derive(self.masks.keys.own, "reply", found.digest()).hex()

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
