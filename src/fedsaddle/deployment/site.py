"""A site: its own config, its own rows, its own disk. A message in, a message out, whatever engine carries them."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fedsaddle.atomic import write_json
from fedsaddle.config.build import cast_rows
from fedsaddle.config.schema import Config
from fedsaddle.data.files.shared_encoding import encode, facts
from fedsaddle.data.files.site_file import RawRows, read_site
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Table
from fedsaddle.deployment.config_digests import difference, digests
from fedsaddle.deployment.logs import logged
from fedsaddle.deployment.messages import Answer, Errand, failure_of
from fedsaddle.deployment.own_rows import OwnRows
from fedsaddle.deployment.placeholder_data import build_from
from fedsaddle.deployment.site_measures import measured
from fedsaddle.deployment.site_memory import OnDisk, safe_name
from fedsaddle.deployment.site_worker import Answering
from fedsaddle.errors import BadMessage, FedSaddleError, Refused
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.runs.fingerprint import shared_fingerprint

log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class Place:
    """Where a site has its things: its name, its rows, and a folder for what its client remembers."""

    name: str
    data: Path
    folder: Path
    test_data: Path | None = None


@dataclass
class Ready:
    """A run that the site has agreed to."""

    answering: Answering
    train: Stacked
    test: Stacked | None


@dataclass
class SiteSide:
    """Answers what its own config allows, and nothing else."""

    config: Config
    place: Place
    _raw: RawRows | None = None
    _ready: dict[str, Ready] = field(default_factory=dict)

    def answer(self, content: bytes) -> bytes:
        """Answer one message; a failure is told by its kind alone, for its text may speak of data."""
        with logged(log, self.place.folder):
            return self._answer(content)

    def _answer(self, content: bytes) -> bytes:
        nonce = ""
        try:
            message = _errand(content)
            if message is None:
                return self._task(content)
            errand = Errand.read(message.about)
            nonce = errand.nonce
            record = self._do(errand, message.record)
            return pack(Message(Answer(nonce=nonce, version=None).to_dict(), record))
        except FedSaddleError as reason:
            log.error("could not answer: %s", reason)
            failure = failure_of(reason)
        except Exception as reason:
            log.exception("could not answer")
            failure = failure_of(reason)
        return pack(Message(Answer(nonce=nonce, version=None, failure=failure).to_dict()))

    def _do(self, errand: Errand, payload: dict[str, Any]) -> Any:
        if errand.do == "facts":
            self._same_config(payload["config"])
            return facts(self._rows(), self._standardise)
        if errand.do == "agree":
            return self._agree(errand, payload)
        if errand.do == "measure":
            ready = self._ready_for(errand.run)
            if errand.fingerprint != ready.answering.fingerprint:
                raise Refused(f"agreed on {ready.answering.fingerprint}, asked to measure {errand.fingerprint}")
            own = ready.train if payload["part"] == "train" else ready.test
            return measured(ready.answering.algorithm.problem, payload["w"], payload["dual"], own)
        raise BadMessage(f"unknown errand {errand.do!r:.40}")

    def _same_config(self, theirs: dict[str, str]) -> None:
        section = difference(digests(self.config), theirs)
        if section:
            raise Refused(f"this site's [{section}] differs from the run's; put the same config at both")

    def _rows(self) -> RawRows:
        if self._raw is None:
            of_file = self.config.data.name == "file"
            keys = ("target", "client", "features", "delimiter", "together")
            options = {k: v for k, v in self.config.data.options().items() if k in keys} if of_file else {}
            self._raw = read_site(
                self.place.data,
                test_path=self.place.test_data,
                test_share=self.config.data.test_share,
                seed=self.config.run.seed,
                stratify=self.config.data.stratify,
                **options,
            )
        return self._raw

    @property
    def _standardise(self) -> bool:
        """Rows of a named data set were encoded before they were dealt out to sites."""
        return self.config.data.name == "file" and bool(self.config.data.options().get("standardise", True))

    def _agree(self, errand: Errand, payload: dict[str, Any]) -> dict[str, Any]:
        self._same_config(payload["config"])
        ready = self._prepare(errand.run, payload)
        if ready.answering.fingerprint != errand.fingerprint:
            raise Refused(
                f"built an algorithm with fingerprint {ready.answering.fingerprint}, the run has {errand.fingerprint}; "
                "use the same versions of fedsaddle and torch everywhere"
            )
        self._ready[errand.run] = ready
        path = self._folder(errand.run) / "agreed.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, payload)
        return {"rows": len(ready.train.x)}

    def _prepare(self, run: str, payload: dict[str, Any]) -> Ready:
        names = tuple(payload["names"])
        client = names.index(self.place.name)
        algorithm, data = build_from(self.config, payload["agreed"], names)
        train, test = (self._stacked(t, data.train.positives) for t in encode(self._rows(), payload["agreed"]))
        seed = self.config.run.seed
        agreed = shared_fingerprint(algorithm, len(names), seed)
        memory = OnDisk(self._folder(run) / "memory")
        rows = OwnRows(train, client, len(names))
        answering = Answering(algorithm, rows, client, seed, run, agreed, memory)
        return Ready(answering, train, test if len(test.x) else None)

    def _stacked(self, table: Table, positives: float | None) -> Stacked:
        x, y = torch.from_numpy(np.ascontiguousarray(table.x)), torch.from_numpy(np.ascontiguousarray(table.y))
        ends = np.array([0, len(x)], dtype=np.int64)
        return cast_rows(Stacked(x, y, ends, allow_empty=True, positives=positives), self.config.run.dtype)

    def _ready_for(self, run: str) -> Ready:
        """The run as agreed; a process that was started anew finds it on its disk."""
        if run not in self._ready:
            path = self._folder(run) / "agreed.json"
            if not path.is_file():
                raise BadMessage(f"has not agreed to run {run!r:.60}")
            self._ready[run] = self._prepare(run, json.loads(path.read_text()))
        return self._ready[run]

    def _task(self, content: bytes) -> bytes:
        run = about(content).get("run")
        if not isinstance(run, str):
            raise BadMessage("a message without a run")
        return self._ready_for(run).answering.answer(content)

    def _folder(self, run: str) -> Path:
        return self.place.folder / safe_name(run)


def _errand(content: bytes) -> Message | None:
    """The message if it is an errand; a task's records are for its algorithm to read."""
    return unpack(content, {}) if "do" in about(content) else None
