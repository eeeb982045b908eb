"""A site's service: it answers messages according to its own config, policy, rows and memory, over any transport."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor

from fedsaddle.array_types import Bools
from fedsaddle.config.build import cast_rows, check_keys
from fedsaddle.config.schema import Config, read_config
from fedsaddle.data.store import Stacked
from fedsaddle.data.table import Table
from fedsaddle.data.tables.agreed_encoding import LONGEST_NAME, UnknownLabel, encode, site_counts, site_facts
from fedsaddle.data.tables.site_file import Part, SiteRows
from fedsaddle.deployment.agreed_groups import agreed_groups
from fedsaddle.deployment.agreement import VERSIONS, build_from, difference, digests
from fedsaddle.deployment.audit import AuditLog, Occasion, log_to_folder, traceback_lines
from fedsaddle.deployment.ledger import SiteBudget, epsilon_in_all
from fedsaddle.deployment.messages import (
    AgreeAsked,
    Answer,
    CountsAsked,
    FactsAsked,
    KeysAsked,
    MeasureAsked,
    Request,
    SpreadAsked,
    UnmaskAsked,
    error_text,
    read_payload,
    require_shape,
    tell_counts,
)
from fedsaddle.deployment.project import KIT_CONFIG, KIT_SETTINGS, RUNS, only_for_owner
from fedsaddle.deployment.questions import Measurement, Questions, digest, runs_of_month
from fedsaddle.deployment.secure_site import SITE_KEYS, SiteIdentity, SiteSecure, read_identity, site_secure, tell_key
from fedsaddle.deployment.site_measures import Cuts, measure_site, scores_of, spread_question
from fedsaddle.deployment.site_plan import Plan, plan_of
from fedsaddle.deployment.site_policy import SitePolicy, read_policy
from fedsaddle.deployment.site_rows import SiteSettings, label_disclosure, read_rows
from fedsaddle.deployment.site_worker import OnDisk, OwnRows, SiteWorker, failed, safe_name
from fedsaddle.engines.device import find_device, fits
from fedsaddle.errors import BadInput, BadMessage, Refused
from fedsaddle.federation.records import Record
from fedsaddle.federation.wire import Message, about, pack, unpack
from fedsaddle.files import is_disk_failure, write_json
from fedsaddle.metrics.score_sums import SquareSums
from fedsaddle.own_code import only_modules
from fedsaddle.privacy.private import Private
from fedsaddle.privacy.problems import check_model
from fedsaddle.privacy.site import digest_of
from fedsaddle.runs.checkpoints import shared_fingerprint
from fedsaddle.runs.folder import RunFolder
from fedsaddle.text import visible

__all__ = ["AgreedRun", "SiteService", "SiteSettings"]
log = logging.getLogger("fedsaddle.site")


@dataclass
class AgreedRun:
    """A run that the site has agreed to: its worker, and its rows of each part.

    Args:
        worker: runs the tasks.
        rows: of each part.
        questions: what was answered.
        plan: what may be asked.
    """

    worker: SiteWorker
    rows: dict[str, Stacked]
    questions: Questions
    plan: Plan
    _there: dict[str, Stacked] = field(default_factory=dict)  # part -> its rows on the worker's device

    def part(self, name: str) -> Stacked | None:
        """The rows of a part, on the site's device if they fit there; they are sent once."""
        own, device = self.rows.get(name), self.worker.device
        if own is not None and device.type != "cpu" and name not in self._there and fits(own, device):
            self._there[name] = replace(own, x=own.x.to(device), y=own.y.to(device))
        return self._there.get(name, own)


@dataclass
class SiteService:
    """Answers the requests that the site's own config and policy allow, and logs what leaves.

    Args:
        config: of the site.
        settings: its name, files and folder.
        policy: what it allows.
        identity: its keys for secure aggregation.
        unusable: why the site answers nothing: its config or its policy is invalid.
    """

    config: Config
    settings: SiteSettings
    policy: SitePolicy = field(default_factory=SitePolicy)
    identity: SiteIdentity | None = None
    unusable: str = ""
    _read: SiteRows | None = None
    _runs: dict[str, AgreedRun] = field(default_factory=dict)
    _asked: dict[str, Questions] = field(default_factory=dict)

    @classmethod
    def from_kit(cls, kit: Path, name: str) -> SiteService:
        """The service of the site with that kit: from the two files that `provision` wrote, and its own policy."""
        settings, policy, identity, unusable = read_kit(kit, name)
        return cls(read_config(kit / KIT_CONFIG), settings, policy, identity, unusable)

    @property
    def audit(self) -> AuditLog:
        """The log of everything that left."""
        return AuditLog(self.settings.folder)

    def answer(self, content: bytes) -> bytes:
        """Answer one message; a failure is reported by its kind only, because its text may contain data."""
        with only_for_owner(), log_to_folder(log, self.settings.folder), only_modules(self.policy.modules):
            return self._answer(content)

    @staticmethod
    def unusable_kit(reason: Exception) -> bytes:
        """The answer of a site whose kit cannot be read at all."""
        log.error("the kit of this site is invalid: %s", traceback_lines(reason))
        if not is_disk_failure(reason):
            reason = Refused("this site's kit is invalid; see the site's log, and provision it again")
        return pack(Message(Answer.failed("", reason).to_dict()))

    def _answer(self, content: bytes) -> bytes:
        nonce, occasion = "", Occasion("", "")
        try:
            if self.unusable:
                log.error("%s", self.unusable)
                what = "keys" if self.unusable.startswith(SITE_KEYS) else "site-policy.toml"
                raise Refused(f"this site's {what} cannot be used; see the site's log")
            if "do" not in about(content):  # a task; only its algorithm can decode the record
                return self._task(content)
            message = unpack(content, {})
            request = Request.read(message.about)
            nonce, occasion = request.nonce, Occasion(request.run, request.do, _round_of(request, message.record))
            record = self._do(request, message.record, content)
            self.audit.add(occasion, record)
            return pack(Message(Answer(nonce=nonce, version=None, samples=0, failure=None).to_dict(), record))
        except Exception as reason:
            return pack(failed(nonce, reason, self.audit, occasion))

    def _do(self, request: Request, payload: object, content: bytes) -> Any:
        if request.do == "facts":
            asked = read_payload(FactsAsked, payload)
            self._allow(asked.config, len(asked.names), request.run)
            self._once(request, payload)
            return self._facts(f"{request.run} {' '.join(asked.names)}")
        if request.do == "counts":
            counts = read_payload(CountsAsked, payload)
            self.policy.check_modules(self.config)
            self._same_config(counts.config)
            self._known(request.run)
            self._once(request, payload)
            least = self.policy.cell(self.config)
            return tell_counts(site_counts(self._rows(), [draft.encoded().to_dict() for draft in counts.drafts], least))
        if request.do == "keys":
            keys = read_payload(KeysAsked, payload)
            self._allow(keys.config, len(keys.names), request.run)
            self._once(request, payload)
            return tell_key(self.identity, self._folder(request.run), request.run, keys.names)
        if request.do == "agree":
            return self._agree(request, payload)
        if request.do == "unmask":
            return self._unmask(request, read_payload(UnmaskAsked, payload))
        if request.do == "measure":
            return self._measure(request, read_payload(MeasureAsked, payload), content)
        if request.do == "spread":
            return self._spread(request, read_payload(SpreadAsked, payload), content)
        raise BadMessage(f"unknown request {request.do!r:.40}")

    def _allow(self, theirs: Mapping[str, str], sites: int, run: str) -> None:
        """Refuse a run that the config or the policy do not allow, before a row is read."""
        self.policy.check_modules(self.config)  # before anything is imported
        self._same_config(theirs)
        try:
            check_keys(self.config)
        except BadInput as reason:  # of the config, which all sites share
            raise Refused(f"this site's config has {reason}"[:400]) from None
        self.policy.check(self.config, sites)
        self.policy.check_privacy(self.config.privacy, lambda: epsilon_in_all(self.settings.folder, safe_name(run)))
        self._known(run)

    def _known(self, run: str) -> None:
        """Refuse one run too many."""
        if self._questions(run).new and (runs := runs_of_month(self.settings.folder)) >= self.policy.most_runs:
            raise self.policy.broken("most_runs", self.policy.most_runs, f"it took part in {runs} runs in 31 days")

    def _once(self, request: Request, payload: object) -> None:
        """Note a request that a run makes once; refuse another one."""
        self._questions(request.run).request(
            request.do,
            digest_of(request.fingerprint, payload).hex(),
            digest_of(self.config.model_dump(mode="json")).hex(),
        )

    def _questions(self, run: str) -> Questions:
        """What the site was asked in a run."""
        if run not in self._asked:
            self._asked[run] = Questions(self._folder(run))
        return self._asked[run]

    def _facts(self, key: str) -> dict[str, Any]:
        rows = self._rows()
        try:
            told = site_facts(
                rows, label_disclosure(self.config, self.policy.cell(self.config)), self.policy.minimum_sites, key
            )
            return told.model_dump(mode="json")
        except ValidationError as reason:  # what the server would refuse: say so here, without the value
            log.error("the statistics of this site are invalid: %s", error_text(reason))
            remedy = f"a name or category of more than {LONGEST_NAME} characters, or a number beyond ±1e39"
            raise Refused(f"the statistics of the file here are invalid ({remedy}); see the site's log") from None

    def _measure(self, request: Request, asked: MeasureAsked, content: bytes) -> dict[str, Any]:
        run, own, cuts = self._measured_rows(request, asked)
        least, problem = self.policy.cell(self.config), run.worker.algorithm.problem
        at = Cuts(cuts, asked.cuts)
        every = self._groups(asked.part) if asked.secure is not None and own is not None else []
        if any(k >= len(every) for k in asked.groups):
            raise BadMessage(f"groups {asked.groups} of {len(every)}")
        groups = [every[k] for k in asked.groups]
        found = measure_site(problem, asked.w, asked.dual, own, least, at, asked.secure is not None, groups)
        if own is not None and every:
            positive = own.y.cpu().numpy() > 0
            found.reply["present"] = [[bool((one & side).any()) for side in (positive, ~positive)] for one in every]
        if asked.secure is None or found.counts is None:
            return found.reply
        counts = found.counts.of_groups() if asked.groups else found.counts  # all rows are in another sum
        return found.reply | {"sums": self._masked(request, asked, content, run, counts)}

    def _spread(self, request: Request, asked: SpreadAsked, content: bytes) -> dict[str, Any]:
        """Sums of squares over patients, which leave behind masks only."""
        run, own, _ = self._measured_rows(request, asked)
        scores = None if own is None else scores_of(run.worker.algorithm.problem, asked.w, own)
        if own is None or scores is None:
            raise Refused(f"this site has no scores of {asked.part} rows")
        question = spread_question(asked)
        labels, units = own.y.cpu().numpy(), own.unit_numbers(0)
        if asked.group is not None:
            groups = self._groups(asked.part)
            if asked.group >= len(groups):
                raise BadMessage(f"group {asked.group} of {len(groups)}")
            rows = groups[asked.group]
            scores, labels, units = scores[rows], labels[rows], None if units is None else units[rows]
        found = SquareSums.of(question, [scores], labels, units)
        return {"sums": self._masked(request, asked, content, run, found)}

    def _masked(self, request: Request, asked: MeasureAsked, content: bytes, run: AgreedRun, reply: Record) -> Tensor:
        """An answer about a model, masked."""
        secure = run.worker.secure
        if secure is None or asked.secure is None:
            raise Refused("this site has no masks in this run, and these sums leave behind masks only")
        group = asked.group if isinstance(asked, SpreadAsked) else bool(asked.groups)  # one sum, whichever they are
        about = (
            f"{request.do} {asked.part} {group} {digest(asked.w)} {'' if asked.dual is None else digest(asked.dual)}"
        )
        return secure.sums(request.nonce, asked.secure, content, about.encode(), reply)

    def _groups(self, part: Part) -> list[Bools]:
        """Which rows of a part are in each agreed group; only groups of test rows are counted."""
        agreed = agreed_groups(self.config) if part == "test" else []
        return self._rows().part_groups(part, agreed) if agreed else []

    def _measured_rows(self, request: Request, asked: MeasureAsked) -> tuple[AgreedRun, Stacked | None, list[int]]:
        """The rows that a model may be measured on, and at which cuts, after checking and recording that it is."""
        run = self._agreed_run(request.run)
        if request.fingerprint != run.worker.fingerprint:
            raise Refused(f"agreed on fingerprint {run.worker.fingerprint}, but the request has {request.fingerprint}")
        problem = run.worker.algorithm.problem
        start = problem.initial()
        x, y = start if isinstance(start, tuple) else (start, None)
        require_shape(asked.w, x, "w")
        if asked.dual is not None:
            require_shape(asked.dual, y, "dual")
        own = run.part(asked.part)
        if asked.part == "train" and run.worker.budget is not None:
            own = None  # figures of training rows are no part of the budget
        if own is not None:
            dual = "" if asked.dual is None else digest(asked.dual)
            model = Measurement(digest(asked.w), dual, asked.part, asked.rounds)
            most = self.policy.evaluations(self.config)
            return run, own, run.questions.measure(model, run.plan, most, asked.cuts)
        return run, None, []

    def _unmask(self, request: Request, asked: UnmaskAsked) -> dict[str, Any]:
        worker = self._agreed_run(request.run).worker
        if worker.secure is None or request.fingerprint != worker.fingerprint:
            raise Refused("this site has no masks to open in this run")
        return dict(worker.secure.open(asked))

    def _same_config(self, theirs: Mapping[str, str]) -> None:
        own = digests(self.config)
        if VERSIONS in theirs and theirs[VERSIONS] != own[VERSIONS]:
            told = f"this site has {own[VERSIONS]}, and the server has {visible(theirs[VERSIONS])}"
            raise Refused(f"{told}; install the same versions at both, then start again")
        section = difference({k: v for k, v in own.items() if k != VERSIONS}, theirs)
        if section:
            raise Refused(f"this site's [{section}] differs from the run's; use the same config at both")

    def _rows(self) -> SiteRows:
        if self._read is None:
            self._read = read_rows(self.config, self.settings, self.policy)
        return self._read

    def _agree(self, request: Request, payload: object) -> dict[str, Any]:
        asked = read_payload(AgreeAsked, payload)
        self._allow(asked.config, len(asked.names), request.run)
        prepared = self._prepare(request.run, payload)
        if prepared.worker.fingerprint != request.fingerprint:
            raise Refused(
                f"the algorithm here has fingerprint {prepared.worker.fingerprint}, "
                f"the run has {request.fingerprint}; use the same versions of fedsaddle, torch and numpy everywhere"
            )
        self._once(request, payload)
        self._runs[request.run] = prepared
        path = RunFolder(self._folder(request.run)).agreed
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, payload, 0o600)
        return {"rows": len(prepared.rows["train"].x)}

    def _prepare(self, run: str, payload: Any) -> AgreedRun:
        names = tuple(read_payload(AgreeAsked, payload).names)
        if self.settings.name not in names:
            raise Refused(f"this site, {self.settings.name}, is not among the sites of the run")
        client = names.index(self.settings.name)
        algorithm, data = build_from(self.config, payload["agreed"], names)
        try:
            made = encode(self._rows(), payload["agreed"], self.settings.name)
        except UnknownLabel as reason:
            log.error("%s", reason)
            remedy = "list all labels in `classes` of [data]"
            raise Refused(f"the file here has a label that is too rare everywhere to disclose; {remedy}") from None
        names_of_parts: tuple[Part, ...] = ("train", "validation", "test")
        tables = dict(zip(names_of_parts, made, strict=True))
        parts = {part: self._stacked(table, data.train.positives) for part, table in tables.items()}
        parts = {part: replace(own, units=self._rows().part_units(part)) for part, own in parts.items()}
        seed = self.config.run.seed
        fingerprint = shared_fingerprint(algorithm, len(names), seed)
        memory = OnDisk(self._folder(run) / "memory")
        rows = OwnRows(parts["train"], client, len(names))
        questions = self._questions(run)
        plan = plan_of(algorithm, data.train, len(names), self.policy.rounds(self.config), seed)
        worker = SiteWorker(
            algorithm,
            rows,
            client,
            seed,
            run,
            fingerprint,
            memory,
            self.audit,
            questions,
            plan,
            self._sizes(payload, client, len(parts["train"].x)),
            questions.secret() if self.policy.draws == "secret" else b"",
            find_device(self.policy.device),
            self._secure(run, names, payload),
            self._budget(run, algorithm, parts["train"], fingerprint),
        )
        return AgreedRun(worker, {part: own for part, own in parts.items() if len(own.x)}, questions, plan)

    def _sizes(self, payload: Mapping[str, object], client: int, rows: int) -> list[int]:
        """The training rows of each site, by which sums are weighted; empty where nothing is masked."""
        told = payload.get("sizes")
        sizes = [int(n) for n in told] if isinstance(told, list) else []
        if sizes and sizes[client] != rows:
            raise Refused(f"the server says that this site has {sizes[client]} training rows; it has {rows}")
        return sizes

    def _budget(self, run: str, algorithm: object, train: Stacked, fingerprint: str) -> SiteBudget | None:
        """The ledger of a private run; None if the run is not."""
        if not isinstance(algorithm, Private):
            return None
        units = len(train.x)
        if algorithm.privacy.unit == "patient":
            if train.units is None:
                raise Refused("privacy.unit = 'patient' needs the column of the patient: name it with `together`")
            units = len(train.unit_rows(0))
        check_model(algorithm.problem, train.x[:2], train.y[:2])
        digest, most = digest_of(train.x, train.y, train.units), self.policy.epsilon_in_all
        return SiteBudget(self._folder(run), algorithm, units, digest, fingerprint, most)

    def _secure(self, run: str, names: tuple[str, ...], payload: object) -> SiteSecure | None:
        """The site's side of secure aggregation; None if its config asks for none."""
        if not self.config.privacy.secure_aggregation:
            return None
        keys = read_payload(AgreeAsked, payload).keys
        return site_secure(self.identity, self._folder(run), run, names, keys, self.policy.minimum_sites)

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


def _round_of(request: Request, payload: object) -> int | None:
    """The last round before a model is measured; None for all other requests."""
    rounds = payload.get("rounds") if request.do in ("measure", "spread") and isinstance(payload, dict) else None
    return rounds - 1 if type(rounds) is int else None


def read_kit(kit: Path, name: str) -> tuple[SiteSettings, SitePolicy, SiteIdentity | None, str]:
    """The data paths, the policy and the keys in a site's kit, and why the last two cannot be used."""
    stored = json.loads((kit / KIT_SETTINGS).read_text(encoding="utf-8"))
    test = stored.get("test_data")
    settings = SiteSettings(name, Path(stored["data"]), kit / RUNS, None if test is None else Path(test))
    try:
        return settings, read_policy(kit), read_identity(kit, name), ""
    except BadInput as reason:
        return settings, SitePolicy(), None, str(reason)
