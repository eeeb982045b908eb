"""A site's service: it answers messages with its own config, rows and memory, over any transport."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError

from fedsaddle.atomic import write_json
from fedsaddle.config.build import cast_rows
from fedsaddle.config.schema import Config, read_config
from fedsaddle.data.files.agreed_encoding import encode
from fedsaddle.data.files.column_names import MissingColumn
from fedsaddle.data.files.site_facts import LONGEST_NAME, site_counts, site_facts
from fedsaddle.data.files.site_file import HeldOutShares, SiteFile, SiteRows
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Table
from fedsaddle.deployment.agreement import build_from, difference, digests
from fedsaddle.deployment.evaluation import measure_site
from fedsaddle.deployment.logs import log_to_folder
from fedsaddle.deployment.messages import Answer, Request, error_text
from fedsaddle.deployment.payloads import (
    AgreeAsked,
    CountsAsked,
    FactsAsked,
    MeasureAsked,
    read_payload,
    require_shape,
    tell_counts,
)
from fedsaddle.deployment.project import KIT_CONFIG, KIT_SETTINGS, RUNS
from fedsaddle.deployment.site_memory import OnDisk, safe_name
from fedsaddle.deployment.site_worker import OwnRows, SiteWorker, failure_answer
from fedsaddle.errors import BadMessage, Refused
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.runs.fingerprint import shared_fingerprint
from fedsaddle.runs.folder import RunFolder
from fedsaddle.shown import visible

log = logging.getLogger("fedsaddle.site")


@dataclass(frozen=True)
class SiteSettings:
    """A site's name, the paths of its rows, and the folder of its client's memory."""

    name: str
    data: Path
    folder: Path
    test_data: Path | None = None


@dataclass
class AgreedRun:
    """A run that the site has agreed to: its worker, and the rows of each part that it has."""

    worker: SiteWorker
    rows: dict[str, Stacked]


@dataclass
class SiteService:
    """Answers the requests that the site's own config allows."""

    config: Config
    settings: SiteSettings
    _read: SiteRows | None = None
    _runs: dict[str, AgreedRun] = field(default_factory=dict)

    @classmethod
    def from_kit(cls, kit: Path, name: str) -> SiteService:
        """The service of the site with that kit, from the two files that `provision` wrote."""
        stored = json.loads((kit / KIT_SETTINGS).read_text(encoding="utf-8"))
        test = stored.get("test_data")
        settings = SiteSettings(name, Path(stored["data"]), kit / RUNS, None if test is None else Path(test))
        return cls(read_config(kit / KIT_CONFIG), settings)

    def answer(self, content: bytes) -> bytes:
        """Answer one message; a failure is reported by its kind only, because its text may contain data."""
        with log_to_folder(log, self.settings.folder):
            return self._answer(content)

    def _answer(self, content: bytes) -> bytes:
        nonce = ""
        try:
            if "do" not in about(content):  # a task; only its algorithm can decode the record
                return self._task(content)
            message = unpack(content, {})
            request = Request.read(message.about)
            nonce = request.nonce
            record = self._do(request, message.record)
            return pack(Message(Answer(nonce=nonce, version=None, samples=0, failure=None).to_dict(), record))
        except Exception as reason:
            return failure_answer(nonce, reason)

    def _do(self, request: Request, payload: Any) -> Any:
        if request.do == "facts":
            self._same_config(read_payload(FactsAsked, payload).config)
            return self._facts()
        if request.do == "counts":
            asked = read_payload(CountsAsked, payload)
            self._same_config(asked.config)
            return tell_counts(site_counts(self._rows(), [draft.encoded().to_dict() for draft in asked.drafts]))
        if request.do == "agree":
            return self._agree(request, payload)
        if request.do == "measure":
            return self._measure(request, read_payload(MeasureAsked, payload))
        raise BadMessage(f"unknown request {request.do!r:.40}")

    def _facts(self) -> dict[str, Any]:
        try:
            return site_facts(self._rows()).model_dump(mode="json")
        except ValidationError as reason:  # what the server would refuse: say so here, without the value
            log.error("the facts of this site cannot be told: %s", error_text(reason))
            remedy = f"a name or category of more than {LONGEST_NAME} characters, or a number beyond all measure"
            raise Refused(f"the facts of the file here cannot be told ({remedy}); see the site's log") from None

    def _measure(self, request: Request, asked: MeasureAsked) -> dict[str, Any]:
        run = self._agreed_run(request.run)
        if request.fingerprint != run.worker.fingerprint:
            raise Refused(f"agreed on fingerprint {run.worker.fingerprint}, but the request has {request.fingerprint}")
        problem = run.worker.algorithm.problem
        start = problem.initial()
        x, y = start if isinstance(start, tuple) else (start, None)
        require_shape(asked.w, x, "w")
        if asked.dual is not None:
            require_shape(asked.dual, y, "dual")
        return measure_site(problem, asked.w, asked.dual, run.rows.get(asked.part))

    def _same_config(self, theirs: Mapping[str, str]) -> None:
        section = difference(digests(self.config), theirs)
        if section:
            raise Refused(f"this site's [{section}] differs from the run's; use the same config at both")

    def _rows(self) -> SiteRows:
        if self._read is None:
            given = self.config.data
            file = SiteFile.of_options(given.options()) if given.name == "file" else SiteFile.encoded_already()
            shares = HeldOutShares(given.test_share, given.validation_share, self._seed, given.stratify)
            try:
                self._read = file.read(self.settings.data, shares, self.settings.test_data)
            except MissingColumn as reason:  # a name of the config, so that it may be told
                remedy = "add it, or list it in optional_columns"
                raise Refused(f"the file here has no column {reason.value!r} ({reason.key}); {remedy}") from reason
            except Exception as reason:
                log.error("the data file cannot be read: %s", reason)
                told = why_unreadable((self.settings.data, self.settings.test_data), reason)
                raise Refused(f"cannot read its data file: {told}; see the site's log") from reason
            for note in self._read.notes:
                log.info("%s", visible(note))
        return self._read

    @property
    def _seed(self) -> int:
        """Of the rows that are held out: another one at each site, so that they do not all round their shares alike."""
        named = f"{self.config.run.seed} {self.settings.name}".encode()
        return int.from_bytes(hashlib.sha256(named).digest()[:4])

    def _agree(self, request: Request, payload: Any) -> dict[str, Any]:
        self._same_config(read_payload(AgreeAsked, payload).config)
        prepared = self._prepare(request.run, payload)
        if prepared.worker.fingerprint != request.fingerprint:
            raise Refused(
                f"the algorithm here has fingerprint {prepared.worker.fingerprint}, "
                f"the run has {request.fingerprint}; use the same versions of fedsaddle and torch everywhere"
            )
        self._runs[request.run] = prepared
        path = RunFolder(self._folder(request.run)).agreed
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, payload)
        return {"rows": len(prepared.rows["train"].x)}

    def _prepare(self, run: str, payload: Any) -> AgreedRun:
        names = tuple(read_payload(AgreeAsked, payload).names)
        if self.settings.name not in names:
            raise Refused(f"this site, {self.settings.name}, is not among the sites of the run")
        client = names.index(self.settings.name)
        algorithm, data = build_from(self.config, payload["agreed"], names)
        tables = dict(
            zip(
                ("train", "validation", "test"),
                encode(self._rows(), payload["agreed"], self.settings.name),
                strict=True,
            )
        )
        parts = {part: self._stacked(table, data.train.positives) for part, table in tables.items()}
        seed = self.config.run.seed
        fingerprint = shared_fingerprint(algorithm, len(names), seed)
        memory = OnDisk(self._folder(run) / "memory")
        rows = OwnRows(parts["train"], client, len(names))
        worker = SiteWorker(algorithm, rows, client, seed, run, fingerprint, memory)
        return AgreedRun(worker, {part: own for part, own in parts.items() if len(own.x)})

    def _stacked(self, table: Table, positives: float | None) -> Stacked:
        x, y = torch.from_numpy(np.ascontiguousarray(table.x)), torch.from_numpy(np.ascontiguousarray(table.y))
        ends = np.array([0, len(x)], dtype=np.int64)
        return cast_rows(Stacked(x, y, ends, allow_empty=True, positives=positives), self.config.run.dtype)

    def _agreed_run(self, run: str) -> AgreedRun:
        """The agreed run; a restarted process reads it from its disk."""
        if run not in self._runs:
            path = RunFolder(self._folder(run)).agreed
            if not path.is_file():
                raise BadMessage(f"this site has not agreed to run {run!r:.60}")
            self._runs[run] = self._prepare(run, json.loads(path.read_text(encoding="utf-8")))
        return self._runs[run]

    def _task(self, content: bytes) -> bytes:
        run = about(content).get("run")
        if not isinstance(run, str):
            raise BadMessage("a message without 'run'")
        return self._agreed_run(safe_name(run)).worker.answer(content)

    def _folder(self, run: str) -> Path:
        return self.settings.folder / safe_name(run)


def why_unreadable(paths: Sequence[Path | None], reason: Exception) -> str:
    """Why a file cannot be read, in words that tell nothing of its name or content."""
    for path in paths:
        if path is not None and not path.exists():
            return "no such file"
        if path is not None and path.is_dir():
            return "it is a folder"
    cause = reason if isinstance(reason, OSError) else reason.__cause__
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror.lower()
    if isinstance(reason, MemoryError):
        return "it does not fit into memory"
    return "it is not a table as the config describes it"
