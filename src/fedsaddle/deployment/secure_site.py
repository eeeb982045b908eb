"""A site's side of secure aggregation: its keys and notes on the disk, its masked replies, and what it opens."""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fedsaddle.deployment.messages import Ask, KeyTold, SecureCohort, UnmaskAsked
from fedsaddle.errors import BadInput, BadMessage, CannotWrite, Refused
from fedsaddle.federation.records import Record, is_record
from fedsaddle.federation.wire import name_of
from fedsaddle.files import read_object, write_atomically, write_json
from fedsaddle.runs.folder import lock_file
from fedsaddle.secure.fixed_point import LEAST_SITES, Layout, encode, layout_of, shown_fields, to_bytes
from fedsaddle.secure.keys import (
    SEED,
    RunKeys,
    derive,
    new_signing_key,
    require_cryptography,
    roster_of,
    sign,
    signing_public,
    verify,
)
from fedsaddle.secure.masking import InMemoryAnswerLog, LoggedAnswer, Question, SiteMasks, UnmaskShare

SIGNING_KEY = "local/signing.key"  # in a site's kit: its private key,
SUMS = -1  # in place of the round, in questions other than tasks
SITE_KEYS = "local/site-keys.json"  # and the public keys of all sites


@dataclass(frozen=True)
class SiteIdentity:
    """A site's signing key, and the public keys of all sites by name.

    Args:
        name: of the site.
        private: its signing key.
        known: public signing keys of all sites.
    """

    name: str
    private: bytes
    known: Mapping[str, bytes]


def read_identity(kit: Path, name: str) -> SiteIdentity | None:
    """The keys in a site's kit; None if it has none."""
    private, known = kit / SIGNING_KEY, kit / SITE_KEYS
    if not private.is_file() or not known.is_file():
        return None
    try:
        keys = {str(site): bytes.fromhex(key) for site, key in read_object(known).items()}
    except (ValueError, TypeError):
        raise BadInput(SITE_KEYS, str(known), "is damaged; get the file again from who made the kit") from None
    return SiteIdentity(name, private.read_bytes(), keys)


def write_site_keys(kits: Mapping[str, Path], names: Sequence[str], own: Mapping[str, str] | None = None) -> None:
    """Make the missing private keys, one in each site's kit, and write all public ones into every kit.

    Args:
        kits: folder of each site's kit.
        names: the sites.
        own: public keys of sites that made theirs themselves; none is made for them.
    """
    require_cryptography()
    known = dict(own or {})
    for name in [each for each in names if each not in known]:
        path = kits[name] / SIGNING_KEY
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            write_atomically(path, new_signing_key(), 0o600)
        private = path.read_bytes()
        if len(private) != SEED:
            raise BadInput(
                SIGNING_KEY, str(path), "is damaged; remove it, provision again, and hand out all kits again"
            )
        known[name] = signing_public(private).hex()
    for name in names:
        write_json(kits[name] / SITE_KEYS, {each: known[each] for each in names})


PATIENCE = 10.0  # seconds for another process of the site that writes a note
_FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


@dataclass
class AnswerLogFile:
    """An append-only log file, one line per answer.

    A site may have several processes, or a server may cause it to: reading and writing take the lock of the file, and
    first read what others have appended.

    Args:
        path: of the file.
    """

    path: Path
    _read: InMemoryAnswerLog = field(default_factory=InMemoryAnswerLog, repr=False)
    _end: int = 0  # of what was read
    _file: int | None = None  # while it is locked
    _thread: threading.Lock = field(default_factory=threading.Lock, repr=False)

    @classmethod
    def new(cls, path: Path) -> AnswerLogFile:
        """An empty log; that of a run is created with its keys, and is needed as long as they are."""
        write_atomically(path, b"", 0o600)
        return cls(path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file, and read what was appended."""
        with self._thread:
            self._file = self._open()
            try:
                until = time.monotonic() + PATIENCE
                while not lock_file(self._file):
                    if time.monotonic() > until:
                        raise Refused("another process of this site holds its notes of opened masks")
                    time.sleep(0.01)
                self._catch_up(self._file)
                yield
            finally:
                os.close(self._file)
                self._file = None

    def _open(self) -> int:
        try:
            return os.open(self.path, _FLAGS)
        except FileNotFoundError:
            raise Refused("this site's notes of the masks that it opened are gone; begin a new run") from None
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None

    def get(self, nonce: str) -> LoggedAnswer | None:
        """The logged answer to a question; None if there is none."""
        return self._read.get(nonce)

    def opened_at(self, when: tuple[int, int]) -> LoggedAnswer | None:
        """The logged answer whose masks were revealed in that round and exchange."""
        return self._read.opened_at(when)

    def put(self, nonce: str, logged: LoggedAnswer) -> None:
        """Log an answer on the disk, before anything leaves; within `locked`."""
        assert self._file is not None
        line = json.dumps(_to_dict(nonce, logged), separators=(",", ":")).encode() + b"\n"
        try:
            written = os.write(self._file, line)
            os.fsync(self._file)
        except OSError as reason:
            raise CannotWrite(self.path, reason) from None
        if written != len(line):  # the incomplete line is ignored when it is read
            raise CannotWrite(self.path, OSError(0, "the disk is full"))
        self._end += written
        self._read.put(nonce, logged)

    def _catch_up(self, number: int) -> None:
        """Read the lines that were appended since; an incomplete last line is closed, as its answer has not left."""
        size = os.fstat(number).st_size
        if size < self._end:
            raise Refused("this site's notes of the masks that it opened were cut; begin a new run")
        os.lseek(number, self._end, os.SEEK_SET)
        content = b""
        while len(content) < size - self._end and (part := os.read(number, size - self._end - len(content))):
            content += part
        if content and not content.endswith(b"\n"):
            os.write(number, b"\n")
            content += b"\n"
        for line in filter(None, content.split(b"\n")):
            try:
                nonce, logged = _from_dict(json.loads(line))
            except (ValueError, KeyError, TypeError):
                continue
            self._read.put(nonce, logged)
        self._end += len(content)


def _to_dict(nonce: str, logged: LoggedAnswer) -> dict[str, Any]:
    asked = logged.question
    return {
        "nonce": nonce, "digest": asked.digest.hex(), "cohort": asked.cohort, "shares": asked.shares,
        "when": asked.when, "reply": logged.reply, "opened": logged.opened,
    }  # fmt: skip


def _from_dict(stored: dict[str, Any]) -> tuple[str, LoggedAnswer]:
    round, exchange = stored["when"]
    cohort, shares = tuple(stored["cohort"]), tuple(stored["shares"])
    question = Question(bytes.fromhex(stored["digest"]), cohort, shares, (round, exchange))
    opened = None if stored["opened"] is None else tuple(stored["opened"])
    return stored["nonce"], LoggedAnswer(question, stored["reply"], opened)


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
        AnswerLogFile.new(folder / NOTES)  # no key without its notes
        write_atomically(path, content, 0o600)
    else:
        raise Refused("this site's keys of the run are gone; begin a new run")
    if len(content) != 2 * SEED:
        raise Refused("this site's keys of the run are damaged; begin a new run")
    return RunKeys(content[:SEED], content[SEED:])


def tell_key(identity: SiteIdentity | None, folder: Path, run: str, names: Sequence[str]) -> dict[str, Any]:
    """The site's public key in a run, signed; the private one stays in its folder."""
    identity = require_identity(identity)
    if identity.name not in names:
        raise Refused(f"this site, {identity.name}, is not among the sites of the run")
    public = run_keys(folder, new=True).public
    signature = sign(identity.private, run, identity.name, names, public)
    return KeyTold(public=public.hex(), signature=signature.hex()).model_dump()


def require_identity(identity: SiteIdentity | None) -> SiteIdentity:
    """The keys by which sites know each other, or refuse."""
    require_cryptography()
    if identity is None:
        remedy = "provision again with secure_aggregation = true, and put the new local/ files into each kit"
        raise Refused(f"this site has no signing key for secure aggregation; {remedy}")
    return identity


def site_secure(
    identity: SiteIdentity | None,
    folder: Path,
    run: str,
    names: Sequence[str],
    keys: Mapping[str, KeyTold] | None,
    least: int = LEAST_SITES,
) -> SiteSecure:
    """The site's side of secure aggregation in a run, after checking that each site signed its key.

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
    roster, answers = roster_of(run, names, publics), AnswerLogFile(folder / NOTES)
    return SiteSecure(SiteMasks(me, own, dict(enumerate(publics)), roster, answers, max(least, LEAST_SITES)))


def _public_of(identity: SiteIdentity, run: str, name: str, names: Sequence[str], keys: Mapping[str, KeyTold]) -> bytes:
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
    """Masks the replies of one site in one run, and reveals masks.

    Args:
        masks: of this site in this run.
    """

    masks: SiteMasks

    def question(self, ask: Ask, content: bytes) -> Question:
        """The question of the message with this content; refuse a cohort whose sum would reveal one site."""
        assert ask.secure is not None  # the worker has refused
        cohort = tuple(int(i) for i in ask.secure.shares)
        digest, shares = hashlib.sha256(content).digest(), tuple(ask.secure.shares.values())
        question = Question(digest, cohort, shares, (ask.round, ask.exchange))
        self.masks.require(question)
        return question

    def hidden(self, ask: Ask, content: bytes, reply: object) -> object:
        """The reply as it is sent, with its averaged fields masked."""
        if not is_record(reply) or not (layout := layout_of(reply)):
            return reply
        masked = self.masked(ask.nonce, self.question(ask, content), reply)
        told, shown = [one.to_list() for one in layout], dict(shown_fields(reply))
        return {"kind": name_of(type(reply)), "fields": told, "masked": masked, "shown": shown}

    def masked(self, nonce: str, question: Question, reply: Record) -> Tensor:
        """The averaged fields of the reply to a question, masked."""
        self.masks.require(question)
        layout = layout_of(reply)
        words = encode(reply, *question.shares_of([self.masks.me]))
        self.masks.hide_(words, question)
        self.masks.log(nonce, question, self._digest(reply, layout))
        return to_bytes(words, layout)

    def sums(self, nonce: str, cohort: SecureCohort, content: bytes, about: bytes, reply: Record) -> Tensor:
        """The fields of an answer to a request, masked, of which the server learns the sum over the cohort.

        Args:
            nonce: Of the request.
            cohort: The sites that are asked, with equal shares.
            content: The message.
            about: What the answer depends on, besides the rows; the masks are opened for one sum of these answers.
            reply: The answer.
        """
        if len(set(cohort.shares.values())) != 1:
            raise Refused("a sum over sites of unequal shares")
        digest, when = hashlib.sha256(content).digest(), int.from_bytes(hashlib.sha256(about).digest()[:6])
        sites = tuple(int(i) for i in cohort.shares)
        return self.masked(nonce, Question(digest, sites, tuple(cohort.shares.values()), (SUMS, when)), reply)

    def _digest(self, reply: object, layout: Layout) -> str:
        """A keyed digest of the masked values, which reveals nothing of them."""
        found = hashlib.sha256(repr(layout).encode())
        for one in layout:
            found.update(getattr(reply, one.name).detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().data)
        return derive(self.masks.keys.own, "reply", found.digest()).hex()

    def open(self, asked: UnmaskAsked) -> dict[str, Tensor]:
        """The site's unmask share, as it is sent."""
        opening = self.masks.open(asked.of, asked.alive)
        empty = torch.zeros(0, SEED, dtype=torch.uint8)
        lost = [_to_tensor(opening.lost[j]) for j in sorted(opening.lost)]
        agreed = [_to_tensor(opening.agreed[j]) for j in sorted(opening.agreed)]
        return {
            "own": _to_tensor(opening.own),
            "lost": torch.stack(lost) if lost else empty,
            "agreed": torch.stack(agreed) if agreed else empty,
        }


def read_opening(given: object, client: int, alive: Sequence[int], lost: Sequence[int]) -> UnmaskShare:
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
    return UnmaskShare(
        own=rows["own"].tobytes(),
        lost={j: row.tobytes() for j, row in zip(sorted(lost), rows["lost"], strict=True)},
        agreed={j: row.tobytes() for j, row in zip(others, rows["agreed"], strict=True)},
    )


def _to_tensor(content: bytes) -> Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
